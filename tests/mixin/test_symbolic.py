"""Symbolic sizes and indices: shapes stay symbolic, values are those of the bound size."""

import numpy as np
import pytest

from tinyfn import Tensor, Variable
from tinyfn.errors import IndexingError, ShapeError
from tinyfn.uop.interpret import interpret

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def value(tensor):
    return interpret([tensor.uop])[0]


def bound(n=3):
    return Variable("n", 1, 6).bind(n)


FUNCTIONS = {
    "arithmetic": (lambda t, n: t * 2 + t, lambda x: x * 3),
    "sum": (lambda t, n: t.sum(0), lambda x: x.sum(0)),
    "mean": (lambda t, n: t.mean(), lambda x: x.mean()),
    "mean along": (lambda t, n: t.mean(0), lambda x: x.mean(0)),
    "var": (lambda t, n: t.var(0), lambda x: x.var(0, ddof=1)),
    "softmax": (lambda t, n: t.softmax(0).sum(0), lambda x: np.ones(4)),
    "max": (lambda t, n: t.max(0), lambda x: x.max(0)),
    "argmax": (lambda t, n: t.argmax(0), lambda x: x.argmax(0)),
    "matmul": (lambda t, n: t @ Tensor(X.T), lambda x: x @ X.T),
    "contraction": (lambda t, n: t.T @ t, lambda x: x.T @ x),
    "reshape": (lambda t, n: t.reshape(-1), lambda x: x.reshape(-1)),
    "split axes": (lambda t, n: t.reshape(n, 2, 2).sum(2), lambda x: x.reshape(-1, 2, 2).sum(2)),
    "join axes": (lambda t, n: t.reshape(n * 4) + 1, lambda x: x.reshape(-1) + 1),
    "flatten": (lambda t, n: t.unsqueeze(1).flatten(0, 1), lambda x: x),
    "expand": (lambda t, n: t[:1].expand(n, 4), lambda x: np.broadcast_to(x[:1], x.shape)),
    "flip": (lambda t, n: t.flip(0), lambda x: x[::-1]),
    "transpose": (lambda t, n: t.T, lambda x: x.T),
    "pad": (lambda t, n: t.pad(((0, 6 - n), None)).sum(0), lambda x: x.sum(0)),
    "pad with a value": (
        lambda t, n: t.pad(((1, 1), None), value=5.0),
        lambda x: np.pad(x, ((1, 1), (0, 0)), constant_values=5),
    ),
    "cat": (lambda t, n: t.cat(t, Tensor(X)), lambda x: np.concatenate([x, x, X])),
    "last": (lambda t, n: t[-1], lambda x: x[-1]),
    "all but the first": (lambda t, n: t[1:], lambda x: x[1:]),
    "all but the last": (lambda t, n: t[:-1], lambda x: x[:-1]),
    "reverse": (lambda t, n: t[::-1], lambda x: x[::-1]),
    "by numbers": (lambda t, n: t[[0, -1]], lambda x: x[[0, -1]]),
    "cumsum": (lambda t, n: t.cumsum(0), lambda x: x.cumsum(0)),
    "causal": (
        lambda t, n: (t @ t.T).tril(),
        lambda x: np.tril(x @ x.T),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("size", [1, 3, 6])
def test_functions_of_a_symbolic_size(name, size):
    n = bound(size)
    ours, numpys = FUNCTIONS[name]
    with (
        np.errstate(all="ignore"),
        pytest.warns(RuntimeWarning) if (name == "var" and size == 1) else np.errstate(),
    ):
        expected = numpys(X[:size])
    found = value(ours(Tensor(X)[:n], n))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_symbolic_indices():
    v = Variable("v", 0, 5).bind(2)
    x = Tensor(X)
    assert x[v].shape == (4,)
    np.testing.assert_array_equal(value(x[v]), X[2])
    assert x[v : v + 1].shape == (1, 4)
    np.testing.assert_array_equal(value(x[v : v + 1, 1:]), X[2:3, 1:])
    assert x[:, None, v - v].shape == (6, 1)
    with pytest.raises(IndexingError, match="step"):
        x[:v:2]


def test_symbolic_shapes_stay_symbolic():
    n = bound()
    t = Tensor(X)[:n]
    assert t.shape[0] is n
    assert (t * t).shape[0] is n
    assert (t @ t.T).shape == (n, n)
    assert t[:2].shape == (2, 4)
    assert t.max_shape == (6, 4)
    assert t.numel() is n * 4
    assert Tensor(X).shrink(((0, n), None)).shape[0] is n
    with pytest.raises(ShapeError, match="n"):
        t + Tensor(X[:5])
    with pytest.raises(ShapeError):
        t.reshape(100, 4)


def test_arithmetic_with_a_symbolic_number():
    n = bound(4)
    x = Tensor(X)
    np.testing.assert_allclose(value(x / n + n), X / 4 + 4)
    np.testing.assert_array_equal(value(n - x), 4 - X)
    np.testing.assert_array_equal(value(x < n), X < 4)
    np.testing.assert_array_equal(value((x < 3).where(n, x)), np.where(X < 3, 4, X))
    np.testing.assert_array_equal(value(Tensor.arange(n)), np.arange(4))


def test_sizes_are_numbers_too():
    n = Variable("n", 1, 6)
    assert (n * 4 // 2 - n - n).vmax == 0
    assert (5 - n).vmin == -1
    assert (-n).vmin == -6
    assert (n % 3).vmax == 2
    assert bool(n < 7)
