"""Running values: kernels of their own, long lines in pieces, gradients, slots, symbolic sizes."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit, Variable, dtypes
from tinyfn.uop.ops import UOp

RUNNING = {"ADD": np.add, "MUL": np.multiply, "MAX": np.maximum, "MIN": np.minimum}
SHAPES = [
    ((1,), 0),
    ((7,), 0),
    ((0, 3), 0),
    ((3, 0), 1),
    ((5, 33), 1),
    ((8, 33), 1),
    ((33, 5), 0),
    ((2, 9, 300), 1),
    ((2, 9, 3, 7), 1),
    ((9, 1, 1), 0),
]


def values(*shape):
    return (np.random.default_rng(3).random(shape) + 0.5).astype(np.float32)


def scanned(data, name, axis, reverse=False):
    x = np.flip(data, axis) if reverse else data
    found = RUNNING[name].accumulate(x, axis)
    return np.flip(found, axis) if reverse else found


def kernels_of(tensor):
    return len(tensor.linear_with_vars()[0].src)


@pytest.mark.parametrize("native", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_running_values_are_numpys(shape, axis, native):
    data = values(*shape)
    with Context(NATIVE=native):
        x = Tensor(data)
        for name in RUNNING:
            for reverse in (False, True):
                found = x._scan(name, axis, reverse).numpy()
                np.testing.assert_allclose(found, scanned(data, name, axis, reverse), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "bool", "float16", "float64"])
def test_dtypes(dtype):
    data = (values(6, 40) * 3 - 2).astype(dtype)
    np.testing.assert_array_equal(Tensor(data).cummax(1)[0].numpy(), scanned(data, "MAX", 1))
    if dtype != "bool":
        right = np.cumsum(data.astype(np.float64 if "float" in dtype else np.int64), 1)
        found = Tensor(data).cumsum(1)
        tolerance = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 0)
        np.testing.assert_allclose(found.numpy().astype(right.dtype), right, rtol=tolerance)


def test_signs_of_zero_and_nan():
    data = np.array([-0.0, -0.0, 0.0, -0.0, 1.0, np.nan, 2.0], np.float32)
    found = Tensor(data).cumsum().numpy()
    np.testing.assert_array_equal(found, np.cumsum(data))
    np.testing.assert_array_equal(np.signbit(found[:4]), np.signbit(np.cumsum(data)[:4]))
    largest, place = Tensor(data).cummax()
    np.testing.assert_array_equal(largest.numpy(), np.maximum.accumulate(data))
    assert place.tolist() == [0, 1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize(("shape", "axis"), [((40000,), 0), ((3, 20001), 1), ((20000, 3), 0)])
def test_few_long_lines_are_taken_in_pieces(shape, axis):
    data = values(*shape)
    x = Tensor(data).realize()
    assert kernels_of(x.cumsum(axis)) == 3
    for name in ("ADD", "MAX", "MIN"):
        for reverse in (False, True):
            found = x._scan(name, axis, reverse).numpy()
            right = scanned(data.astype(np.float64), name, axis, reverse)
            np.testing.assert_allclose(found, right, rtol=2e-6)
    small = (1 + values(*shape) / 1e4).astype(np.float64)
    np.testing.assert_allclose(Tensor(small).cumprod(axis).numpy(), small.cumprod(axis), rtol=1e-11)


def test_what_comes_before_is_part_of_the_kernel():
    x = Tensor(values(20, 30)).realize()
    assert kernels_of((x * 2 + 1).cumsum(1)) == 1
    assert kernels_of(x.softmax(1).cumsum(1)) == 1
    powers = np.exp(x.numpy().astype(np.float64))
    right = np.cumsum(powers / powers.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(x.softmax(1).cumsum(1).numpy(), right, rtol=1e-5)
    np.testing.assert_allclose(
        (x * 2 + 1).cumsum(1).numpy(), np.cumsum(x.numpy() * 2 + 1, 1), rtol=1e-5
    )


def test_linear_recurrences():
    x, f = values(3, 12), values(3, 12)
    right = np.empty((3, 12))
    total = np.zeros(3)
    for i in range(12):
        total = total * f[:, i] + x[:, i]
        right[:, i] = total
    found = Tensor(x)._scan("FMA", 1, factor=Tensor(f))
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5)
    with Context(NATIVE=0):
        found = Tensor(x)._scan("FMA", 1, factor=Tensor(f))
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5)


def numeric(function, x, g):
    """Central differences of sum(g * function(x)) in float64."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        found[i] = ((function(x + step) - function(x - step)) * g).sum() / 2e-6
    return found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", list(RUNNING))
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients(name, axis, reverse):
    x, g = values(5, 6).astype(np.float64), values(5, 6).astype(np.float64) - 1
    t = Tensor(x)
    (found,) = t._scan(name, axis, reverse).gradient(t, gradient=Tensor(g))
    right = numeric(lambda v: scanned(v, name, axis, reverse), x, g)
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-6, atol=1e-7)


def test_the_gradient_of_a_running_product_with_zeros():
    # values of torch 2.13
    x = Tensor([2.0, 0.0, 3.0, 0.0, 4.0])
    (found,) = x.cumprod(0).gradient(x, gradient=Tensor([1.0, 1.0, 1.0, 1.0, 1.0]))
    assert found.tolist() == [1.0, 8.0, 0.0, 0.0, 0.0]


def test_the_gradient_of_a_running_maximum_goes_to_the_last_that_is_equal():
    # values of torch 2.13
    x = Tensor([1.0, 3.0, 3.0, 2.0, 5.0])
    (found,) = x.cummax(0)[0].gradient(x, gradient=Tensor([1.0, 10.0, 100.0, 1000.0, 10000.0]))
    assert found.tolist() == [1.0, 10.0, 1100.0, 0.0, 10000.0]


def test_second_gradients():
    x = values(6).astype(np.float64)
    t, g = Tensor(x), Tensor(values(6).astype(np.float64))
    (first,) = (t.cumprod(0) * g).sum().gradient(t)
    (second,) = (first * first).sum().gradient(t)

    def squares(v):
        s = Tensor(v)
        (one,) = (s.cumprod(0) * g).sum().gradient(s)
        return (one * one).sum().numpy()

    right = [(squares(x + e) - squares(x - e)) / 2e-6 for e in np.eye(6) * 1e-6]
    np.testing.assert_allclose(second.numpy(), right, rtol=1e-5)


@pytest.mark.parametrize("sharded", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_slots(sharded, axis):
    data = values(4, 6)
    x = Tensor(data).shard(("CPU:0", "CPU:1"), axis=sharded)
    found = x.cumsum(axis)
    assert found.uop.axis == (sharded if sharded != axis else None)
    np.testing.assert_allclose(found.numpy(), np.cumsum(data, axis), rtol=1e-6)
    (grad,) = (found * found).sum().gradient(x)
    whole = Tensor(data)
    (right,) = whole.cumsum(axis).square().sum().gradient(whole)
    np.testing.assert_allclose(grad.numpy(), right.numpy(), rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_symbolic_sizes(axis):
    data = values(8, 300)
    for n in (1, 5, 7):
        size = Variable("n", 1, 8).bind(n)
        x = Tensor(data).realize()[:size]
        np.testing.assert_allclose(
            x.cumsum(axis).realize().numpy() if axis else x.cumsum(axis).sum().numpy(),
            np.cumsum(data[:n], 1) if axis else np.cumsum(data[:n], 0).sum(),
            rtol=1e-5,
        )


def test_replays():
    total = TinyJit(lambda x: x.cumsum(1).realize())
    for seed in range(5):
        data = values(16, 64) + seed
        np.testing.assert_allclose(
            total(Tensor(data).realize()).numpy(), np.cumsum(data, 1), rtol=1e-5
        )


def test_as_a_node():
    x = UOp.const(1, dtypes.int32)._move("RESHAPE", (1,))._move("EXPAND", (5,))
    assert x._scan("ADD", 0).shape == (5,) and x._scan("ADD", 0).dtype is dtypes.int32
