"""Sorting against numpy: keys of every dtype, rows short and long, the first few of many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyfn import Context, Tensor, TinyJit, Variable, dtypes, function
from tinyfn.dtype import storage_dtype
from tinyfn.schedule import sort, sort_kernels
from tinyfn.schedule.prepare import prepare
from tinyfn.uop.interpret import interpret
from tinyfn.uop.ops import Ops, UOp, toposort

RNG = np.random.default_rng(0)
SPECIAL = (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-40, -1e-40, 3e38)


def in_order(x: Any, axis: int = -1, descending: bool = False) -> Any:
    """numpy's numbers in order; descending is ascending from the other end."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def values_of(dtype: Any, shape: tuple[int, ...]) -> Tensor:
    """Values of a dtype, many of them equal: for floats the special ones, for ints the ends."""
    if dtype.kind == "float":
        x = np.where(RNG.random(shape) < 0.3, RNG.choice(SPECIAL, shape), RNG.normal(size=shape))
        return Tensor(x).cast(dtype).realize()
    kind = storage_dtype(dtype)
    ends = np.array([dtype.min, dtype.max, 0, 1], kind)
    few = RNG.integers(0, 2 if dtype.kind == "bool" else 50, shape).astype(kind)
    return Tensor(np.where(RNG.random(shape) < 0.3, RNG.choice(ends, shape), few))


def check(x: Tensor, axis: int = -1, descending: bool = False) -> None:
    """Order and values are numpy's; the values with the sign of their zeros."""
    given = x.double().numpy() if x.dtype.kind == "float" else x.numpy()
    expected = in_order(given, axis, descending)
    values, order = x.sort(axis, descending)
    Tensor.realize(values, order)
    np.testing.assert_array_equal(order.numpy(), expected)
    found = values.double().numpy() if x.dtype.kind == "float" else values.numpy()
    wanted = np.take_along_axis(given, expected, axis)
    np.testing.assert_array_equal(found, wanted)
    if x.dtype.kind == "float":
        zeros = wanted == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


# *** every dtype, every length, every place ***


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_every_dtype_in_order(dtype):
    check(values_of(dtype, (3, 40)))


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.int64, dtypes.float32], ids=str)
def test_every_width_descending(dtype):
    check(values_of(dtype, (3, 41)), descending=True)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(dtypes.int8, 129), (dtypes.bfloat16, 400), (dtypes.float32, 200), (dtypes.float32, 1025)],
    ids=str,
)
def test_digits_of_every_width(dtype, size):
    check(values_of(dtype, (2, size)))


def test_digits_that_are_the_same_in_a_row_do_not_move():
    x = RNG.integers(0, 200, (5, 300)).astype(np.int32)
    x[1] += 1 << 20
    x[2] = 7
    x[3, 5] = -1
    x[4, :3] = [1 << 30, -(1 << 30), 1 << 16]
    check(Tensor(x))
    check(Tensor(x.astype(np.uint8)))


@pytest.mark.parametrize("size", [1, 2, 128])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(size, axis):
    shape = [2, 3, 4]
    shape[axis] = size
    check(values_of(dtypes.int16, tuple(shape)), axis)


def test_one_long_row():
    size = 2 * sort_kernels.LONG + 5
    check(values_of(dtypes.float32, (size,)))
    check(values_of(dtypes.uint8, (1, size)), descending=True)
    check(values_of(dtypes.uint16, (2, size)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_row_of_whole_pieces(count, monkeypatch):
    monkeypatch.setattr(sort_kernels, "LONG", 256)
    check(values_of(dtypes.int32, (2, 256 * count + 256)))


def test_nothing_and_a_scalar():
    values, order = Tensor(3.0).sort()
    assert (values.item(), order.item(), order.dtype) == (3.0, 0, dtypes.int32)
    for shape, axis in (((0,), 0), ((3, 0), 1), ((0, 3), 1), ((0, 200), 1)):
        values, order = Tensor.zeros(*shape).sort(axis)
        assert values.numpy().shape == order.numpy().shape == shape
    values, order = Tensor([[1.0, 2.0]]).topk(0)
    assert values.numpy().shape == order.numpy().shape == (1, 0)
    assert [t.item() for t in Tensor(3).topk(1)] == [3, 0]


@pytest.mark.parametrize("size", [9, 150, 700])
def test_plain_python(size, monkeypatch):
    monkeypatch.setattr(sort_kernels, "LONG", 300)
    with Context(NATIVE=0):
        check(values_of(dtypes.float16, (2, size)), descending=size == 9)


# *** what is around a sort ***


def test_values_are_computed_where_they_are_sorted():
    x = RNG.normal(size=(4, 150)).astype(np.float32)
    order = (Tensor(x).realize().abs() * -2).argsort()
    assert len(order.linear_with_vars()[0].src) == 1
    np.testing.assert_array_equal(order.numpy(), in_order(np.abs(x) * -2))
    order = Tensor(x).softmax(-1).argsort(descending=True)
    np.testing.assert_array_equal(order.numpy(), in_order(x, descending=True))
    order = Tensor(x).sum(1).argsort()
    np.testing.assert_array_equal(order.numpy(), np.argsort(x.sum(1)))


def test_a_sorted_value_is_overwritten_afterwards():
    x = Tensor(np.array([3.0, 1.0, 2.0], np.float32)).realize()
    order = x.argsort()
    x.assign(x * -1)
    assert order.tolist() == [1, 2, 0] and x.argsort().tolist() == [0, 2, 1]


@pytest.mark.parametrize("size", [20, 200])
def test_replays(size):
    @TinyJit
    def run(x):
        values, order = x.sort(descending=True)
        return values.realize(), order.realize()

    for _ in range(4):
        x = RNG.integers(0, 30, (3, size)).astype(np.int32)
        values, order = run(Tensor(x))
        np.testing.assert_array_equal(order.numpy(), in_order(x, descending=True))
        np.testing.assert_array_equal(values.numpy(), -np.sort(-x))


@pytest.mark.parametrize(("least", "most"), [(1, 60), (100, 300), (250, 600)])
def test_symbolic_sizes(least, most, monkeypatch):
    monkeypatch.setattr(sort_kernels, "LONG", 512)
    x = RNG.normal(size=(3, most)).astype(np.float32)

    @TinyJit
    def run(x):
        return x.sort(1)[0].sum(0).realize(), x.argsort(1).realize().cast("float32").sum(
            0
        ).realize()

    for size in (least, least + 1, (least + most) // 2, most, least):
        n = Variable("n", least, most).bind(size)
        values, order = run(Tensor(x)[:, :n])
        part = x[:, :size]
        wanted = np.sort(part, 1).sum(0)
        np.testing.assert_allclose(values[:size].numpy(), wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(order[:size].numpy(), in_order(part).sum(0))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_on_several_slots(axis):
    x = RNG.integers(0, 9, (4, 150)).astype(np.int32)
    spread = Tensor(x).shard(("CPU:0", "CPU:1"), axis)
    for along in (0, 1):
        values, order = spread.sort(along)
        np.testing.assert_array_equal(order.numpy(), in_order(x, along))
        np.testing.assert_array_equal(values.numpy(), np.sort(x, along))
    assert spread.argsort(1 - axis).uop.axis == axis


@pytest.mark.parametrize("size", [30, 300])
def test_gradients_go_to_where_values_came_from(size):
    x, weight = RNG.normal(size=(2, 2, size))
    for descending in (False, True):
        given = Tensor(x)
        loss = (given.sort(1, descending)[0] * Tensor(weight)).sum()
        order = in_order(x, 1, descending)
        wanted = np.zeros_like(x)
        np.put_along_axis(wanted, order, weight, 1)
        np.testing.assert_array_equal(loss.gradient(given)[0].numpy(), wanted)


# *** the first few of many ***


def first_few(x: Any, count: int, descending: bool) -> Any:
    """What the schedule makes of a search for the first few, computed in numpy."""
    given = UOp.new_buffer("CPU", x.shape, Tensor(x[:0]).dtype)
    made = prepare(given._argsort(descending, count).sink()).src[0]
    return interpret([made], {given: x})[0], made


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_first_few_are_those_of_the_order(data):
    kind = data.draw(st.sampled_from(["float32", "float64", "int8", "int64", "uint32"]))
    count = data.draw(st.integers(1, 9))
    size = data.draw(st.integers(max(sort.MANY, sort.FEW * count), 3000))
    seed = data.draw(st.integers(0, 2**20))
    random = np.random.default_rng(seed)
    x = random.integers(0, data.draw(st.sampled_from([2, 40, 2**20])), (2, size))
    x = x.astype(kind) if kind[0] != "f" else np.where(x == 1, np.nan, x - 30.0).astype(kind)
    descending = data.draw(st.booleans())
    found, made = first_few(x, count, descending)
    np.testing.assert_array_equal(found, in_order(x, 1, descending)[:, :count])
    longest = [n.src[0].shape[-1] for n in toposort([made]) if n.op is Ops.ARGSORT]
    assert max(longest) < size / 4


@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_many(largest):
    x = np.round(RNG.normal(size=(2, 5000)), 1).astype(np.float32)
    x[0, 7], x[1, 4000:4003] = np.nan, np.inf
    values, order = Tensor(x).topk(9, largest=largest)
    wanted = in_order(x, 1, largest)[:, :9]
    Tensor.realize(values, order)
    np.testing.assert_array_equal(order.numpy(), wanted)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize(("size", "count"), [(3, 0), (3, 2), (3, 3), (2000, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_few_are_results_of_a_precompiled_function(size, count, axis):
    x = RNG.normal(size=(size, size) if size < 10 else (3, size)).astype(np.float32)
    count = min(count, x.shape[axis])
    found = function(lambda a: a.topk(count, axis), precompile=True)(Tensor(x))
    expected = np.take(in_order(x, axis, True), np.arange(count), axis)
    np.testing.assert_array_equal(found[1].numpy(), expected)
    np.testing.assert_array_equal(found[0].numpy(), np.take_along_axis(x, expected, axis))
