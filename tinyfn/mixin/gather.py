"""Elements by number: torch's gather and scatter, one-hot, masks of known size."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError
from tinyfn.mixin.core import count, is_scalar, max_size, resolve_axis, same_size, show
from tinyfn.mixin.scan import ScanMixin

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


class GatherMixin(ScanMixin):
    """An index out of range reads 0 and writes nothing; a negative one counts from the end."""

    __slots__ = ()

    def gather(self, dim: int, index: Self) -> Self:
        """x[..., index[..., i, ...], ...] along an axis (numpy's take_along_axis).

        Raises:
            ShapeError: the index has other axes, or is larger beside `dim`.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        if not self.ndim:
            return self.unsqueeze(0).gather(dim, _as_vector(index)).squeeze(0)
        axis = self._check_index("gather", dim, index)
        box = tuple(
            s if i == axis else n
            for i, (s, n) in enumerate(zip(self.shape, index.shape, strict=True))
        )
        x = self.shrink_to(box)
        return x._reshaped((count(x.shape),))._gather(x._flat_numbers(axis, index), 0)

    def _check_index(self, name: str, dim: int, index: Self) -> int:
        axis = resolve_axis(dim, self.ndim)
        if not isinstance(index, type(self)) or not dtypes.is_int(index.dtype):
            raise DTypeError(
                f"{name} takes a tensor of ints as index, got {getattr(index, 'dtype', index)}"
            )
        fits = index.ndim == self.ndim and all(
            i == axis or same_size(n, s) or max_size(n) <= max_size(s)
            for i, (n, s) in enumerate(zip(index.shape, self.shape, strict=True))
        )
        if not fits:
            raise ShapeError(
                f"{name} takes an index with the axes of shape {show(self.shape)} that is not "
                f"larger beside axis {axis}, got {show(index.shape)}"
            )
        return axis

    def _flat_numbers(self, axis: int, index: Self) -> Self:
        """The numbers in the flat tensor that an index along one axis means; -1 if out of range."""
        size = self.shape[axis]
        wide = max_size(count(self.shape)) > 2**31 - 1
        kind = dtypes.int64 if wide else dtypes.int32
        number = index._wrapped(size)
        inside = (number >= 0) & (number < size)
        total: Self | None = None
        stride: Any = 1
        for i in reversed(range(self.ndim)):
            own = number.cast(kind) if i == axis else self._iota_along(i, self.ndim, index.shape[i])
            part = own.cast(kind) if same_size(stride, 1) else own.cast(kind).mul(stride)
            total = part if total is None else total.add(part)
            stride = stride * self.shape[i]
        found: Self = inside.where(0 if total is None else total, -1)
        return found._broadcast_to(index.shape)

    # *** scatter ***

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """This with `src` written at index along an axis; the last of equal places wins.

        Args:
            src: values in the shape of the index (or larger), or one number.
            reduce: None, "add" or "multiply": what is done with the old value.

        >>> Tensor([1, 2, 3]).scatter(0, Tensor([2, 0]), Tensor([7, 8])).tolist()
        [8, 2, 7]
        """
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f"expected reduce None, 'add' or 'multiply', got {reduce!r}")
        if not self.ndim:
            vector = self.unsqueeze(0)
            return vector.scatter(dim, _as_vector(index), _as_vector(src), reduce).squeeze(0)
        axis, values = self._check_scatter(dim, index, src)
        if reduce == "add":
            return self._scatter_sum(axis, index, values)
        if reduce == "multiply":
            return self.scatter_reduce(axis, index, values, "prod")
        numbers, flat, given = self._flattened(axis, index, values)
        nobody = self._full(flat.shape, -1, dtypes.int32)
        writer = nobody._scatter("MAX", numbers, self._iota_along(0, 1, numbers.shape[0]), 0)
        return (writer >= 0).where(given._gather(writer, 0), flat)._reshaped(self.shape)

    def _check_scatter(self, dim: int, index: Self, src: Any) -> tuple[int, Self]:
        axis = self._check_index("scatter", dim, index)
        if is_scalar(src):
            return axis, self._full(index.shape, src, self.dtype)
        if src.dtype is not self.dtype:
            raise DTypeError(
                f"scatter takes values of the tensor's dtype {self.dtype}, got {src.dtype}"
            )
        if src.ndim != index.ndim or any(
            max_size(n) > max_size(s) for n, s in zip(index.shape, src.shape, strict=True)
        ):
            raise ShapeError(
                f"scatter takes values at least as large as the index {show(index.shape)}, got "
                f"{show(src.shape)}"
            )
        return axis, src.shrink_to(index.shape)

    def _flattened(self, axis: int, index: Self, values: Self) -> tuple[Self, Self, Self]:
        """The numbers in the flat tensor that an index means, the flat tensor, the flat values."""
        n = count(index.shape)
        numbers = self._flat_numbers(axis, index)._reshaped((n,))
        return numbers, self._reshaped((count(self.shape),)), values._reshaped((n,))

    def _scatter_sum(self, axis: int, index: Self, values: Self) -> Self:
        if self.dtype.kind == "bool":
            raise DTypeError("bools cannot be added up; cast them to int")
        numbers, flat, given = self._flattened(axis, index, values)
        return flat._scatter("ADD", numbers, given, 0)._reshaped(self.shape)

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """This combined with what `src` writes at index along an axis.

        Args:
            reduce: "sum", "prod", "mean", "amax" or "amin".
            include_self: whether the old value takes part.

        >>> Tensor([1, 2]).scatter_reduce(0, Tensor([1, 1]), Tensor([5, 4]), "sum").tolist()
        [1, 11]
        """
        if reduce not in REDUCTIONS:
            raise ArgumentError(f"expected reduce to be one of {REDUCTIONS}, got {reduce!r}")
        if not self.ndim:
            vector, places = self.unsqueeze(0), _as_vector(index)
            found = vector.scatter_reduce(dim, places, _as_vector(src), reduce, include_self)
            return found.squeeze(0)
        axis, values = self._check_scatter(dim, index, src)
        op = {"prod": "MUL", "amax": "MAX", "amin": "MIN"}.get(reduce, "ADD")
        if op == "ADD" and include_self and reduce == "sum":
            return self._scatter_sum(axis, index, values)
        numbers, flat, given = self._flattened(axis, index, values)
        ones = self._full(given.shape, 1, dtypes.int32)
        number = self._full(flat.shape, 0, dtypes.int32)._scatter("ADD", numbers, ones, 0)
        touched = number > 0
        neutral = self._constant(self._neutral(op), self.dtype)
        start = flat if include_self else touched.where(neutral, flat)
        found = start._scatter(op, numbers, given, 0)
        if reduce == "mean":
            number = number.add(1) if include_self else number.maximum(1)
            exact = self.dtype.kind == "float"
            if self.dtype is dtypes.uint64:  # with int32 it would meet in a float
                number = number.cast(self.dtype)
            mean = found.div(number, rounding_mode=None if exact else "floor")
            found = touched.where(mean.cast(self.dtype), flat)
        return found._reshaped(self.shape)

    # *** one-hot and masks ***

    def one_hot(self, num_classes: int) -> Self:
        """1 at the place of each class number along a new last axis, else 0.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        return self._is_class(num_classes).cast(dtypes.default_int())

    def _is_class(self, num_classes: int) -> Self:
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"one_hot takes ints, got {self.dtype}")
        if num_classes < 0:
            raise ArgumentError(f"expected a number of classes of 0 or more, got {num_classes}")
        numbers = self._iota_along(self.ndim, self.ndim + 1, num_classes)
        return self.unsqueeze(-1).eq(numbers)

    def masked_select(self, mask: Self, size: int | None = None, fill_value: Any = 0) -> Self:
        """The elements at which the mask is true, in order.

        Args:
            size: how many; missing ones are `fill_value`, in this dtype. Without it the mask is
                computed now.

        >>> x = Tensor([[1, 2], [3, 4]])
        >>> x.masked_select(x > 1).tolist(), x.masked_select(x > 1, size=4, fill_value=-1).tolist()
        ([2, 3, 4], [2, 3, 4, -1])
        """
        shape = self._broadcasted(mask.cast(dtypes.int32))[0].shape
        chosen = mask.cast(dtypes.bool)._broadcast_to(shape).flatten()
        number = _number_of_true(chosen) if size is None else size
        places = chosen._true_places(number)
        taken = self._broadcast_to(shape).flatten()._gather(places, 0)
        return (places >= 0).where(taken, self._constant(fill_value, self.dtype))

    def nonzero(self, size: int | None = None, fill_value: Any = 0) -> Self:
        """The places of the elements that are not 0: (number, axes).

        Args:
            size: how many; missing ones are `fill_value`. Without it they are counted now.

        >>> Tensor([[0, 5], [7, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
        """
        flat = self.cast(dtypes.bool)._reshaped((count(self.shape),))
        number = _number_of_true(flat) if size is None else size
        places = flat._true_places(number)
        if not self.ndim:
            return places._reshaped((number, 1))._narrow(1, 0, 0)
        columns: list[Self] = []
        rest = places.maximum(0)
        for length in reversed(self.shape):
            columns.append((places >= 0).where(rest.mod(length), fill_value).unsqueeze(1))
            rest = rest._floor_div(length)
        first, *others = reversed(columns)
        return first.cat(*others, dim=1)

    def _true_places(self, number: int) -> Self:
        """The numbers of the first `number` true elements of a vector; -1 where there are fewer."""
        n = self.shape[0]
        if same_size(n, 0):
            return self._full((number,), -1, dtypes.int32)
        rank = self.cast(dtypes.int32).cumsum(0).sub(1)
        target = self.where(rank, number)
        numbers = self._iota_along(0, 1, n)
        blank = self._full((number,), -1, numbers.dtype)
        return blank._scatter("ADD", target, numbers.add(1), 0)


def _as_vector(x: Any) -> Any:
    """A tensor without axes as one of one element; a scalar has one axis to gather along."""
    return x.unsqueeze(0) if not is_scalar(x) and getattr(x, "ndim", None) == 0 else x


def _number_of_true(mask: Any) -> int:
    return int(mask.cast(dtypes.int32).sum().item())
