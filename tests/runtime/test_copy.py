"""Copies and fills: right at every size and alignment, and nothing beside the range is touched."""

import numpy as np
import pytest

from tinyfn.device import Buffer
from tinyfn.dtype import dtypes
from tinyfn.errors import ShapeError
from tinyfn.runtime import copy

SIZES = [0, 1, 63, 64, 257, 4099, (512 << 10) - 1, (512 << 10) + 77, (3 << 20) + 5]


def address(array):
    return array.__array_interface__["data"][0]


def pattern(size):
    return np.random.default_rng(size).integers(0, 255, size, np.uint8)


@pytest.fixture(params=[False, True], ids=["plain", "streaming"])
def streaming(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(copy, "stream_from", lambda: 1 << 19)


@pytest.mark.parametrize("size", SIZES)
def test_move_at_odd_offsets(streaming, size):
    source = pattern(size + 200)
    for to, start in ((0, 0), (1, 0), (63, 7), (64, 1)):
        canvas = np.full(size + 200, 0xEE, np.uint8)
        copy.move(address(canvas) + to, address(source) + start, size)
        wanted = np.full(size + 200, 0xEE, np.uint8)
        wanted[to : to + size] = source[start : start + size]
        np.testing.assert_array_equal(canvas, wanted)


@pytest.mark.parametrize("shift", [-70, -1, 0, 1, 4096])
def test_move_may_overlap(shift):
    memory, size = pattern(2 << 20), 1 << 20
    wanted = memory[5000 : 5000 + size].copy()
    copy.move(address(memory) + 5000 + shift, address(memory) + 5000, size)
    np.testing.assert_array_equal(memory[5000 + shift : 5000 + shift + size], wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 5, 31, 100, 70_001, 1_000_003])
def test_fill_repeats_an_element(kind, count):
    canvas = np.full(count + 40, 99, kind)
    value = kind(42.5)
    copy.fill(address(canvas) + 17 * canvas.itemsize, value.tobytes(), count)
    wanted = np.full(count + 40, 99, kind)
    wanted[17 : 17 + count] = value
    np.testing.assert_array_equal(canvas, wanted)


def test_copy_between_slots():
    values = np.arange(300_000, dtype=np.float32)
    source = Buffer("CPU", values.size, dtypes.float32).copyin(values)
    target = Buffer("CPU:1", values.size, dtypes.float32)
    copy.copy(target, source)
    np.testing.assert_array_equal(target.copyout(), values)
    copy.copy(Buffer("CPU:1", 0, dtypes.int8), Buffer("CPU", 0, dtypes.int8))
    with pytest.raises(ShapeError, match=r"got 8 bytes on CPU:1 and 4 bytes on CPU"):
        copy.copy(Buffer("CPU:1", 2, dtypes.int32), Buffer("CPU", 1, dtypes.int32))
