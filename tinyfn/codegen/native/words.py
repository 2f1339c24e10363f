"""Each name of the generated language: its types, and the instructions it stands for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from tinyfn.codegen.native import arithmetic, casts, memory
from tinyfn.codegen.native.emitter import Emitter, lane_numbers, lanes_of, literal
from tinyfn.codegen.native.target import Processor
from tinyfn.codegen.native.types import I1, I32, I64, Memory, Register, is_float
from tinyfn.codegen.simd import ALU, MEMORY, TABLE, Word, parse, register_type


def _register(kind: str, lanes: int) -> Any:
    """The type of a register; a scalar i64 is what index arithmetic computes with."""
    return types.int64 if (kind, lanes) == ("i64", 1) else Register(kind, lanes)


@functools.cache
def signature(name: str) -> tuple[Any, list[Any]]:
    """Result and argument types of a word, by its name."""
    if name in INT_LOWERINGS:
        result = types.boolean if name in COMPARISONS else types.int64
        return result, [types.int64] * (1 if name == "ihold" else 2)
    return _signature(parse(name))


def _signature(word: Word) -> tuple[Any, list[Any]]:
    """What the row of the op says, for these types and lanes."""
    kind = register_type(word.kind)
    stands_for = {
        "": types.void,
        "value": _register(kind, word.lanes),
        "source": _register(register_type(word.source), word.lanes),
        "scalar": _register(kind, 1),
        "mask": _register("b1", word.lanes),
        "flag": _register("b1", 1),
        "memory": Memory(word.kind),
        "places": _register("i64", word.lanes),
        "index": types.int64,
        "count": types.int64,
        "literal": types.float64 if is_float(kind) else types.int64,
    }
    row = TABLE[word.op]
    return stands_for[row.gives], [stands_for[name] for name in row.takes]


def emit(name: str, builder: Any, args: Any, processor: Processor) -> Any:
    """The instructions of a word; None where it has no value."""
    if name in INT_LOWERINGS:
        return INT_LOWERINGS[name](builder, *args)
    word = parse(name)
    kind = register_type(word.kind)
    e = Emitter(builder, kind, word.lanes, processor)
    if word.op in MEMORY:
        return memory.LOWERINGS[word.op](e, word, *args)
    if word.op == "cast":
        return casts.cast(e, word, *args)
    if word.op == "bitcast":
        return casts.bitcast(e, word, *args)
    if word.op == "quant":
        return casts.quantize(e, word, *args)
    if word.op in ALU:
        if kind == "b1" and word.op in ("lt", "le", "max", "min"):
            return _bool_order(e, word.op, *args)
        return arithmetic.LOWERINGS[word.op](e, *args)
    return REGISTER[word.op](e, word, *args)


def _bool_order(e: Emitter, op: str, x: Any, y: Any) -> Any:
    """False comes before True."""
    if op == "max":
        return e.b.or_(x, y)
    if op == "min":
        return e.b.and_(x, y)
    not_x = e.b.not_(x)
    return e.b.and_(not_x, y) if op == "lt" else e.b.or_(not_x, y)


def _const(e: Emitter, word: Word, value: Any) -> Any:
    number = value.constant
    if is_float(e.kind):
        return e.const(float(number))
    if e.kind == "b1":
        return e.const(int(bool(number)))
    return e.const(int(number))


def _index(e: Emitter, word: Word, i: Any) -> Any:
    if is_float(e.kind):
        return e.b.sitofp(i, e.type)
    if e.kind == "b1":
        return e.b.icmp_signed("!=", i, ir.Constant(I64, 0))
    return i if e.element.width == 64 else e.b.trunc(i, e.type)


def _iota(e: Emitter, word: Word) -> Any:
    if is_float(e.kind):
        return ir.Constant(e.type, [ir.Constant(e.element, float(i)) for i in range(e.lanes)])
    return lane_numbers(e.element, e.lanes)


def _first(e: Emitter, word: Word, k: Any) -> Any:
    """Lanes below k: k is clamped to 32 bits, which compare faster."""
    low = e.b.select(e.b.icmp_signed("<", k, ir.Constant(I64, 0)), ir.Constant(I64, 0), k)
    top = ir.Constant(I64, word.lanes)
    held = e.b.trunc(e.b.select(e.b.icmp_signed("<", low, top), low, top), I32)
    return e.b.icmp_signed("<", lane_numbers(I32, word.lanes), e.splat(held))


def _halves(e: Emitter, vector: Any, combine: Callable[[Emitter, Any, Any], Any]) -> Any:
    """Combine the upper half with the lower until one lane is left."""
    lanes = e.lanes
    while lanes > 1:
        half = lanes // 2
        low, high = (lanes_of(e.b, vector, first, half) for first in (0, half))
        if half == 1:
            low, high = (e.b.extract_element(v, ir.Constant(I32, 0)) for v in (low, high))
        vector = combine(Emitter(e.b, e.kind, half, e.cpu), low, high)
        lanes = half
    return vector


def _horizontal(op: str) -> Callable[..., Any]:
    def run(e: Emitter, word: Word, vector: Any) -> Any:
        return _halves(e, vector, lambda place, x, y: arithmetic.LOWERINGS[op](place, x, y))

    return run


def _any_or_all(name: str) -> Callable[..., Any]:
    def run(e: Emitter, word: Word, mask: Any) -> Any:
        return e.call(f"llvm.vector.reduce.{name}.v{word.lanes}i1", I1, mask)

    return run


REGISTER: dict[str, Callable[..., Any]] = {
    "const": _const,
    "splat": lambda e, word, scalar: e.splat(scalar),
    "iota": _iota,
    "index": _index,
    "extract": lambda e, word, vector, lane: e.b.extract_element(
        vector, ir.Constant(I32, literal(word, lane, word.lanes - 1))
    ),
    "first": _first,
    "hor": _any_or_all("or"),
    "hand": _any_or_all("and"),
    "hadd": _horizontal("add"),
    "hmul": _horizontal("mul"),
    "hmax": _horizontal("max"),
    "hmin": _horizontal("min"),
}

# *** integer expressions: int64, typed, so that numba need not look its operators up ***


def _floor_divide(b: Any, x: Any, y: Any) -> Any:
    quotient, rest = b.sdiv(x, y), b.srem(x, y)
    negative = b.icmp_signed("<", rest, ir.Constant(I64, 0))
    return b.select(negative, b.sub(quotient, ir.Constant(I64, 1)), quotient)


def _floor_mod(b: Any, x: Any, y: Any) -> Any:
    rest = b.srem(x, y)
    return b.select(b.icmp_signed("<", rest, ir.Constant(I64, 0)), b.add(rest, y), rest)


INT_LOWERINGS: dict[str, Callable[..., Any]] = {
    "iadd": lambda b, x, y: b.add(x, y),
    "isub": lambda b, x, y: b.sub(x, y),
    "imul": lambda b, x, y: b.mul(x, y),
    "ifloordiv": _floor_divide,
    "imod": _floor_mod,
    "imin": lambda b, x, y: b.select(b.icmp_signed("<", x, y), x, y),
    "imax": lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y),
    "ihold": lambda b, x: x,
    "ilt": lambda b, x, y: b.icmp_signed("<", x, y),
    "ile": lambda b, x, y: b.icmp_signed("<=", x, y),
    "igt": lambda b, x, y: b.icmp_signed(">", x, y),
    "ige": lambda b, x, y: b.icmp_signed(">=", x, y),
    "ieq": lambda b, x, y: b.icmp_signed("==", x, y),
    "ine": lambda b, x, y: b.icmp_signed("!=", x, y),
}
COMPARISONS = ("ilt", "ile", "igt", "ige", "ieq", "ine")
