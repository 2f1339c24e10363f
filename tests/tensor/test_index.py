"""Masks, other devices and what is refused where x[...] needs values or memory."""

import numpy as np
import pytest

from tinyfn import Tensor, TinyJit, function
from tinyfn.errors import CaptureError, IndexingError, ShapeError


def stored(*values):
    return Tensor(list(values)).realize()


def test_masks_that_are_known():
    x = stored(5, 6, 7)
    for mask in ([True, False, True], np.array([True, False, True]), Tensor([True, False, True])):
        assert x[mask].tolist() == [5, 7]
    assert x[(x > 5).realize()].tolist() == [6, 7]
    assert x[Tensor.ones(3, dtype="bool")].tolist() == [5, 6, 7]
    assert x[Tensor.zeros(3, dtype="bool")].shape == (0,)
    spread = Tensor([True, False, False, True]).shard(("CPU", "CPU:1"), 0).realize()
    assert Tensor([1, 2, 3, 4])[spread].tolist() == [1, 4]
    table = Tensor([[1, 2], [3, 4]])
    assert table[Tensor([[True, False], [True, True]])].tolist() == [1, 3, 4]
    assert table[:, Tensor([False, True])].tolist() == [[2], [4]]


def test_masks_that_are_not_known():
    x, mask = stored(5, 6, 7), stored(True, False, True)
    with pytest.raises(IndexingError, match="realize"):
        x[x > 5]
    with pytest.raises(IndexingError, match="captured"):
        function(lambda t, m: t[m])(x, mask)
    step = TinyJit(lambda t, m: (t[m] + 1).realize())
    step(x, mask)
    with pytest.raises(IndexingError, match="TinyJit"):  # each call may have another mask
        step(x, mask)
    assert function(lambda t: t[[2, 0]])(x).tolist() == [7, 5]


def test_masks_have_the_size_of_their_axes():
    x = Tensor.ones(3, 2)
    for mask in ([True, False], np.ones(4, bool), Tensor([[True, True, True]] * 3)):
        with pytest.raises(IndexingError, match="expected a mask of"):
            x[mask]
        with pytest.raises(IndexingError, match="expected a mask of"):
            x[mask] = 0
    for number in (True, np.True_, Tensor(True)):
        with pytest.raises(IndexingError, match="a bool is no index"):
            x[number]


@pytest.mark.parametrize("known", [True, False])
def test_writing_through_a_mask(known):
    def mask_of(x, limit):
        mask = x[:, 0] > limit
        return mask.realize() if known else mask

    x = Tensor([[1, 2], [3, 4], [5, 6]]).realize()
    x[mask_of(x, 4)] = 0
    assert x.tolist() == [[1, 2], [3, 4], [0, 0]]
    x[mask_of(x, 0)] = Tensor([8, 9])
    assert x.tolist() == [[8, 9], [8, 9], [0, 0]]
    x[x > 8] = Tensor([7])
    assert x.tolist() == [[8, 7], [8, 7], [0, 0]]
    x[mask_of(x, 0)] = Tensor([[[6, 5]]])
    assert x.tolist() == [[6, 5], [6, 5], [0, 0]]
    if known:
        x[mask_of(x, 0)] = Tensor([[1, 2], [3, 4]])
        assert x.tolist() == [[1, 2], [3, 4], [0, 0]]
        x[mask_of(x, 0)] += 10
        assert x.tolist() == [[11, 12], [13, 14], [0, 0]]
        with pytest.raises(ShapeError, match=r"\(3, 2\)"):
            x[mask_of(x, 0)] = Tensor.ones(3, 2)
    else:
        with pytest.raises(IndexingError, match="realize"):
            x[mask_of(x, 0)] = Tensor([[1, 2], [3, 4]])


def test_leading_axes_of_one_are_dropped():
    x = Tensor.zeros(2, dtype="int32").contiguous()
    for index in (slice(None), ..., (), (slice(None),)):
        x[index] = [[[1, 2]]]
        assert x.tolist() == [1, 2]
        x[index] = 0


def test_indices_and_values_come_to_the_device():
    x = Tensor([1, 2, 3], device="CPU:1").realize()
    x[1:] = np.array([8, 9])
    x[[0, 1]] = [5, 6]
    x[Tensor([False, False, True])] = 0
    assert x.tolist() == [5, 6, 0]
    assert x[Tensor([2, 0])].tolist() == [0, 5] and x[[1]].device == "CPU:1"
    x.assign([1, 2, 3])
    assert x.tolist() == [1, 2, 3]


def test_an_empty_ellipsis_parts_the_indices_beside_it():
    array = np.arange(12).reshape(3, 4)
    three = np.arange(24).reshape(2, 3, 4)
    assert Tensor(three)[:, [0], ..., 1].shape == three[:, [0], ..., 1].shape == (1, 2)
    assert Tensor(three)[:, [0], 1].shape == (2, 1)
    assert Tensor(array)[[0], ..., [1]].tolist() == [1]


def test_ints_of_every_kind():
    x = stored(1, 2, 3)
    assert x[np.int8(-1)].item() == 3 and x[np.array(1)].item() == 2 and x[Tensor(2)].item() == 3
    assert x[range(2)].tolist() == [1, 2] and x[[Tensor(1), 0]].tolist() == [2, 1]
    assert x[[]].shape == x[np.array([], np.int64)].shape == (0,)
    for wrong in (
        [1.5],
        np.array([1.0]),
        np.array(["a"]),
        np.array([2**64 - 1], np.uint64),
        [2**70],
    ):
        with pytest.raises(IndexingError):
            x[wrong]


def test_values_are_not_read_in_a_captured_function():
    with pytest.raises(CaptureError):
        function(lambda t: t[[t[0]]])(stored(1, 2))
