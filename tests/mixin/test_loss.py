"""Losses against their formulas."""

import numpy as np
import pytest
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 4)) * 3
CLASSES = np.array([0, 3, 1, 1, 2, 0])
LOGS = LOGITS - np.logaddexp.reduce(LOGITS, 1, keepdims=True)
PICKED = -LOGS[np.arange(6), CLASSES]


def check(loss, each):
    for reduction, expected in [("none", each), ("sum", each.sum()), ("mean", each.mean())]:
        found = loss(reduction)
        assert found.shape == np.shape(expected)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)
    with pytest.raises(ArgumentError, match="max"):
        loss("max")


def test_cross_entropy_of_class_numbers():
    x, y = Eager(LOGITS), Eager(CLASSES)
    check(lambda r: x.cross_entropy(y, r), PICKED)
    smooth = 0.9 * PICKED + 0.1 * -LOGS.mean(1)
    check(lambda r: x.cross_entropy(y, r, 0.1), smooth)
    check(lambda r: x.sparse_categorical_crossentropy(y, -1, 0.1, r), smooth)
    check(lambda r: x.nll_loss(y, reduction=r), -LOGITS[np.arange(6), CLASSES])
    np.testing.assert_allclose(Eager(LOGITS[0]).cross_entropy(Eager(CLASSES[0])).item(), PICKED[0])


def test_cross_entropy_of_probabilities():
    p = RNG.random((6, 4))
    p /= p.sum(1, keepdims=True)
    check(lambda r: Eager(LOGITS).cross_entropy(Eager(p), r), -(p * LOGS).sum(1))
    q = p * 0.8 + 0.2 / 4
    check(lambda r: Eager(LOGITS).cross_entropy(Eager(p), r, 0.2), -(q * LOGS).sum(1))


def test_cross_entropy_over_more_axes():
    x = RNG.normal(size=(2, 5, 3))
    y = RNG.integers(0, 5, (2, 3))
    logs = x - np.logaddexp.reduce(x, 1, keepdims=True)
    expected = -np.take_along_axis(logs, y[:, None], 1)[:, 0]
    check(lambda r: Eager(x).cross_entropy(Eager(y), r), expected)
    check(lambda r: Eager(logs).nll_loss(Eager(y), reduction=r), expected)
    turned = Eager(x).permute(0, 2, 1)
    check(lambda r: turned.sparse_categorical_crossentropy(Eager(y), reduction=r), expected)


def test_ignored_classes():
    y = CLASSES.copy()
    y[:2] = -1
    x = Eager(LOGITS)
    found = x.sparse_categorical_crossentropy(Eager(y))
    np.testing.assert_allclose(found.item(), PICKED[2:].mean())
    kept = CLASSES != 1
    found = Eager(LOGS).nll_loss(Eager(CLASSES), ignore_index=1)
    np.testing.assert_allclose(found.item(), PICKED[kept].mean())
    found = Eager(LOGS).nll_loss(Eager(CLASSES), ignore_index=1, reduction="none")
    np.testing.assert_allclose(found.numpy(), np.where(kept, PICKED, 0))


def test_weighted_nll():
    w = np.array([1.0, 2.0, 0.5, 0.0])
    each = PICKED * w[CLASSES]
    found = Eager(LOGS).nll_loss(Eager(CLASSES), Eager(w))
    np.testing.assert_allclose(found.item(), each.sum() / w[CLASSES].sum())
    found = Eager(LOGS).nll_loss(Eager(CLASSES), Eager(w), reduction="none")
    np.testing.assert_allclose(found.numpy(), each)


def test_a_class_of_probability_zero_costs_nothing_elsewhere():
    x = np.array([[0.0, -np.inf]])
    assert Eager(x).sparse_categorical_crossentropy(Eager(np.array([0]))).item() == 0
    assert Eager(x).nll_loss(Eager(np.array([0]))).item() == 0
    assert Eager(x).cross_entropy(Eager(np.array([0]))).item() == 0


def test_binary_losses():
    p, y = RNG.random(8), RNG.integers(0, 2, 8).astype(float)
    each = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    check(lambda r: Eager(p).binary_crossentropy(Eager(y), r), each)
    logits = np.log(p / (1 - p))
    check(lambda r: Eager(logits).binary_crossentropy_logits(Eager(y), r), each)
    weighted = -(3 * y * np.log(p) + (1 - y) * np.log(1 - p))
    weight = Eager(np.array(3.0))
    check(lambda r: Eager(logits).binary_crossentropy_logits(Eager(y), r, weight), weighted)
    sure = Eager(np.array([0.0, 1.0])).binary_crossentropy(Eager(np.array([1.0, 1.0])), "none")
    assert sure.tolist() == [100, 0]
    far = Eager(np.array([1000.0, -1000.0])).binary_crossentropy_logits(
        Eager(np.array([0.0, 0.0])), "none"
    )
    assert far.tolist() == [1000, 0]


def test_halves_and_refusals():
    half = Eager(LOGITS.astype(np.float16))
    assert half.cross_entropy(Eager(CLASSES)).dtype is dtypes.float16
    x = Eager(LOGITS)
    for bad in [
        lambda: x.cross_entropy(Eager(CLASSES[:3])),
        lambda: x.nll_loss(Eager(CLASSES[:3])),
        lambda: x.sparse_categorical_crossentropy(Eager(CLASSES[:3])),
        lambda: x.cross_entropy(Eager(CLASSES), label_smoothing=2),
    ]:
        with pytest.raises((ShapeError, ArgumentError)):
            bad()
