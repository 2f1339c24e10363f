"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinyfn.dtype import dtypes, sum_acc_dtype
from tinyfn.mixin.core import max_size, plain, resolve_axis, same_size
from tinyfn.mixin.normalise import NormaliseMixin


class ScanMixin(NormaliseMixin):
    """What runs is a number after the other (`_scan`); what has no such op, in log2(n) steps."""

    __slots__ = ()

    def _running(self, name: str, axis: int) -> Self:
        """The running ADD, MUL, MAX or MIN; of no axes the element itself."""
        return self._scan(name, resolve_axis(axis, self.ndim)) if self.ndim else self

    def _scanned(self, axis: int, combine: Callable[[Self, Self], Self], neutral: Any) -> Self:
        """Hillis and Steele: Data parallel algorithms (1986). Each step is stored."""
        if not self.ndim:
            return self
        place = resolve_axis(axis, self.ndim)
        size, x, step = self.shape[place], self, 1
        if not isinstance(size, int):
            return self._scanned_symbolic(place, combine, neutral)
        while step < size:
            pairs: list[tuple[int, int]] = [(0, 0)] * self.ndim
            pairs[place] = (step, -step)
            # the first ones have nothing before them: no gradient goes to the neutral element
            behind = self._iota_along(place, self.ndim, size) >= step
            x = behind.where(combine(x._pad_constant(pairs, neutral), x), x)
            step *= 2
            x = x.contiguous() if step < size else x
        return x

    def _scanned_symbolic(
        self, place: int, combine: Callable[[Self, Self], Self], neutral: Any
    ) -> Self:
        size = self.shape[place]
        pairs: list[tuple[Any, Any]] = [(0, 0)] * self.ndim
        pairs[place] = (0, plain(max_size(size) - size))
        whole = self._pad_constant(pairs, neutral)._scanned(place, combine, neutral)
        return whole._narrow(place, 0, size)

    def cumsum(self, axis: int = 0) -> Self:
        """The sums of the elements up to each; ints are widened as for `sum`.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        return self._accumulating("ADD", axis)

    def cumprod(self, axis: int) -> Self:
        """The products of the elements up to each; ints are widened as for `prod`.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).cumprod(axis=1).tolist()
        [[1, 2, 6], [4, 20, 120]]
        """
        return self._accumulating("MUL", axis)

    def _accumulating(self, name: str, axis: int) -> Self:
        result = sum_acc_dtype(self.dtype)
        inner = self._computed_in(result) if result.kind == "float" else result
        return self.cast(inner)._running(name, axis).cast(result)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The largest elements up to each, and their numbers (the last of equals).

        >>> [t.tolist() for t in Tensor([1, 3, 2, 3]).cummax()]
        [[1, 3, 3, 3], [0, 1, 1, 3]]
        """
        values = self._running("MAX", axis)
        return values, self._running_place(values, axis)

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The smallest elements up to each, and their numbers (the last of equals).

        >>> [t.tolist() for t in Tensor([3, 1, 2, 1]).cummin()]
        [[3, 1, 1, 1], [0, 1, 1, 3]]
        """
        values = self._running("MIN", axis)
        return values, self._running_place(values, axis)

    def _running_place(self, values: Self, axis: int) -> Self:
        """Where a running extreme was taken from: the last place at which x equals it."""
        if not self.ndim:
            return self._full((), 0, dtypes.default_int())
        place = resolve_axis(axis, self.ndim)
        here = self.eq(values)
        if self.dtype.kind == "float":
            here = here | (self.isnan() & values.isnan())
        numbers = self._iota_along(place, self.ndim, self.shape[place])
        found = here.where(numbers, 0)._running("MAX", place)
        return found.cast(dtypes.default_int())

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the running sum of e^x, without overflow.

        >>> Tensor([-1000.0, float("-inf"), 1000.0]).logcumsumexp().tolist()
        [-1000.0, -1000.0, 1000.0]
        """
        x = self._as_float()
        inner = x._computed_in()
        found = x.cast(inner)._scanned(axis, lambda a, b: a.logaddexp(b), float("-inf"))
        return found.cast(x.dtype)

    def _is_empty(self) -> bool:
        return any(same_size(s, 0) for s in self.shape)
