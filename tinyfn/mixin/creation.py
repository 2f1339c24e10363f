"""Tensors made of numbers in order, and masks by position."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyfn.dtype import DType, dtypes, to_dtype
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.helpers import ceildiv
from tinyfn.mixin.core import as_int, max_size, show
from tinyfn.mixin.reduce import ReduceMixin


class CreationMixin(ReduceMixin):
    """`arange` and its relatives. Nothing is stored: they are computed where they are used."""

    __slots__ = ()

    @classmethod
    def _numbers(cls, n: Any, dtype: DType) -> Self:
        """0 ... n-1 in a dtype."""
        wide = max_size(n) > 2**31 - 1
        inner = dtype if dtypes.is_int(dtype) else dtypes.int64 if wide else dtypes.int32
        return cls._iota(n, inner).cast(dtype)

    @classmethod
    def arange(
        cls, start: Any, stop: Any = None, step: Any = 1, dtype: DType | str | None = None
    ) -> Self:
        """start, start + step, ... below stop; with one argument from 0 below it.

        Args:
            dtype: by default the default int where all are ints, else the default float.

        >>> Tensor.arange(1, 7, 2).tolist()
        [1, 3, 5]
        """
        first, last = (0, start) if stop is None else (start, stop)
        if any(cls._symbolic(v) for v in (first, last, step)):
            return cls._numbers(last - first, _index_dtype(dtype)).add(first)
        if step == 0:
            raise ArgumentError("arange takes a step that is not 0, got 0")
        kinds = max(dtypes.from_py(v) for v in (first, last, step))
        kind = to_dtype(dtype) if dtype is not None else kinds
        ints = all(isinstance(v, int) for v in (first, last, step))
        steps = ceildiv(last - first, step) if ints else math.ceil((last - first) / step)
        number = max(0, steps)
        whole = isinstance(first, int) and isinstance(step, int)
        exact = dtypes.int32 if whole and _fits(first, step, number) else dtypes.int64
        inner = kind if dtypes.is_int(kind) else exact if whole else dtypes.float64
        if not whole and kind.itemsize < 8:
            inner = dtypes.float32 if number < 2**24 else dtypes.float64
        numbers = cls._numbers(number, inner)
        numbers = numbers if step == 1 else numbers.mul(step)
        return (numbers if first == 0 else numbers.add(first)).cast(kind)

    @classmethod
    def linspace(cls, start: Any, stop: Any, steps: int, dtype: DType | str | None = None) -> Self:
        """`steps` evenly spaced numbers from start to stop, both included.

        >>> Tensor.linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
        """
        number = as_int(steps, "the number of steps")
        if number < 0:
            raise ArgumentError(f"linspace takes 0 steps or more, got {number}")
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        inner = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        places = cls._numbers(number, dtypes.int32)
        if number < 2:
            return places.cast(inner).add(float(start)).cast(kind)
        step = (stop - start) / (number - 1)
        # from both ends, so that the last number is `stop` itself
        up = places.cast(inner).mul(float(step)).add(float(start))
        left = places.mul(-1).add(number - 1).cast(inner)
        down = left.mul(-float(step)).add(float(stop))
        return (places < (number + 1) // 2).where(up, down).cast(kind)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: DType | str | None = None) -> Self:
        """The identity matrix (n, n), or (n, m) with ones on the main diagonal.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        columns = n if m is None else m
        if n < 0 or columns < 0:
            raise ShapeError(f"expected sizes of 0 or more, got ({n}, {columns})")
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        rows = cls._numbers(n, dtypes.int32)._reshaped((n, 1))
        return rows.eq(cls._numbers(columns, dtypes.int32)).cast(kind)

    def const_like(self, b: Any, dtype: DType | str | None = None) -> Self:
        """One constant in the shape (and by default the dtype) of this.

        >>> Tensor([[1, 2]]).const_like(0.5, dtype="float").tolist()
        [[0.5, 0.5]]
        """
        return self._full(self.shape, b, self.dtype if dtype is None else to_dtype(dtype))

    # *** masks by position ***

    def _rows_minus_columns(self, name: str) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"{name} takes 2 axes or more, got shape {show(self.shape)}")
        rows, columns = self.shape[-2:]
        down = self._iota_along(0, 2, rows)
        right = self._iota_along(1, 2, columns)
        return right.sub(down)

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle of the last two axes, zeros above diagonal number `diagonal`.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return (self._rows_minus_columns("tril") <= diagonal).where(self, self._of_kind(0))

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle of the last two axes, zeros below diagonal number `diagonal`.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        return (self._rows_minus_columns("triu") >= diagonal).where(self, self._of_kind(0))

    def _of_kind(self, value: Any) -> Self:
        """A scalar constant of this dtype."""
        return self._constant(value, self.dtype)

    # *** counts ***

    def numel(self) -> Any:
        """The number of elements.

        >>> Tensor([[1, 2, 3]]).numel(), Tensor(5).numel()
        (3, 1)
        """
        return self._count(tuple(range(self.ndim)))

    def nbytes(self) -> Any:
        """The bytes of all elements.

        >>> Tensor([1, 2, 3], dtype="int64").nbytes()
        24
        """
        return self.numel() * self.element_size()

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis.

        >>> Tensor([[1, 2, 3]]).size(), Tensor([[1, 2, 3]]).size(-1)
        ((1, 3), 3)
        """
        return self.shape if dim is None else self.shape[dim]

    @property
    def max_shape(self) -> tuple[int, ...]:
        """The shape with every symbolic size at its largest.

        >>> n = Variable("n", 1, 8).bind(3)
        >>> Tensor([[1] * 8])[:, :n].max_shape
        (1, 8)
        """
        return tuple(max_size(s) for s in self.shape)

    def max_numel(self) -> int:
        """The number of elements with every symbolic size at its largest.

        >>> n = Variable("n", 1, 8).bind(3)
        >>> Tensor([[1] * 8])[:, :n].max_numel()
        8
        """
        return math.prod(self.max_shape)


def _index_dtype(dtype: DType | str | None) -> DType:
    return dtypes.default_int() if dtype is None else to_dtype(dtype)


def _fits(first: int, step: int, number: int) -> bool:
    return all(-(2**31) <= v < 2**31 for v in (first, first + step * max(number, 1)))
