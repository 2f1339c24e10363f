"""Embedding and LSTMCell against numpy."""

import numpy as np
import pytest

from tinyfn import Tensor, nn
from tinyfn.errors import DTypeError

RNG = np.random.default_rng(8)


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (0,), (2, 1, 3)])
def test_embedding(shape):
    layer = nn.Embedding(7, 5)
    index = RNG.integers(0, 7, size=shape)
    found = layer(Tensor(index))
    assert found.shape == (*shape, 5)
    close(found, layer.weight.numpy()[index])


def test_embedding_adds_the_gradients_of_repeated_numbers():
    layer = nn.Embedding(4, 2)
    layer(Tensor([1, 3, 1])).sum().backward()
    close(layer.weight.grad, [[0, 0], [2, 2], [0, 0], [1, 1]])


def test_embedding_takes_ints_only():
    with pytest.raises(DTypeError, match="whole numbers as an int tensor, got dtypes.float32"):
        nn.Embedding(4, 2)(Tensor([1.0]))


def logistic(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell(bias):
    cell = nn.LSTMCell(4, 3, bias=bias)
    w_ih, w_hh = cell.weight_ih.numpy(), cell.weight_hh.numpy()
    more = cell.bias_ih.numpy() + cell.bias_hh.numpy() if bias else 0
    h = c = np.zeros((2, 3))
    state = None
    for _ in range(3):
        x = RNG.normal(size=(2, 4)).astype(np.float32)
        state = cell(Tensor(x), state)
        i, f, g, o = np.split(x @ w_ih.T + h @ w_hh.T + more, 4, axis=1)
        c = logistic(f) * c + logistic(i) * np.tanh(g)
        h = logistic(o) * np.tanh(c)
        close(state[0], h)
        close(state[1], c)
