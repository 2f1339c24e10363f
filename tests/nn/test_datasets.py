"""The digits: real images, split the same way every time."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tinyfn import dtypes
from tinyfn.errors import ArgumentError, MissingExtraError
from tinyfn.nn.datasets import digits


def test_digits():
    x_train, y_train, x_test, y_test = digits()
    assert x_train.shape == (1438, 1, 8, 8) and y_train.shape == (1438,)
    assert x_test.shape == (359, 1, 8, 8) and y_test.shape == (359,)
    assert x_train.dtype is dtypes.float32 and y_train.dtype is dtypes.int32
    images = np.concatenate([x_train.numpy(), x_test.numpy()])
    labels = np.concatenate([y_train.numpy(), y_test.numpy()])
    assert images.min() == 0 and images.max() == 1
    source = load_digits()
    everything = {(i.tobytes(), t) for i, t in zip(source.images / 16, source.target, strict=True)}
    split = {(i[0].astype(float).tobytes(), t) for i, t in zip(images, labels, strict=True)}
    assert split == everything


def test_the_seed_decides():
    first, again, other = digits()[3], digits()[3], digits(seed=1)[3]
    np.testing.assert_equal(first.numpy(), again.numpy())
    assert (first.numpy() != other.numpy()).any()
    assert digits(test_share=0.5)[2].shape[0] == 898


def test_mistakes_are_told(monkeypatch):
    with pytest.raises(ArgumentError, match="test_share between 0 and 1, got 1.0"):
        digits(test_share=1.0)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tinyfn\[examples\]'"):
        digits()
