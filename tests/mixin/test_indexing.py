"""x[...] against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.errors import DTypeError, IndexingError

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def check(index, x=X):
    found = Eager(x)[index]
    expected = x[index]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


@st.composite
def basic_entry(draw, size):
    kind = draw(st.sampled_from(["int", "slice", "slice", "whole"]))
    if kind == "whole":
        return slice(None)
    if kind == "int" and size:
        return draw(st.integers(-size, size - 1))
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = draw(st.none() | st.sampled_from([1, 2, 3, -1, -2, -3]))
    return slice(draw(bound), draw(bound), step)


@st.composite
def index_of(draw, shape, advanced):
    entries = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        if advanced and size and draw(st.booleans()):
            shapes = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3)]))
            count = int(np.prod(shapes))
            numbers = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
            entries.append(np.array(numbers, np.int64).reshape(shapes))
        else:
            entries.append(draw(basic_entry(size)))
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        entries.append(...)
    return tuple(entries)


@settings(max_examples=150)
@given(st.data())
def test_basic_indices(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    check(data.draw(index_of(shape, False)), np.arange(int(np.prod(shape))).reshape(shape))


@settings(max_examples=150)
@given(st.data())
def test_tensors_of_ints(data):
    index = data.draw(index_of(X.shape, True))
    as_tensors = tuple(Eager(e) if isinstance(e, np.ndarray) else e for e in index)
    found = Eager(X)[as_tensors]
    expected = X[index]
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    "index",
    [
        [0, 1, 0],
        ([0, 1], [2, 0]),
        (0, slice(None), [1, 0]),
        (0, [1, 0]),
        (slice(None), 1, [1, 0]),
        (slice(None), [1, 0], 2, slice(None)),
        ([[0], [1]], slice(None), [[1, 3]]),
        (..., [1, 0]),
        (None, [1, 0], None),
        (slice(None), [True, False, True]),
        np.array([1, 0]),
        (slice(0, 0), [0]),
        [],
        [True, False],
        (np.int64(1), np.int32(-1)),
        (Ellipsis, None, 0),
    ],
)
def test_lists_and_mixtures(index):
    if isinstance(index, list) and not index:
        assert Eager(X)[index].shape == (0, 3, 4, 5)
        return
    check(index)


def test_masks_of_python_bools_over_two_axes():
    mask = (X[:, :, 0, 0] % 2 == 0).tolist()
    found = Eager(X)[mask]
    np.testing.assert_array_equal(found.numpy(), X[np.array(mask)])
    nothing = Eager(X)[[False, False]]
    assert nothing.shape == (0, 3, 4, 5)


def test_out_of_range_tensors_read_zero():
    x = Eager(np.array([1, 2, 3]))
    assert x[Eager(np.array([0, 3, -1, -4]))].tolist() == [1, 0, 3, 0]
    two = Eager(X)[Eager(np.array([0, 2])), Eager(np.array([5, 0]))]
    assert not two.numpy().any()
    small = x[Eager(np.array([0, 200], np.uint8))]
    assert small.tolist() == [1, 0]


@pytest.mark.parametrize(
    "index",
    [
        2,
        -3,
        (0, 0, 0, 0, 0),
        (..., ...),
        1.5,
        "a",
        True,
        slice(None, None, 0),
        [2],
        [0.5],
        [[0], 1],
        slice(0.5, None),
        [[0, 1], [0]],
    ],
)
def test_refused_indices(index):
    with pytest.raises(IndexingError):
        Eager(X)[index]


def test_refused_tensors():
    with pytest.raises(DTypeError, match="ints"):
        Eager(X)[Eager(np.array([0.0]))]
    with pytest.raises(IndexingError, match="masked_select"):
        Eager(X)[Eager(X > 3)]


def test_views():
    x = Eager(X)
    np.testing.assert_array_equal(x.view_of((0, slice(None, None, -2))).numpy(), X[0, ::-2])
    assert x._is_basic_index((0, None, slice(None)))
    assert not x._is_basic_index([0])
    with pytest.raises(IndexingError):
        x.view_of([0, 1])
    assert x[:] is x
    assert x[...] is x
