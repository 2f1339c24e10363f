"""Data types, the Invalid value, promotion, and the numpy type that stores each."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tinyfn.errors import DTypeError
from tinyfn.helpers import DEFAULT_FLOAT, DEFAULT_INT


class _Invalid:
    """The value of memory that has no contents: storing it leaves what was there."""

    def __repr__(self) -> str:
        return "Invalid"

    def __reduce__(self) -> str:
        return "Invalid"


Invalid: Final = _Invalid()


@dataclass(frozen=True, eq=False)
class DType:
    """One data type; compared by identity.

    `kind` is one of bool, uint, int, float, weakint (Python ints in index arithmetic), void.
    `priority` orders promotion: the result of two types is never lower than either.
    """

    name: str
    short: str
    kind: str
    itemsize: int
    priority: int

    @property
    def bitsize(self) -> int:
        """Width in bits (1 for bool)."""
        return 1 if self.kind == "bool" else self.itemsize * 8

    @property
    def scalar(self) -> DType:
        """The type itself: every dtype here is a scalar's."""
        return self

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __lt__(self, other: DType) -> bool:
        return (self.priority, self.itemsize, self.name) < (
            other.priority,
            other.itemsize,
            other.name,
        )

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return to_dtype, (self.name,)

    @property
    def min(self) -> Any:
        """The lowest value (-inf for floats)."""
        return dtypes.min(self)

    @property
    def max(self) -> Any:
        """The highest value (inf for floats)."""
        return dtypes.max(self)


class dtypes:  # noqa: N801 (the public name is tinygrad's)
    """The data types by name, and questions about them.

    >>> dtypes.half, dtypes.uint8.max, dtypes.int16.itemsize, dtypes.is_int(dtypes.bool)
    (dtypes.float16, 255, 2, False)
    """

    void: Final[DType] = DType("void", "void", "void", 0, -2)
    weakint: Final[DType] = DType("weakint", "i64", "weakint", 8, -1)
    bool: Final[DType] = DType("bool", "b1", "bool", 1, 0)
    int8: Final[DType] = DType("int8", "i8", "int", 1, 1)
    uint8: Final[DType] = DType("uint8", "u8", "uint", 1, 2)
    int16: Final[DType] = DType("int16", "i16", "int", 2, 3)
    uint16: Final[DType] = DType("uint16", "u16", "uint", 2, 4)
    int32: Final[DType] = DType("int32", "i32", "int", 4, 5)
    uint32: Final[DType] = DType("uint32", "u32", "uint", 4, 6)
    int64: Final[DType] = DType("int64", "i64", "int", 8, 7)
    uint64: Final[DType] = DType("uint64", "u64", "uint", 8, 8)
    fp8e4m3: Final[DType] = DType("fp8e4m3", "fp8e4m3", "float", 1, 9)
    fp8e5m2: Final[DType] = DType("fp8e5m2", "fp8e5m2", "float", 1, 10)
    float16: Final[DType] = DType("float16", "f16", "float", 2, 11)
    bfloat16: Final[DType] = DType("bfloat16", "bf16", "float", 2, 12)
    float32: Final[DType] = DType("float32", "f32", "float", 4, 13)
    float64: Final[DType] = DType("float64", "f64", "float", 8, 14)

    half = float16
    float = float32
    double = float64
    char = int8
    uchar = uint8
    short = int16
    ushort = uint16
    int = int32
    uint = uint32
    long = int64
    ulong = uint64

    fp8s: ClassVar[tuple[DType, ...]] = (fp8e4m3, fp8e5m2)
    floats: ClassVar[tuple[DType, ...]] = (*fp8s, float16, bfloat16, float32, float64)
    uints: ClassVar[tuple[DType, ...]] = (uint8, uint16, uint32, uint64)
    sints: ClassVar[tuple[DType, ...]] = (int8, int16, int32, int64)
    ints: ClassVar[tuple[DType, ...]] = (*uints, *sints)
    all: ClassVar[tuple[DType, ...]] = (*floats, *ints, bool)

    @classmethod
    def default_float(cls) -> DType:
        """The dtype of Python floats (flag DEFAULT_FLOAT)."""
        return to_dtype(DEFAULT_FLOAT.value)

    @classmethod
    def default_int(cls) -> DType:
        """The dtype of Python ints (flag DEFAULT_INT)."""
        return to_dtype(DEFAULT_INT.value)

    @staticmethod
    def is_float(dtype: DType) -> Any:
        """Whether the type holds floating point numbers."""
        return dtype.kind == "float"

    @staticmethod
    def is_int(dtype: DType) -> Any:
        """Whether the type holds integers (bool is not one)."""
        return dtype.kind in ("int", "uint", "weakint")

    @staticmethod
    def is_unsigned(dtype: DType) -> Any:
        """Whether the type holds integers without a sign."""
        return dtype.kind == "uint"

    @staticmethod
    def is_bool(dtype: DType) -> Any:
        """Whether the type is bool."""
        return dtype.kind == "bool"

    @staticmethod
    def min(dtype: DType) -> Any:
        """The lowest value of the type."""
        if dtype.kind == "float":
            return -math.inf
        if dtype.kind in ("int", "weakint"):
            return -(1 << (dtype.itemsize * 8 - 1))
        return False if dtype.kind == "bool" else 0

    @staticmethod
    def max(dtype: DType) -> Any:
        """The highest value of the type."""
        if dtype.kind == "float":
            return math.inf
        if dtype.kind in ("int", "weakint"):
            return (1 << (dtype.itemsize * 8 - 1)) - 1
        return True if dtype.kind == "bool" else (1 << (dtype.itemsize * 8)) - 1

    @staticmethod
    def from_py(value: Any) -> DType:
        """The dtype that a Python scalar, or a nested list of them, gets."""
        if value is Invalid:
            return dtypes.default_float()
        if isinstance(value, list | tuple):
            kinds = [dtypes.from_py(v) for v in value]
            return max(kinds) if kinds else dtypes.default_float()
        if isinstance(value, np.bool_ | bool_):
            return dtypes.bool
        if isinstance(value, int_):
            return dtypes.default_int()
        if isinstance(value, float_):
            return dtypes.default_float()
        raise DTypeError(
            f"expected a bool, int or float, or nested lists of them, got {type(value).__name__}"
        )

    @staticmethod
    def as_const(value: Any, dtype: DType) -> Any:
        """The Python value that `dtype` holds for `value` (wrapped, truncated or rounded)."""
        if value is Invalid:
            return value
        if dtype.kind == "bool":
            return bool_(value)
        if dtype.kind == "float":
            return round_float(float_(value), dtype)
        return wrap_int(value, dtype)


bool_, int_, float_ = bool, int, float
BY_NAME: dict[str, DType] = {
    name: value for name, value in vars(dtypes).items() if isinstance(value, DType)
}
STORAGE: dict[DType, Any] = {
    **{d: np.dtype(d.name) for d in dtypes.all if d.name in np.sctypeDict or d is dtypes.bool},
    dtypes.bfloat16: np.dtype(np.uint16),
    dtypes.fp8e4m3: np.dtype(np.uint8),
    dtypes.fp8e5m2: np.dtype(np.uint8),
    dtypes.weakint: np.dtype(np.int64),
}
FROM_NUMPY: dict[Any, DType] = {
    np.dtype(d.name): d for d in dtypes.all if d.name in np.sctypeDict or d is dtypes.bool
}


def to_dtype(name: str | DType) -> DType:
    """The dtype of that name (`float32`, `float`, `half`, ...)."""
    if isinstance(name, DType):
        return name
    found = BY_NAME.get(str(name).lower().removeprefix("dtypes."))
    if found is None:
        raise DTypeError(f"no dtype is called {name!r}; the names are {', '.join(BY_NAME)}")
    return found


def storage_dtype(dtype: DType) -> Any:
    """The numpy dtype whose arrays hold the bytes of `dtype` (bfloat16: uint16, fp8: uint8)."""
    return STORAGE[dtype]


def from_numpy_dtype(dtype: Any) -> DType:
    """The dtype that stands for a numpy dtype (ml_dtypes' bfloat16 and fp8 included)."""
    wanted = np.dtype(dtype)
    if wanted in FROM_NUMPY:
        return FROM_NUMPY[wanted]
    names = {"float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2", "bfloat16": "bfloat16"}
    if wanted.name in names:
        return to_dtype(names[wanted.name])
    raise DTypeError(
        f"expected an array of bools, ints of 8 to 64 bits or floats of 16 to 64 bits, "
        f"got numpy dtype {wanted}"
    )


def wrap_int(value: Any, dtype: DType) -> int:
    """An integer (or float, truncated) wrapped into the range of `dtype`."""
    if isinstance(value, float):
        top = 2.0**64 if dtype.kind == "uint" and dtype.itemsize == 8 else 2.0**63
        in_range = math.isfinite(value) and -(2.0**63) <= value < top
        value = int(value) if in_range else -(1 << 63)
    bits = dtype.itemsize * 8
    value = int(value) & ((1 << bits) - 1)
    signed = dtype.kind in ("int", "weakint")
    return int(value - (1 << bits) if signed and value >> (bits - 1) else value)


def round_float(value: float, dtype: DType) -> float:
    """The value that `dtype` holds for `value`, round to nearest even."""
    if dtype is dtypes.float64 or math.isnan(value) or math.isinf(value):
        return value
    if dtype is dtypes.float32:
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    if dtype is dtypes.float16:
        with np.errstate(over="ignore"):
            return float(np.float16(value))
    return float(decode_small(encode_small(np.array([value], np.float64), dtype), dtype)[0])


def encode_small(values: Any, dtype: DType) -> Any:
    """Bits (uint16 or uint8) of float values in bfloat16 or fp8, round to nearest even."""
    if dtype is dtypes.bfloat16:
        bits = odd_round_to_float32(values).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16
        return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    return encode_fp8(np.asarray(values, np.float64), dtype)


def odd_round_to_float32(values: Any) -> Any:
    """Float32 by round-to-odd, so that a second rounding to fewer bits is still right."""
    wide = np.asarray(values)
    if wide.dtype != np.float64:
        return wide.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        near = wide.astype(np.float32)
    bits = near.view(np.uint32).copy()
    inexact = np.isfinite(near) & (near.astype(np.float64) != wide) & ((bits & 1) == 0)
    away = np.abs(near.astype(np.float64)) > np.abs(wide)
    bits = np.where(inexact, np.where(away, bits - 1, bits + 1), bits).astype(np.uint32)
    return bits.view(np.float32)


def fp8_values(dtype: DType) -> Any:
    """The 256 values of an fp8 type in order of their bits."""
    bits = np.arange(256, dtype=np.uint16)
    mantissa_bits, bias = (3, 7) if dtype is dtypes.fp8e4m3 else (2, 15)
    sign = np.where(bits >> 7, -1.0, 1.0)
    exponent = ((bits & 0x7F) >> mantissa_bits).astype(np.int64)
    mantissa = (bits & ((1 << mantissa_bits) - 1)) / float(1 << mantissa_bits)
    normal = np.ldexp(1.0 + mantissa, exponent - bias)
    values = sign * np.where(exponent == 0, np.ldexp(mantissa, 1 - bias), normal)
    nan = np.copysign(np.nan, sign)
    if dtype is dtypes.fp8e4m3:
        return np.where((bits & 0x7F) == 0x7F, nan, values)
    top = exponent == 31
    return np.where(top, np.where(mantissa == 0, sign * np.inf, nan), values)


def encode_fp8(values: Any, dtype: DType) -> Any:
    """Nearest fp8 bits, ties to even; beyond the largest: NaN for e4m3, infinity for e5m2."""
    top = 0x7E if dtype is dtypes.fp8e4m3 else 0x7B
    table = fp8_values(dtype)[: top + 1]
    step = table[top] - table[top - 1]
    magnitude = np.abs(values)
    high = np.clip(np.searchsorted(table, magnitude), 0, top)
    low = np.maximum(high - 1, 0)
    below, above = magnitude - table[low], table[high] - magnitude
    pick_low = (below < above) | ((below == above) & (low % 2 == 0))
    index = np.where(pick_low, low, high)
    limit = table[top] + step / 2
    over = (magnitude > limit) | ((magnitude == limit) & (top % 2 == 1))
    if dtype is dtypes.fp8e4m3:
        over = over | np.isinf(magnitude)
        index = np.where(over | np.isnan(values), 0x7F, index)
    else:
        index = np.where(over, 0x7C, np.where(np.isnan(values), 0x7F, index))
    return (index | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def decode_small(bits: Any, dtype: DType) -> Any:
    """Float32 values of bfloat16 or fp8 bits."""
    if dtype is dtypes.bfloat16:
        return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return fp8_values(dtype)[np.asarray(bits)].astype(np.float32)


def const_key(value: Any) -> Any:
    """A key under which equal constants meet, with 0.0 and -0.0 apart and NaN equal to itself."""
    return struct.pack("<d", value) if isinstance(value, float) else value


PROMOTION: dict[DType, tuple[DType, ...]] = {
    dtypes.weakint: (dtypes.bool,),
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (dtypes.fp8e4m3, dtypes.fp8e5m2),  # no int holds both int64 and uint64
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (dtypes.fp8e4m3, dtypes.fp8e5m2),
    dtypes.fp8e4m3: (dtypes.float16, dtypes.bfloat16),
    dtypes.fp8e5m2: (dtypes.float16, dtypes.bfloat16),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


def _upward(dtype: DType) -> frozenset[DType]:
    found = {dtype}
    for parent in PROMOTION[dtype]:
        found |= _upward(parent)
    return frozenset(found)


REACHABLE: dict[DType, frozenset[DType]] = {d: _upward(d) for d in PROMOTION}


def least_upper_dtype(*kinds: DType) -> DType:
    """The smallest dtype that all of `kinds` promote to (tinygrad's lattice).

    Signed ints and uint64 have no int in common: they meet in the default float.
    """
    if len(set(kinds)) == 1:
        return kinds[0]
    found = min(frozenset.intersection(*(REACHABLE[d] for d in kinds)))
    whole = found.kind == "float" and all(d.kind != "float" for d in kinds)
    return dtypes.default_float() if whole else found


def least_upper_float(dtype: DType) -> DType:
    """The dtype itself where it is a float, else the default float."""
    return dtype if dtype.kind == "float" else dtypes.default_float()


def sum_acc_dtype(dtype: DType) -> DType:
    """The dtype of a sum: ints widen to at least 32 bits, bool counts as int32; floats stay."""
    if dtype.kind == "uint":
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtype.kind in ("int", "bool"):
        return least_upper_dtype(dtype, dtypes.int32)
    return dtype
