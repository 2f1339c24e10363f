"""Several tensors as one, one as several, padding, windows and diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyfn.dtype import dtypes, least_upper_dtype
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.helpers import ceildiv
from tinyfn.mixin.core import (
    Shape,
    Size,
    as_int,
    plain,
    resolve_axis,
    same_shape,
    same_size,
    show,
)
from tinyfn.mixin.creation import CreationMixin


class ArrangeMixin(CreationMixin):
    """Joining, splitting and padding."""

    __slots__ = ()

    # *** joined ***

    def cat(self, *args: Self, dim: int = 0) -> Self:
        """The tensors one after the other along an axis.

        Raises:
            ShapeError: their other sizes differ.

        >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
        [1, 2, 3]
        """
        axis = resolve_axis(dim, self.ndim)
        pieces = [self, *args]
        for p in pieces:
            if p.ndim != self.ndim or not same_shape(_other(p, axis), _other(self, axis)):
                raise ShapeError(
                    f"expected shapes that differ only along axis {axis} to cat, got "
                    f"{' and '.join(show(q.shape) for q in pieces)}"
                )
        if not self.ndim:
            raise ShapeError("scalars cannot be joined with cat; use stack")
        kind = least_upper_dtype(*(p.dtype for p in pieces))
        pieces = [p.cast(kind) for p in pieces]
        pieces = [p for p in pieces if not same_size(p.shape[axis], 0)] or pieces[:1]
        return pieces[0]._joined(pieces, axis)

    def _joined(self, pieces: Sequence[Self], axis: int) -> Self:
        """Pieces one after the other: each padded to the whole, and chosen by position.

        Adding the padded pieces would do, but for the sign of zero.
        """
        ends: list[Size] = [0]
        for p in pieces:
            ends.append(plain(ends[-1] + p.shape[axis]))
        total = ends[-1]
        padded = [
            p._pad_axis(axis, begin, plain(total - begin - p.shape[axis]))
            for p, begin in zip(pieces, ends[:-1], strict=True)
        ]
        result = padded[-1]
        for p, whole, begin in reversed(list(zip(pieces, padded, ends, strict=False))[:-1]):
            here = p._inside_along(axis, begin, plain(total - begin - p.shape[axis]))
            result = here._broadcast_to(result.shape)._alu("WHERE", whole, result)
        return result

    def _inside_along(self, axis: int, before: Size, after: Size) -> Self:
        """Which elements of an axis padded that way are not padding; the other axes have size 1."""
        shape = tuple(s if i == axis else 1 for i, s in enumerate(self.shape))
        return self._full(shape, True, dtypes.bool)._pad_axis(axis, before, after)

    def stack(self, *args: Self, dim: int = 0) -> Self:
        """The tensors along a new axis.

        >>> Tensor([1, 2]).stack(Tensor([3, 4]), dim=1).tolist()
        [[1, 3], [2, 4]]
        """
        tensors = [self, *args]
        if not all(same_shape(t.shape, self.shape) for t in tensors):
            raise ShapeError(
                f"expected equal shapes to stack, got "
                f"{' and '.join(show(t.shape) for t in tensors)}"
            )
        first, *rest = (t.unsqueeze(dim) for t in tensors)
        return first.cat(*rest, dim=dim if dim >= 0 else dim + self.ndim + 1)

    # *** split ***

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces along an axis: of one size (the last may be smaller), or of these sizes.

        >>> [t.tolist() for t in Tensor([1, 2, 3]).split(2)]
        [[1, 2], [3]]
        """
        axis = resolve_axis(dim, self.ndim)
        whole = self.shape[axis]
        if isinstance(sizes, int):
            if sizes <= 0:
                raise ArgumentError(f"expected a size of 1 or more to split into, got {sizes}")
            number = max(1, ceildiv(whole, sizes))
            parts = [min(sizes, whole - i * sizes) for i in range(number)]
        else:
            parts = list(sizes)
            if sum(parts) != whole:
                raise ShapeError(
                    f"expected sizes whose sum is {whole}, the size of axis {axis} of "
                    f"{show(self.shape)}, got {parts}"
                )
        begins = [sum(parts[:i]) for i in range(len(parts))]
        return tuple(self._narrow(axis, b, n) for b, n in zip(begins, parts, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` pieces of one size along an axis (the last may be smaller).

        >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).chunk(4)]
        [[1, 2], [3, 4], [5]]
        """
        if chunks <= 0:
            raise ArgumentError(f"expected 1 chunk or more, got {chunks}")
        size = self.shape[resolve_axis(dim, self.ndim)]
        return list(self.split(max(1, ceildiv(size, chunks)), dim))

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Coordinate tensors of a grid whose axes are these vectors.

        Args:
            indexing: "ij" for axes in order, "xy" for the first two exchanged.

        >>> [t.tolist() for t in Tensor([1, 2]).meshgrid(Tensor([5, 6, 7]))]
        [[[1, 1, 1], [2, 2, 2]], [[5, 6, 7], [5, 6, 7]]]
        """
        if indexing not in ("ij", "xy"):
            raise ArgumentError(f"expected indexing 'ij' or 'xy', got {indexing!r}")
        vectors = [self, *args]
        if any(v.ndim > 1 for v in vectors):
            raise ShapeError(f"expected vectors, got {[show(v.shape) for v in vectors]}")
        places = list(range(len(vectors)))
        if indexing == "xy" and len(vectors) > 1:
            places[:2] = 1, 0
        sizes = [1] * len(vectors)
        for v, place in zip(vectors, places, strict=True):
            sizes[place] = v.numel()
        return tuple(
            v._reshaped((1,) * p + (v.numel(),) + (1,) * (len(vectors) - p - 1))._broadcast_to(
                tuple(sizes)
            )
            for v, p in zip(vectors, places, strict=True)
        )

    # *** padded ***

    def pad(self, padding: Any, mode: str = "constant", value: float | bool = 0.0) -> Self:
        """Elements around.

        Args:
            padding: flat ints (before, after) beginning with the last axis, or a pair (or None)
                for each axis in order; a negative number cuts off.
            mode: "constant" (`value`), "reflect" (without the edge), "replicate" (the edge) or
                "circular" (the other side).

        >>> Tensor([1, 2]).pad((1, 2)).tolist()
        [0, 1, 2, 0, 0]
        """
        pairs = self._pad_pairs(padding)
        if mode == "constant":
            return self._pad_constant(pairs, value)
        if mode not in EDGES:
            raise ArgumentError(
                f"expected mode 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}"
            )
        x = self
        for axis, (before, after) in enumerate(pairs):
            if before > 0 or after > 0:
                x = EDGES[mode](x, axis, max(before, 0), max(after, 0))
        return x._cut(pairs)

    def _pad_pairs(self, padding: Any) -> list[tuple[Size, Size]]:
        given = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * 2 * self.ndim
        if any(p is None or isinstance(p, tuple | list) for p in given):
            if len(given) != self.ndim:
                raise ShapeError(
                    f"expected a pair for each axis of shape {show(self.shape)}, got {padding}"
                )
            return [(0, 0) if p is None else (p[0], p[1]) for p in given]
        if len(given) % 2 or len(given) > 2 * self.ndim:
            raise ShapeError(
                f"expected pairs (before, after) for at most the {self.ndim} axes of shape "
                f"{show(self.shape)}, got {padding}"
            )
        pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
        return [(0, 0)] * (self.ndim - len(pairs)) + pairs

    def _pad_constant(self, pairs: Sequence[tuple[Size, Size]], value: Any) -> Self:
        x = self._cut(pairs)
        flat = [self._at_least_zero(n) for pair in pairs for n in pair]
        padded = x._padded(flat)
        if padded is x or (value == 0 and not _is_minus_zero(value)):
            return padded
        inside = x._full(x.shape, True, dtypes.bool)._padded(flat)
        return inside._alu("WHERE", padded, self._constant(value, self.dtype))

    def _at_least_zero(self, n: Size) -> Size:
        return n if self._symbolic(n) else max(as_int(n, "a number of elements to pad"), 0)

    def _cut(self, pairs: Sequence[tuple[Size, Size]]) -> Self:
        """Negative numbers of a padding cut off."""
        flat: list[Size] = []
        for size, pair in zip(self.shape, pairs, strict=True):
            before, after = (n if isinstance(n, int) and n < 0 else 0 for n in pair)
            if isinstance(size, int) and size + before + after < 0:
                raise ShapeError(f"padding {pair} cuts more than an axis of size {size} has")
            flat += [-before, plain(size + before + after) if before or after else size]
        return self._shrunk(flat)

    def pad_to(self, shape: Any, *args: Any, value: float = 0) -> Self:
        """Elements put after the end of every axis, up to a shape; None keeps a size.

        >>> Tensor([[1, 2]]).pad_to(2, None, value=9).tolist()
        [[1, 2], [9, 9]]
        """
        wanted = self._shape_argument((shape, *args))
        self._one_each(wanted)
        if any(
            isinstance(w, int) and isinstance(s, int) and w < s
            for w, s in zip(wanted, self.shape, strict=True)
        ):
            raise ShapeError(f"cannot pad {show(self.shape)} to the smaller {show(wanted)}")
        pairs = tuple(
            (0, 0 if w is None or same_size(w, s) else plain(w - s))
            for w, s in zip(wanted, self.shape, strict=True)
        )
        return self._pad_constant(pairs, value)

    # *** windows ***

    def _windows(
        self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> Self:
        """Windows over the last axes: (..., *places, *kernel), by movement alone."""
        n = len(kernel)
        x, lead = self, self.ndim - n
        for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
            x = x._windows_along(lead + 2 * i, k, s, d)
        order = [*range(lead), *(lead + 2 * i for i in range(n))]
        return x._permuted((*order, *(lead + 2 * i + 1 for i in range(n))))

    def _windows_along(self, axis: int, k: int, s: int, d: int) -> Self:
        """One axis as two: place and offset in the window; x[p * s + j * d] at (p, j)."""
        before, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        span = d * (k - 1) + 1
        if isinstance(size, int) and size < span:
            raise ShapeError(
                f"a window of {span} elements does not fit into axis {axis} of size {size} of "
                f"shape {show(self.shape)}"
            )
        places = plain((size - span) // s + 1)
        if s >= span and d == 1:
            rows = plain(places * s)
            fitted = self._narrow(axis, 0, min(rows, size))
            fitted = fitted._pad_axis(axis, 0, max(rows - size, 0))
            return fitted._reshaped((*before, places, s, *after))._narrow(axis + 1, 0, k)
        if isinstance(size, int) and s > 1 and d == 1:
            return self._windows_by_remainder(axis, k, s, places)
        x, rows = self._sheared(axis, k, d), (*before, k)
        x = x._narrow(axis + 1, 0, plain((places - 1) * s + 1))
        x = x._pad_axis(axis + 1, 0, s - 1)._reshaped((*rows, places, s, *after))
        x = x._narrow(axis + 2, 0, 1)._reshaped((*rows, places, *after))
        return x.transpose(axis, axis + 1)

    def _sheared(self, axis: int, k: int, d: int) -> Self:
        """One axis as (k, p): x[p + j * d] at (j, p), with p as far as the last row reaches.

        Rows of a repeated axis are read as longer rows, so that each begins d elements later. As
        many elements as the shift of the last row lie before the first: then the way back, from
        x to rows, has no remainders either.
        """
        before, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        shift = d * (k - 1)
        row = plain(size + shift)
        x = self._pad_axis(axis, shift, 0)._reshaped((*before, 1, row, *after))
        x = x._broadcast_to((*before, k, row, *after))._reshaped((*before, plain(k * row), *after))
        x = x._pad_axis(axis, 0, k * d)._reshaped((*before, k, plain(row + d), *after))
        return x._narrow(axis + 1, shift, plain(size - shift))

    def _windows_by_remainder(self, axis: int, k: int, s: int, places: int) -> Self:
        """Windows s apart: of blocks of s elements, whole blocks apart; then cut to size."""
        before, size, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        blocks = ceildiv(k, s)
        rows = places - 1 + blocks
        x = self._narrow(axis, 0, min(rows * s, size))._pad_axis(axis, 0, max(rows * s - size, 0))
        x = x._reshaped((*before, rows, s, *after))._windows_along(axis, blocks, 1, 1)
        return x._reshaped((*before, places, blocks * s, *after))._narrow(axis + 1, 0, k)

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """All windows of `size` elements along an axis, `step` apart, as a new last axis.

        >>> Tensor.arange(5).unfold(0, 3, 2).tolist()
        [[0, 1, 2], [2, 3, 4]]
        """
        axis = resolve_axis(dim, self.ndim)
        if size < 0 or step <= 0:
            raise ArgumentError(f"expected size >= 0 and step > 0, got {size} and {step}")
        last = self._move_axes([axis], self.ndim - 1)
        return last._windows((size,), (step,), (1,))._move_axes([self.ndim - 1], axis)

    # *** diagonals ***

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Diagonal number `offset` of two axes, as a new last axis.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        a, b = resolve_axis(dim1, self.ndim), resolve_axis(dim2, self.ndim)
        if self.ndim < 2 or a == b:
            raise ShapeError(
                f"expected two different axes for a diagonal, got {dim1} and {dim2} for shape "
                f"{show(self.shape)}"
            )
        rest = tuple(i for i in range(self.ndim) if i not in (a, b))
        x = self._permuted((*rest, a, b))
        rows, columns = x.shape[-2:]
        length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
        down, right = max(-offset, 0), max(offset, 0)
        if not length:
            return x._reshaped(x.shape)._narrow(x.ndim - 2, 0, 0)._narrow(x.ndim - 1, 0, 0)._flat0()
        square = x._narrow(x.ndim - 2, down, length)._narrow(x.ndim - 1, right, length)
        # in a row of length + 1 elements each diagonal element comes first
        lead: Shape = square.shape[:-2]
        flat = square._reshaped((*lead, length * length))._pad_axis(len(lead), 0, length)
        return (
            flat._reshaped((*lead, length, length + 1))
            ._narrow(len(lead) + 1, 0, 1)
            ._reshaped((*lead, length))
        )

    def _flat0(self) -> Self:
        return self._reshaped((*self.shape[:-2], 0))

    def diag(self) -> Self:
        """A vector on the diagonal of a matrix of zeros; of a matrix, its diagonal.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        """
        if self.ndim == 2:
            return self.diagonal()
        if self.ndim != 1:
            raise ShapeError(f"expected a vector or a matrix, got shape {show(self.shape)}")
        n = self.shape[0]
        if same_size(n, 0):
            return self._reshaped((0, 0))
        rows = self._reshaped((n, 1))._pad_axis(1, 0, n)
        return rows._reshaped((plain(n * (n + 1)),))._narrow(0, 0, plain(n * n))._reshaped((n, n))


def _other(tensor: ArrangeMixin, axis: int) -> Shape:
    return tuple(s for i, s in enumerate(tensor.shape) if i != axis)


def _is_minus_zero(value: Any) -> bool:
    return isinstance(value, float) and str(value) == "-0.0"


def _reflected(x: Any, axis: int, before: int, after: int) -> Any:
    size = x.shape[axis]
    if max(before, after) >= size:
        raise ShapeError(
            f"reflect padding has to be smaller than the axis of size {size}, got {(before, after)}"
        )
    left = [x._narrow(axis, 1, before).flip(axis)] if before else []
    right = [x._narrow(axis, size - 1 - after, after).flip(axis)] if after else []
    return x._joined([*left, x, *right], axis)


def _replicated(x: Any, axis: int, before: int, after: int) -> Any:
    size = x.shape[axis]
    if not size:
        raise ShapeError("replicate padding needs an element to repeat, got an axis of size 0")

    def edge(place: int, times: int) -> list[Any]:
        piece = x._narrow(axis, place, 1)
        wide = tuple(times if i == axis else s for i, s in enumerate(x.shape))
        return [piece._broadcast_to(wide)] if times else []

    return x._joined([*edge(0, before), x, *edge(size - 1, after)], axis)


def _circular(x: Any, axis: int, before: int, after: int) -> Any:
    size = x.shape[axis]
    if max(before, after) > size:
        raise ShapeError(
            f"circular padding is at most the size of the axis: got {(before, after)} for {size}"
        )
    times = tuple(3 if i == axis else 1 for i in range(x.ndim))
    return x.repeat(times)._narrow(axis, size - before, before + size + after)


EDGES = {"reflect": _reflected, "replicate": _replicated, "circular": _circular}
