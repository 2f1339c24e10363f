"""Movement of parameters as index arithmetic: which element of the source an index means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.uop.info import unpack
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import INDEX_OPS, add_many, is_const

Index = tuple[UOp, ...]
ZERO = UOp.const(0, dtypes.weakint)


def number(value: Any) -> UOp:
    """A size or offset as a node."""
    return value if isinstance(value, UOp) else UOp.const(value, dtypes.weakint)


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """Two conditions as one; None is no condition."""
    if a is None or b is None or a is b:
        return b if a is None else a
    for this, other in ((a, b), (b, a)):
        if is_const(this):
            return other if this.arg else this
    return UOp(Ops.AND, dtypes.bool, (a, b))


def flat_index(index: Index, shape: Sequence[Any]) -> UOp:
    """The row-major offset of an index."""
    total, stride = ZERO, number(1)
    for position, size in reversed(list(zip(index, shape, strict=True))):
        total = INDEX_OPS[Ops.ADD](INDEX_OPS[Ops.MUL](position, stride), total)
        stride = INDEX_OPS[Ops.MUL](stride, number(size))
    return total


def _unflatten(flat: UOp, shape: Sequence[Any]) -> Index:
    found: list[UOp] = []
    for axis, size in reversed(list(enumerate(shape))):
        found.append(INDEX_OPS[Ops.MOD](flat, number(size)) if axis else flat)
        flat = INDEX_OPS[Ops.IDIV](flat, number(size))
    return tuple(reversed(found))


def _inside(index: UOp, size: Any) -> UOp | None:
    low, high = INDEX_OPS[Ops.CMPLE](ZERO, index), INDEX_OPS[Ops.CMPLT](index, number(size))
    found = both(low, high)
    return None if found is None or (is_const(found) and found.arg) else found


def source_index(node: UOp, index: Index, symbols: Sequence[UOp]) -> tuple[Index, UOp | None]:
    """The index into the source of a movement node, and the condition under which it is inside.

    `symbols` are the node's symbolic sizes.
    """
    before = node.src[0].shape
    if node.op is Ops.RESHAPE:
        return _unflatten(flat_index(index, node.shape), before), None
    if node.op is Ops.EXPAND:
        sizes = zip(index, node.shape, before, strict=True)
        return tuple(i if s is t or s == t else ZERO for i, s, t in sizes), None
    if node.op is Ops.PERMUTE:
        return tuple(index[node.arg.index(axis)] for axis in range(len(node.arg))), None
    if node.op is Ops.FLIP:
        pairs = enumerate(zip(index, before, strict=True))
        return tuple(
            add_many(i, [(number(s), 1), (i, -1)], -1) if axis in node.arg else i
            for axis, (i, s) in pairs
        ), None
    box = unpack(node.arg, symbols)
    if node.op is Ops.SHRINK:
        starts = zip(index, box[::2], strict=True)
        return tuple(add_many(i, [(i, 1), (number(b), 1)]) for i, b in starts), None
    return _padded(index, box[::2], before)


def _padded(index: Index, starts: Sequence[Any], before: Sequence[Any]) -> tuple[Index, UOp | None]:
    valid: UOp | None = None
    moved = []
    for i, start, size in zip(index, starts, before, strict=True):
        inner = add_many(i, [(i, 1), (number(start), -1)])
        moved.append(inner)
        valid = both(valid, _inside(inner, size))
    return tuple(moved), valid
