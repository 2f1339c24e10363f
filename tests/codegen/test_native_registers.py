"""Constants, lanes and horizontal ops, compiled, against their plain meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.native_kernels import (
    ARRAYS,
    FLOATS,
    INTS,
    REGISTERS,
    both,
    hurting,
    random_values,
    same_bits,
)


def literals(kind: str) -> list[str]:
    if kind == "b1":
        return ["True", "False"]
    if kind in INTS:
        ends = np.iinfo(ARRAYS[kind])
        return [str(v) for v in (ends.min, ends.max, 0, 1, 77)]
    return ["INF", "-INF", "NAN", "0.0", "-0.0", "0.1", "1e-45", "3.4028235e38", "1e300", "-7", "1"]


@pytest.mark.parametrize("kind", REGISTERS)
def test_constants(kind: str) -> None:
    lines = [f"def constants_{kind}(out: {kind}ptr, lo: i64, hi: i64):"]
    listed = literals(kind)
    for k, text in enumerate(listed):
        lines.append(f"    store_{kind}(out, {k * 9}, const_{kind}({text}))")
        lines.append(f"    vstore_{kind}x8(out, {k * 9 + 1}, vconst_{kind}x8({text}))")
    out = np.zeros(9 * len(listed), ARRAYS[kind])
    native, plain = both("\n".join(lines) + "\n", out, units=(0, 1))
    assert same_bits(native[0], plain[0]).all(), (native[0], plain[0])
    if kind in FLOATS:
        assert np.signbit(native[0][9 * 4]) and not np.signbit(native[0][9 * 3])


@pytest.mark.parametrize("kind", REGISTERS)
def test_lanes(kind: str) -> None:
    number = kind != "b1"
    source = f"""
def lanes_{kind}(x: {kind}ptr, out: {kind}ptr, lo: i64, hi: i64):
    v = vload_{kind}x16(x, 0)
    store_{kind}(out, 0, vextract_{kind}x16(v, 0))
    store_{kind}(out, 1, vextract_{kind}x16(v, 15))
    vstore_{kind}x16(out, 16, vsplat_{kind}x16(load_{kind}(x, 3)))
    for i in range(0 - 20, 20):
        store_{kind}(out, 52 + i, index_{kind}(i * 1000003))
"""
    if number:
        source += f"    vstore_{kind}x64(out, 80, viota_{kind}x64())\n"
    x = random_values(np.random.default_rng(0), kind, 16)
    native, plain = both(source, x, np.zeros(200, x.dtype), units=(0, 1))
    assert same_bits(native[1], plain[1]).all()


def test_first() -> None:
    lines = ["def firsts(out: b1ptr, lo: i64, hi: i64):", "    for k in range(0 - 70, 70):"]
    for i, n in enumerate((2, 4, 8, 16, 32, 64)):
        lines.append(f"        vstore_b1x{n}(out, {i} * 10000 + (k + 70) * {n}, vfirst_x{n}(k))")
    lines.append("    vstore_b1x4(out, 70000, vfirst_x4(9223372036854775807))")
    lines.append("    vstore_b1x4(out, 70004, vfirst_x4(-9223372036854775807))")
    native, plain = both("\n".join(lines) + "\n", np.zeros(80000, bool), units=(0, 1))
    assert (native[0] == plain[0]).all()
    assert native[0][70000:70008].tolist() == [True] * 4 + [False] * 4


def horizontals(kind: str, n: int) -> str:
    T = f"{kind}x{n}"
    stores = "".join(
        f"        store_{kind}(out, i * 4 + {k}, {op}_{T}(v))\n"
        for k, op in enumerate(("hadd", "hmul", "hmax", "hmin"))
    )
    return f"""
def across_{T}(x: {kind}ptr, out: {kind}ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        v = vload_{T}(x, i * {n})
{stores}"""


@pytest.mark.parametrize("n", [2, 16, 64])
@pytest.mark.parametrize("kind", [*INTS, *FLOATS])
def test_across_lanes(kind: str, n: int) -> None:
    """In the order of halves, so that floats agree to the bit."""
    rng = np.random.default_rng(n)
    hard = rng.choice(hurting(kind), 10 * n)
    x = np.concatenate([random_values(rng, kind, 30 * n), hard])
    native, plain = both(horizontals(kind, n), x, np.zeros(160, x.dtype), units=(0, 40))
    got, want = native[1], plain[1]
    same = same_bits(got, want)
    if kind in FLOATS:
        largest = np.arange(160) % 4 >= 2
        same |= largest & (got == want)  # 0 or -0
    assert same.all()


def test_masks_across_lanes() -> None:
    source = """
def any_all(x: b1ptr, out: b1ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        m = vload_b1x8(x, i * 8)
        store_b1(out, i * 2, hor_x8(m))
        store_b1(out, i * 2 + 1, hand_x8(m))
"""
    x = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(bool)
    native, plain = both(source, x.ravel(), np.zeros(512, bool), units=(0, 256))
    for side in (native, plain):
        assert (side[1].reshape(-1, 2) == np.stack([x.any(1), x.all(1)], 1)).all()


def test_any_byte_of_a_bool_counts_as_true() -> None:
    source = """
def bools(x: b1ptr, out: b1ptr, lo: i64, hi: i64):
    vstore_b1x8(out, 0, vload_b1x8(x, 0))
"""
    x: Any = np.array([0, 1, 2, 128, 255, 0, 64, 3], np.uint8)
    native, _ = both(source, x.view(bool), np.zeros(8, np.uint8).view(bool), units=(0, 1))
    assert native[1].view(np.uint8).tolist() == [0, 1, 1, 1, 1, 0, 1, 1]
