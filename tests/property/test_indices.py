"""Reading and writing by index against numpy; the interpreter computes, so many are tried."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyfn import Tensor
from tinyfn.testing.strategies import indices
from tinyfn.uop.interpret import State, interpret

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 5, 0]), max_size=4).map(tuple)
SLOTS = ("CPU", "CPU:1")


def counted(shape: tuple[int, ...]) -> Any:
    return np.arange(1, int(np.prod(shape)) + 1, dtype=np.int32).reshape(shape)


def value(x: Tensor) -> Any:
    return interpret([x.uop], State())[0]


def as_tensors(index: Any, chosen: Any) -> Any:
    """The index with tensors in the places of some arrays."""
    entries = index if isinstance(index, tuple) else (index,)
    turned = [Tensor(e) if isinstance(e, np.ndarray) and chosen() else e for e in entries]
    return tuple(turned) if isinstance(index, tuple) else turned[0]


@st.composite
def cases(draw: Any) -> Any:
    shape = draw(SHAPES)
    index = draw(indices(shape))
    index = index[0] if len(index) == 1 and draw(st.booleans()) else index
    return shape, index, as_tensors(index, lambda: draw(st.booleans()))


def check_read(case: Any) -> None:
    shape, index, ours = case
    array = counted(shape)
    found = Tensor(array)[ours]
    assert found.shape == array[index].shape
    np.testing.assert_array_equal(value(found), array[index])


def check_write(case: Any, cut: int, ones: int, stored: bool) -> None:
    """A value with fewer axes, some of size 1, goes to the places of the index."""
    shape, index, ours = case
    expected = counted(shape)
    place = expected[index].shape
    given = tuple(1 if ones >> i & 1 else size for i, size in enumerate(place))
    given = given[min(cut, len(given)) :] if 0 not in place else place
    new = -counted(given)
    x = Tensor(expected) if stored else Tensor(expected) + 0
    before = x * 2
    expected[index] = new
    x[ours] = Tensor(new) if stored else new
    np.testing.assert_array_equal(value(x), expected)
    np.testing.assert_array_equal(value(before), counted(shape) * 2)


def check_from_itself(case: Any) -> None:
    """What is written is read as a whole before."""
    shape, index, ours = case
    x, expected = Tensor(counted(shape)), counted(shape)
    turned = expected[index].copy()
    expected[index] = turned[::-1] if turned.ndim else turned
    seen = x[ours]
    x[ours] = seen[::-1] if seen.ndim else seen
    np.testing.assert_array_equal(value(x), expected)
    expected[index] += expected[index] * 3
    x[ours] += x[ours] * 3
    np.testing.assert_array_equal(value(x), expected)


@settings(deadline=None, max_examples=200)
@given(cases())
def test_reading(case: Any) -> None:
    check_read(case)


@settings(deadline=None, max_examples=150)
@given(cases(), st.integers(0, 3), st.integers(0, 15), st.booleans())
def test_writing(case: Any, cut: int, ones: int, stored: bool) -> None:
    check_write(case, cut, ones, stored)


@settings(deadline=None, max_examples=100)
@given(cases())
def test_writing_what_was_read_from_itself(case: Any) -> None:
    check_from_itself(case)


@pytest.mark.deep
@settings(deadline=None, max_examples=5000)
@given(cases(), st.integers(0, 3), st.integers(0, 15), st.booleans())
def test_indices_at_length(case: Any, cut: int, ones: int, stored: bool) -> None:
    check_read(case)
    check_write(case, cut, ones, stored)
    check_from_itself(case)


NATIVE = [
    (slice(None), [1, 0]),
    ([3, 0], slice(None), [0, 2]),
    np.array([True, False, True, True]),
    (..., None, -1),
    (slice(None, None, -2), 1, [[0], [2]]),
    (np.array(2), slice(None), np.array([True, False, True])),
]


@pytest.mark.parametrize("index", NATIVE, ids=repr)
@pytest.mark.parametrize("axis", [None, 0], ids=["whole", "spread"])
def test_kernels_and_slots(index: Any, axis: int | None) -> None:
    array = counted((4, 2, 3))
    x = Tensor(array) if axis is None else Tensor(array).shard(SLOTS, axis)
    np.testing.assert_array_equal(x[index].numpy(), array[index])
    x[index] = -x[index]
    array[index] *= -1
    np.testing.assert_array_equal(x.numpy(), array)
