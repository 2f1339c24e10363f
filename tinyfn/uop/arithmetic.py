"""numpy's meaning of the elementwise ops: what every kernel is measured against.

Values are held as arrays of the dtype's own numpy type; bfloat16 and fp8 as float32 arrays with
storable values. `elementwise` computes 16-bit and 8-bit floats in float32 and rounds once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tinyfn.dtype import DType, decode_small, dtypes, encode_small, storage_dtype
from tinyfn.uop.opcodes import Ops

Values = Any
ENCODED = (dtypes.bfloat16, *dtypes.fp8s)
NARROW = (dtypes.float16, *ENCODED)
HELD: dict[DType, Any] = {d: np.dtype(np.float32) for d in ENCODED}
INT64_MIN = np.int64(-(2**63))
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def held_dtype(dtype: DType) -> Any:
    """The numpy type in which values of a dtype are held."""
    return HELD[dtype] if dtype in HELD else storage_dtype(dtype)


def settle(values: Values, dtype: DType) -> Values:
    """Computed values as the dtype holds them: rounded to nearest even, or wrapped."""
    if dtype in ENCODED:
        return decode_small(encode_small(values, dtype), dtype)
    return np.asarray(values).astype(held_dtype(dtype))


def from_storage(bits: Values, dtype: DType) -> Values:
    """Values as they are held, from the array of a buffer's memory."""
    return decode_small(bits, dtype) if dtype in ENCODED else bits


def to_storage(values: Values, dtype: DType) -> Values:
    """The array of a buffer's memory for held values."""
    return encode_small(values, dtype) if dtype in ENCODED else values


# *** one source ***


def _through_double(function: Callable[..., Values]) -> Callable[..., Values]:
    """float32 functions are computed in float64 and rounded, which is right to half an ulp."""

    def compute(*values: Values) -> Values:
        wide = function(*(v.astype(np.float64) for v in values))
        return wide.astype(values[0].dtype)

    return compute


def _sigmoid(x: Values) -> Values:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _erf(x: Values) -> Values:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


def _for_floats(function: Callable[..., Values]) -> Callable[..., Values]:
    """Rounding to whole numbers leaves integers as they are."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


# *** two and three sources ***


def _subtract(x: Values, y: Values) -> Values:
    """x - y; of bools what differs, where numpy has no answer."""
    return x ^ y if x.dtype.kind == "b" else x - y


def _threefry(counter: Values, key: Values) -> Values:
    """Threefry2x32 with 20 rounds (Salmon et al., 2011); low words come first."""
    mask = np.uint64(0xFFFFFFFF)
    keys = [(key & mask).astype(np.uint32), (key >> np.uint64(32)).astype(np.uint32)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    x = (counter & mask).astype(np.uint32) + keys[0]
    y = (counter >> np.uint64(32)).astype(np.uint32) + keys[1]
    for turn in range(5):
        for step in range(4):
            by = np.uint32(ROTATIONS[(turn % 2) * 4 + step])
            x = x + y
            y = ((y << by) | (y >> (np.uint32(32) - by))) ^ x
        x = x + keys[(turn + 1) % 3]
        y = y + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return (y.astype(np.uint64) << np.uint64(32)) | x.astype(np.uint64)


def _fma(x: Values, y: Values, z: Values) -> Values:
    """x * y + z, rounded once."""
    plain = x * y + z
    # the ufunc hands over Python floats, which say nothing of the type
    exact = np.frompyfunc(functools.partial(_fma_exact, plain.dtype), 4, 1)(x, y, z, plain)
    return np.asarray(exact).astype(x.dtype)


def _fma_exact(kind: Any, x: Any, y: Any, z: Any, plain: Any) -> Any:
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(z):
        return float(z)  # the product is finite, however large
    if not all(math.isfinite(v) for v in (x, y, z)):
        return float(plain)
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    if exact == 0:
        return float(plain)
    return _nearest(exact, kind)


def _nearest(exact: Fraction, kind: Any) -> float:
    """The float of a numpy type that is nearest to a fraction, ties to even."""
    bits, smallest = (24, -149) if np.dtype(kind).itemsize == 4 else (53, -1074)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, smallest)
    try:
        found = float(round(size / unit) * unit)
    except OverflowError:
        found = math.inf
    return -found if exact < 0 else found


ARITHMETIC: dict[Ops, Callable[..., Values]] = {
    Ops.NEG: np.negative,
    Ops.ABS: np.abs,
    Ops.NOT: np.invert,
    Ops.SQRT: np.sqrt,
    Ops.RECIP: lambda x: x.dtype.type(1) / x,
    Ops.RSQRT: _through_double(lambda x: 1.0 / np.sqrt(x)),
    Ops.EXP: _through_double(np.exp),
    Ops.EXP2: _through_double(np.exp2),
    Ops.EXPM1: _through_double(np.expm1),
    Ops.LOG: _through_double(np.log),
    Ops.LOG2: _through_double(np.log2),
    Ops.LOG1P: _through_double(np.log1p),
    Ops.SIN: _through_double(np.sin),
    Ops.COS: _through_double(np.cos),
    Ops.TAN: _through_double(np.tan),
    Ops.TANH: _through_double(np.tanh),
    Ops.SIGMOID: _through_double(_sigmoid),
    Ops.ERF: _through_double(_erf),
    Ops.TRUNC: _for_floats(np.trunc),
    Ops.FLOOR: _for_floats(np.floor),
    Ops.CEIL: _for_floats(np.ceil),
    Ops.ROUND: _for_floats(np.rint),
    Ops.ADD: np.add,
    Ops.SUB: _subtract,
    Ops.MUL: np.multiply,
    Ops.DIV: np.divide,
    Ops.IDIV: np.floor_divide,
    Ops.MOD: np.mod,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.POW: _through_double(np.power),
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.CMPLT: np.less,
    Ops.CMPLE: np.less_equal,
    Ops.CMPEQ: np.equal,
    Ops.CMPNE: np.not_equal,
    Ops.THREEFRY: _threefry,
    Ops.WHERE: np.where,
    Ops.FMA: _fma,
}


def elementwise(op: Ops, dtype: DType, *values: Values) -> Values:
    """What the op makes of held values, as the node's dtype holds it."""
    wide = [_widened(v) for v in values]
    with np.errstate(all="ignore"):
        return settle(ARITHMETIC[op](*wide), dtype)


def _widened(values: Values) -> Values:
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


# *** casts ***


def cast(values: Values, source: DType, target: DType) -> Values:
    """The values in another dtype: floats to ints truncate, ints wrap, bool is `!= 0`."""
    if target.kind == "bool":
        return values != 0
    with np.errstate(all="ignore"):
        if source.kind == "float" and target.kind != "float":
            return _float_to_int(values.astype(np.float64), target)
        if source.kind != "float" and target in ENCODED:
            values = values.astype(np.float32)
        return settle(values, target)


def _float_to_int(values: Values, target: DType) -> Values:
    """To 64 bits: INT64_MIN's bits for NaN and what is out of range; narrower: its low bits."""
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    wide = np.where(inside, np.trunc(np.where(inside, values, 0.0)), 0.0).astype(np.int64)
    wide = np.where(inside, wide, INT64_MIN)
    if target is dtypes.uint64:
        high = (values >= 2.0**63) & (values < 2.0**64)
        top = np.where(high, values, 0.0).astype(np.uint64)
        return np.where(high, top, wide.astype(np.uint64))
    return wide.astype(held_dtype(target))


def bitcast(values: Values, source: DType, target: DType) -> Values:
    """The same bits as another dtype of the same width."""
    bits = np.asarray(to_storage(values, source), order="C")
    if target.kind == "bool":
        return bits.view(np.uint8).reshape(bits.shape) != 0
    return from_storage(bits.view(storage_dtype(target)).reshape(bits.shape), target)
