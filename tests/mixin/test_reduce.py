"""Reductions, running values, softmax and norms against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ShapeError

RNG = np.random.default_rng(0)
SPECIAL = np.array([[1.0, np.nan, 3.0], [np.inf, 2.0, -np.inf], [4.0, 4.0, -0.0]])


def close(found, expected, **bounds):
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.numpy(), expected, **{"rtol": 1e-6, **bounds})


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "any", "all"])
@given(st.data())
def test_reductions(name, data):
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4))
    axis = data.draw(st.none() | st.lists(st.sampled_from(range(len(shape) or 1)), unique=True))
    axis = None if axis is None or not shape else tuple(axis)
    keep = data.draw(st.booleans())
    x = RNG.integers(-3, 4, shape).astype(data.draw(st.sampled_from(["int64", "float64", "bool"])))
    found = getattr(Eager(x), name)(axis, keep)
    close(found, getattr(np, name)(x, axis=axis, keepdims=keep), rtol=1e-6)


def test_dtypes_of_sums():
    for given_, result in [
        ("int8", "int32"),
        ("uint8", "uint32"),
        ("bool", "int32"),
        ("int64", "int64"),
        ("float16", "float16"),
    ]:
        assert Eager(np.ones(2, given_)).sum().dtype.name == result
        assert Eager(np.ones(2, given_)).prod().dtype.name == result
    assert Eager(np.full(3, 100, np.int8)).sum().item() == 300
    assert Eager(np.ones(2, np.int8)).sum(dtype=dtypes.int8).dtype is dtypes.int8
    assert Eager(np.ones(2)).sum(dtype="float32").dtype is dtypes.float32
    assert Eager(np.ones(2, np.int8)).mean().dtype is dtypes.float32


def test_halves_accumulate_in_float32():
    x = np.full(5000, 1.0, np.float16)
    assert Eager(x).sum().item() == 5000
    assert Eager(np.full(5000, 60.0, np.float16)).mean().item() == 60


def test_nothing_to_reduce():
    x = np.zeros((2, 0, 3))
    for name in ("sum", "prod", "any", "all"):
        for axis in (None, 1, (0, 1)):
            close(getattr(Eager(x), name)(axis), getattr(np, name)(x, axis=axis))
    assert np.isnan(Eager(np.zeros(0)).mean().item())
    close(Eager(x).max(0), x.max(0))
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=r"\(2, 0, 3\)"):
            getattr(Eager(x), name)(1)
    assert Eager(np.zeros(0)).logsumexp().item() == -np.inf
    assert Eager(np.array(3)).sum(-1).item() == 3


def test_axes_are_checked():
    for axis in (2, -3, (0, 0), 1.0):
        with pytest.raises(ShapeError):
            Eager(np.ones((2, 2))).sum(axis)


def test_extremes_and_their_places_with_nan():
    for axis in (None, 0, 1):
        close(Eager(SPECIAL).max(axis), SPECIAL.max(axis))
        close(Eager(SPECIAL).min(axis), SPECIAL.min(axis))
        close(Eager(SPECIAL).argmax(axis), SPECIAL.argmax(axis))
        close(Eager(SPECIAL).argmin(axis), SPECIAL.argmin(axis))
    close(Eager(SPECIAL).argmax(1, True), SPECIAL.argmax(1, keepdims=True))
    close(Eager(SPECIAL).argmax(keepdim=True), SPECIAL.argmax(keepdims=True))
    ties = np.array([3, 1, 3, 1])
    assert (Eager(ties).argmax().item(), Eager(ties).argmin().item()) == (0, 1)
    assert Eager(np.array([False, True, True])).argmax().item() == 1
    assert Eager(np.array(5)).argmax().item() == 0


def test_variance():
    x = RNG.normal(size=(3, 4, 5)) + 1000
    for axis in (None, 1, (0, 2)):
        for correction in (0, 1):
            close(Eager(x).var(axis, correction=correction), x.var(axis, ddof=correction))
            close(Eager(x).std(axis, True, correction), x.std(axis, ddof=correction, keepdims=True))
    var, mean = Eager(x).var_mean(0)
    close(var, x.var(0, ddof=1))
    close(mean, x.mean(0))
    std, mean = Eager(x).std_mean(0, True)
    close(std, x.std(0, ddof=1, keepdims=True))
    close(mean, x.mean(0, keepdims=True))
    assert np.isnan(Eager(np.array([1.0])).var().item())
    close(Eager(np.arange(4)).var(), np.arange(4).var(ddof=1))


def naive_softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmax_family():
    x = RNG.normal(size=(3, 4)) * 30
    for axis in (0, 1, -1):
        close(Eager(x).softmax(axis), naive_softmax(x, axis))
        close(Eager(x).log_softmax(axis), np.log(naive_softmax(x, axis)), atol=1e-15)
        close(Eager(x).softmin(axis), naive_softmax(-x, axis))
        close(Eager(x).logsumexp(axis), np.logaddexp.reduce(x, axis))
    close(Eager(x).logsumexp((0, 1), True), np.logaddexp.reduce(x, (0, 1), keepdims=True))
    half = Eager(x.astype(np.float16)).softmax()
    assert half.dtype is dtypes.float16
    close(half, naive_softmax(x.astype(np.float16).astype(float), 1), rtol=1e-3, atol=1e-6)
    assert Eager(x).softmax(dtype=dtypes.float32).dtype is dtypes.float32
    close(Eager(np.array(3.0)).softmax(), np.array(1.0))


def test_logsumexp_of_infinities():
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [1, -np.inf], [np.nan, 0]])
    close(Eager(x).logsumexp(1), [-np.inf, np.inf, 1, np.nan])


def test_norms():
    x = RNG.normal(size=(4, 6, 5))
    centred = x - x.mean((1, 2), keepdims=True)
    expected = centred / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    close(Eager(x).layernorm((1, 2)), expected, rtol=1e-9)
    w, b, m, v = (RNG.normal(size=6) for _ in range(4))
    spread = [a.reshape(1, 6, 1) for a in (w, b, m, v)]
    found = Eager(x).batchnorm(Eager(w), Eager(b), Eager(m), Eager(v))
    close(found, (x - spread[2]) * spread[3] * spread[0] + spread[1], rtol=1e-9)
    close(
        Eager(x).batchnorm(None, None, Eager(m), Eager(v)), (x - spread[2]) * spread[3], rtol=1e-9
    )
    for p in (1, 2, 3, 0, float("inf")):
        norm = np.linalg.norm(x, p, 1, keepdims=True)
        close(Eager(x).normalize(p), x / norm, rtol=1e-9)
    assert Eager(np.zeros((1, 3))).normalize().tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 16, 33])
def test_running_values(size):
    x = RNG.integers(-3, 4, (3, size)).astype(float)
    for axis in (0, 1, -1):
        close(Eager(x).cumsum(axis), np.cumsum(x, axis))
        close(Eager(x).cumprod(axis), np.cumprod(x, axis))
        close(Eager(x).cummax(axis)[0], np.maximum.accumulate(x, axis))
        close(Eager(x).cummin(axis)[0], np.minimum.accumulate(x, axis))
        close(Eager(x).logcumsumexp(axis), np.logaddexp.accumulate(x, axis))
    values, places = Eager(x).cummax(1)
    if size:
        np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), 1), values.numpy())


def test_running_values_keep_dtypes_and_nan():
    assert Eager(np.full(3, 100, np.int8)).cumsum().tolist() == [100, 200, 300]
    found = Eager(np.array([1.0, np.nan, 3.0])).cummax()[0].numpy()
    np.testing.assert_array_equal(found, [1, np.nan, np.nan])
    assert Eager(np.array([1, 3, 3, 2])).cummax()[1].tolist() == [0, 1, 2, 2]
    assert Eager(np.array([3, 1, 1])).cummin()[1].tolist() == [0, 1, 2]
    assert Eager(np.array(2.0)).cumsum().item() == 2


def test_attention():
    q, k, v = (RNG.normal(size=(2, 3, n, 8)) for n in (5, 7, 7))

    def naive(mask=None):
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(8)
        scores = scores if mask is None else np.where(mask, scores, -np.inf)
        return naive_softmax(scores, -1) @ v

    close(Eager(q).scaled_dot_product_attention(Eager(k), Eager(v)), naive(), rtol=1e-9)
    lower = np.tril(np.ones((5, 7), bool))
    found = Eager(q).scaled_dot_product_attention(Eager(k), Eager(v), is_causal=True)
    close(found, naive(lower), rtol=1e-9)
    found = Eager(q).scaled_dot_product_attention(Eager(k), Eager(v), Eager(lower))
    close(found, naive(lower), rtol=1e-9)
    few = Eager(k[:, :1]), Eager(v[:, :1])
    found = Eager(q).scaled_dot_product_attention(*few, enable_gqa=True)
    k, v = np.repeat(k[:, :1], 3, 1), np.repeat(v[:, :1], 3, 1)
    close(found, naive(), rtol=1e-9)
