"""Every elementwise op, compiled, against its plain meaning, on values that hurt.

Integers, bools and float arithmetic have to agree to the bit; functions within the bounds that
`test_math.py` derives, which each side may use up.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codegen.native_kernels import FLOATS, INTS, REGISTERS, both, same_bits, spell, triples

from tinyfn.codegen.native.target import processor
from tinyfn.codegen.simd import ALU

FUNCTIONS = "exp exp2 expm1 log log2 log1p sin cos tan tanh sigmoid erf pow".split()
# units in the last place: a function is within one (two) of the truth, numpy's within a half (one)
BOUND = {"f32": 2, "f64": 4}
LANES = {"b1": 64, "i8": 32, "u8": 32, "i64": 8, "u64": 8, "f64": 8}
ELSEWHERE = ("cast", "bitcast")  # test_native_casts.py


def ops_of(kind: str) -> list[str]:
    return [op for op, row in ALU.items() if kind in row.kinds and op not in ELSEWHERE]


@functools.cache
def kernel(kind: str, lanes: int) -> str:
    """All ops of a type over x, y, z and a mask; the results of op k lie from k * n on."""

    def say(op: str, of: str = kind) -> str:
        return spell(op, of, lanes)

    lines = [
        f"def all_{kind}x{lanes}(x: {kind}ptr, y: {kind}ptr, z: {kind}ptr, m: b1ptr, "
        f"out: {kind}ptr, flags: b1ptr, n: i64, lo: i64, hi: i64):",
        f"    for i in range(lo, hi, {lanes}):",
        *(f"        v{v} = {say('load')}({v}, i)" for v in "xyz"),
        f"        vm = {say('load', 'b1')}(m, i)",
    ]
    for k, op in enumerate(ops_of(kind)):
        row = ALU[op]
        given = ["vm"] * row.takes.count("mask") + ["vx", "vy", "vz"][: row.takes.count("value")]
        lines.append(f"        r{k} = {say(op)}({', '.join(given)})")
        is_flag = row.gives == "mask"
        place, of = ("flags", "b1") if is_flag else ("out", kind)
        lines.append(f"        {say('store', of)}({place}, {k} * n + i, r{k})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("kind", REGISTERS)
def test_ops_of(kind: str, vector: bool) -> None:
    lanes = LANES.get(kind, 16) if vector else 1
    x, y, z = triples(kind, 64)
    n, names = len(x), ops_of(kind)
    mask = np.random.default_rng(1).integers(0, 2, n).astype(bool)
    room = len(names) * n
    arguments = x, y, z, mask, np.zeros(room, x.dtype), np.zeros(room, bool), n
    native, plain = both(kernel(kind, lanes), *arguments, units=(0, n))
    wrong = []
    for k, op in enumerate(names):
        place = 5 if ALU[op].gives == "mask" else 4
        got, want = (side[place][k * n : (k + 1) * n] for side in (native, plain))
        if op == "fma":
            want = fused(x, y, z) if processor().has_fma else product_and_sum(x, y, z)
        off = np.flatnonzero(~agree(op, kind, x, y, got, want))
        if len(off):
            shown = [(x[i], y[i], z[i], got[i], want[i]) for i in off[:4]]
            wrong.append(f"{op}_{kind}: {len(off)} differ; x, y, z, got, want: {shown}")
    assert not wrong, "\n".join(wrong)


def agree(op: str, kind: str, x: Any, y: Any, got: Any, want: Any) -> Any:
    if op in ("max", "min") and kind in FLOATS:
        return same_bits(got, want) | (got == want)  # of 0 and -0 either
    if op not in FUNCTIONS:
        return same_bits(got, want)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.minimum(np.abs(got), np.abs(want)))
        near = np.abs(got - want) <= BOUND[kind] * unit
    found = same_bits(got, want) | near
    if op == "pow":
        # C says inf; numpy takes the square root where the exponent is one 0.5
        found |= (x == -np.inf) & (y == 0.5) & (got == np.inf)
    return found


def product_and_sum(x: Any, y: Any, z: Any) -> Any:
    with np.errstate(all="ignore"):
        return x * y + z


def fused(x: Any, y: Any, z: Any) -> Any:
    """x * y + z in exact arithmetic, rounded once."""
    with np.errstate(all="ignore"):
        plain = x.astype(np.longdouble) * y.astype(np.longdouble) + z.astype(np.longdouble)
    rows = zip(x.tolist(), y.tolist(), z.tolist(), plain, strict=True)
    found = [fused_once(*row, x.dtype.type) for row in rows]
    return np.array(found, x.dtype)


def fused_once(x: float, y: float, z: float, plain: Any, kind: Any) -> Any:
    finite = np.isfinite([x, y, z])
    if not finite.all():
        # infinities and NaN: a product of finite factors is finite, however large
        return kind(z) if finite[:2].all() else kind(plain)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return kind(plain)
    bits, lowest = (24, -149) if kind is np.float32 else (53, -1074)
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < Fraction(2) ** power
    unit = Fraction(2) ** max(power - bits + 1, lowest)
    units = round(size / unit)  # ties to even
    too_large = units * unit > Fraction(float(np.finfo(kind).max))
    value = float("inf") if too_large else float(units * unit)
    return kind(-value if exact < 0 else value)


LANE_COUNTS = """
def lanes_{n}(x: f32ptr, y: f32ptr, a: i8ptr, b: i8ptr, out: f32ptr, small: i8ptr, \
lo: i64, hi: i64):
    for i in range(lo, hi, {n}):
        v = vload_f32x{n}(x, i)
        w = vload_f32x{n}(y, i)
        less = vlt_f32x{n}(v, w)
        r = vmod_f32x{n}(v, w)
        vstore_f32x{n}(out, i, vwhere_f32x{n}(less, vmul_f32x{n}(v, w), r))
        c = vload_i8x{n}(a, i)
        d = vload_i8x{n}(b, i)
        vstore_i8x{n}(small, i, vmod_i8x{n}(c, vidiv_i8x{n}(c, d)))
"""


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64])
def test_every_count_of_lanes(lanes: int) -> None:
    x, y, _ = triples("f32", 64)
    a, b, _ = triples("i8", 64)
    n = min(len(x), len(a)) // 64 * 64
    arguments = x[:n], y[:n], a[:n], b[:n], np.zeros(n, np.float32), np.zeros(n, np.int8)
    native, plain = both(LANE_COUNTS.format(n=lanes), *arguments, units=(0, n))
    assert same_bits(native[4], plain[4]).all()
    assert same_bits(native[5], plain[5]).all()


def test_a_product_is_rounded_before_the_sum() -> None:
    source = """
def two_steps(x: f32ptr, y: f32ptr, z: f32ptr, out: f32ptr, lo: i64, hi: i64):
    for i in range(lo, hi, 16):
        product = vmul_f32x16(vload_f32x16(x, i), vload_f32x16(y, i))
        vstore_f32x16(out, i, vadd_f32x16(product, vload_f32x16(z, i)))
"""
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((2, 1600)).astype(np.float32)
    z = -(x * y)  # what is left is the rounding error where the two steps were fused
    native, _ = both(source, x, y, z, np.ones(1600, np.float32), units=(0, 1600))
    assert (native[3] == 0).all()


def test_threefry_gives_the_published_numbers() -> None:
    source = """
def published(x: u64ptr, key: u64ptr, out: u64ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        store_u64(out, i, threefry_u64(load_u64(x, i), load_u64(key, i)))
"""
    # the known answers of Random123 for threefry2x32 with 20 rounds, low words first
    counter = [(0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x243F6A88, 0x85A308D3)]
    key = [(0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x13198A2E, 0x03707344)]
    known = [(0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7), (0xC4923A9C, 0x483DF7A0)]
    words = [np.array([low | high << 32 for low, high in v], np.uint64) for v in (counter, key)]
    for side in both(source, *words, np.zeros(3, np.uint64), units=(0, 3)):
        assert side[2].tolist() == [low | high << 32 for low, high in known]


@pytest.mark.deep
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names of x86 processors")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
def test_ops_for_other_processors(cpu: str) -> None:
    """The same tests on code made for an older processor, which this one runs too."""
    files = sorted(str(p) for p in Path(__file__).parent.glob("test_native_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    run = subprocess.run(
        command, env={**os.environ, "TINYFN_CPU": cpu}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-4000:]


def test_integer_types_are_all_tried() -> None:
    assert {*INTS, *FLOATS, "b1"} == set(REGISTERS)
