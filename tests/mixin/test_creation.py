"""Numbers in order, masks by position, sorting, formulas of movement, decompositions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "args",
    [
        (5,),
        (2, 7),
        (7, 2, -2),
        (1, 8, 3),
        (0,),
        (3, 1),
        (2.5,),
        (0, 1, 0.25),
        (1, 0, -0.3),
        (-3, 3, 2),
        (0.5, 3),
    ],
)
def test_arange(args):
    expected = np.arange(*args)
    found = Eager.arange(*args)
    whole = expected.dtype.kind == "i"
    assert found.dtype is (dtypes.int32 if whole else dtypes.float32)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_arange_dtypes():
    assert Eager.arange(3, dtype="float64").numpy().dtype == np.float64
    assert Eager.arange(300, dtype=dtypes.uint8).tolist() == [i % 256 for i in range(300)]
    big = Eager.arange(2**40, 2**40 + 3, dtype=dtypes.int64)
    assert big.tolist() == [2**40, 2**40 + 1, 2**40 + 2]
    with pytest.raises(ArgumentError):
        Eager.arange(0, 3, 0)


def test_linspace_and_eye():
    for args in [(0, 1, 5), (-3, 7, 11), (5, 5, 3), (1, 0, 4), (2, 3, 1), (0, 1, 0)]:
        found = Eager.linspace(*args, dtype="float64").numpy()
        np.testing.assert_allclose(found, np.linspace(*args), rtol=1e-15, atol=1e-16)
        if args[2] > 1:
            assert (found[0], found[-1]) == args[:2]
    np.testing.assert_array_equal(Eager.eye(3).numpy(), np.eye(3))
    np.testing.assert_array_equal(Eager.eye(2, 4, dtype=dtypes.int8).numpy(), np.eye(2, 4))
    for bad in [lambda: Eager.linspace(0, 1, -1), lambda: Eager.eye(-1)]:
        with pytest.raises((ArgumentError, ShapeError)):
            bad()


def test_triangles():
    x = RNG.normal(size=(2, 3, 5))
    for k in range(-4, 6):
        np.testing.assert_array_equal(Eager(x).tril(k).numpy(), np.tril(x, k))
        np.testing.assert_array_equal(Eager(x).triu(k).numpy(), np.triu(x, k))
    assert Eager(np.full((2, 2), np.nan)).tril().numpy()[0, 1] == 0
    with pytest.raises(ShapeError):
        Eager(x[0, 0]).tril()


def test_const_like_and_sizes():
    x = Eager(np.zeros((2, 3), np.float16))
    assert x.const_like(3).tolist() == [[3] * 3] * 2
    assert x.const_like(3).dtype is dtypes.float16
    assert x.const_like(3, dtype="int8").dtype is dtypes.int8
    assert x.max_shape == (2, 3)
    assert x.max_numel() == 6


# *** sorting ***


@settings(max_examples=60)
@given(st.lists(st.sampled_from([1.0, -2.0, 3.5, 0.0, -0.0, np.nan, np.inf, -np.inf]), max_size=9))
def test_sort(values):
    x = np.array(values, np.float64)
    found, order = Eager(x).sort()
    np.testing.assert_array_equal(found.numpy(), np.sort(x))
    np.testing.assert_array_equal(order.numpy(), np.argsort(x, stable=True))
    falling, order = Eager(x).sort(descending=True)
    np.testing.assert_array_equal(falling.numpy(), np.sort(x)[::-1])
    np.testing.assert_array_equal(x[order.numpy()], falling.numpy())


def test_sort_along_axes_and_topk():
    x = RNG.integers(0, 5, (3, 4, 5))
    for axis in (0, 1, -1):
        found, order = Eager(x).sort(axis)
        np.testing.assert_array_equal(found.numpy(), np.sort(x, axis))
        np.testing.assert_array_equal(order.numpy(), np.argsort(x, axis, stable=True))
        top, places = Eager(x).topk(2, axis)
        np.testing.assert_array_equal(
            top.numpy(), np.flip(np.sort(x, axis), axis).take([0, 1], axis)
        )
        np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), axis), top.numpy())
    low, _ = Eager(x).topk(1, 0, largest=False)
    np.testing.assert_array_equal(low.numpy()[0], x.min(0))
    assert Eager(np.array([1, 1, 1])).argsort(descending=True).tolist() == [0, 1, 2]
    with pytest.raises(ArgumentError, match="6"):
        Eager(x).topk(6)


# *** rearrange ***


def test_rearrange():
    x = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    e = Eager(x)
    cases = {
        "a b c -> c a b": x.transpose(2, 0, 1),
        "a b c -> a (b c)": x.reshape(2, 12),
        "a b (c d) -> d a (b c)": x.reshape(2, 3, 2, 2).transpose(3, 0, 1, 2).reshape(2, 2, 6),
        "... c -> c ...": x.transpose(2, 0, 1),
        "a ... -> a 1 ...": x[:, None],
        "a b c -> a b c ()": x[..., None],
        "a b c->(a b c)": x.reshape(-1),
    }
    for formula, expected in cases.items():
        found = e.rearrange(formula, **({"d": 2} if "d)" in formula else {}))
        np.testing.assert_array_equal(found.numpy(), expected)
        assert found.shape == expected.shape
    np.testing.assert_array_equal(e[:, :1].rearrange("a 1 c -> c a").numpy(), x[:, 0].T)


@pytest.mark.parametrize(
    ("formula", "sizes"),
    [
        ("a b c", {}),
        ("a b -> b a", {}),
        ("a b c -> a b", {}),
        ("a b c -> a b c d", {}),
        ("a a c -> a c", {}),
        ("a b (c d) -> a b c d", {}),
        ("a b (c d) -> a b c d", {"d": 3}),
        ("a b c -> a b c", {"z": 1}),
        ("a (b c -> a b c", {}),
        ("a b c) -> a b c", {}),
        ("(a ...) c -> a c", {}),
        ("... a ... -> a", {}),
        ("1 b c -> b c", {}),
    ],
)
def test_rearrange_refuses(formula, sizes):
    with pytest.raises((ArgumentError, ShapeError)):
        Eager(np.zeros((2, 3, 4))).rearrange(formula, **sizes)


# *** decompositions ***


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (1, 3), (3, 1)])
def test_qr(shape):
    x = RNG.normal(size=shape)
    q, r = (t.numpy() for t in Eager(x).qr())
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    eye = np.broadcast_to(np.eye(shape[-2]), q.shape)
    np.testing.assert_allclose(q @ np.swapaxes(q, -1, -2), eye, atol=1e-12)
    np.testing.assert_array_equal(r, np.triu(r))
    assert q.shape[-2:] == (shape[-2], shape[-2])
    assert r.shape == shape


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (1, 1), (1, 3), (7, 2)])
@pytest.mark.parametrize("full", [True, False])
def test_svd(shape, full):
    x = RNG.normal(size=shape)
    u, s, vt = (t.numpy() for t in Eager(x).svd(full))
    expected = np.linalg.svd(x, full_matrices=full)
    assert (u.shape, s.shape, vt.shape) == tuple(e.shape for e in expected)
    np.testing.assert_allclose(s, expected[1], atol=1e-10)
    k = s.shape[-1]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], x, atol=1e-10)
    for m in (np.swapaxes(u, -1, -2) @ u, vt @ np.swapaxes(vt, -1, -2)):
        np.testing.assert_allclose(m, np.broadcast_to(np.eye(m.shape[-1]), m.shape), atol=1e-10)


def test_svd_of_a_matrix_without_full_rank():
    x = np.outer([1.0, 2, 3], [1.0, 1, 0])
    u, s, vt = (t.numpy() for t in Eager(x).svd())
    np.testing.assert_allclose((u * s) @ vt, x, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(3), atol=1e-10)
    zeros = Eager(np.zeros((2, 2))).svd()
    assert zeros[1].tolist() == [0, 0]
    with pytest.raises(DTypeError):
        Eager(np.ones((2, 2), int)).qr()
    with pytest.raises(ShapeError):
        Eager(np.ones(2)).svd()
