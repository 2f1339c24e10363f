"""Small real data sets as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfn.errors import ArgumentError
from tinyfn.helpers import optional
from tinyfn.tensor import Tensor


def digits(
    test_share: float = 0.2, seed: int = 0, device: Any = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scikit-learn's 1797 images of handwritten digits, split by chance with a fixed seed.

    Args:
        test_share: the share of the images that is kept for testing.
        seed: of the split.
        device: where the tensors live.

    Returns:
        Training images and labels, test images and labels: images float32 of shape (n, 1, 8, 8)
        between 0 and 1, labels int32 of shape (n,).

    Raises:
        MissingExtraError: scikit-learn is not installed.

    >>> images, labels, test_images, test_labels = digits()
    >>> images.shape, test_labels.shape, images.max().item()
    ((1438, 1, 8, 8), (359,), 1.0)
    """
    if not 0 < test_share < 1:
        raise ArgumentError(f"expected a test_share between 0 and 1, got {test_share}")
    data = optional("sklearn.datasets", "examples").load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    labels = data.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = np.split(order, [round(test_share * len(order))])
    parts = images[train], labels[train], images[test], labels[test]
    first, second, third, fourth = (Tensor(p, device=device) for p in parts)
    return first, second, third, fourth
