"""gather, scatter, one-hot and masks against loops and numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    box = tuple(
        draw(st.integers(0, 5)) if i == axis else draw(st.integers(0, s))
        for i, s in enumerate(shape)
    )
    x = RNG.integers(1, 100, shape)
    index = RNG.integers(-shape[axis], shape[axis], box)
    src = RNG.integers(1, 100, box)
    return x, axis, index, src


@settings(max_examples=40)
@given(cases())
def test_gather(case):
    x, axis, index, _ = case
    box = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(index.shape))
    found = Eager(x).gather(axis, Eager(index)).numpy()
    np.testing.assert_array_equal(found, np.take_along_axis(x[box], index, axis))


def written(x, axis, index, src, combine):
    out = x.copy()
    for place in np.ndindex(index.shape):
        target = list(place)
        target[axis] = index[place]
        out[tuple(target)] = combine(out[tuple(target)], src[place])
    return out


COMBINE = {
    None: lambda old, new: new,
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
}
REDUCE = {
    "sum": COMBINE["add"],
    "prod": COMBINE["multiply"],
    "amax": max,
    "amin": min,
}


@settings(max_examples=40)
@given(cases())
def test_scatter(case):
    x, axis, index, src = case
    for reduce, combine in COMBINE.items():
        found = Eager(x).scatter(axis, Eager(index), Eager(src), reduce)
        np.testing.assert_array_equal(found.numpy(), written(x, axis, index, src, combine))
    found = Eager(x).scatter(axis, Eager(index), 7)
    np.testing.assert_array_equal(
        found.numpy(), written(x, axis, index, src * 0 + 7, COMBINE[None])
    )


@settings(max_examples=40)
@given(cases())
def test_scatter_reduce(case):
    x, axis, index, src = case
    x, src = x.astype(float), src.astype(float)
    ones = np.ones_like(src)
    number = written(np.zeros_like(x), axis, index, ones, COMBINE["add"])
    for reduce, combine in REDUCE.items():
        found = Eager(x).scatter_reduce(axis, Eager(index), Eager(src), reduce)
        np.testing.assert_array_equal(found.numpy(), written(x, axis, index, src, combine))
        neutral = {"sum": 0, "prod": 1, "amax": -np.inf, "amin": np.inf}[reduce]
        alone = written(np.full_like(x, neutral), axis, index, src, combine)
        found = Eager(x).scatter_reduce(axis, Eager(index), Eager(src), reduce, include_self=False)
        np.testing.assert_array_equal(found.numpy(), np.where(number > 0, alone, x))
    total = written(x, axis, index, src, COMBINE["add"])
    found = Eager(x).scatter_reduce(axis, Eager(index), Eager(src), "mean")
    np.testing.assert_allclose(found.numpy(), total / (number + 1))
    found = Eager(x).scatter_reduce(axis, Eager(index), Eager(src), "mean", include_self=False)
    expected = np.where(number > 0, (total - x) / np.maximum(number, 1), x)
    np.testing.assert_allclose(found.numpy(), expected)


def test_out_of_range_writes_nothing():
    x, index = Eager(np.array([1, 2, 3])), Eager(np.array([0, 3, -4]))
    assert x.scatter(0, index, 9).tolist() == [9, 2, 3]
    assert x.scatter(0, index, Eager(np.array([5, 6, 7])), "add").tolist() == [6, 2, 3]
    assert x.gather(0, index).tolist() == [1, 0, 0]


def test_refusals():
    x = Eager(np.ones((2, 3)))
    index = Eager(np.zeros((2, 3), int))
    with pytest.raises(DTypeError, match="ints"):
        x.gather(0, x)
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        x.gather(0, Eager(np.zeros(2, int)))
    with pytest.raises(ShapeError):
        x.gather(0, Eager(np.zeros((2, 4), int)))
    with pytest.raises(ArgumentError, match="max"):
        x.scatter(0, index, x, reduce="max")
    with pytest.raises(DTypeError, match="float64"):
        x.scatter(0, index, index)
    with pytest.raises(ShapeError):
        x.scatter(0, index, x[:1])
    with pytest.raises(ArgumentError):
        x.scatter_reduce(0, index, x, "median")


def test_one_hot():
    found = Eager(np.array([[0, 2], [3, -1]])).one_hot(3)
    assert found.dtype is dtypes.int32
    assert found.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]]
    with pytest.raises(DTypeError):
        Eager(np.array([0.5])).one_hot(3)


@given(st.lists(st.booleans(), max_size=12))
def test_masks(mask):
    m = np.array(mask, bool)
    x = np.arange(1, m.size + 1)
    np.testing.assert_array_equal(Eager(x).masked_select(Eager(m)).numpy(), x[m])
    padded = Eager(x).masked_select(Eager(m), size=5, fill_value=-7).numpy()
    np.testing.assert_array_equal(padded, ([*x[m], *[-7] * 5])[:5])
    np.testing.assert_array_equal(Eager(m).nonzero().numpy(), np.argwhere(m))


def test_nonzero_of_matrices_and_masks_that_broadcast():
    x = RNG.integers(0, 2, (3, 4))
    np.testing.assert_array_equal(Eager(x).nonzero().numpy(), np.argwhere(x))
    found = Eager(x).nonzero(size=14, fill_value=-1).numpy()
    expected = np.argwhere(x)
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert (found[len(expected) :] == -1).all()
    row = np.array([True, False, False, True])
    np.testing.assert_array_equal(Eager(x).masked_select(Eager(row)).numpy(), x[:, row].ravel())
    assert Eager(np.array(3)).nonzero().shape == (1, 0)


def test_a_scalar_has_one_axis_to_gather_along():
    x, index = Eager(np.array(3)), Eager(np.array(0))
    assert x.gather(0, index).tolist() == 3
    assert x.scatter(0, index, 5).tolist() == 5
    assert x.scatter_reduce(-1, index, Eager(np.array(4)), "sum").tolist() == 7


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
def test_bools_stay_bools(reduce):
    x, at = Eager(np.array([False, True])), Eager(np.array([1]))
    found = x.scatter_reduce(0, at, x, reduce, include_self=False)
    assert (found.dtype, found.numpy().tolist()) == (dtypes.bool, [False, False])
    assert x.masked_select(x, size=2).numpy().tolist() == [True, False]
    assert x.masked_select(x, size=2).dtype is dtypes.bool


def test_what_fills_up_is_of_the_tensors_dtype():
    x = Eager(np.array([4, 5], np.int8)).masked_select(Eager(np.array([True, False])), 2, 1)
    assert (x.dtype, x.numpy().tolist()) == (dtypes.int8, [4, 1])


def test_means_of_large_numbers_are_exact():
    large = 2**63 - 3
    x = Eager(np.array([2, 5], np.uint64))
    given = Eager(np.array([large], np.uint64))
    found = x.scatter_reduce(0, Eager(np.array([0])), given, "mean", include_self=False)
    assert (found.dtype, found.numpy().tolist()) == (dtypes.uint64, [large, 5])
