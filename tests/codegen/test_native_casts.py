"""Casts, bit casts and small floats, compiled, against their plain meaning, to the bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from codegen.native_kernels import (
    ARRAYS,
    REGISTERS,
    SMALL,
    both,
    hurting,
    random_values,
    same_bits,
    spell,
)

WIDTH = {kind: np.dtype(held).itemsize for kind, held in ARRAYS.items()}


def sample(kind: str, seed: int = 3) -> Any:
    """Hurting values, what lies around powers of two, and values of all sizes."""
    parts = [hurting(kind), random_values(np.random.default_rng(seed), kind, 300)]
    if kind in ("f32", "f64"):
        dtype = ARRAYS[kind]
        powers = np.array([2.0**p for p in (7, 8, 15, 16, 23, 31, 32, 52, 53, 62, 63, 64)], dtype)
        around = [np.nextafter(powers, dtype(0)), powers, np.nextafter(powers, dtype(np.inf))]
        parts += [s * v for v in [*around, powers + dtype(0.5)] for s in (dtype(1), dtype(-1))]
    found = np.concatenate(parts)
    return np.resize(found, -(-len(found) // 64) * 64)


def conversions(op: str, source: str, targets: tuple[str, ...], lanes: int) -> str:
    """A kernel that converts x to each target, into a buffer of its own."""

    def register(kind: str) -> str:
        return "f32" if kind in SMALL else kind

    outs = ", ".join(f"to_{t}: {register(t)}ptr" for t in targets)
    lines = [
        f"def {op}_{source}x{lanes}(x: {register(source)}ptr, {outs}, lo: i64, hi: i64):",
        f"    for i in range(lo, hi, {lanes}):",
        f"        v = {spell('load', register(source), lanes)}(x, i)",
    ]
    for t in targets:
        lines.append(f"        r_{t} = {spell(op, t, lanes, source)}(v)")
        lines.append(f"        {spell('store', register(t), lanes)}(to_{t}, i, r_{t})")
    return "\n".join(lines) + "\n"


def check(source: str, x: Any, targets: tuple[str, ...]) -> None:
    outs = [np.zeros(len(x), "f4" if t in SMALL else ARRAYS[t]) for t in targets]
    native, plain = both(source, x, *outs, units=(0, len(x)))
    for target, got, want in zip(targets, native[1:], plain[1:], strict=True):
        off = np.flatnonzero(~same_bits(got, want))
        shown = [(x[i], got[i], want[i]) for i in off[:5]]
        assert not len(off), f"to {target}: {len(off)} differ; x, got, want: {shown}\n{source}"


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("source", REGISTERS)
def test_cast(source: str, lanes: int) -> None:
    check(conversions("cast", source, REGISTERS, lanes), sample(source), REGISTERS)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("source", [k for k in REGISTERS if k != "b1"])
def test_bitcast(source: str, lanes: int) -> None:
    same = tuple(k for k in REGISTERS if WIDTH[k] == WIDTH[source] and k != "b1")
    check(conversions("bitcast", source, same, lanes), sample(source), same)


def test_what_casts_give_at_the_ends() -> None:
    """Written out, so that both sides cannot be wrong together."""
    x = np.resize(np.array([np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63), 1e10, -1.9, 300.0]), 64)
    names = ("i64", "u64", "i32", "u8")
    outs = [np.zeros(64, ARRAYS[t]) for t in names]
    native, _ = both(conversions("cast", "f64", names, 8), x, *outs, units=(0, 64))
    low = -(2**63)
    assert native[1][:8].tolist() == [low, low, low, low, low, 10**10, -1, 300]
    assert native[2][:8].tolist() == [2**63] * 5 + [10**10, 2**64 - 1, 300]
    assert native[3][:8].tolist() == [0, 0, 0, 0, 0, 1410065408, -1, 300]
    assert native[4][:8].tolist() == [0, 0, 0, 0, 0, 10**10 & 255, 255, 300 & 255]


@functools.cache
def around_the_small(kind: str) -> Any:
    """All storable values as float32, the middles between them, and what lies beside those."""
    bits = np.arange(2 ** (8 * WIDTH[kind]), dtype=f"u{WIDTH[kind]}")
    name = f"u{8 * WIDTH[kind]}"
    values = np.zeros(len(bits), np.float32)
    native, plain = both(
        conversions("bitcast", name, (kind,), 16), bits, values, units=(0, len(bits))
    )
    assert same_bits(native[1], plain[1]).all()
    stored = np.sort(plain[1][np.isfinite(plain[1])])
    with np.errstate(over="ignore"):
        middle = ((stored[1:].astype(np.float64) + stored[:-1]) / 2).astype(np.float32)
        growth = np.array([1.001, 1.01, 1.03, 1.06, 1.1, 1.2, 2.0], np.float32)
        beyond = stored[-1] * growth
    rng = np.random.default_rng(4)
    any_bits = rng.integers(0, 2**32, 20000, np.uint32).view(np.float32)
    parts = [plain[1], middle, np.nextafter(middle, np.float32(0)), beyond, -beyond, any_bits]
    parts += [np.nextafter(middle, np.float32(np.inf)), hurting("f32")]
    found = np.concatenate(parts)
    return np.resize(found, -(-len(found) // 64) * 64)


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_round_to_nearest(kind: str) -> None:
    """Stored, loaded, rounded in place and taken apart: all the same rounding."""
    x = around_the_small(kind)
    name = f"u{8 * WIDTH[kind]}"
    source = f"""
def small_{kind}(x: f32ptr, held: {kind}ptr, back: f32ptr, rounded: f32ptr, bits: {name}ptr, \
lo: i64, hi: i64):
    for i in range(lo, hi, 16):
        v = vload_f32x16(x, i)
        vstore_{kind}x16(held, i, v)
        vstore_f32x16(back, i, vload_{kind}x16(held, i))
        q = vquant_{kind}x16(v)
        vstore_f32x16(rounded, i, q)
        vstore_{name}x16(bits, i, vbitcast_{kind}_{name}x16(q))
"""
    held = np.zeros(len(x), ARRAYS[kind])
    places = [np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)]
    native, plain = both(
        source, x, held, *places, np.zeros(len(x), ARRAYS[name]), units=(0, len(x))
    )
    number = ~np.isnan(x)
    for got, want in zip(native[2:4], plain[2:4], strict=True):
        assert same_bits(got, want).all(), x[~same_bits(got, want)][:5]
    assert (native[4] == plain[4])[number & ~np.isnan(plain[2])].all()
    assert same_bits(native[2], native[3]).all()
    assert np.isnan(native[2][~number]).all()


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_one_at_a_time(kind: str) -> None:
    x = np.concatenate([hurting("f32"), around_the_small(kind)[:1000]])
    source = f"""
def one_{kind}(x: f32ptr, held: {kind}ptr, back: f32ptr, rounded: f32ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        v = load_f32(x, i)
        store_{kind}(held, i, v)
        store_f32(back, i, load_{kind}(held, i))
        store_f32(rounded, i, quant_{kind}(v))
"""
    outs = np.zeros(len(x), ARRAYS[kind]), np.zeros(len(x), "f4"), np.zeros(len(x), "f4")
    native, plain = both(source, x, *outs, units=(0, len(x)))
    assert same_bits(native[2], plain[2]).all()
    assert same_bits(native[3], plain[3]).all()
    assert same_bits(native[2], native[3]).all()
