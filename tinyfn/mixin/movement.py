"""Shapes: the movement operations, with their arguments checked and normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyfn.errors import ShapeError
from tinyfn.helpers import all_int, argfix, ceildiv
from tinyfn.mixin.core import (
    Core,
    Shape,
    Size,
    as_int,
    count,
    is_one,
    plain,
    resolve_axes,
    resolve_axis,
    same_shape,
    same_size,
    show,
)


class MovementMixin(Core):
    """Reshape, expand, permute, flip, shrink, pad with zeros, and what is made of these alone."""

    __slots__ = ()

    # *** the six movements ***

    def reshape(self, shape: Any, *args: Any) -> Self:
        """The same elements in row-major order under another shape.

        One size may be -1 (what is left); None keeps the size at that place.

        Raises:
            ShapeError: the number of elements differs.

        >>> Tensor.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        wanted = self._shape_argument((shape, *args))
        if sum(1 for s in wanted if isinstance(s, int) and s == -1) > 1:
            raise ShapeError(f"expected at most one -1 in a shape, got {show(wanted)}")
        kept = [self._kept_size(s, i, wanted) for i, s in enumerate(wanted)]
        unknown = [i for i, s in enumerate(kept) if isinstance(s, int) and s == -1]
        if unknown:
            kept[unknown[0]] = self._remaining(kept, wanted)
        elif not _may_equal(count(self.shape), count(kept)):
            raise ShapeError(
                f"cannot reshape {show(self.shape)} of {count(self.shape)} elements to "
                f"{show(wanted)} of {count(kept)}; the number of elements has to stay the same"
            )
        return self._reshaped(tuple(kept))

    def _kept_size(self, size: Size, place: int, wanted: Shape) -> Size:
        if size is None:
            if place >= self.ndim:
                raise ShapeError(f"None at place {place} keeps no size of shape {show(self.shape)}")
            return self.shape[place]
        if isinstance(size, int) and size < -1:
            raise ShapeError(f"expected sizes of 0 or more (or one -1), got {show(wanted)}")
        return size

    def _remaining(self, sizes: Sequence[Size], wanted: Shape) -> Size:
        total = count(self.shape)
        rest = count([s for s in sizes if not (isinstance(s, int) and s == -1)])
        if same_size(total, rest):
            return 1
        if isinstance(total, int) and isinstance(rest, int) and (not rest or total % rest):
            raise ShapeError(
                f"cannot reshape {show(self.shape)} of {total} elements to {show(wanted)}: "
                f"{rest} does not divide {total}"
            )
        return plain(total // rest)

    def _shape_argument(self, args: tuple[Any, ...]) -> Shape:
        sizes = argfix(*args)
        return tuple(
            s if s is None or self._symbolic(s) else as_int(s, f"a size in {sizes}") for s in sizes
        )

    def _reshaped(self, shape: Shape) -> Self:
        return self if same_shape(shape, self.shape) else self._move("RESHAPE", shape)

    def view(self, shape: Any, *args: Any) -> Self:
        """The same as `reshape`.

        >>> Tensor([1, 2, 3, 4]).view(2, -1).tolist()
        [[1, 2], [3, 4]]
        """
        return self.reshape(shape, *args)

    def expand(self, shape: Any, *args: Any) -> Self:
        """Axes of size 1 repeated; -1 keeps a size; axes may be added in front.

        Raises:
            ShapeError: a size that is not 1 would change.

        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        wanted = self._shape_argument((shape, *args))
        added = len(wanted) - self.ndim
        sizes = tuple(
            self.shape[i - added] if i >= added and (s is None or same_size(s, -1)) else s
            for i, s in enumerate(wanted)
        )
        return self._broadcast_to(sizes)

    def _broadcast_to(self, shape: Shape) -> Self:
        """The value in a shape that it broadcasts to."""
        before = self.shape
        if same_shape(before, shape):
            return self
        added = len(shape) - len(before)
        own = (1,) * added + tuple(before)
        if added < 0 or not all(
            same_size(a, b) or (is_one(a) and not (isinstance(b, int) and b < 0))
            for a, b in zip(own, shape, strict=False)
        ):
            raise ShapeError(
                f"cannot expand shape {show(before)} to {show(shape)}: aligned at the right, "
                "only sizes of 1 can change"
            )
        padded = self._move("RESHAPE", own) if added else self
        return padded if same_shape(own, shape) else padded._move("EXPAND", tuple(shape))

    def permute(self, order: Any, *args: Any) -> Self:
        """The axes in another order.

        Raises:
            ShapeError: the order does not name each axis once.

        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        given = argfix(order, *args)
        axes = tuple(resolve_axis(a, self.ndim) for a in given)
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                f"expected an order that names each of the {self.ndim} axes of shape "
                f"{show(self.shape)} once, got {given}"
            )
        return self._permuted(axes)

    def _permuted(self, axes: tuple[int, ...]) -> Self:
        return self if axes == tuple(range(len(axes))) else self._move("PERMUTE", axes)

    def flip(self, axis: Any, *args: Any) -> Self:
        """The elements along these axes in reversed order.

        >>> Tensor([1, 2, 3]).flip(0).tolist()
        [3, 2, 1]
        """
        axes = resolve_axes(argfix(axis, *args), self.ndim)
        axes = tuple(a for a in axes if not is_one(self.shape[a]))
        return self._move("FLIP", axes) if axes else self

    def shrink(self, arg: Any) -> Self:
        """A box out of the tensor: one (begin, end) an axis, or None for the whole axis.

        Raises:
            ShapeError: a pair is not inside its axis.

        >>> Tensor.arange(5).shrink(((1, 4),)).tolist()
        [1, 2, 3]
        """
        if len(arg) != self.ndim:
            raise ShapeError(
                f"expected a (begin, end) for each axis of shape {show(self.shape)}, got {arg}"
            )
        flat: list[Size] = []
        for size, pair in zip(self.shape, arg, strict=True):
            begin, end = (0, size) if pair is None else pair
            begin = begin if self._symbolic(begin) else as_int(begin, "the begin of a box")
            end = end if self._symbolic(end) else as_int(end, "the end of a box")
            ints = all(isinstance(v, int) for v in (begin, end))
            if ints and not (0 <= begin <= end and (not isinstance(size, int) or end <= size)):
                raise ShapeError(
                    f"expected 0 <= begin <= end <= size for shape {show(self.shape)}, got {arg}"
                )
            flat += [
                plain(begin),
                size if same_size(begin, 0) and end is size else plain(end - begin),
            ]
        return self._shrunk(flat)

    def _shrunk(self, flat: Sequence[Size]) -> Self:
        """A box by begin and size of every axis."""
        whole = all(same_size(b, 0) for b in flat[::2]) and same_shape(flat[1::2], self.shape)
        return self if whole else self._move("SHRINK", tuple(flat))

    def _narrow(self, axis: int, begin: Size, size: Size) -> Self:
        """A piece along one axis."""
        flat = [v for s in self.shape for v in (0, s)]
        flat[2 * axis : 2 * axis + 2] = [begin, size]
        return self._shrunk(flat)

    def _padded(self, flat: Sequence[Size]) -> Self:
        """Zeros around: how many before and after, for every axis."""
        if all(same_size(n, 0) for n in flat):
            return self
        padded = self._move("PAD", tuple(flat))
        # n + (6 - n) is 6
        return padded if all_int(flat) else padded._reshaped(tuple(map(plain, padded.shape)))

    def _pad_axis(self, axis: int, before: Size, after: Size) -> Self:
        """Zeros around along one axis."""
        flat: list[Size] = [0] * (2 * self.ndim)
        flat[2 * axis : 2 * axis + 2] = [before, after]
        return self._padded(flat)

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """The first elements of every axis; None keeps a size.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink_to(None, 2).tolist()
        [[1, 2], [4, 5]]
        """
        wanted = self._shape_argument((shape, *args))
        self._one_each(wanted)
        return self.shrink(tuple(None if s is None else (0, s) for s in wanted))

    def _one_each(self, values: Sequence[Any]) -> None:
        if len(values) != self.ndim:
            raise ShapeError(
                f"expected one value for each axis of shape {show(self.shape)}, got {values}"
            )

    # *** axes ***

    @property
    def T(self) -> Self:  # noqa: N802 (numpy's name)
        """The two axes of a matrix exchanged (for more axes: their order reversed).

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).T.tolist()
        [[1, 4], [2, 5], [3, 6]]
        """
        return self._permuted(tuple(reversed(range(self.ndim))))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes exchanged.

        >>> Tensor([[1, 2], [3, 4]]).transpose().tolist()
        [[1, 3], [2, 4]]
        """
        order = list(range(self.ndim))
        a, b = resolve_axis(dim0, self.ndim), resolve_axis(dim1, self.ndim)
        if order:
            order[a], order[b] = order[b], order[a]
        return self._permuted(tuple(order))

    def squeeze(self, dim: Any = None) -> Self:
        """Without axes of size 1: all of them, or those named (named ones of another size stay).

        >>> x = Tensor([[[1, 2]]])
        >>> x.squeeze().shape, x.squeeze(0).shape, x.squeeze(-1).shape
        ((2,), (1, 2), (1, 1, 2))
        """
        axes = resolve_axes(dim, self.ndim)
        kept = (s for i, s in enumerate(self.shape) if i not in axes or not is_one(s))
        return self._reshaped(tuple(kept))

    def unsqueeze(self, dim: int) -> Self:
        """With an axis of size 1 put in.

        >>> Tensor([1, 2]).unsqueeze(-1).shape
        (2, 1)
        """
        place = resolve_axis(dim, self.ndim + 1)
        return self._reshaped((*self.shape[:place], 1, *self.shape[place:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim` as one.

        >>> Tensor.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        first, last = resolve_axis(start_dim, self.ndim), resolve_axis(end_dim, self.ndim)
        if first > last:
            raise ShapeError(
                f"expected start_dim <= end_dim, got {start_dim} and {end_dim} for shape "
                f"{show(self.shape)}"
            )
        joined = count(self.shape[first : last + 1])
        return self._reshaped((*self.shape[:first], joined, *self.shape[last + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Self:
        """One axis as several; one size may be -1.

        >>> Tensor([[1, 2, 3, 4, 5, 6]]).unflatten(1, (2, -1)).tolist()
        [[[1, 2, 3], [4, 5, 6]]]
        """
        axis = resolve_axis(dim, self.ndim)
        wanted = self._shape_argument((tuple(sizes),))
        if any(same_size(s, -1) for s in wanted):
            rest = count([s for s in wanted if not same_size(s, -1)])
            size = self.shape[axis]
            whole = not isinstance(size, int) or (rest and size % rest == 0)
            left = plain(size // rest) if whole else 0
            wanted = tuple(left if same_size(s, -1) else s for s in wanted)
        if not _may_equal(count(wanted), self.shape[axis]):
            raise ShapeError(
                f"expected sizes whose product is {self.shape[axis]}, the size of axis {axis} of "
                f"{show(self.shape)}, got {tuple(sizes)}"
            )
        return self._reshaped((*self.shape[:axis], *wanted, *self.shape[axis + 1 :]))

    def _move_axes(self, axes: Sequence[int], place: int) -> Self:
        """These axes, in this order, put together at a place."""
        rest = [i for i in range(self.ndim) if i not in axes]
        return self._permuted((*rest[:place], *axes, *rest[place:]))

    # *** repeated and cut ***

    def repeat(self, repeats: Any, *args: Any) -> Self:
        """The whole tensor several times along each axis (numpy's tile).

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        times = self._shape_argument((repeats, *args))
        if len(times) < self.ndim or any(isinstance(t, int) and t < 0 for t in times):
            raise ShapeError(
                f"expected a number of 0 or more for each axis of {show(self.shape)}, got {times}"
            )
        own = (1,) * (len(times) - self.ndim) + tuple(self.shape)
        split = [v for s in own for v in (1, s)]
        spread = tuple(v for s, t in zip(own, times, strict=True) for v in (t, s))
        result = tuple(plain(s * t) for s, t in zip(own, times, strict=True))
        return self._reshaped(tuple(split))._broadcast_to(spread)._reshaped(result)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element several times in a row, along an axis (of the flat tensor for None).

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        times = as_int(repeats, "the number of repeats")
        x, axis = (self.flatten(), 0) if dim is None else (self, resolve_axis(dim, self.ndim))
        before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        spread = x._reshaped((*before, size, 1, *after))
        spread = spread._broadcast_to((*before, size, times, *after))
        return spread._reshaped((*before, plain(size * times), *after))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """The elements moved on by `shifts` along `dims`; what falls off comes in at the other end.

        >>> Tensor([1, 2, 3]).roll(1).tolist()
        [3, 1, 2]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0)._reshaped(self.shape)
        moved = self
        steps = shifts if isinstance(shifts, tuple | list) else (shifts,)
        axes = dims if isinstance(dims, tuple | list) else (dims,)
        if len(steps) != len(axes):
            raise ShapeError(f"expected a shift for each axis, got {shifts} and {dims}")
        for step, dim in zip(steps, axes, strict=True):
            axis = resolve_axis(dim, self.ndim)
            size = self.shape[axis]
            if isinstance(size, int) and (not size or step % size == 0):
                continue
            begin = plain((size - step) % size)
            times = tuple(2 if i == axis else 1 for i in range(self.ndim))
            moved = moved.repeat(times)._narrow(axis, begin, size)
        return moved

    def _every(self, axis: int, step: int) -> Self:
        """Every `step`-th element along an axis, from the first."""
        size = self.shape[axis]
        if step == 1:
            return self
        taken = ceildiv(size, step)
        whole = self._pad_axis(axis, 0, taken * step - size)
        before, after = whole.shape[:axis], whole.shape[axis + 1 :]
        rows = whole._reshaped((*before, taken, step, *after))._narrow(axis + 1, 0, 1)
        return rows._reshaped((*before, taken, *after))


def _may_equal(a: Size, b: Size) -> bool:
    """Whether two sizes can be equal; symbolic ones are compared by their bounds."""
    if same_size(a, b):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    low: Any = getattr(a, "vmin", a)
    high: Any = getattr(a, "vmax", a)
    return bool(low <= getattr(b, "vmax", b) and getattr(b, "vmin", b) <= high)
