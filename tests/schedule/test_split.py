"""Reductions with few results: in how many kernels, to which values."""

import numpy as np
import pytest

from tinyfn import Tensor


def values(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def kernels_of(*tensors):
    return len(tensors[0].linear_with_vars(*tensors[1:])[0].src)


@pytest.mark.parametrize(
    "shape", [(90001, 3), (100000, 3), (4099, 129), (5, 1000, 64), (16384, 16)]
)
@pytest.mark.parametrize("name", ["sum", "max", "min"])
def test_columns_of_a_long_matrix(shape, name):
    data = values(*shape)
    axes = tuple(range(len(shape) - 1))
    found = getattr(Tensor(data).realize(), name)(axes)
    assert kernels_of(found) == 2
    right = getattr(data.astype(np.float64), name)(axes)
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=2e-3)


def test_a_long_matrix_of_other_types():
    data = (values(70000, 7) * 50).astype(np.int32)
    np.testing.assert_array_equal(Tensor(data).sum(0).numpy(), data.sum(0))
    np.testing.assert_array_equal((Tensor(data) > 199).any(0).numpy(), (data > 199).any(0))
    small = (1 + values(70000, 5) / 1000).astype(np.float64)
    np.testing.assert_allclose(Tensor(small).prod(0).numpy(), small.prod(0), rtol=1e-10)


def test_few_results_of_a_mean_keep_their_shape():
    data = values(2, 3, 40000)
    x = Tensor(data)
    found = x.transpose(0, 2).contiguous().sum((0, 2), keepdim=True)
    assert found.shape == (1, 3, 1)
    np.testing.assert_allclose(found.numpy().ravel(), data.sum((0, 2)), rtol=1e-3, atol=1e-3)


def test_rows_are_shared_by_threads_before_their_mean():
    x, labels = Tensor(values(300, 200)).realize(), Tensor(np.arange(300) % 200).realize()
    loss = x.sparse_categorical_crossentropy(labels)
    assert kernels_of(loss) == 2
    wide = x.numpy().astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    right = -logs[np.arange(300), np.arange(300) % 200].mean()
    np.testing.assert_allclose(loss.item(), right, rtol=1e-6)
    weighted = (x.softmax() * x).sum()
    assert kernels_of(weighted) == 2
    np.testing.assert_allclose(weighted.item(), (np.exp(logs) * wide).sum(), rtol=1e-5)


def test_rows_that_a_product_sums_over():
    x, w = values(16, 16), values(16, 8)
    found = Tensor(x).softmax(-1).T @ Tensor(w)
    powers = np.exp(x.astype(np.float64))
    right = (powers / powers.sum(1, keepdims=True)).T @ w
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", [4097 * 2, 16384, 8191])
def test_a_long_sum_of_products_is_taken_in_parts(depth):
    x, w = values(8, depth), values(depth, 24)
    found = Tensor(x).realize() @ Tensor(w).realize()
    assert kernels_of(found) == (1 if depth == 8191 else 2)  # a prime has no parts
    right = x.astype(np.float64) @ w
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=2e-3)


def test_the_gradient_of_a_filter_is_taken_in_parts():
    x, w = Tensor(values(32, 3, 15, 15)).realize(), Tensor(values(4, 3, 3, 3)).realize()
    seed = Tensor(values(32, 4, 13, 13)).realize()
    found = x.conv2d(w).gradient(w, gradient=seed)[0]
    assert kernels_of(found) == 2
    windows = np.lib.stride_tricks.sliding_window_view(x.numpy().astype(np.float64), (3, 3), (2, 3))
    right = np.einsum("ncyxij,noyx->ocij", windows, seed.numpy())
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-3)
