"""The words of the generated language: names of ops, register types, and their plain meaning.

A scalar op is `add_f32`, a vector op `vadd_f32x16`. `parse` splits a name; `namespace` gives each
name that a kernel uses a function on numpy scalars and arrays, so that the file runs as plain
Python. numba is not needed here; `native/` lowers the same names.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tinyfn.codegen.ops import NAMES
from tinyfn.dtype import DType, dtypes
from tinyfn.errors import CompileError
from tinyfn.uop import opcodes
from tinyfn.uop.arithmetic import bitcast, cast, elementwise, from_storage, held_dtype, to_storage
from tinyfn.uop.opcodes import Ops

BY_SHORT: Final[dict[str, DType]] = {d.short: d for d in dtypes.all}
STORAGE_ONLY: Final = frozenset({"f16", "bf16", "fp8e4m3", "fp8e5m2"})
ALU: Final[dict[str, Ops]] = {name: op for op, name in NAMES.items()}
MEMORY: Final = frozenset(
    "load store loadm storem gather scatter strided stridedm stream local".split()
)
REGISTER: Final = frozenset("const splat iota index extract quant".split())
HORIZONTAL: Final[dict[str, Ops]] = {
    "hadd": Ops.ADD,
    "hmul": Ops.MUL,
    "hmax": Ops.MAX,
    "hmin": Ops.MIN,
}
TYPE = "|".join(sorted(BY_SHORT, key=len, reverse=True))
NAME = re.compile(
    rf"(?P<word>[a-z]+[0-9]?(?:1p|m1)?|log1p|expm1|log2|exp2)_(?:(?P<first>{TYPE})_)?"
    rf"(?P<type>{TYPE})?(?:x(?P<lanes>[0-9]+))?"
)


@dataclass(frozen=True)
class Word:
    """An op of the generated language: its name, the types it is for, and its lanes (1: scalar)."""

    op: str
    kind: str
    source: str
    lanes: int


@functools.cache
def parse(name: str) -> Word:
    """The parts of a name such as `vcast_f32_i32x16`.

    Raises:
        CompileError: the name is not one of the language.
    """
    found = NAME.fullmatch(name)
    if found is None:
        raise CompileError(f"expected an op of the generated language, got {name!r}")
    word, lanes = found["word"], int(found["lanes"] or 1)
    kind = found["type"] or "b1"
    source = found["first"] or kind
    if lanes > 1 and word.startswith("v") and _known(word[1:]):
        word = word[1:]
    if not _known(word):
        raise CompileError(f"expected an op of the generated language, got {name!r}")
    return Word(word, kind, source, lanes)


def _known(word: str) -> bool:
    return (
        word in ALU
        or word in MEMORY
        or word in REGISTER
        or word in HORIZONTAL
        or word in ("first", "hor", "hand")
    )


def register_type(short: str) -> str:
    """The register type of a value of a type: small floats are f32."""
    return "f32" if short in STORAGE_ONLY else short


def _held(short: str) -> Any:
    return held_dtype(BY_SHORT[register_type(short)])


# *** plain meaning ***


def meaning(word: Word) -> Callable[..., Any]:
    """The op as a function on numpy values."""
    if word.op in MEMORY:
        return MEMORY_MEANING[word.op](word)
    if word.op in REGISTER:
        return REGISTER_MEANING[word.op](word)
    if word.op in HORIZONTAL:
        return _horizontal(word)
    if word.op == "first":
        return lambda k: np.arange(word.lanes) < k
    if word.op == "hor":
        return lambda m: np.bool_(m.any())
    if word.op == "hand":
        return lambda m: np.bool_(m.all())
    return _alu(word)


def _places(word: Word, i: Any) -> Any:
    return i + np.arange(word.lanes) if word.lanes > 1 else i


def _read(word: Word, buffer: Any, places: Any) -> Any:
    values = from_storage(buffer[places], BY_SHORT[word.kind])
    return np.asarray(values).astype(_held(word.kind))[()]


def _write(word: Word, buffer: Any, places: Any, values: Any) -> None:
    dtype = BY_SHORT[word.kind]
    with np.errstate(all="ignore"):
        buffer[places] = to_storage(np.asarray(values).astype(held_dtype(dtype)), dtype)


def _load(word: Word) -> Callable[..., Any]:
    return lambda buffer, i: _read(word, buffer, _places(word, i))


def _store(word: Word) -> Callable[..., Any]:
    return lambda buffer, i, value: _write(word, buffer, _places(word, i), value)


def _read_where(word: Word, buffer: Any, places: Any, mask: Any) -> Any:
    if word.lanes == 1:
        return _read(word, buffer, places) if mask else _held(word.kind).type(0)
    found = np.zeros(word.lanes, _held(word.kind))
    found[mask] = _read(word, buffer, places[mask])
    return found


def _load_masked(word: Word) -> Callable[..., Any]:
    return lambda buffer, i, mask: _read_where(word, buffer, _places(word, i), mask)


def _store_masked(word: Word) -> Callable[..., Any]:
    def run(buffer: Any, i: Any, value: Any, mask: Any) -> None:
        if word.lanes > 1:
            _write(word, buffer, _places(word, i)[mask], value[mask])
        elif mask:
            _write(word, buffer, i, value)

    return run


def _gather(word: Word) -> Callable[..., Any]:
    return lambda buffer, places, mask: _read_where(word, buffer, places, mask)


def _scatter(word: Word) -> Callable[..., Any]:
    def run(buffer: Any, places: Any, value: Any, mask: Any) -> None:
        for lane in range(word.lanes):
            if mask[lane]:
                _write(word, buffer, places[lane], value[lane])

    return run


def _strided(word: Word) -> Callable[..., Any]:
    return lambda buffer, i, stride: _read(word, buffer, i + stride * np.arange(word.lanes))


def _strided_masked(word: Word) -> Callable[..., Any]:
    def run(buffer: Any, i: Any, stride: Any, mask: Any) -> Any:
        return _read_where(word, buffer, i + stride * np.arange(word.lanes), mask)

    return run


def _local(word: Word) -> Callable[..., Any]:
    dtype = BY_SHORT[word.kind]
    return lambda n: to_storage(np.zeros(n, held_dtype(dtype)), dtype)


MEMORY_MEANING: Final[dict[str, Callable[[Word], Callable[..., Any]]]] = {
    "load": _load,
    "store": _store,
    "loadm": _load_masked,
    "storem": _store_masked,
    "gather": _gather,
    "scatter": _scatter,
    "strided": _strided,
    "stridedm": _strided_masked,
    "stream": _store,
    "local": _local,
}


def _const(word: Word) -> Callable[..., Any]:
    kind = _held(word.kind)

    def make(value: Any) -> Any:
        if kind.kind in "iu":
            value = dtypes.as_const(value, BY_SHORT[word.kind])
        with np.errstate(all="ignore"):
            scalar = np.array(value, kind)
        return np.full(word.lanes, scalar) if word.lanes > 1 else scalar[()]

    return make


def _quant(word: Word) -> Callable[..., Any]:
    dtype = BY_SHORT[word.kind]

    def round_to(value: Any) -> Any:
        with np.errstate(all="ignore"):
            stored = to_storage(np.asarray(value).astype(held_dtype(dtype)), dtype)
            return np.asarray(from_storage(stored, dtype)).astype(np.float32)[()]

    return round_to


REGISTER_MEANING: Final[dict[str, Callable[[Word], Callable[..., Any]]]] = {
    "const": _const,
    "splat": lambda word: lambda scalar: np.full(word.lanes, scalar, _held(word.kind)),
    "iota": lambda word: lambda: np.arange(word.lanes).astype(_held(word.kind)),
    "index": lambda word: lambda i: np.asarray(i).astype(_held(word.kind))[()],
    "extract": lambda word: lambda vector, lane: vector[lane],
    "quant": _quant,
}


def _horizontal(word: Word) -> Callable[..., Any]:
    op, dtype = HORIZONTAL[word.op], BY_SHORT[word.kind]

    def combine(vector: Any) -> Any:
        while len(vector) > 1:
            half = len(vector) // 2
            vector = elementwise(op, dtype, vector[:half], vector[half:])
        return vector[0]

    return combine


def _alu(word: Word) -> Callable[..., Any]:
    op, dtype, source = ALU[word.op], BY_SHORT[word.kind], BY_SHORT[word.source]
    if op is Ops.CAST:
        return lambda x: np.asarray(cast(np.asarray(x), source, dtype))[()]
    if op is Ops.BITCAST:
        return lambda x: _bitcast(x, source, dtype)
    result = dtypes.bool if op in opcodes.COMPARE else dtype
    return lambda *values: elementwise(op, result, *values)[()]


def _bitcast(value: Any, source: DType, target: DType) -> Any:
    """Small floats stand in f32 registers on either side."""
    held = np.asarray(value).astype(held_dtype(source))
    found = np.asarray(bitcast(held, source, target))
    return found.astype(_held(target.short))[()]


# *** running a file as plain Python ***


def names_in(tree: ast.AST) -> list[str]:
    """The names that a kernel calls."""
    calls = [
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    return list(dict.fromkeys(calls))


def namespace(source: str) -> dict[str, Any]:
    """The globals under which the text of a kernel runs as plain Python."""
    tree = ast.parse(source)
    found: dict[str, Any] = {"INF": float("inf"), "NAN": float("nan")}
    for name in names_in(tree):
        if name not in ("range", "min", "max"):
            found[name] = meaning(parse(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
            found.setdefault(node.annotation.id, None)
    return found


def plain_function(source: str, file: str = "<kernel>") -> Callable[..., None]:
    """The kernel as a Python function on numpy arrays."""
    names = namespace(source)
    exec(compile(source, file, "exec"), names)
    (definition,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    found: Callable[..., None] = names[definition.name]
    return found
