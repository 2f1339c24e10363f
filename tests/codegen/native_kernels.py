"""Kernels of the generated language, run natively and as plain Python, and values that hurt."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tinyfn.codegen import cache
from tinyfn.codegen.simd import TABLE, Word, plain_function, spelling

INF, NAN = float("inf"), float("nan")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")
SMALL = ("f16", "bf16", "fp8e4m3", "fp8e5m2")
REGISTERS = ("b1", *INTS, *FLOATS)
ARRAYS: dict[str, Any] = {
    "b1": np.bool_,
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": np.uint16,
    **dict.fromkeys(("fp8e4m3", "fp8e5m2"), np.uint8),
}
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def spell(op: str, kind: str, lanes: int, source: str | None = None) -> str:
    """The name of an op."""
    assert op in TABLE
    return spelling(Word(op, kind, source or kind, lanes))


def native(kernel: Any, *arguments: Any, units: tuple[int, int]) -> None:
    """Call a compiled kernel on arrays and ints."""
    words = [a.ctypes.data if isinstance(a, np.ndarray) else int(a) for a in arguments]
    block = (ctypes.c_int64 * (len(words) + 1))(*words)
    assert ENTRY(kernel.address)(ctypes.addressof(block), *units) == 0


def both(source: str, *arguments: Any, units: tuple[int, int]) -> tuple[list[Any], list[Any]]:
    """The arguments after a native and after a plain run of the same text."""
    (kernel,) = cache.fetch([source])
    ways = []
    for run in ("native", "plain"):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        if run == "native":
            native(kernel, *copies, units=units)
        else:
            plain_function(source)(*copies, *units)
        ways.append(copies)
    return ways[0], ways[1]


def same_bits(got: Any, want: Any) -> Any:
    """Where two arrays hold the same bits, or a NaN both."""
    if got.dtype.kind != "f":
        return got == want
    bits = np.dtype(f"u{got.dtype.itemsize}")
    return (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))


def hurting(kind: str) -> Any:
    """Zeros, ends of the range, what is not a number, and what lies beside each."""
    if kind == "b1":
        return np.array([False, True])
    dtype = np.dtype(ARRAYS[kind])
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 10, 31, 32, 63, 64, 100, -1, -2, -3, -7, -64, -100]
        listed = [ends.min, ends.min + 1, ends.max // 2, ends.max - 1, ends.max, *near]
        whole = 2 ** (8 * dtype.itemsize) - 1
        patterns = np.array([v & whole for v in listed], np.uint64)
        return np.unique(patterns.astype(f"u{dtype.itemsize}").view(dtype))
    ends = np.finfo(dtype)
    sizes = [0.0, ends.smallest_subnormal, ends.smallest_subnormal * 5, ends.tiny, ends.max]
    sizes += [0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 89.5, 1e10, 2.0**31, 2.0**63, 2.0**64, INF]
    values = [*sizes, *(-v for v in sizes), NAN, 1.0 + ends.eps, 1.0 - ends.epsneg]
    return np.array(values, dtype)


def triples(kind: str, lanes: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Every pair of hurting values with a third, then random ones; a multiple of the lanes."""
    rng = np.random.default_rng(seed)
    values = hurting(kind)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    z = values[rng.integers(0, len(values), len(x))]
    found = []
    for part in (x, y, z):
        more = random_values(rng, kind, 64 + -(len(x) + 64) % lanes)
        found.append(np.ascontiguousarray(np.concatenate([part, more])))
    return found[0], found[1], found[2]


def random_values(rng: Any, kind: str, count: int) -> Any:
    """Values of all sizes."""
    dtype = np.dtype(ARRAYS[kind])
    if kind == "b1":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype).ravel()
    return (rng.standard_normal(count) * np.exp(rng.uniform(-8, 8, count))).astype(dtype)
