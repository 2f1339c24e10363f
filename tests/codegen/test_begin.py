"""Slices of one memory share a kernel, which begins where its arguments say."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit
from tinyfn.codegen.begin import begin_at_arguments
from tinyfn.uop.ops import Ops

X = np.arange(100 * 16, dtype=np.float32).reshape(100, 16)


def kernels_of(tensor):
    linear, _ = tensor.linear_with_vars()
    return [begin_at_arguments(c.src[0]) for c in linear.src if c.src[0].op is Ops.SINK]


def slices_of(x, *begins):
    return [kernels_of(x[b : b + 4] * 2)[0] for b in begins]


def test_slices_at_different_places_share_a_kernel():
    x = Tensor(X).realize()
    found = slices_of(x, 0, 7, 55)
    assert len({sink for sink, _ in found}) == 1
    assert [begins for _, begins in found] == [{}, {1: 7 * 64}, {1: 55 * 64}]


def test_memory_begins_at_whole_cache_lines():
    x = Tensor(X).reshape(-1).realize()
    found = slices_of(x, 3, 19, 16 * 50 + 3, 20)
    assert [begins for _, begins in found] == [{}, {1: 64}, {1: 50 * 64}, {1: 64}]
    assert len({sink for sink, _ in found[:3]}) == 1
    assert found[3][0] is not found[0][0]


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "bool"])
def test_a_cache_line_holds_elements_by_their_size(dtype):
    x = Tensor(X[:, 0] % 2).cast(dtype).realize()
    for begin in (5, 70):
        y = x[begin : begin + 9]
        np.testing.assert_array_equal(y.contiguous().numpy(), (X[begin : begin + 9, 0] % 2))
        _, begins = kernels_of(y.contiguous())[0]
        line = 64 // x.dtype.itemsize
        assert begins.get(1, 0) == begin // line * 64


def test_several_places_of_one_memory_begin_at_the_first():
    x = Tensor(X).realize()
    sink, begins = kernels_of(x[20] + x[10])[0]
    assert begins == {1: 10 * 64}
    assert sink is kernels_of(x[80] + x[70])[0][0]
    assert sink is not kernels_of(x[80] + x[71])[0][0]


def test_padding_stays_where_it_is():
    x = Tensor(X).realize()
    y = x[90:].pad(((2, 0), (0, 0))) * 2
    np.testing.assert_array_equal(y.numpy(), np.pad(X[90:], ((2, 0), (0, 0))) * 2)


def test_flipped_rows():
    x = Tensor(X).realize()
    np.testing.assert_array_equal((x[50:60].flip(0) + 1).numpy(), X[50:60][::-1] + 1)


def test_rows_are_assigned_by_one_kernel():
    x = Tensor.zeros(100, 16).contiguous().realize()
    rows = [Tensor(X[i]).realize() for i in (3, 50, 99)]
    for i, row in zip((3, 50, 99), rows, strict=True):
        x[i] = row
    assert len({sink for sink, _ in kernels_of(x)}) == 1
    expected = np.zeros_like(X)
    expected[[3, 50, 99]] = X[[3, 50, 99]]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_plain_python_begins_there_too():
    with Context(NATIVE=0):
        x = Tensor(X).realize()
        np.testing.assert_array_equal((x[40:42] * 2).numpy(), X[40:42] * 2)


@pytest.mark.parametrize("kernels", [1, 2])
def test_a_replay_begins_in_the_memory_that_it_is_given(kernels):
    @TinyJit
    def step(x):
        y = (x[40:42] * 2).realize()
        return (y.sum(0, keepdim=True) if kernels == 2 else y) + 0

    for k in range(4):
        found = step(Tensor(X + k).realize()).numpy()
        expected = (X[40:42] + k) * 2
        np.testing.assert_array_equal(
            found, expected.sum(0, keepdims=True) if kernels == 2 else expected
        )


def test_shards_begin_alike_on_every_slot():
    x = Tensor(X).shard(("CPU:0", "CPU:1"), 1).realize()
    np.testing.assert_array_equal((x[60:62] * 2).numpy(), X[60:62] * 2)
