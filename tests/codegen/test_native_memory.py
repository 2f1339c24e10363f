"""Loads and stores, compiled, against their plain meaning; masked lanes do not touch memory."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from codegen.native_kernels import (
    ARRAYS,
    REGISTERS,
    SMALL,
    both,
    native,
    random_values,
    same_bits,
    spell,
)

from tinyfn.codegen import cache

STORED = (*REGISTERS, *SMALL)
LANES = (2, 16)
N = 64


def contents(kind: str, count: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if kind in SMALL:
        most = 0x70 if kind.startswith("fp8") else 0x7000
        return (
            rng.integers(0, most, count)
            .astype(ARRAYS[f"u{8 * ARRAYS_WIDTH[kind]}"])
            .view(ARRAYS[kind])
        )
    return random_values(rng, kind, count)


ARRAYS_WIDTH = {kind: np.dtype(held).itemsize for kind, held in ARRAYS.items()}


def moves(kind: str, lanes: int) -> str:
    """Every way to move `lanes` elements, each into a part of `out` of its own."""
    n, T = lanes, f"{kind}x{lanes}"
    return f"""
def moves_{T}(x: {kind}ptr, places: i64ptr, mask: b1ptr, out: {kind}ptr, lo: i64, hi: i64):
    m = vload_b1x{n}(mask, 1)
    p = vload_i64x{n}(places, 0)
    a = vload_{T}(x, 3)
    vstore_{T}(out, 1, a)
    b = vloadm_{T}(x, 5, m)
    vstore_{T}(out, 200, b)
    vstorem_{T}(out, 301, a, m)
    vstorem_{T}(out, 400, a, vfirst_x{n}(hi))
    vstorem_{T}(out, 500, a, vfirst_x{n}(lo))
    vstorem_{T}(out, 600, a, vfirst_x{n}(hi * 1000))
    c = vgather_{T}(x, p, m)
    vstore_{T}(out, 700, c)
    vscatter_{T}(out, vadd_i64x{n}(p, vconst_i64x{n}(800)), a, m)
    d = vstrided_{T}(x, 2, 3)
    vstore_{T}(out, 900, d)
    e = vstridedm_{T}(x, 400, -5, m)
    vstore_{T}(out, 1000, e)
    vstream_{T}(out, 1088, a)
    s = local_{kind}(100)
    for i in range(0, 96):
        store_{kind}(s, i, load_{kind}(x, i))
    vstore_{T}(s, 7, d)
    vstore_{T}(out, 1200, vload_{T}(s, 5))
    for i in range(0, {n}):
        t = load_b1(mask, i + 1)
        f = loadm_{kind}(x, i, t)
        store_{kind}(out, 1300 + i, f)
        storem_{kind}(out, 1400 + i, load_{kind}(x, i), t)
"""


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("kind", STORED)
def test_moves(kind: str, lanes: int) -> None:
    x, out = contents(kind, 500), contents(kind, 1500 + 64, 1)
    start = -out.ctypes.data % 64 // out.itemsize
    rng = np.random.default_rng(lanes)
    places = rng.integers(0, 20, lanes)  # some of them equal: the last lane wins
    mask = rng.integers(0, 2, lanes + 1).astype(bool)
    source = moves(kind, lanes)
    _, plain = both(source.replace("vstream", "vstore"), x, places, mask, out, units=(1, 3))
    (kernel,) = cache.fetch([source])
    # a streaming store wants its place on a line of the cache
    room = np.concatenate([out, out])
    start = -room.ctypes.data % 64 // room.itemsize
    place = room[start : start + len(out)]
    place[:] = out
    before = room.copy()
    native(kernel, x, places, mask, place, units=(1, 3))
    off = np.flatnonzero(~same_bits(place, plain[3]))
    assert not len(off), f"out differs at {off[:10]}: {place[off[:10]]}, {plain[3][off[:10]]}"
    assert same_bits(room[:start], before[:start]).all()
    assert same_bits(room[start + len(out) :], before[start + len(out) :]).all()


def test_a_later_lane_of_a_scatter_wins() -> None:
    source = """
def last_wins(out: i32ptr, lo: i64, hi: i64):
    v = viota_i32x8()
    vscatter_i32x8(out, vconst_i64x8(3), v, vfirst_x8(6))
"""
    for side in both(source, np.full(8, -1, np.int32), units=(0, 1)):
        assert side[0].tolist() == [-1, -1, -1, 5, -1, -1, -1, -1]


@pytest.mark.parametrize("kind", ("f32", "f64", "i32", "i64", "u16"))
def test_masks_of_a_condition_and_a_constant(kind: str) -> None:
    """LLVM 22 loads halves without their mask that a constant makes false, if it can see that."""
    lanes = 16
    T = f"{kind}x{lanes}"
    text = "\n".join(
        f"        v{n} = vloadm_{T}(x, i * {lanes}, vand_b1x{lanes}(c, vfirst_x{lanes}({n})))\n"
        f"        vstore_{T}(out, (i * {lanes} + {n}) * {lanes}, v{n})"
        for n in range(lanes)
    )
    source = f"""
def partly_{T}(x: {kind}ptr, out: {kind}ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        c = vsplat_b1x{lanes}(lt_i64(const_i64(0), index_i64(i)))
{text}
"""
    x = np.arange(1, 1 + 2 * lanes).astype(ARRAYS[kind])
    ways = both(source, x, np.zeros(2 * lanes * lanes, ARRAYS[kind]), units=(0, 2))
    below = np.arange(lanes) < np.arange(lanes)[:, None]
    right = np.stack([np.zeros_like(below, x.dtype), below * x[lanes:]])
    for found in ways:
        np.testing.assert_array_equal(found[1].reshape(right.shape), right)


# *** memory that must not be touched ***


class Fenced:
    """A page between two pages that cannot be touched."""

    def __init__(self) -> None:
        self.size = mmap.PAGESIZE
        self.map = mmap.mmap(-1, 3 * self.size)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for page in (0, 2):
            self.protect(page, 0)
        raw = (ctypes.c_uint8 * self.size).from_address(self.start + self.size)
        self.bytes = np.frombuffer(raw, np.uint8)

    def protect(self, page: int, rights: int) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.start + page * self.size)
        assert library.mprotect(address, ctypes.c_size_t(self.size), rights) == 0


@pytest.fixture(scope="module")
def fenced() -> Any:
    if not hasattr(ctypes.CDLL(None), "mprotect"):
        pytest.skip("needs mprotect")
    return Fenced()


def edges(kind: str, n: int) -> str:
    """`count` elements of x may be touched, all of them before (after) the fence."""
    T = f"{kind}x{n}"
    return f"""
def edges_{T}(x: {kind}ptr, count: i64, lo: i64, hi: i64):
    low = vfirst_x{n}(count)
    a = vloadm_{T}(x, 0, low)
    vstorem_{T}(x, 0, a, low)
    iota = viota_i64x{n}()
    b = vgather_{T}(x, iota, low)
    vscatter_{T}(x, iota, b, low)
    c = vstridedm_{T}(x, 0, 1, low)
    vstorem_{T}(x, 0, c, low)
    none = vfirst_x{n}(0)
    vstorem_{T}(x, count, vloadm_{T}(x, count, none), none)
    high = vnot_b1x{n}(vfirst_x{n}({n} - count))
    d = vloadm_{T}(x, count - {n}, high)
    vstorem_{T}(x, count - {n}, d, high)
    for i in range(0 - 3, count + 3):
        inside = vfirst_x2(min(i + 1, count - i))
        t = vextract_b1x2(inside, 0)
        storem_{kind}(x, i, loadm_{kind}(x, i, t), t)
"""


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("kind", STORED)
def test_masked_lanes_do_not_touch_memory(fenced: Any, kind: str, lanes: int) -> None:
    """A lane that did would end the process: there is no memory on either side."""
    (kernel,) = cache.fetch([edges(kind, lanes)])
    width = ARRAYS_WIDTH[kind]
    for count in sorted({0, 1, lanes // 2, lanes - 1, lanes}):
        values = contents(kind, count, count)
        held = values.view(np.uint8)
        for start in (0, fenced.size - count * width):
            fenced.bytes[:] = 0xA5
            part = fenced.bytes[start : start + count * width]
            part[:] = held
            address = fenced.start + fenced.size + start
            native(kernel, address, count, units=(0, 1))
            assert (part == held).all()
            part[:] = 0xA5
            assert (fenced.bytes == 0xA5).all()


@pytest.mark.parametrize("lanes", (4, 16))
@pytest.mark.parametrize("kind", STORED)
def test_lanes_a_few_elements_apart(fenced: Any, kind: str, lanes: int) -> None:
    """They come from whole loads, which end where the last lane is."""
    T, width = f"{kind}x{lanes}", ARRAYS_WIDTH[kind]
    text = "\n".join(
        f"    vstore_{T}(out, {s * 2 * lanes}, vstrided_{T}(x, 0, {s}))\n"
        f"    m{s} = vfirst_x{lanes}(lo + 2)\n"
        f"    vstore_{T}(out, {(s * 2 + 1) * lanes}, vstridedm_{T}(x, 0, {s}, m{s}))"
        for s in (2, 3, 4, 5)
    )
    source = f"""
def near_{T}(x: {kind}ptr, out: {kind}ptr, lo: i64, hi: i64):
{text}
"""
    x, out = contents(kind, 5 * lanes), contents(kind, 12 * lanes, 1)
    one, other = both(source, x, out, units=(0, 1))
    assert same_bits(one[1], other[1]).all()
    (kernel,) = cache.fetch(
        [
            f"\ndef edge_{T}(x: {kind}ptr, out: {kind}ptr, lo: i64, hi: i64):\n"
            f"    vstore_{T}(out, 0, vstrided_{T}(x, 0, 3))\n"
        ]
    )
    count = (lanes - 1) * 3 + 1
    part = fenced.bytes[fenced.size - count * width :]
    part[:] = x[:count].view(np.uint8)
    native(kernel, fenced.start + 2 * fenced.size - count * width, out, units=(0, 1))
    assert same_bits(out[:lanes], x[:count:3]).all()


NARROWED = {
    "i8": "i64", "u8": "i32", "i16": "i32", "u16": "u64", "i32": "i64", "b1": "i32", "f32": "f64",
    **dict.fromkeys(SMALL, "f32"),
}  # fmt: skip
ONE_LANE = {
    "compared": "veq_i32x{n}(viota_i32x{n}(), vconst_i32x{n}({lane}))",
    "counted": "vxor_b1x{n}(vfirst_x{n}({lane}), vfirst_x{n}({lane} + 1))",
}


@pytest.mark.parametrize("kind", NARROWED)
def test_one_known_lane_of_a_narrowed_vector(kind: str) -> None:
    """LLVM 22 stores the wide element where it sees a mask of one lane (memory._opaque)."""
    source, made = NARROWED[kind], []
    for n in (2, 4, 8, 16, 32):
        for lane in {0, 1, n - 1}:
            for how, mask in ONE_LANE.items():
                value = "v" if kind in SMALL else f"{spell('cast', kind, n, source)}(v)"
                text = f"""
def lane_{kind}_{n}_{lane}_{how}(x: {source}ptr, out: {kind}ptr, lo: i64, hi: i64):
    v = vload_{source}x{n}(x, 0)
    m = {mask.format(n=n, lane=lane)}
    vstorem_{kind}x{n}(out, 0, {value}, m)
"""
                made.append((n, lane, text))
    width = ARRAYS_WIDTH[kind]
    for kernel, (n, lane, text) in zip(cache.fetch([text for *_, text in made]), made, strict=True):
        x = np.full(n, 3, ARRAYS[source])
        out = np.full(n * width + 64, 0x55, np.uint8)
        native(kernel, x, out, units=(0, 1))
        touched = set(np.flatnonzero(out != 0x55).tolist())
        assert touched <= set(range(lane * width, (lane + 1) * width)), text
        assert touched, text
