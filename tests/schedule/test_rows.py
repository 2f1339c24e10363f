"""Kernels over rows: one forward, at most two backward, and the values of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyfn import Tensor

ROWS, COLUMNS = 96, 200
random = np.random.default_rng(0)
X = random.normal(size=(ROWS, COLUMNS))
WEIGHT, BIAS = random.normal(size=(2, COLUMNS))
LABELS = random.integers(0, COLUMNS, ROWS)
SEEN = random.normal(size=(ROWS, COLUMNS))  # the gradient of the result

Arrays = tuple[np.ndarray, ...]


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(array.astype(np.float32 if array.dtype.kind == "f" else array.dtype)).realize()


def kernels_of(*tensors: Tensor) -> int:
    return len(tensors[0].linear_with_vars(*tensors[1:])[0].src)


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax(x: np.ndarray) -> Arrays:
    y = softmax_of(x)
    return y, y * (SEEN - (SEEN * y).sum(-1, keepdims=True))


def log_softmax(x: np.ndarray) -> Arrays:
    y = softmax_of(x)
    return np.log(y), SEEN - y * SEEN.sum(-1, keepdims=True)


def normalised(x: np.ndarray, mean: Any) -> tuple[np.ndarray, np.ndarray]:
    scale = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x - mean) * scale, scale


def layernorm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Arrays:
    y, scale = normalised(x, x.mean(-1, keepdims=True))
    g = SEEN * w
    along = (g * y).mean(-1, keepdims=True) * y
    dx = scale * (g - g.mean(-1, keepdims=True) - along)
    return y * w + b, dx, (SEEN * y).sum(0), SEEN.sum(0)


def rmsnorm(x: np.ndarray, w: np.ndarray) -> Arrays:
    y, scale = normalised(x, 0)
    g = SEEN * w
    return y * w, scale * (g - (g * y).mean(-1, keepdims=True) * y), (SEEN * y).sum(0)


def variance(x: np.ndarray) -> Arrays:
    centred = x - x.mean(-1, keepdims=True)
    return x.var(-1, ddof=1), SEEN[:, :1] * 2 * centred / (COLUMNS - 1)


def tensor_rmsnorm(x: Tensor, w: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w


CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Arrays], int]] = {
    "softmax": (lambda x: x.softmax(), softmax, 3),
    "log_softmax": (lambda x: x.log_softmax(), log_softmax, 2),
    "layernorm": (lambda x, w, b: x.layernorm() * w + b, layernorm, 2),
    "rmsnorm": (tensor_rmsnorm, rmsnorm, 2),
    "variance": (lambda x: x.var(-1), variance, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_row_kernel_and_its_gradient(name: str) -> None:
    compute, expected, together = CASES[name]
    right = expected(*(X, WEIGHT, BIAS)[: expected.__code__.co_argcount])
    inputs = [tensor(a) for a in (X, WEIGHT, BIAS)[: expected.__code__.co_argcount]]
    seen = tensor(SEEN if right[0].ndim == 2 else SEEN[:, 0])
    y = compute(*inputs)
    gradients = y.gradient(*inputs, gradient=seen)
    assert kernels_of(y) == 1
    assert kernels_of(*gradients) <= 2
    assert kernels_of(y, *gradients) <= together
    alone = [g.numpy() for g in compute(*inputs).gradient(*inputs, gradient=seen)]
    Tensor.realize(y, *gradients)
    for found in ([y.numpy(), *(g.numpy() for g in gradients)], [None, *alone]):
        for value, wanted in zip(found, right, strict=True):
            if value is not None:
                np.testing.assert_allclose(value, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", "cross_entropy"])
def test_a_loss_of_rows(loss: str) -> None:
    x, labels = tensor(X), tensor(LABELS)
    found = getattr(x, loss)(labels)
    (gradient,) = found.gradient(x)
    assert kernels_of(found) <= 2  # pieces of many rows, and what they come to
    assert kernels_of(gradient) == 1
    y = softmax_of(X)
    one_hot = np.eye(COLUMNS)[LABELS]
    np.testing.assert_allclose(found.item(), -(np.log(y) * one_hot).sum(-1).mean(), rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy(), (y - one_hot) / ROWS, rtol=1e-4, atol=1e-7)


def test_a_row_read_by_two_kernels_is_not_stored() -> None:
    x = tensor(X)
    centred = x - x.mean(-1, keepdim=True)
    y = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    z = centred.abs().sum(-1)
    assert kernels_of(y, z) == 1
    Tensor.realize(y, z)
    mean = X.mean(-1, keepdims=True)
    np.testing.assert_allclose(y.numpy(), normalised(X, mean)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z.numpy(), np.abs(X - mean).sum(-1), rtol=1e-5)


def test_few_rows_stay_apart_from_their_elements() -> None:
    x = tensor(X[:2].repeat(2000, 1))
    y = x.sum(-1, keepdim=True).contiguous()
    assert kernels_of(y, x * y) > 1  # the second kernel has more loops for threads
