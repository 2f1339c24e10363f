"""Variables in shapes and indices: one compiled kernel, the values of every binding."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit, Variable
from tinyfn.runtime import execute

X = np.arange(40, dtype=np.float32).reshape(10, 4) % 7
ROWS = Variable("rows", 1, 10)


def softmax(x):
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


# name: (ours of the tensor and the bound variable, numpy's of the array and the number)
PROGRAMS = {
    "sum": (lambda t, n: t[:n].sum(), lambda x, n: x[:n].sum()),
    "sum of columns": (lambda t, n: t[:n].sum(0), lambda x, n: x[:n].sum(0)),
    "mean": (lambda t, n: t[:n].mean(), lambda x, n: x[:n].mean()),
    "max": (lambda t, n: t[:n].max(0), lambda x, n: x[:n].max(0)),
    "variance": (lambda t, n: t[:n].var(0, correction=0), lambda x, n: x[:n].var(0)),
    "elementwise": (lambda t, n: t[:n] * 2 + t[0], lambda x, n: x[:n] * 2 + x[0]),
    "where": (lambda t, n: (t[:n] > 3).where(t[:n], 0), lambda x, n: np.where(x > 3, x, 0)[:n]),
    "turned": (lambda t, n: t[:n].T + 1, lambda x, n: x[:n].T + 1),
    "backwards": (lambda t, n: t[:n].flip(0) * 1, lambda x, n: x[:n][::-1]),
    "softmax": (lambda t, n: t[:n].softmax(0), lambda x, n: softmax(x[:n])),
    "product": (lambda t, n: t[:n] @ t[:n].T, lambda x, n: x[:n] @ x[:n].T),
    "product over it": (lambda t, n: t[:n].T @ t[:n], lambda x, n: x[:n].T @ x[:n]),
    "reshaped": (
        lambda t, n: t[:n].reshape(n, 2, 2).sum(1),
        lambda x, n: x[:n].reshape(n, 2, 2).sum(1),
    ),
    "expanded": (lambda t, n: t[0].reshape(1, 4).expand(n, 4) * 1, lambda x, n: x[:1].repeat(n, 0)),
    "padded": (
        lambda t, n: t[:n].pad(((1, 0), (0, 0))),
        lambda x, n: np.pad(x[:n], ((1, 0), (0, 0))),
    ),
    "joined": (lambda t, n: t[:n].cat(t[:2]), lambda x, n: np.concatenate([x[:n], x[:2]])),
    "numbers": (lambda t, n: Tensor.arange(n) * 2, lambda x, n: np.arange(n) * 2),
    "ones": (lambda t, n: Tensor.ones(n, 4) + t[:n], lambda x, n: x[:n] + 1),
    "as a number": (lambda t, n: t[:2] * n, lambda x, n: x[:2] * n),
    "running": (lambda t, n: t[:n].cumsum(0), lambda x, n: x[:n].cumsum(0)),
    "argmax": (lambda t, n: t[:n].argmax(0), lambda x, n: x[:n].argmax(0)),
    "one row": (lambda t, n: t[n - 1] * 2, lambda x, n: x[n - 1] * 2),
    "stored": (lambda t, n: t[:n].contiguous().sum(0), lambda x, n: x[:n].sum(0)),
}


@pytest.mark.parametrize("native", [1, 0], ids=["native", "plain"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_value(name, native):
    ours, theirs = PROGRAMS[name]
    x = Tensor(X).realize()
    compiled = set()
    for n in (3, 10, 1):
        with Context(NATIVE=native):
            found = ours(x, ROWS.bind(n)).numpy()
        expected = theirs(X, n)
        assert found.shape == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        compiled.add(execute._programs.added)
    assert len(compiled) == 1


def test_gradients():
    x = Tensor(X[:, 0]).realize()
    for n in (2, 10):
        x.grad = None
        (x[: ROWS.bind(n)] ** 2).sum().backward()
        expected = np.where(np.arange(10) < n, 2 * X[:, 0], 0)
        assert x.grad.shape == (10,)
        np.testing.assert_allclose(x.grad.numpy(), expected)


def test_slices_are_assigned():
    x = Tensor.zeros(10).contiguous().realize()
    for n in (3, 8):
        x[: ROWS.bind(n)] += 1
        x.realize()
    assert x.tolist() == [2] * 3 + [1] * 5 + [0] * 2
    at = Variable("at", 0, 9)
    for i in (0, 9):
        x[at.bind(i)] = 7
        x.realize()
    assert x.tolist() == [7, 2, 2, 1, 1, 1, 1, 1, 0, 7]


def test_a_reader_of_another_binding_sees_what_was_before():
    x = Tensor(X[:, 1]).realize()
    total = x[: ROWS.bind(3)].sum()
    x[: ROWS.bind(5)] += 1
    x.realize()
    assert total.item() == X[:3, 1].sum()
    np.testing.assert_array_equal(x.numpy(), X[:, 1] + (np.arange(10) < 5))


def test_recorded():
    x = Tensor(X).realize()
    total = TinyJit(lambda t, n: t[:n].sum().realize())
    assert [total(x, ROWS.bind(n)).item() for n in (2, 3, 10, 1, 7)] == [
        X[:n].sum() for n in (2, 3, 10, 1, 7)
    ]
