"""Deep graphs are cut: nothing recurses over them, and no work grows with a power of the depth."""

import numpy as np

from tinyfn import Tensor

A = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_sum_of_many_sums():
    x = Tensor(A).realize()
    total = sum((x * k).sum() for k in range(1, 400))
    np.testing.assert_allclose(total.item(), A.sum() * 400 * 399 / 2, rtol=1e-5)


def test_long_chain_on_a_number():
    y, expected = Tensor(A).realize().sum(), float(A.sum())
    for _ in range(1500):
        y, expected = y * 0.5 + 1, expected * 0.5 + 1
    np.testing.assert_allclose(y.item(), expected, rtol=1e-6)


def test_many_normalisations_of_rows():
    y, expected = Tensor(A).realize(), A.astype(np.float64)
    for _ in range(150):
        y = y - y.mean(1, keepdim=True) * 0.5 + 0.1
        expected = expected - expected.mean(1, keepdims=True) * 0.5 + 0.1
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_products_of_tiny_matrices_are_stored_before_they_multiply():
    # each product of 2x2 reads every element twice: computed in place, 30 steps would be 2^60 loads
    x = Tensor([[3.0, 0.0], [0.0, 0.5]]).newton_schulz(30, params=(1.5, -0.5))
    linear, _ = x.linear_with_vars()
    assert len(linear.src) < 100
    np.testing.assert_allclose(x.numpy(), np.eye(2), atol=1e-6)


def test_gradient_through_many_tiny_windows():
    x = Tensor(A[:, :3]).realize()
    y, ones = x.reshape(1, 1, 3, 3), Tensor.ones(1, 1, 3, 3)
    for _ in range(24):
        y = y.conv2d(ones, padding=1) / 4
    y.sum().backward()
    row = np.ones(3)
    for _ in range(24):
        row = np.array([row[:2].sum(), row.sum(), row[1:].sum()]) / 2
    np.testing.assert_allclose(x.grad.numpy(), np.outer(row, row), rtol=1e-4)
