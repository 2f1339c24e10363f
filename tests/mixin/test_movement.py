"""Shapes: movement, joining, splitting, padding, windows, against numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.errors import ArgumentError, ShapeError


def counted(*shape):
    return np.arange(math.prod(shape)).reshape(shape)


def same(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


def test_reshape():
    x = counted(2, 3, 4)
    for shape in [(6, 4), (-1,), (2, -1, 2), (24, 1), (1, -1)]:
        same(Eager(x).reshape(shape), x.reshape(shape))
        same(Eager(x).view(*shape), x.reshape(shape))
    same(Eager(x).reshape(None, -1), x.reshape(2, -1))
    same(Eager(np.array(3)).reshape(1, 1), np.array([[3]]))
    same(Eager(np.array([3])).reshape(()), np.array(3))
    same(Eager(np.zeros((0, 3))).reshape(3, 0), np.zeros((3, 0)))


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-1, 7), (-2, 3), (2.0, 12)])
def test_reshape_refuses(shape):
    with pytest.raises(ShapeError):
        Eager(counted(2, 3, 4)).reshape(shape)


def test_reshape_names_both_shapes():
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(4, 2\)"):
        Eager(counted(2, 3)).reshape(4, 2)


def test_expand():
    x = counted(3, 1)
    same(Eager(x).expand(3, 4), np.broadcast_to(x, (3, 4)))
    same(Eager(x).expand(2, -1, 4), np.broadcast_to(x, (2, 3, 4)))
    same(Eager(x).expand(3, 0), np.broadcast_to(x, (3, 0)))
    for shape in [(2, 4), (3,), (3, -2)]:
        with pytest.raises(ShapeError, match=r"\(3, 1\)"):
            Eager(x).expand(shape)


def test_axes():
    x = counted(2, 3, 1, 4)
    e = Eager(x)
    same(e.permute(3, 0, -2, 1), x.transpose(3, 0, 2, 1))
    same(e.permute((1, 0, 2, 3)), x.transpose(1, 0, 2, 3))
    same(e.transpose(-1, 0), np.swapaxes(x, -1, 0))
    same(e.T, x.T)
    same(e.flip(0, -1), np.flip(x, (0, -1)))
    same(e.flip((1,)), np.flip(x, 1))
    same(e.squeeze(), x.squeeze())
    same(e.squeeze(2), x.squeeze(2))
    same(e.squeeze(0), x)
    same(e.unsqueeze(-1), x[..., None])
    same(e.unsqueeze(1), x[:, None])
    same(e.flatten(), x.reshape(-1))
    same(e.flatten(1, 2), x.reshape(2, 3, 4))
    same(e.unflatten(3, (2, -1)), x.reshape(2, 3, 1, 2, 2))
    same(Eager(np.array(1)).flatten(), np.array([1]))
    assert e.ndim == 4
    assert e.numel() == 24
    assert e.size() == (2, 3, 1, 4)
    assert e.size(1) == 3
    for bad in [
        lambda: e.permute(0, 1, 2),
        lambda: e.permute(0, 0, 1, 2),
        lambda: e.flip(4),
        lambda: e.unsqueeze(6),
        lambda: e.flatten(2, 1),
        lambda: e.unflatten(3, (3, 2)),
    ]:
        with pytest.raises(ShapeError):
            bad()


def test_shrink():
    x = counted(4, 5)
    same(Eager(x).shrink(((1, 3), None)), x[1:3])
    same(Eager(x).shrink_to(2, None), x[:2])
    for bad in [((1, 3),), ((3, 1), None), ((0, 5), None), ((-1, 2), None)]:
        with pytest.raises(ShapeError):
            Eager(x).shrink(bad)


def test_repeats_and_roll():
    x = counted(2, 3)
    same(Eager(x).repeat(2, 1), np.tile(x, (2, 1)))
    same(Eager(x).repeat((3, 1, 2)), np.tile(x, (3, 1, 2)))
    same(Eager(x).repeat(2, 0), np.tile(x, (2, 0)))
    same(Eager(x).repeat_interleave(2), x.repeat(2))
    same(Eager(x).repeat_interleave(3, 1), x.repeat(3, 1))
    for shift in (-7, -1, 0, 1, 2, 5):
        same(Eager(x).roll(shift), np.roll(x, shift))
        same(Eager(x).roll(shift, 1), np.roll(x, shift, 1))
    same(Eager(x).roll((1, -1), (0, 1)), np.roll(x, (1, -1), (0, 1)))
    same(Eager(np.zeros((0,))).roll(1), np.zeros((0,)))


def test_cat_and_stack():
    parts = [counted(2, 3), -counted(2, 1), counted(2, 4) * 1.5, np.zeros((2, 0))]
    first, *rest = map(Eager, parts)
    same(first.cat(*rest, dim=1), np.concatenate([p.astype(np.float64) for p in parts], 1))
    same(first.cat(first, dim=-2), np.concatenate([parts[0]] * 2))
    for dim in (0, 1, 2, -1):
        same(
            first.stack(first * 2, first, dim=dim),
            np.stack([parts[0], parts[0] * 2, parts[0]], dim),
        )
    same(Eager(np.array(1)).stack(Eager(np.array(2))), np.array([1, 2]))
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(3, 3\)"):
        first.cat(Eager(counted(3, 3)), dim=1)
    with pytest.raises(ShapeError, match="stack"):
        first.stack(Eager(counted(3, 3)))


def test_cat_keeps_every_kind_of_value():
    parts = [np.array([-0.0, np.nan]), np.array([np.inf, 0.0]), np.array([-0.0])]
    found = Eager(parts[0]).cat(*map(Eager, parts[1:])).numpy()
    np.testing.assert_array_equal(found.view(np.int64), np.concatenate(parts).view(np.int64))


def test_split_and_chunk():
    x = counted(7, 2)
    for size in (1, 3, 7, 9):
        for found, at in zip(Eager(x).split(size), range(0, 7, size), strict=True):
            same(found, x[at : at + size])
    for found, expected in zip(Eager(x).split([2, 0, 5]), np.split(x, [2, 2]), strict=True):
        same(found, expected)
    assert [c.shape[0] for c in Eager(x).chunk(3)] == [3, 3, 1]
    assert [c.shape[1] for c in Eager(x).chunk(4, 1)] == [1, 1]
    with pytest.raises(ShapeError, match="7"):
        Eager(x).split([3, 3])
    with pytest.raises(ArgumentError):
        Eager(x).split(0)


def test_meshgrid():
    a, b = np.arange(3), np.arange(4)
    for indexing in ("ij", "xy"):
        for found, expected in zip(
            Eager(a).meshgrid(Eager(b), indexing=indexing),
            np.meshgrid(a, b, indexing=indexing),
            strict=True,
        ):
            same(found, expected)


def test_pad_forms():
    x = counted(2, 3)
    same(Eager(x).pad((1, 2)), np.pad(x, ((0, 0), (1, 2))))
    same(Eager(x).pad((1, 2, 0, 1)), np.pad(x, ((0, 1), (1, 2))))
    same(Eager(x).pad(((0, 1), None)), np.pad(x, ((0, 1), (0, 0))))
    same(Eager(x).pad((-1, 1)), np.pad(x[:, 1:], ((0, 0), (0, 1))))
    same(Eager(x).pad((0, 0, -1, -1)), x[1:1])
    same(Eager(x).pad((1, 1), value=7), np.pad(x, ((0, 0), (1, 1)), constant_values=7))
    same(Eager(x).pad_to(None, 5), np.pad(x, ((0, 0), (0, 2))))
    same(Eager(x).pad_to(3, 3, value=1), np.pad(x, ((0, 1), (0, 0)), constant_values=1))
    y = Eager(x.astype(np.float32)).pad((1, 0), value=-math.inf).numpy()
    assert np.isneginf(y[:, 0]).all()
    assert np.isfinite(y[:, 1:]).all()
    z = Eager(np.array([np.nan, np.inf])).pad((1, 1), value=2.0)
    np.testing.assert_array_equal(z.numpy(), [2, np.nan, np.inf, 2])
    for bad in [(1,), (1, 1, 1, 1, 1, 1), (None,), (-2, -2)]:
        with pytest.raises(ShapeError):
            Eager(x).pad(bad)


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
def test_pad_modes(mode):
    x = counted(4, 5)
    for pairs in [((0, 0), (1, 2)), ((3, 1), (0, 4)), ((2, 2), (2, 2))]:
        same(Eager(x).pad(pairs, mode=mode), np.pad(x, pairs, mode=MODES[mode]))
    same(Eager(x).pad((-1, 2), mode=mode), np.pad(x, ((0, 0), (0, 2)), mode=MODES[mode])[:, 1:])
    with pytest.raises(ArgumentError, match="mirror"):
        Eager(x).pad((1, 1), mode="mirror")


@given(
    size=st.integers(1, 12),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 6),
    dilation=st.integers(1, 4),
)
def test_windows(size, kernel, stride, dilation):
    x = counted(2, size)
    span = dilation * (kernel - 1) + 1
    if span > size:
        with pytest.raises(ShapeError):
            Eager(x)._windows((kernel,), (stride,), (dilation,))
        return
    places = (size - span) // stride + 1
    at = np.arange(places)[:, None] * stride + np.arange(kernel) * dilation
    same(Eager(x)._windows((kernel,), (stride,), (dilation,)), x[:, at])


def test_windows_over_two_axes_and_unfold():
    x = counted(2, 5, 7)
    found = Eager(x)._windows((2, 3), (2, 1), (1, 2))
    expected = np.lib.stride_tricks.sliding_window_view(x, (2, 5), (1, 2))[:, ::2, :, :, ::2]
    same(found, expected)
    same(
        Eager(x).unfold(1, 3, 2),
        np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2],
    )


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (2, 3, 4)])
def test_diagonals(shape):
    x = counted(*shape)
    for offset in range(-5, 6):
        same(Eager(x).diagonal(offset), np.diagonal(x, offset))
        same(Eager(x).diagonal(offset, -1, 0), np.diagonal(x, offset, -1, 0))


def test_diag():
    same(Eager(counted(3)).diag(), np.diag(counted(3)))
    same(Eager(counted(3, 3)).diag(), np.diag(counted(3, 3)))
    same(Eager(np.zeros(0)).diag(), np.zeros((0, 0)))
    with pytest.raises(ShapeError):
        Eager(counted(1, 1, 1)).diag()


def test_movement_that_changes_nothing_is_nothing():
    x = Eager(counted(2, 3))
    for same_again in (
        x.reshape(2, 3),
        x.expand(2, 3),
        x.permute(0, 1),
        x.flip(()),
        x.shrink((None, (0, 3))),
        x.pad((0, 0)),
        x.squeeze(),
        x.roll(0, 0),
        x.cast(x.dtype),
    ):
        assert same_again is x
