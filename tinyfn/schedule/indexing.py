"""Movement as index arithmetic: where an index into a moved tensor leads in its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.uop.info import unpack
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import INDEX_OPS, add_many, is_const

Index = tuple[UOp, ...]
ZERO = UOp.const(0, dtypes.weakint)
TRUE = UOp.const(True, dtypes.bool)


def number(value: Any) -> UOp:
    """A size or offset as a node."""
    return value if isinstance(value, UOp) else UOp.const(value, dtypes.weakint)


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """Two conditions as one; None is no condition."""
    if a is None or b is None:
        return b if a is None else a
    if is_const(a):
        return b if a.arg else a
    if is_const(b):
        return a if b.arg else b
    return a if a is b else UOp(Ops.AND, dtypes.bool, (a, b))


def inside(index: UOp, size: Any) -> UOp | None:
    """The condition 0 <= index < size; None where it always holds."""
    low = INDEX_OPS[Ops.CMPLE](ZERO, index)
    high = INDEX_OPS[Ops.CMPLT](index, number(size))
    found = both(low, high)
    return None if found is None or (is_const(found) and found.arg) else found


def strides_of(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Row-major strides."""
    strides: list[Any] = []
    total: Any = 1
    for size in reversed(shape):
        strides.append(total)
        total = total * size
    return tuple(reversed(strides))


def flat_index(index: Index, shape: Sequence[Any]) -> UOp:
    """The row-major offset of an index."""
    parts = [
        (i, s)
        for i, s in zip(index, strides_of(shape), strict=True)
        if not (is_const(i) and not i.arg)
    ]
    if all(isinstance(s, int) for _, s in parts):
        total: UOp = add_many(ZERO, parts)
        return total
    products = [(INDEX_OPS[Ops.MUL](i, number(s)), 1) for i, s in parts]
    symbolic: UOp = add_many(ZERO, products)
    return symbolic


def unflatten(flat: UOp, shape: Sequence[Any]) -> Index:
    """The index of a row-major offset."""
    found: list[UOp] = []
    for position, size in reversed(list(enumerate(shape))):
        if position == 0:
            found.append(flat)
        else:
            found.append(INDEX_OPS[Ops.MOD](flat, number(size)))
            flat = INDEX_OPS[Ops.IDIV](flat, number(size))
    return tuple(reversed(found))


def reshape_index(index: Index, shape: Sequence[Any], before: Sequence[Any]) -> Index:
    """The index into shape `before` of an index into shape `shape` with the same elements.

    Axes are matched in groups of equal size, so that an axis that did not change keeps its index.
    """
    found: list[UOp] = []
    out = [(i, s) for i, s in zip(index, shape, strict=True) if not same(s, 1)]
    j = 0
    k = 0
    while k < len(before):
        if same(before[k], 1):
            found.append(ZERO)
            k += 1
            continue
        group_out: list[tuple[UOp, Any]] = []
        group_in: list[Any] = [before[k]]
        k += 1
        size_in: Any = before[k - 1]
        size_out: Any = 1
        while not same(size_in, size_out):
            grow_out = j < len(out) and (k >= len(before) or _smaller(size_out, size_in))
            if grow_out:
                group_out.append(out[j])
                size_out = size_out * out[j][1]
                j += 1
            elif k < len(before):
                group_in.append(before[k])
                size_in = size_in * before[k]
                k += 1
            else:
                break
        found += _regroup(group_out, group_in)
    return tuple(found)


def _smaller(a: Any, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return isinstance(a, int) or not isinstance(b, int)


def _regroup(group_out: list[tuple[UOp, Any]], group_in: list[Any]) -> list[UOp]:
    if len(group_out) == 1 and len(group_in) == 1:
        return [group_out[0][0]]
    index = tuple(i for i, _ in group_out)
    flat = flat_index(index, [s for _, s in group_out]) if index else ZERO
    return list(unflatten(flat, group_in))


def source_index(node: UOp, index: Index) -> tuple[Index, UOp | None]:
    """The index into the source of a movement node, and the condition under which it is inside."""
    source = node.src[0]
    if node.op is Ops.RESHAPE:
        return reshape_index(index, node.shape, source.shape), None
    if node.op is Ops.EXPAND:
        sizes = zip(index, node.shape, source.shape, strict=True)
        return tuple(i if same(s, t) else ZERO for i, s, t in sizes), None
    if node.op is Ops.PERMUTE:
        return tuple(index[node.arg.index(i)] for i in range(len(node.arg))), None
    if node.op is Ops.FLIP:
        minus = [
            add_many(i, [(number(s), 1), (i, -1)], -1) if a in node.arg else i
            for a, (i, s) in enumerate(zip(index, source.shape, strict=True))
        ]
        return tuple(minus), None
    flat = unpack(node.arg, node.src[1:])
    if node.op is Ops.SHRINK:
        moved = [
            add_many(i, [(i, 1), (number(b), 1)]) for i, b in zip(index, flat[::2], strict=True)
        ]
        return tuple(moved), None
    moved, valid = [], None
    for i, before, after, size in zip(index, flat[::2], flat[1::2], source.shape, strict=True):
        if same(before, 0) and same(after, 0):
            moved.append(i)
            continue
        inner = add_many(i, [(i, 1), (number(before), -1)])
        moved.append(inner)
        valid = both(valid, inside(inner, size))
    return tuple(moved), valid
