"""Losses: what a batch costs, as a mean, a sum or one value each."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.mixin.core import same_shape, show
from tinyfn.mixin.pooling import PoolingMixin


class LossMixin(PoolingMixin):
    """`reduction` is "mean", "sum" or "none"."""

    __slots__ = ()

    def _reduced_loss(self, reduction: str) -> Self:
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f"expected reduction 'mean', 'sum' or 'none', got {reduction!r}")
        return self if reduction == "none" else self.mean() if reduction == "mean" else self.sum()

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """-(y log p + (1 - y) log(1 - p)) of probabilities; logarithms are at least -100.

        >>> p, y = Tensor([1.0, 0.0]), Tensor([1.0, 1.0])
        >>> p.binary_crossentropy(y).item()
        50.0
        """
        p = self._as_float()
        least = -100.0
        yes, no = p.log().clip(least), (1 - p).log().clip(least)
        return (-(Y * yes) - (1 - Y) * no)._reduced_loss(reduction)

    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """The same of logits, without overflow; `pos_weight` multiplies the cost of y = 1.

        >>> Tensor([1000.0, -1000.0]).binary_crossentropy_logits(Tensor([1.0, 1.0])).item()
        500.0
        """
        yes, no = self.logsigmoid(), self.neg().logsigmoid()
        yes = yes if pos_weight is None else yes * pos_weight
        return (-(Y * yes) - (1 - Y) * no)._reduced_loss(reduction)

    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """-sum of y log softmax(x) over axis 1 (axis 0 of a vector).

        Args:
            Y: class numbers without that axis, or probabilities with it.
            label_smoothing: the share of the target spread over all classes.

        Raises:
            ShapeError: Y has neither shape.

        >>> logits = Tensor([[0.0, 0.0], [0.0, 100.0]])
        >>> round(logits.cross_entropy(Tensor([0, 1])).item(), 4)  # (log(2) + 0) / 2
        0.3466
        """
        _check_smoothing(label_smoothing)
        axis = min(1, self.ndim - 1)
        classes = self.shape[axis]
        by_number = same_shape(Y.shape, [s for i, s in enumerate(self.shape) if i != axis])
        if not by_number and not same_shape(Y.shape, self.shape):
            raise ShapeError(
                f"expected class numbers or probabilities for logits {show(self.shape)}, got "
                f"{show(Y.shape)}"
            )
        logs = self.log_softmax(axis)
        if by_number:
            is_class = Y._is_class(classes)._move_axes([Y.ndim], axis)
            cost = -is_class.where(logs, 0).sum(axis)._smoothed(logs, axis, label_smoothing)
        else:
            spread = Y * (1 - label_smoothing) + label_smoothing / classes
            cost = -(logs * (spread if label_smoothing else Y)).sum(axis)
        return cost._reduced_loss(reduction)

    def _smoothed(self, logs: Self, axis: int, share: float) -> Self:
        """The picked logarithm mixed with the mean over all classes."""
        return self * (1 - share) + logs.mean(axis) * share if share else self

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """-log softmax(x)[y] over the last axis, for class numbers y.

        Entries whose class is `ignore_index` cost nothing and do not count in the mean.

        >>> logits = Tensor([[0.0, 0.0], [100.0, 0.0]])
        >>> round(logits.sparse_categorical_crossentropy(Tensor([1, -1])).item(), 4)
        0.6931
        """
        _check_smoothing(label_smoothing)
        if not same_shape(Y.shape, self.shape[:-1]):
            raise ShapeError(
                f"expected class numbers of shape {show(self.shape[:-1])} for logits "
                f"{show(self.shape)}, got {show(Y.shape)}"
            )
        logs = self.log_softmax()
        counted = Y.ne(ignore_index)
        picked = Y._is_class(self.shape[-1]).where(logs, 0).sum(-1)
        cost = -picked._smoothed(logs, -1, label_smoothing)
        return counted.where(cost, 0)._mean_of_counted(counted, reduction)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """-x[y] over axis 1 (axis 0 of a vector) of log probabilities, for class numbers y.

        Args:
            weight: one a class; the mean is weighted by it.
            ignore_index: a class that costs nothing and does not count.

        >>> logs = Tensor([[-1.0, -2.0], [-3.0, -4.0]])
        >>> logs.nll_loss(Tensor([0, 1])).item()
        2.5
        >>> logs.nll_loss(Tensor([0, 1]), weight=Tensor([3.0, 1.0])).item()  # (3 * 1 + 1 * 4) / 4
        1.75
        """
        axis = min(1, self.ndim - 1)
        expected = [s for i, s in enumerate(self.shape) if i != axis]
        if not same_shape(Y.shape, expected):
            raise ShapeError(
                f"expected class numbers of shape {show(expected)} for {show(self.shape)}, got "
                f"{show(Y.shape)}"
            )
        is_class = Y._is_class(self.shape[axis])
        picked = is_class.where(self._move_axes([axis], self.ndim - 1), 0).sum(-1)
        factor = picked.const_like(1.0) if weight is None else is_class.where(weight, 0).sum(-1)
        if ignore_index is not None:
            factor = Y.ne(ignore_index).where(factor, 0)
        return factor.ne(0).where(-picked * factor, 0)._mean_of_counted(factor, reduction)

    def _mean_of_counted(self, factor: Any, reduction: str) -> Self:
        """The mean over what counts: the sum over the sum of factors."""
        if reduction != "mean":
            return self._reduced_loss(reduction)
        return self.sum().div(factor.cast(self.dtype).sum())


def _check_smoothing(value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ArgumentError(f"expected label_smoothing between 0 and 1, got {value}")
