"""Sorting: the elements at the numbers that they have in order."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError
from tinyfn.mixin.core import resolve_axis, same_size
from tinyfn.mixin.loss import LossMixin


class SortMixin(LossMixin):
    """Stable, with NaN as the largest."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """The elements of an axis in order, and the numbers that they had.

        Equal elements keep their order; NaN comes last (first when descending).

        >>> [t.tolist() for t in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        order = self.argsort(dim, descending)
        if not self.ndim:
            return self, order
        return self.gather(dim, order), order

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The numbers of the elements of an axis in the order of `sort`.

        >>> Tensor([2.0, float("nan"), 1.0, 2.0]).argsort().tolist()
        [2, 0, 3, 1]
        """
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim or same_size(self.shape[axis], 0):
            return self._full(self.shape, 0, dtypes.default_int())
        return self._ordered(axis, descending, None)

    def _ordered(self, axis: int, descending: bool, number: int | None) -> Self:
        """The numbers of the first elements of an axis in order; of all for None."""
        order = self._move_axes([axis], self.ndim - 1)._argsort(descending, number)
        return order.cast(dtypes.default_int())._move_axes([self.ndim - 1], axis)

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The k largest (or smallest) elements of an axis, and their numbers.

        They come in order, whether `sorted_` asks for it or not.

        >>> Tensor([3, 1, 2]).topk(2)[0].tolist()
        [3, 2]
        """
        axis = resolve_axis(dim, self.ndim)
        size = self.shape[axis] if self.ndim else 1
        if not 0 <= k <= size:
            raise ArgumentError(f"expected k between 0 and {size}, the size of the axis, got {k}")
        if not self.ndim:
            return self, self._full((), 0, dtypes.default_int())
        order = self._ordered(axis, largest, k)
        return self.gather(axis, order), order

    def multinomial(self: Any, num_samples: int = 1, replacement: bool = False) -> Any:
        """Class numbers drawn with these weights: (num_samples,), or a row of them for each row.

        Without replacement the classes with the largest u^(1/weight) are taken
        (Efraimidis and Spirakis, 2006).

        >>> sorted(Tensor([0.0, 2.0, 1.0]).multinomial(2).tolist())
        [1, 2]
        >>> Tensor([0.0, 2.0, 0.0]).multinomial(3, replacement=True).tolist()
        [1, 1, 1]
        """
        if not 1 <= self.ndim <= 2 or num_samples <= 0:
            raise ArgumentError(
                f"expected weights of 1 or 2 axes and 1 sample or more, got shape {self.shape} and "
                f"{num_samples}"
            )
        classes = self.shape[-1]
        if not replacement and num_samples > classes:
            raise ArgumentError(
                f"{num_samples} samples without replacement need as many classes, got {classes}"
            )
        # float64, for whose digits a million classes are few
        weights = self.double()
        if not replacement:
            drawn = type(self).rand(*self.shape, dtype=dtypes.float64)
            keys = (weights > 0).where((1 - drawn).log() / weights, float("-inf"))
            return keys.topk(num_samples)[1]
        limits = weights.cumsum(-1)
        total = limits._narrow(self.ndim - 1, classes - 1, 1)
        drawn = type(self).rand(*self.shape[:-1], num_samples, dtype=dtypes.float64) * total
        passed = limits.unsqueeze(-2) <= drawn.unsqueeze(-1)
        return passed.cast(dtypes.int32).sum(-1).minimum(classes - 1)
