"""A number that changes becomes an argument of the kernel, and computes what the constant does."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit
from tinyfn.codegen import numbers
from tinyfn.codegen.numbers import CONSTANT, numbers_as_arguments
from tinyfn.helpers import Recent
from tinyfn.uop.ops import Ops

X = np.linspace(-3, 3, 37, dtype=np.float32)
NUMBERS = [0.1, 0.5, 3.0, -2.0, 1e-40, 7.25, float("inf"), float("nan")]


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch):
    monkeypatch.setattr(numbers, "_known", Recent(100))
    monkeypatch.setattr(numbers, "_seen", Recent(100))


def kernel_of(tensor):
    linear, _ = tensor.linear_with_vars()
    (call,) = [c for c in linear.src if c.src[0].op is Ops.SINK]
    return numbers_as_arguments(call.src[0])


def test_the_first_kernels_have_constants_the_others_share_one():
    x = Tensor(X).realize()
    found = [kernel_of(x * c + 1.5) for c in (0.3, 0.6, 0.9, 1.2, 0.3)]
    assert [bool(arguments) for _, arguments in found] == [False, False, True, True, False]
    assert found[2][0] is found[3][0] and found[0][0] is found[4][0]
    assert [c.arg for c in found[3][1].values()] == pytest.approx([1.2])


def test_only_numbers_that_change_are_arguments():
    x = Tensor(X).realize()
    found = [kernel_of(x * 0.7 + c)[1] for c in (0.25, 0.3, 0.35)]
    assert [n.arg for n in found[-1].values()] == pytest.approx([0.35])


def test_what_is_remembered_does_not_grow():
    x = Tensor(X).realize()
    for c in range(50):
        kernel_of(x * (c + 0.5))
    (alike,) = {id(a): a for a in numbers._seen._entries.values()}.values()
    assert len(alike.first) == CONSTANT and alike.changing == {0}


def test_a_kernel_with_a_constant_is_not_alike_one_with_memory_of_one_element():
    x, one = Tensor(X).realize(), Tensor([0.5]).realize()
    for y in (x * one, x * 0.5, x * 0.25, x * 0.125):
        np.testing.assert_array_equal(y.numpy(), X * y.numpy()[-1] / 3)


FUNCTIONS = {
    "mul": lambda x, c: x * c,
    "div": lambda x, c: x / c,
    "under": lambda x, c: c / x,
    "pow": lambda x, c: x.abs() ** c,
    "base": lambda x, c: abs(c) ** x,
    "max": lambda x, c: x.maximum(c),
    "where": lambda x, c: (x > c).where(x, c),
    "sum": lambda x, c: (x * c + c).sum(),
    "mod": lambda x, c: x % c,
    "matmul": lambda x, c: (x[:36].reshape(6, 6) @ x[1:].reshape(6, 6)) * c,
    "double": lambda x, c: x.double() * c,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_compute_what_constants_do(name, monkeypatch):
    x = Tensor(X).realize()

    def results():
        return [FUNCTIONS[name](x, c).numpy() for c in NUMBERS]

    shared = results()
    monkeypatch.setattr(numbers, "CONSTANT", 100)
    monkeypatch.setattr(numbers, "_known", Recent(100))
    for found, expected in zip(shared, results(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int32", "int8", "int64", "uint8", "float16", "bool"])
def test_numbers_of_every_dtype(dtype):
    x = Tensor([1, 0, 3]).cast(dtype).realize()
    for c in (1, 2, 3, 4):
        y = x + Tensor(c).cast(dtype)
        np.testing.assert_array_equal(y.numpy(), x.numpy() + np.array(c).astype(x.numpy().dtype))


def test_a_memory_filled_with_numbers():
    for c in (1.5, 2.5, 3.5, 4.5):
        np.testing.assert_array_equal(
            Tensor.full((3, 4), c).contiguous().numpy(), np.full((3, 4), c)
        )


def test_plain_python_and_shards():
    x = Tensor(X[:36]).shard(("CPU:0", "CPU:1"), 0).realize()
    for c in (1.5, 2.5, 3.5, 4.5):
        np.testing.assert_array_equal((x * c).numpy(), X[:36] * np.float32(c))
    with Context(NATIVE=0):
        y = Tensor(X).realize()
        for c in (0.1, 0.2, 0.3, 0.4):
            np.testing.assert_array_equal((y * c).numpy(), X * np.float32(c))


def test_a_replay_keeps_its_number():
    def recorded(c):
        step = TinyJit(lambda x: x * c)
        return [step(Tensor(X + k).realize()).numpy() for k in range(3)]

    for c in (1.5, 2.5, 3.5, 4.5):
        for k, found in enumerate(recorded(c)):
            np.testing.assert_array_equal(found, (X + k) * np.float32(c))
