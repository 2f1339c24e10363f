"""Deep graphs of single numbers are cut as those of tensors are: nothing recurses over them."""

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
