"""Matrix products and einsum against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


def close(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


@given(st.data())
def test_matmul_is_numpys(data):
    n = data.draw(st.integers(0, 4))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2))
    own, other = ([data.draw(st.sampled_from([1, b])) for b in batch] for _ in range(2))
    a = RNG.normal(size=(*own, data.draw(st.integers(1, 4)), n))
    b = RNG.normal(size=(*other, n, data.draw(st.integers(1, 4))))
    a = a[0] if not batch and data.draw(st.booleans()) else a
    b = b[:, 0] if not batch and data.draw(st.booleans()) else b
    close(Eager(a) @ Eager(b), np.asarray(a @ b))
    close(Eager(b).matmul(Eager(a), reverse=True), np.asarray(a @ b))


def test_dtypes_of_products():
    half = Eager(np.full((1, 3000), 1, np.float16))
    found = half @ half.T
    assert found.dtype is dtypes.float16
    assert found.item() == 3000
    assert half.dot(half.T, dtype=dtypes.float32).dtype is dtypes.float32
    a, b = RNG.integers(-100, 100, (2, 3), np.int8), RNG.integers(-100, 100, (3, 2), np.int8)
    found = Eager(a) @ Eager(b)
    assert found.numpy().dtype == np.int8
    np.testing.assert_array_equal(found.numpy(), a @ b)
    a, b = RNG.integers(0, 2, (2, 3)) > 0, RNG.integers(0, 2, (3, 2)) > 0
    np.testing.assert_array_equal((Eager(a) @ Eager(b)).numpy(), a @ b)
    assert (Eager(np.ones((1, 1), np.int8)) @ Eager(np.ones((1, 1)))).dtype is dtypes.float64


def test_products_that_do_not_fit():
    x = Eager(np.ones((2, 3)))
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 3\)"):
        x @ x
    with pytest.raises(ShapeError, match="scalars"):
        x @ Eager(np.array(1.0))
    with pytest.raises(ShapeError):
        Eager(np.ones((2, 2, 3))) @ Eager(np.ones((3, 3, 2)))
    with pytest.raises(DTypeError, match="int"):
        x.dot(3)


def test_linear():
    x, w, b = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=2)
    close(Eager(x).linear(Eager(w), Eager(b)), x @ w + b)
    close(Eager(x).linear(Eager(w[:, 0])), x * w[:, 0])
    assert Eager(x).linear(Eager(w), Eager(b), dtype="float32").dtype is dtypes.float32


@pytest.mark.parametrize(
    "formula",
    [
        "ij,jk->ik",
        "ij,jk",
        "ij->ji",
        "ij->",
        "ii->i",
        "ii",
        "i,i->",
        "i,j->ij",
        "ij,jk,kl->il",
        "ij,kj->ik",
        "ij,ij->ij",
        "...ij,...jk->...ik",
        "ij, jk -> ki",
        "iij->j",
        "i...->...",
        "ij,k->jk",
        "ijk,jil->kl",
        "i->i",
        "ji",
    ],
)
def test_einsum_is_numpys(formula):
    operands = []
    for letters in formula.replace(" ", "").split("->")[0].split(","):
        dims = [3 if c == "k" else 2 for c in letters.replace("...", "xy")]
        operands.append(RNG.normal(size=dims))
    expected = np.asarray(np.einsum(formula, *operands))
    close(Eager.einsum(formula, *map(Eager, operands)), expected)
    close(Eager.einsum(formula, list(map(Eager, operands))), expected)


def test_einsum_refuses():
    x = Eager(np.ones((2, 3)))
    for bad in [("ij,jk->ik", x), ("ijk->i", x), ("ij->ijk", x), ("i->i", x), ("ij->ii", x)]:
        with pytest.raises((ArgumentError, ShapeError)):
            Eager.einsum(*bad)
    with pytest.raises(ShapeError):
        Eager.einsum("ii->i", x)
    assert Eager.einsum("ij->i", x, dtype="float32").dtype is dtypes.float32


def test_newton_schulz_makes_singular_values_one():
    for shape in [(4, 6), (6, 4), (2, 5, 5)]:
        x = RNG.normal(size=shape)
        found = Eager(x).newton_schulz(30, (1.5, -0.5)).numpy()
        values = np.linalg.svd(found, compute_uv=False)
        np.testing.assert_allclose(values, 1, rtol=1e-6)
