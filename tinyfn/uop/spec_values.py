"""Rules of nodes that compute values: arity, dtypes, shapes, arguments.

A rule looks at one node and says what is wrong with it, or None. Its name and its docstring are
what the error shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyfn.dtype import Invalid, dtypes
from tinyfn.helpers import prod
from tinyfn.uop import opcodes
from tinyfn.uop.info import Packed, unpack
from tinyfn.uop.opcodes import Ops, group, rows

Node = Any
Check = Callable[[Node], str | None]


@dataclass(frozen=True)
class Rule:
    """A sentence that holds of every node of some ops, and what finds the exception."""

    name: str
    sentence: str
    ops: frozenset[Ops]
    check: Check


def rule(*ops: Ops) -> Callable[[Check], Rule]:
    """Decorator: a rule about nodes of these ops (of all ops where none is given)."""

    def make(check: Check) -> Rule:
        sentence = (check.__doc__ or "").strip()
        return Rule(check.__name__, sentence, frozenset(ops or Ops), check)

    return make


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are equal, symbolic ones by identity."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal."""
    return len(a) == len(b) and all(map(same_size, a, b))


def first(complaints: Iterable[str | None]) -> str | None:
    """The first complaint, or None."""
    return next((c for c in complaints if c is not None), None)


@rule()
def arity(node: Node) -> str | None:
    """A node has as many sources as its row of opcodes says."""
    wanted = rows[node.op].arity
    return None if wanted in (-1, len(node.src)) else f"expected {wanted}, got {len(node.src)}"


PACKED: dict[Ops, Callable[[Node], tuple[Packed, int]]] = {
    **dict.fromkeys(
        (Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK), lambda n: (n.arg, len(n.src) - 1)
    ),
    Ops.FULL: lambda n: (n.arg.shape, len(n.src) - 1),
    Ops.IOTA: lambda n: (n.arg, len(n.src)),
    Ops.PARAM: lambda n: (n.arg.shape, len(n.src)),
    Ops.OUTPUT: lambda n: (n.arg.shape, len(n.src)),
}


@rule(*PACKED)
def packed_sizes(node: Node) -> str | None:
    """Every None in packed sizes has its node of dtype weakint in the sources; ints need none."""
    packed, count = PACKED[node.op](node)
    wanted = sum(size is None for size in packed)
    if wanted != count:
        return f"expected {wanted} symbolic sizes, got {count}"
    symbols = node.src[len(node.src) - count :]
    return first(f"got a size of {s.dtype}" for s in symbols if s.dtype is not dtypes.weakint)


@rule(
    *opcodes.ELEMENTWISE,
    *opcodes.MOVEMENT,
    *group("reduce", "gather", "scan", "sort", "device"),
    *(Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.COPY),
)
def sources_are_values(node: Node) -> str | None:
    """What computes takes values, not effects or calls."""
    return first(f"got {s.op.name}" for s in node.src if s.shape is None)


@rule(Ops.CONST)
def constant_fits(node: Node) -> str | None:
    """A constant is a Python value that its dtype holds exactly, or Invalid."""
    value, dtype = node.arg, node.dtype
    if value is Invalid:
        return None
    kinds = {"bool": bool, "float": float, "int": int, "uint": int, "weakint": int}
    wanted = kinds.get(dtype.kind)
    if type(value) is not wanted:
        return f"got {value!r} of type {type(value).__name__} for {dtype}"
    held = dtypes.as_const(value, dtype)
    return None if held == value or value != value else f"{dtype} holds {held!r} for {value!r}"


@rule(*opcodes.ELEMENTWISE)
def elementwise_shapes(node: Node) -> str | None:
    """The operands of an elementwise op have the same shape, or are scalars."""
    shapes = [s.shape for s in node.src if s.shape]
    return first(
        f"got shapes {shapes[0]} and {other}"
        for other in shapes
        if not same_sizes(shapes[0], other)
    )


FLOAT_ONLY = frozenset(
    Ops[name]
    for name in (
        *("SQRT", "RECIP", "RSQRT", "EXP", "EXP2", "EXPM1", "LOG", "LOG2", "LOG1P", "SIN", "COS"),
        *("TAN", "TANH", "SIGMOID", "ERF", "DIV", "POW", "FMA"),
    )
)
BITS_ONLY = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.NOT))


@rule(*(opcodes.UNARY | opcodes.BINARY | opcodes.TERNARY))
def elementwise_dtypes(node: Node) -> str | None:
    """Operands have the node's dtype; comparisons and conditions are bool."""
    operands = node.src[1:] if node.op is Ops.WHERE else node.src
    wanted = operands[0].dtype if node.op in opcodes.COMPARE else node.dtype
    if node.op in opcodes.COMPARE and node.dtype is not dtypes.bool:
        return f"a comparison gives bool, got {node.dtype}"
    if node.op is Ops.WHERE and node.src[0].dtype is not dtypes.bool:
        return f"a condition is bool, got {node.src[0].dtype}"
    return first(f"expected {wanted}, got {s.dtype}" for s in operands if s.dtype is not wanted)


@rule(*FLOAT_ONLY, *BITS_ONLY, Ops.THREEFRY)
def op_has_dtype(node: Node) -> str | None:
    """Roots, exponentials and divisions are of floats, bit operations of integers and bool."""
    kind = node.dtype.kind
    if node.op in FLOAT_ONLY:
        return None if kind == "float" else f"{node.op.name} takes floats, got {node.dtype}"
    if node.op is Ops.THREEFRY:
        return None if node.dtype is dtypes.uint64 else f"expected uint64, got {node.dtype}"
    return f"{node.op.name} takes integers or bool, got {node.dtype}" if kind == "float" else None


@rule(Ops.CAST, Ops.BITCAST)
def cast_dtypes(node: Node) -> str | None:
    """Values are cast to values; a bitcast keeps the width."""
    before, after = node.src[0].dtype, node.dtype
    if dtypes.void in (before, after):
        return f"got {before} to {after}"
    if node.op is Ops.BITCAST and before.itemsize != after.itemsize:
        return f"got {before} of {before.itemsize} bytes to {after} of {after.itemsize} bytes"
    return None


@rule(
    *opcodes.MOVEMENT,
    *group("reduce", "gather", "device"),
    *(Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.COPY, Ops.AFTER),
)
def dtype_is_kept(node: Node) -> str | None:
    """What moves, reduces or copies values keeps their dtype."""
    before = node.src[0].dtype
    return None if before is node.dtype else f"got {before} to {node.dtype}"


# *** movement ***


def _reshape(before: Sequence[Any], sizes: Sequence[Any], _arg: Any) -> str | None:
    if not all(isinstance(s, int) for s in (*before, *sizes)):
        return None
    return None if prod(before) == prod(sizes) else f"{tuple(before)} cannot be {tuple(sizes)}"


def _expand(before: Sequence[Any], sizes: Sequence[Any], _arg: Any) -> str | None:
    fits = len(before) == len(sizes) and all(
        same_size(a, b) or same_size(a, 1) for a, b in zip(before, sizes, strict=True)
    )
    return None if fits else f"{tuple(before)} cannot be expanded to {tuple(sizes)}"


def _permute(before: Sequence[Any], _sizes: Sequence[Any], order: Any) -> str | None:
    return None if sorted(order) == list(range(len(before))) else f"got the order {order}"


def _pad(before: Sequence[Any], around: Sequence[Any], _arg: Any) -> str | None:
    if len(around) != 2 * len(before):
        return f"expected two numbers an axis, got {tuple(around)} for shape {tuple(before)}"
    return first(f"got padding {n}" for n in around if isinstance(n, int) and n < 0)


def _shrink(before: Sequence[Any], box: Sequence[Any], _arg: Any) -> str | None:
    if len(box) != 2 * len(before):
        return f"expected two numbers an axis, got {tuple(box)} for shape {tuple(before)}"
    for whole, begin, size in zip(before, box[::2], box[1::2], strict=True):
        known = [n for n in (begin, size) if isinstance(n, int)]
        if any(n < 0 for n in known):
            return f"got begin {begin} and size {size}"
        if isinstance(whole, int) and sum(known) > whole:
            return f"begin {begin} and size {size} leave an axis of {whole}"
    return None


def _flip(before: Sequence[Any], _sizes: Sequence[Any], axes: Any) -> str | None:
    fits = len(set(axes)) == len(axes) and all(0 <= a < len(before) for a in axes)
    return None if fits else f"got axes {axes} for shape {tuple(before)}"


MOVEMENT: dict[Ops, Callable[[Sequence[Any], Sequence[Any], Any], str | None]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
}


@rule(*MOVEMENT)
def movement_fits(node: Node) -> str | None:
    """What moves elements says for every axis of its source where it goes, and stays inside."""
    sizes = unpack(node.arg, node.src[1:])
    return MOVEMENT[node.op](node.src[0].shape, sizes, node.arg)


# *** across elements ***

REDUCERS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)


@rule(Ops.REDUCE_AXIS)
def reduce_fits(node: Node) -> str | None:
    """A reduction is a sum, product, max or min over axes that its source has, each once."""
    axes, rank = node.arg.axes, len(node.src[0].shape)
    if node.arg.op not in REDUCERS:
        return f"got the op {node.arg.op}"
    fits = len(set(axes)) == len(axes) and all(0 <= a < rank for a in axes)
    return None if fits and axes else f"got axes {axes} for shape {node.src[0].shape}"


@rule(Ops.GATHER, Ops.SCATTER)
def gather_fits(node: Node) -> str | None:
    """An index holds whole numbers along an axis of the table; scattered values have its shape."""
    table, index = node.src[0].shape, node.src[1]
    axis = node.arg if node.op is Ops.GATHER else node.arg.axis
    if index.dtype.kind not in ("int", "uint", "weakint"):
        return f"got an index of {index.dtype}"
    if not 0 <= axis < len(table):
        return f"got axis {axis} of shape {table}"
    if node.op is Ops.SCATTER and node.arg.op not in REDUCERS:
        return f"got the op {node.arg.op}"
    wanted = (*table[:axis], *index.shape, *table[axis + 1 :])
    if node.op is Ops.SCATTER and not same_sizes(node.src[2].shape, wanted):
        return f"expected values of shape {wanted}, got {node.src[2].shape}"
    return None


@rule(Ops.SCAN)
def scan_fits(node: Node) -> str | None:
    """A scan is along an axis of its sources, which are alike; only FMA takes two."""
    op, axis, shape = node.arg.op, node.arg.axis, node.src[0].shape
    if op not in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.FMA):
        return f"got {op.name}"
    if len(node.src) != (2 if op is Ops.FMA else 1):
        return f"got {len(node.src)} sources for {op.name}"
    if any(s.dtype is not node.dtype or s.shape != shape for s in node.src):
        return f"got sources of {[(s.dtype, s.shape) for s in node.src]} for {node.dtype}"
    return None if 0 <= axis < len(shape) else f"got axis {axis} for shape {shape}"


@rule(Ops.ARGSORT)
def argsort_fits(node: Node) -> str | None:
    """An order is of a last axis, its numbers are int32; no more are wanted than there are."""
    shape, count = node.src[0].shape, node.arg.count
    if not shape or node.dtype is not dtypes.int32:
        return f"got numbers of {node.dtype} for shape {shape}"
    too_many = count is not None and isinstance(shape[-1], int) and not 0 <= count <= shape[-1]
    return f"got {count} of {shape[-1]}" if too_many else None


VALUES: tuple[Rule, ...] = (
    arity,
    packed_sizes,
    sources_are_values,
    constant_fits,
    elementwise_shapes,
    elementwise_dtypes,
    op_has_dtype,
    cast_dtypes,
    movement_fits,
    dtype_is_kept,
    reduce_fits,
    gather_fits,
    scan_fits,
    argsort_fits,
)
