"""Reductions: sums, products, extremes and what is made of them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tinyfn.dtype import DType, dtypes, sum_acc_dtype, to_dtype
from tinyfn.errors import ShapeError
from tinyfn.mixin.core import Axes, Size, count, max_size, resolve_axes, same_size, show
from tinyfn.mixin.operators import OperatorMixin


class ReduceMixin(OperatorMixin):
    """`axis` is one axis, several, or None for all; `keepdim` leaves them as size 1."""

    __slots__ = ()

    def _reduced(self, name: str, axes: tuple[int, ...], keepdim: bool) -> Self:
        """One reduction; an empty one gives the neutral element."""
        shape = self.shape
        if any(same_size(shape[a], 0) for a in axes):
            kept = tuple(1 if i in axes else s for i, s in enumerate(shape))
            result = self._full(kept, self._neutral(name), self.dtype)
        else:
            result = self._reduce(name, axes) if axes else self
        return result if keepdim else result._without_axes(axes)

    def _neutral(self, name: str) -> Any:
        lowest = {"ADD": 0, "MUL": 1}
        if name in lowest:
            return lowest[name]
        return self.dtype.min if name == "MAX" else self.dtype.max

    def _without_axes(self, axes: tuple[int, ...]) -> Self:
        return self._reshaped(tuple(s for i, s in enumerate(self.shape) if i not in axes))

    def _accumulated(self, name: str, axes: tuple[int, ...], keepdim: bool, dtype: Any) -> Self:
        """A sum or product: accumulated in float32 where the dtype is narrower, then rounded."""
        result = sum_acc_dtype(self.dtype) if dtype is None else to_dtype(dtype)
        inner = self._computed_in(result) if result.kind == "float" else result
        return self.cast(inner)._reduced(name, axes, keepdim).cast(result)

    def sum(
        self, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The sum (0 for no elements).

        Args:
            dtype: of the result; by default that of the elements, ints at least 32 bits wide.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
        """
        return self._accumulated("ADD", resolve_axes(axis, self.ndim), keepdim, dtype)

    def prod(
        self, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The product (1 for no elements); dtype as for `sum`.

        >>> Tensor([2, 3, 4]).prod().item()
        24
        """
        return self._accumulated("MUL", resolve_axes(axis, self.ndim), keepdim, dtype)

    def _extreme(self, name: str, axis: Axes, keepdim: bool) -> Self:
        axes = resolve_axes(axis, self.ndim)
        self._need_elements({"MAX": "max", "MIN": "min"}[name], axes)
        return self._reduced(name, axes, keepdim)

    def _need_elements(self, name: str, axes: tuple[int, ...]) -> None:
        rest_empty = any(same_size(s, 0) for i, s in enumerate(self.shape) if i not in axes)
        if not rest_empty and any(same_size(self.shape[a], 0) for a in axes):
            raise ShapeError(
                f"{name} of no elements is not defined: shape {show(self.shape)}, axes {axes}"
            )

    def max(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The largest element; NaN where there is one.

        Raises:
            ShapeError: there are no elements.

        >>> Tensor([[1, 5], [3, 2]]).max(axis=1).tolist()
        [5, 3]
        """
        return self._extreme("MAX", axis, keepdim)

    def min(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The smallest element; NaN where there is one.

        Raises:
            ShapeError: there are no elements.

        >>> Tensor([2.0, float("nan"), 1.0]).min().item()
        nan
        """
        return self._extreme("MIN", axis, keepdim)

    def any(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether some element is not 0 (False for no elements).

        >>> Tensor([[0, 0], [0, 2]]).any(axis=1).tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)._reduced("MAX", resolve_axes(axis, self.ndim), keepdim)

    def all(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether no element is 0 (True for no elements).

        >>> Tensor([[1, 2], [0, 2]]).all(axis=0).tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)._reduced("MIN", resolve_axes(axis, self.ndim), keepdim)

    def allclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> np.bool_:
        """Whether all elements are close (see `isclose`); computes the answer.

        A bool of numpy: true or false as it stands, and with an `item()` as a tensor has.

        >>> bool(Tensor([1.0, 2.0]).allclose(Tensor([1.0, 2.000001])))
        True
        """
        found: Any = self.isclose(other, rtol, atol, equal_nan).all()
        return np.bool_(found.item())

    def _count(self, axes: tuple[int, ...]) -> Size:
        return count([self.shape[a] for a in axes])

    def mean(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The arithmetic mean, a float; NaN for no elements.

        >>> Tensor([1, 2, 4, 5]).mean().item()
        3.0
        """
        axes = resolve_axes(axis, self.ndim)
        inner = self._computed_in()
        total = self.cast(inner)._reduced("ADD", axes, keepdim)
        mean = total._alu("DIV", self._constant(self._count(axes), inner))
        return mean.cast(self._as_float().dtype)

    def _centred_square_sum(self, axes: tuple[int, ...]) -> tuple[Self, Self]:
        """The sum of squared distances from the mean, and the mean; axes kept, in a wide dtype."""
        x = self.cast(self._computed_in())
        mean = x.mean(axes, keepdim=True) if axes else x
        return x.sub(mean).square()._reduced("ADD", axes, True), mean

    def var(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance: squared distances from the mean over (number - correction).

        >>> Tensor([1.0, 2.0, 3.0]).var().item()
        1.0
        """
        return self.var_mean(axis, keepdim, correction)[0]

    def var_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The variance and the mean.

        >>> var, mean = Tensor([1.0, 2.0, 3.0]).var_mean(correction=0)
        >>> round(var.item(), 4), mean.item()
        (0.6667, 2.0)
        """
        if self.dtype.kind != "float":
            return self._as_float().var_mean(axis, keepdim, correction)
        axes = resolve_axes(axis, self.ndim)
        total, mean = self._centred_square_sum(axes)
        number = self._count(axes)
        if isinstance(number, int):
            freedom = total._constant(float(max(number - correction, 0)), total.dtype)
        else:
            freedom = total._constant(number - correction, total.dtype)
        found = (total._alu("DIV", freedom), mean)
        var, middle = (v.cast(self.dtype) for v in found)
        if keepdim:
            return var, middle
        return var._without_axes(axes), middle._without_axes(axes)

    def std(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation: the root of `var`.

        >>> Tensor([1.0, 3.0]).std(correction=0).item(), round(Tensor([1.0, 3.0]).std().item(), 4)
        (1.0, 1.4142)
        """
        return self.var(axis, keepdim, correction)._root_of_variance()

    def _root_of_variance(self) -> Self:
        """The square root, with gradient 0 at 0, where the root itself has none."""
        zero = self.eq(0)
        return zero.where(0.0, zero.where(1.0, self).sqrt())

    def std_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The standard deviation and the mean.

        >>> std, mean = Tensor([[1.0, 2.0, 3.0]]).std_mean(axis=1)
        >>> std.tolist(), mean.tolist()
        ([1.0], [2.0])
        """
        var, mean = self.var_mean(axis, keepdim, correction)
        return var._root_of_variance(), mean

    # *** places ***

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The number of the first largest element along an axis (in the flat tensor for None).

        The first NaN counts as largest, as in numpy.

        >>> Tensor([1, 3, 3]).argmax().item()
        1
        """
        return self._place_of("MAX", axis, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The number of the first smallest element (see `argmax`).

        >>> Tensor([[2, 1, 1], [0, 3, 4]]).argmin(axis=1).tolist()
        [1, 0]
        """
        return self._place_of("MIN", axis, keepdim)

    def _place_of(self, name: str, axis: int | None, keepdim: bool) -> Self:
        if axis is None:
            flat = self.flatten() if self.ndim else self._reshaped((1,))
            place = flat._place_of(name, 0, False)
            return place._reshaped((1,) * self.ndim) if keepdim else place
        axes = resolve_axes(axis, self.ndim)
        self._need_elements("arg" + name.lower(), axes)
        if not self.ndim:
            return self._reshaped((1,))._place_of(name, 0, False)
        found = self._alu("CMPEQ", self._reduced(name, axes, True)._broadcast_to(self.shape))
        if self.dtype.kind == "float":
            found = found._alu("OR", self._alu("CMPNE", self))
        size = self.shape[axes[0]]
        numbers = self._iota_along(axes[0], self.ndim, size)
        beyond = self._constant(max_size(size), numbers.dtype)
        candidates = found._alu("WHERE", numbers._broadcast_to(self.shape), beyond)
        return candidates._reduced("MIN", axes, keepdim).cast(
            dtypes.default_int() if numbers.dtype is dtypes.int32 else numbers.dtype
        )
