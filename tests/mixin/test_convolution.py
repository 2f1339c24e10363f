"""Convolutions, pools and interpolation against loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)


def naive_conv(x, w, groups, stride, dilation, pads):
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    n = w.ndim - 2
    places = [
        (s - d * (k - 1) - 1) // t + 1
        for s, k, t, d in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *places))
    inner, per_group = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        channels = slice(o // per_group * inner, (o // per_group + 1) * inner)
        for place in np.ndindex(*places):
            window = tuple(
                slice(p * t, p * t + d * (k - 1) + 1, d)
                for p, t, d, k in zip(place, stride, dilation, w.shape[2:], strict=True)
            )
            piece = x[(slice(None), channels, *window)]
            out[(slice(None), o, *place)] = (piece * w[o]).sum(tuple(range(1, n + 2)))
    return out


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_conv(data):
    n = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 2]))
    each = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(n))  # noqa: E731
    kernel, stride, dilation, padding = each(1, 3), each(1, 3), each(1, 2), each(0, 2)
    sizes = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + data.draw(st.integers(0, 3))
        for d, k, p in zip(dilation, kernel, padding, strict=True)
    )
    x = RNG.normal(size=(2, 2 * groups, *sizes))
    w = RNG.normal(size=(2 * groups, 2, *kernel))
    b = RNG.normal(size=2 * groups)
    found = Eager(x).conv2d(Eager(w), Eager(b), groups, stride, dilation, padding)
    expected = naive_conv(x, w, groups, stride, dilation, [(p, p) for p in padding])
    expected = expected + b.reshape(-1, *[1] * n)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_padding_with_two_numbers_an_axis():
    x, w = RNG.normal(size=(1, 1, 4, 5)), RNG.normal(size=(1, 1, 2, 2))
    found = Eager(x).conv2d(Eager(w), padding=(1, 2, 3, 0)).numpy()
    expected = naive_conv(x, w, 1, (1, 1), (1, 1), [(3, 0), (1, 2)])
    np.testing.assert_allclose(found, expected)


def test_conv_of_halves_and_refusals():
    x, w = np.ones((1, 600, 3, 3), np.float16), np.ones((1, 600, 3, 3), np.float16)
    found = Eager(x).conv2d(Eager(w))
    assert found.dtype is dtypes.float16
    assert found.item() == 5400
    for bad in [
        lambda: Eager(x).conv2d(Eager(w), groups=2),
        lambda: Eager(x[0]).conv2d(Eager(w)),
        lambda: Eager(x[:, :, :2]).conv2d(Eager(w)),
        lambda: Eager(x).conv2d(Eager(w), stride=(1, 2, 3)),
    ]:
        with pytest.raises((ShapeError, ArgumentError)):
            bad()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_conv_transpose_is_the_transpose(data):
    n = data.draw(st.integers(1, 2))
    groups = data.draw(st.sampled_from([1, 2]))
    each = lambda low, high: tuple(data.draw(st.integers(low, high)) for _ in range(n))  # noqa: E731
    kernel, stride, dilation = each(1, 3), each(1, 3), each(1, 2)
    padding = tuple(
        data.draw(st.integers(0, d * (k - 1))) for d, k in zip(dilation, kernel, strict=True)
    )
    more = tuple(
        data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
    )
    sizes = each(1, 4)
    whole = [
        (s - 1) * t - 2 * p + d * (k - 1) + m + 1
        for s, t, p, d, k, m in zip(sizes, stride, padding, dilation, kernel, more, strict=True)
    ]
    if min(whole) < 1:
        return
    y = RNG.normal(size=(2, 2 * groups, *sizes))
    w = RNG.normal(size=(2 * groups, 3, *kernel))
    found = (
        Eager(y).conv_transpose2d(Eager(w), None, groups, stride, dilation, padding, more).numpy()
    )
    assert list(found.shape[2:]) == whole
    if any(m >= s for m, s in zip(more, stride, strict=True)):
        return
    # <conv(x), y> = <x, conv_transpose(y)>
    x = RNG.normal(size=(2, 3 * groups, *whole))
    forward = naive_conv(x, w, groups, stride, dilation, [(p, p) for p in padding])
    assert forward.shape == y.shape
    np.testing.assert_allclose((forward * y).sum(), (x * found).sum(), rtol=1e-8, atol=1e-9)


# *** pools ***


def windows_of(size, k, step, spread, pad, ceil_mode):
    reach = size + 2 * pad - spread * (k - 1) - 1
    places = (-(-reach // step) if ceil_mode else reach // step) + 1
    if ceil_mode and (places - 1) * step >= size + pad:
        places -= 1
    return [[p * step - pad + j * spread for j in range(k)] for p in range(places)]


def naive_pool(x, kernel, stride, spread, pad, ceil_mode, of_window):
    h, w = x.shape
    rows = windows_of(h, kernel, stride, spread, pad, ceil_mode)
    columns = windows_of(w, kernel, stride, spread, pad, ceil_mode)
    return np.array([[of_window(list(itertools.product(r, c))) for c in columns] for r in rows])


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    spread=st.integers(1, 2),
    ceil_mode=st.booleans(),
    data=st.data(),
)
def test_pools(sizes, kernel, stride, spread, ceil_mode, data):
    pad = data.draw(st.integers(0, kernel // 2))
    x = RNG.normal(size=sizes)
    h, w = sizes

    def inside(cells, by=0):
        return [(a, b) for a, b in cells if -by <= a < h + by and -by <= b < w + by]

    args = {"kernel_size": kernel, "stride": stride, "padding": pad, "dilation": spread}

    def check(found, of_window):
        expected = naive_pool(x, kernel, stride, spread, pad, ceil_mode, of_window)
        assert found.shape == (1, 1, *expected.shape)
        np.testing.assert_allclose(found.numpy()[0, 0], expected)

    batch = Eager(x[None, None])
    total = lambda cells: sum(x[c] for c in inside(cells))  # noqa: E731
    values, places = batch.max_pool2d(**args, ceil_mode=ceil_mode, return_indices=True)
    check(values, lambda cells: max(x[c] for c in inside(cells)))
    check(places, lambda cells: min((-x[c], c[0] * w + c[1]) for c in inside(cells))[1])
    check(
        batch.avg_pool2d(**args, ceil_mode=ceil_mode),
        lambda cells: total(cells) / len(inside(cells, pad)),
    )
    check(
        batch.avg_pool2d(**args, ceil_mode=ceil_mode, count_include_pad=False),
        lambda cells: total(cells) / len(inside(cells)),
    )


def test_pools_of_other_axes_and_kinds():
    x = np.arange(2 * 6).reshape(2, 6)
    assert Eager(x).max_pool2d((3,)).tolist() == [[2, 5], [8, 11]]
    assert Eager(x).avg_pool2d((3,)).tolist() == [[1, 4], [7, 10]]
    assert Eager(x.astype(np.int8)).max_pool2d((1, 2)).dtype is dtypes.int8
    nan = np.array([[1.0, np.nan, 2.0, 3.0]])
    values, places = Eager(nan).max_pool2d((1, 2), return_indices=True)
    np.testing.assert_array_equal(values.numpy(), [[np.nan, 3]])
    assert places.tolist() == [[1, 3]]
    with pytest.raises(ShapeError):
        Eager(np.ones(4)).max_pool2d()


def test_unpool():
    x = RNG.normal(size=(2, 3, 4, 6))
    values, places = Eager(x).max_pool2d(return_indices=True)
    found = values.max_unpool2d(places).numpy()
    assert found.shape == x.shape
    np.testing.assert_array_equal(found[found != 0], x[found != 0])
    assert (found != 0).sum() == values.numel()
    assert values.max_unpool2d(places, output_size=(2, 3, 5, 6)).shape == (2, 3, 5, 6)


# *** interpolation ***


@pytest.mark.parametrize(("old", "new"), [(4, 8), (8, 4), (5, 7), (7, 5), (3, 3), (1, 4)])
def test_interpolation(old, new):
    x = RNG.normal(size=(2, old))
    places = np.arange(new)
    for mode, at in [
        ("nearest", (places * old) // new),
        ("nearest-exact", ((2 * places + 1) * old) // (2 * new)),
    ]:
        np.testing.assert_array_equal(Eager(x).interpolate((new,), mode).numpy(), x[:, at])
    for corners, at in [
        (True, places * (old - 1) / max(new - 1, 1)),
        (False, np.clip((places + 0.5) * old / new - 0.5, 0, old - 1)),
    ]:
        expected = np.array([np.interp(at, np.arange(old), row) for row in x])
        found = Eager(x).interpolate((new,), align_corners=corners).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_interpolation_beside_infinity_is_numpys():
    x = np.array([np.inf, 0.0, np.inf, np.inf, 1.0, 2.0, -np.inf])
    for new in (3, 7, 9, 13):
        for corners, at in [
            (True, np.linspace(0, 6, new)),
            (False, np.clip((np.arange(new) + 0.5) * 7 / new - 0.5, 0, 6)),
        ]:
            expected = np.interp(at, np.arange(7), x)
            found = Eager(x).interpolate((new,), align_corners=corners).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_interpolation_of_two_axes_and_refusals():
    x = np.arange(12.0).reshape(1, 3, 4)
    assert Eager(x).interpolate((6, 2)).shape == (1, 6, 2)
    bytes_ = Eager(np.array([[1, 2], [3, 4]], np.uint8)).interpolate((4, 4))
    assert bytes_.dtype is dtypes.uint8
    expected = [[1, 1, 2, 2], [2, 2, 2, 3], [3, 3, 3, 4], [3, 3, 4, 4]]  # rounded once, half up
    np.testing.assert_array_equal(bytes_.numpy(), expected)
    ints = Eager(np.array([0, -1, -4], np.int32)).interpolate((7,))
    np.testing.assert_array_equal(ints.numpy(), [0, 0, 0, -1, -2, -3, -4])
    for bad in [
        lambda: Eager(x).interpolate((6,), mode="cubic"),
        lambda: Eager(x).interpolate((6,), "nearest", True),
        lambda: Eager(x).interpolate(()),
    ]:
        with pytest.raises((ShapeError, ArgumentError)):
            bad()
