"""The meaning of ops whose value follows from the values of their sources: a function each.

A meaning takes the node (for its dtype and arg) and the held values of its sources. What needs
memory, slots or calls is in `interpret`; loops of kernels are in `interpret_kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyfn.dtype import DType, Invalid, dtypes
from tinyfn.uop.arithmetic import ARITHMETIC, bitcast, cast, elementwise, held_dtype, settle
from tinyfn.uop.info import Packed
from tinyfn.uop.opcodes import Ops

Values = Any
Meaning = Callable[..., Values]


def sizes(packed: Packed, symbols: Sequence[Values]) -> tuple[int, ...]:
    """Packed sizes with the values of the symbolic ones."""
    rest = iter(symbols)
    return tuple(int(next(rest)) if size is None else size for size in packed)


# *** leaves ***


def constant(value: Any, dtype: DType) -> Values:
    """A scalar as an array of no axes; Invalid reads as 0."""
    return np.array(0 if value is Invalid else value, held_dtype(dtype))


def _full(node: Any, value: Values, *symbols: Values) -> Values:
    return np.full(sizes(node.arg.shape, symbols), value, held_dtype(node.dtype))


def _iota(node: Any, *symbols: Values) -> Values:
    return settle(np.arange(sizes(node.arg, symbols)[0]), node.dtype)


# *** movement ***


def _reshape(node: Any, x: Values, *symbols: Values) -> Values:
    return x.reshape(sizes(node.arg, symbols))


def _expand(node: Any, x: Values, *symbols: Values) -> Values:
    return np.broadcast_to(x, sizes(node.arg, symbols))


def _permute(node: Any, x: Values) -> Values:
    return x.transpose(node.arg)


def _pad(node: Any, x: Values, *symbols: Values) -> Values:
    around = sizes(node.arg, symbols)
    return np.pad(x, list(zip(around[::2], around[1::2], strict=True)))


def _shrink(node: Any, x: Values, *symbols: Values) -> Values:
    box = sizes(node.arg, symbols)
    pairs = zip(box[::2], box[1::2], strict=True)
    return x[tuple(slice(begin, begin + size) for begin, size in pairs)]


def _flip(node: Any, x: Values) -> Values:
    return np.flip(x, node.arg)


MOVEMENT: dict[Ops, Meaning] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
}

# *** across elements ***


def reduce_values(op: Ops, dtype: DType, x: Values, axes: tuple[int, ...]) -> Values:
    """The reduction over whole axes, which stay as size 1; sums and products rounded once."""
    if op in (Ops.MAX, Ops.MIN):
        function = np.max if op is Ops.MAX else np.min
        lowest = dtype.min if op is Ops.MAX else dtype.max
        return settle(function(x, axis=axes, keepdims=True, initial=lowest), dtype)
    total = np.sum if op is Ops.ADD else np.prod
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    kind = wide if dtype.kind == "float" else held_dtype(dtype)
    with np.errstate(all="ignore"):
        found = np.asarray(total(x, axis=axes, keepdims=True, dtype=kind))
        return settle(found.astype(np.float64) if kind is np.longdouble else found, dtype)


def _reduce_axis(node: Any, x: Values) -> Values:
    return reduce_values(node.arg.op, node.dtype, x, node.arg.axes)


def _gather(node: Any, x: Values, index: Values) -> Values:
    """Elements along an axis by their numbers; a number out of range reads 0."""
    axis, size = node.arg, x.shape[node.arg]
    inside = (index >= 0) & (index < size)
    if not size:
        return np.zeros((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
    taken = np.take(x, np.where(inside, index, 0).astype(np.int64), axis=axis)
    mask = inside.reshape(inside.shape + (1,) * (x.ndim - axis - 1))
    return np.where(mask, taken, taken.dtype.type(0))


def _scatter(node: Any, x: Values, index: Values, values: Values) -> Values:
    """Values put at places along an axis in their order; a place out of range takes none."""
    axis, kind = node.arg.axis, np.float32 if node.dtype.itemsize < 4 else x.dtype
    total = np.moveaxis(x, axis, 0).astype(kind if node.dtype.kind == "float" else x.dtype)
    places = index.reshape(-1)
    rows = values.reshape((*x.shape[:axis], places.size, *x.shape[axis + 1 :]))
    rows = np.moveaxis(rows, axis, 0)
    inside = (places >= 0) & (places < x.shape[axis])
    with np.errstate(all="ignore"):
        put = RUNNING[node.arg.op].at
        put(total, places[inside].astype(np.int64), rows[inside].astype(total.dtype))
    return settle(np.moveaxis(total, 0, axis), node.dtype)


def _scan(node: Any, x: Values, *factors: Values) -> Values:
    """Element after element in the dtype of the node (of 32 bits where it has fewer)."""
    kind = held_dtype(node.dtype)
    if node.dtype.kind == "float" and node.dtype.itemsize < 4:
        kind = np.dtype(np.float32)
    lines = [np.moveaxis(v, node.arg.axis, 0).astype(kind) for v in (x, *factors)]
    order = range(len(lines[0]))[:: -1 if node.arg.reverse else 1]
    found = np.empty_like(lines[0])
    total: Any = None
    with np.errstate(all="ignore"):
        for i in order:
            element = lines[0][i]
            if total is None:
                total = element
            elif node.arg.op is Ops.FMA:
                total = total * lines[1][i] + element
            else:
                total = RUNNING[node.arg.op](total, element)
            found[i] = total
    return settle(np.moveaxis(found, 0, node.arg.axis), node.dtype)


RUNNING: dict[Ops, np.ufunc] = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
}


def _argsort(node: Any, x: Values) -> Values:
    """Stable, with NaN as the largest; descending is ascending from the other end."""
    if node.arg.descending:
        order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(x, axis=-1, kind="stable")
    return order[..., : node.arg.count].astype(np.int32)


def _same(_node: Any, x: Values) -> Values:
    return x


def _arithmetic(node: Any, *values: Values) -> Values:
    return elementwise(node.op, node.dtype, *values)


MEANING: dict[Ops, Meaning] = {
    Ops.CONST: lambda node: constant(node.arg, node.dtype),
    Ops.FULL: _full,
    Ops.IOTA: _iota,
    Ops.BIND: lambda node, _variable, value: value,
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    Ops.CAST: lambda node, x: cast(x, node.src[0].dtype, node.dtype),
    Ops.BITCAST: lambda node, x: bitcast(x, node.src[0].dtype, node.dtype),
    **MOVEMENT,
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.GATHER: _gather,
    Ops.SCATTER: _scatter,
    Ops.SCAN: _scan,
    Ops.ARGSORT: _argsort,
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), _same),
}
"""op -> numpy function of (node, values of its sources)"""
