"""What each op makes of the errors of its sources: one rule an op.

A rule gets the node, its value, the values and the errors of its sources, and gives the error of
the exact operation on sources that are off; `finish` adds the operation's own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tinyfn.dtype import DType, dtypes
from tinyfn.uop.meaning import MEANING, sizes
from tinyfn.uop.opcodes import MOVEMENT
from tinyfn.uop.ops import Ops

Array = Any
Rule = Callable[..., Array]

# dtype: unit roundoff, smallest number above 0, largest number
UNIT: dict[DType, tuple[float, float, float]] = {
    dtypes.fp8e4m3: (2.0**-4, 2.0**-9, 448.0),
    dtypes.fp8e5m2: (2.0**-3, 2.0**-16, 57344.0),
    dtypes.float16: (2.0**-11, 2.0**-24, 65504.0),
    dtypes.bfloat16: (2.0**-8, 2.0**-133, (2.0 - 2.0**-7) * 2.0**127),
    dtypes.float32: (2.0**-24, 2.0**-149, float(np.finfo(np.float32).max)),
    dtypes.float64: (2.0**-53, 5e-324, float(np.finfo(np.float64).max)),
}

EXACT = {
    *(Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.WHERE, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND),
    *(Ops.GATHER, Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.COPY, Ops.BITCAST),
    *(Ops.FULL, Ops.BIND, *MOVEMENT),
}
ROUNDED_ONCE = {Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.SQRT, Ops.RECIP, Ops.CAST, Ops.FMA}
OVERFLOWING = {
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.CAST, Ops.FMA, Ops.POW, Ops.EXP, Ops.EXP2, Ops.EXPM1),
    *(Ops.REDUCE_AXIS, Ops.SCATTER),
}


def accumulation(dtype: DType, length: int) -> float:
    """gamma(n-1) of a sum of n numbers; types narrower than float32 are summed in float32."""
    unit = UNIT[dtypes.float32 if dtype.itemsize < 4 else dtype][0]
    part = max(length - 1, 0) * unit
    return part / (1 - part) if part < 1 else math.inf


def rounding(node: Any, size: Array) -> Array:
    """What the node's own rounding adds, for results of this magnitude."""
    if node.op in EXACT or node.dtype not in UNIT:
        return np.zeros_like(size)
    unit, smallest, _ = UNIT[node.dtype]
    if node.op in ROUNDED_ONCE or node.op in (Ops.REDUCE_AXIS, Ops.SCATTER):
        units = 1.0
    elif node.dtype.itemsize < 4:
        units = 1.0 + 2.0**-8  # one ulp of float32, then rounded to the narrow type
    else:
        units = 2.0 if node.dtype is dtypes.float32 else 4.0  # one ulp; two
        units += 2.0 if node.op in (Ops.POW, Ops.ERF, Ops.RSQRT, Ops.TAN) else 0.0
    return units * unit * size + smallest


def finish(node: Any, value: Array, sources: Sequence[Array], error: Array) -> Array:
    """The error with the node's own rounding; infinite where an overflow may or may not happen."""
    error = np.broadcast_to(np.asarray(error, np.float64), value.shape)
    if node.dtype not in UNIT:
        # a whole number or a truth that is not sure can be anything
        return np.where(error > 0, np.inf, 0.0)
    finite = np.isfinite(value)
    size = np.where(finite, np.abs(value.astype(np.float64)), 0.0)
    found = np.where(finite, error + rounding(node, size + error), error)
    largest = UNIT[node.dtype][2]
    # a sum of errors in float64 rounds, too
    found = np.where(found > 0, found * (1 + 2.0**-40), 0.0)
    found = np.where(finite & (size + found > largest), np.inf, found)
    if node.op in OVERFLOWING and not finite.all():
        whole = all(np.isfinite(s).all() for s in sources)
        same = [s for s in sources if np.shape(s) in ((), value.shape)]
        each = np.logical_and.reduce([np.broadcast_to(np.isfinite(s), value.shape) for s in same])
        inner = each if len(same) == len(sources) else whole
        found = np.where(~finite & inner, np.inf, found)
    return np.where(np.isnan(found), np.inf, found)


def distance(one: Array, other: Array) -> Array:
    """|one - other|; 0 of equal infinities or NaNs, infinity where only one is not finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def wide(values: Array) -> Array:
    """Values in the precision in which errors are computed."""
    return np.asarray(values).astype(np.float64)


def corners(function: Callable[..., Array]) -> Rule:
    """For functions monotone in each source: the largest distance at a corner of the errors."""

    def error(_node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Any:
        middle = [wide(s) for s in sources]
        centre, found = function(*middle), np.float64(0)
        unsure = reduce(np.logical_or, [np.isposinf(e) for e in errors])
        for signs in product((-1, 1), repeat=len(middle)):
            at = [
                m + s * np.where(np.isfinite(e), e, 0)
                for m, s, e in zip(middle, signs, errors, strict=True)
            ]
            found = np.maximum(found, distance(function(*at), centre))
        return np.where(unsure, np.inf, found)

    return error


def has_zero(value: Array, error: Array) -> Array:
    """Where 0 lies among the values that are possible."""
    return (error > 0) & (np.abs(wide(value)) <= error)


def _divide(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    found = corners(np.divide)(node, value, sources, errors)
    return np.where(has_zero(sources[1], errors[1]), np.inf, found)


def _reciprocal(node: Any, value: Array, sources: Any, errors: Sequence[Array]) -> Array:
    found = corners(lambda x: 1.0 / x)(node, value, sources, errors)
    return np.where(has_zero(sources[0], errors[0]), np.inf, found)


def _power(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    found = corners(np.power)(node, value, sources, errors)
    return np.where(has_zero(sources[0], errors[0]), np.inf, found)


def _sum(_node: Any, _value: Array, _sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    return reduce(np.add, errors)


def _largest(_node: Any, _value: Array, _sources: Any, errors: Sequence[Array]) -> Array:
    return reduce(np.maximum, errors)


def _same(_node: Any, _value: Array, _sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    return errors[0]


def _any(_node: Any, _value: Array, _sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    """Nothing is known where a source is not."""
    return np.where(reduce(np.logical_or, [e > 0 for e in errors]), np.inf, 0.0)


def bounded(slope: float) -> Rule:
    """For functions between -1 and 1 with this slope at most; where all may come in, NaN may."""

    def error(_node: Any, value: Array, _sources: Any, errors: Sequence[Array]) -> Array:
        found = np.where(np.isfinite(value), np.minimum(slope * errors[0], 2.0), 0.0)
        return np.where(np.isposinf(errors[0]), np.inf, found)

    return error


def _tangent(_node: Any, value: Array, _sources: Any, errors: Sequence[Array]) -> Array:
    slope = 1 + wide(value) ** 2
    steep = errors[0] * (1 + np.sqrt(slope)) > 0.1
    return np.where(steep, np.inf, 2 * errors[0] * slope)


def _compare(_node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    unsure = errors[0] + errors[1]
    close = np.abs(wide(sources[0]) - wide(sources[1])) <= unsure
    return np.where(((unsure > 0) & close) | np.isposinf(unsure), np.inf, 0.0)


def _where(_node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    chosen = np.where(sources[0], errors[1], errors[2])
    either = distance(wide(sources[1]), wide(sources[2])) + np.maximum(errors[1], errors[2])
    return np.where(errors[0] > 0, either, chosen)


def _cast(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    if node.dtype.kind == "float":
        return errors[0]
    if node.dtype.kind == "bool":
        return np.where(has_zero(sources[0], errors[0]), np.inf, 0.0)
    if node.src[0].dtype.kind != "float":
        return errors[0]
    near = np.trunc(wide(sources[0]) - errors[0]) != np.trunc(wide(sources[0]) + errors[0])
    return np.where((errors[0] > 0) & (near | ~np.isfinite(errors[0])), np.inf, 0.0)


def _moved(node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    return MEANING[node.op](node, errors[0], *sources[1:])


def _reduce(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    op, axes, error = node.arg.op, tuple(node.arg.axes), errors[0]
    if op in (Ops.MAX, Ops.MIN):
        return np.max(error, axis=axes, keepdims=True, initial=0.0)
    total = np.sum(error, axis=axes, keepdims=True)
    if node.dtype not in UNIT:
        return total
    length = math.prod(sources[0].shape[a] for a in axes)
    size = np.abs(wide(sources[0])) + np.where(np.isfinite(error), error, 0)
    gamma = accumulation(node.dtype, length)
    if op is Ops.ADD:
        extent = np.sum(size, axis=axes, keepdims=True)
        found = total + gamma * np.where(np.isfinite(extent), extent, 0)
        return np.where(np.isfinite(value) & (extent > UNIT[node.dtype][2] / 2), np.inf, found)
    most = np.prod(size, axis=axes, keepdims=True)
    least = np.prod(np.abs(wide(sources[0])), axis=axes, keepdims=True)
    factors = np.prod(np.maximum(size, 1.0), axis=axes, keepdims=True)
    unsure = np.isposinf(total) | (factors > UNIT[node.dtype][2] / 2)
    found = np.where(total > 0, most - least, 0) + gamma * most + length * UNIT[node.dtype][1]
    return np.where(unsure, np.inf, np.maximum(found, gamma * factors * UNIT[node.dtype][1]))


def _gather(node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    found = MEANING[Ops.GATHER](node, errors[0], sources[1])
    doubt = (errors[1] > 0).reshape(errors[1].shape + (1,) * (sources[0].ndim - node.arg - 1))
    return np.where(doubt, np.inf, found)


def _scatter(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Any:
    op, axis, places = node.arg.op, node.arg.axis, sources[1].reshape(-1)

    def put(combine: Any, one: Array, other: Array) -> Array:
        total = np.moveaxis(one, axis, 0).copy()
        rows = other.reshape((*one.shape[:axis], places.size, *one.shape[axis + 1 :]))
        inside = (places >= 0) & (places < one.shape[axis])
        combine.at(total, places[inside].astype(np.int64), np.moveaxis(rows, axis, 0)[inside])
        return np.moveaxis(total, 0, axis)

    def added(one: Array, other: Array) -> Array:
        return put(np.add, one, other)

    if np.any(errors[1] > 0):
        return np.full(value.shape, np.inf)
    if op in (Ops.MAX, Ops.MIN):
        return put(np.maximum, errors[0], errors[2])
    found = added(errors[0], errors[2])
    if op is Ops.MUL and node.dtype in UNIT:
        sizes = [np.abs(wide(sources[i])) for i in (0, 2)]
        most = put(np.multiply, *(s + errors[i] for s, i in zip(sizes, (0, 2), strict=True)))
        least = put(np.multiply, *sizes)
        factors = put(np.multiply, *(np.maximum(s, 1.0) for s in sizes))
        doubt = np.where(found > 0, most - least, 0) + (
            accumulation(node.dtype, places.size + 1) * factors * (1 + UNIT[node.dtype][1])
        )
        return np.where(factors > UNIT[node.dtype][2] / 2, np.inf, doubt)
    if node.dtype not in UNIT:
        return found
    size = added(np.abs(wide(sources[0])) + errors[0], np.abs(wide(sources[2])) + errors[2])
    return found + accumulation(node.dtype, sources[1].size + 1) * size


def _scan(node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    """As of sums, products and extremes of what has run so far; FMA's is followed step by step."""

    def lines(x: Array) -> Array:
        x = np.moveaxis(np.broadcast_to(x, value.shape), node.arg.axis, 0)
        return x[:: -1 if node.arg.reverse else 1]

    if node.arg.op in (Ops.MAX, Ops.MIN):
        found = np.maximum.accumulate(lines(errors[0]), 0)
    elif node.dtype not in UNIT:
        found = np.cumsum(lines(errors[0]), 0)
    else:
        unit = UNIT[dtypes.float32 if node.dtype.itemsize < 4 else node.dtype]
        found = np.zeros(lines(errors[0]).shape)
        total, error = np.zeros(found.shape[1:]), np.zeros(found.shape[1:])
        x, dx = np.abs(lines(wide(sources[0]))), lines(errors[0])
        f, df = (x, dx) if node.arg.op is Ops.MUL else (np.ones_like(x), np.zeros_like(dx))
        if node.arg.op is Ops.FMA:
            f, df = np.abs(lines(wide(sources[1]))), lines(errors[1])
        for i in range(len(found)):
            if i == 0:
                total, error = x[0], dx[0]
            elif node.arg.op is Ops.MUL:
                total, error = total * f[i], total * df[i] + error * f[i] + error * df[i]
            else:
                error = total * df[i] + error * f[i] + error * df[i] + dx[i]
                total = total * f[i] + x[i]
            error = error + 2 * unit[0] * (total + error) + 2 * unit[1]
            found[i] = np.where(total + error > unit[2] / 2, np.inf, error)
        found = np.where(np.isnan(found), np.inf, found)
    return np.moveaxis(found[:: -1 if node.arg.reverse else 1], 0, node.arg.axis)


def _argsort(_node: Any, value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Any:
    """Nothing is known of a row where neighbours in order are closer than their errors."""
    order = np.argsort(sources[0], axis=-1, kind="stable")
    x = np.take_along_axis(wide(sources[0]), order, -1)
    error = np.take_along_axis(np.broadcast_to(errors[0], x.shape), order, -1)
    reach = np.maximum.accumulate(np.where(error > 0, x + error, x), -1)
    unsure = (error[..., 1:] + error[..., :-1] > 0) & ~(reach[..., :-1] < (x - error)[..., 1:])
    return np.broadcast_to(np.where(unsure.any(-1, keepdims=True), np.inf, 0.0), value.shape)


def _full(node: Any, _value: Array, sources: Sequence[Array], errors: Sequence[Array]) -> Array:
    return np.broadcast_to(errors[0], sizes(node.arg.shape, sources[1:]))


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


RULES: dict[Ops, Rule] = {
    Ops.ADD: _sum,
    Ops.SUB: _sum,
    Ops.NEG: _same,
    Ops.ABS: _same,
    Ops.MUL: corners(np.multiply),
    Ops.FMA: corners(lambda x, y, z: x * y + z),
    Ops.DIV: _divide,
    Ops.RECIP: _reciprocal,
    Ops.POW: _power,
    Ops.SQRT: corners(np.sqrt),
    Ops.RSQRT: corners(lambda x: 1.0 / np.sqrt(x)),
    Ops.EXP: corners(np.exp),
    Ops.EXP2: corners(np.exp2),
    Ops.EXPM1: corners(np.expm1),
    Ops.LOG: corners(np.log),
    Ops.LOG2: corners(np.log2),
    Ops.LOG1P: corners(np.log1p),
    Ops.TANH: corners(np.tanh),
    Ops.SIGMOID: corners(_sigmoid),
    Ops.TAN: _tangent,
    Ops.TRUNC: corners(np.trunc),
    Ops.FLOOR: corners(np.floor),
    Ops.CEIL: corners(np.ceil),
    Ops.ROUND: corners(np.rint),
    Ops.ERF: bounded(1.13),  # its slope is below 2/sqrt(pi)
    **dict.fromkeys((Ops.SIN, Ops.COS), bounded(1.0)),
    **dict.fromkeys((Ops.MAX, Ops.MIN), _largest),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE), _compare),
    **dict.fromkeys((Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR), _any),
    **dict.fromkeys((Ops.IDIV, Ops.MOD, Ops.THREEFRY, Ops.BITCAST), _any),
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    **dict.fromkeys(MOVEMENT, _moved),
    Ops.REDUCE_AXIS: _reduce,
    Ops.GATHER: _gather,
    Ops.SCATTER: _scatter,
    Ops.SCAN: _scan,
    Ops.ARGSORT: _argsort,
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.COPY), _same),
    Ops.FULL: _full,
    Ops.BIND: lambda n, v, s, e: np.zeros(np.shape(v)),
}
"""op -> the error it passes on; leaves without sources have none, other ops are not known."""
