"""Pooling over windows of the last axes, its inverse, and interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.helpers import ceildiv
from tinyfn.mixin.convolution import ConvolutionMixin, each, padding_pairs
from tinyfn.mixin.core import count, show

Pairs = list[tuple[int, int]]


class PoolingMixin(ConvolutionMixin):
    """As many spatial axes as the kernel has numbers."""

    __slots__ = ()

    def _pool_plan(
        self, kernel_size: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Pairs, Pairs]:
        """Kernel, stride, dilation, padding, and padding with what a rounded up size needs."""
        n = len(kernel_size) if isinstance(kernel_size, tuple | list) else 2
        kernel = each(kernel_size, n, "kernel_size")
        if self.ndim < n:
            raise ShapeError(f"expected {n} axes or more to pool, got shape {show(self.shape)}")
        strides = kernel if stride is None else each(stride, n, "stride")
        spread, pairs = each(dilation, n, "dilation"), padding_pairs(padding, n)
        wide = list(pairs)
        if ceil_mode:
            sizes = self.shape[self.ndim - n :]
            steps = zip(sizes, kernel, strides, spread, pairs, strict=True)
            wide = [(p, q + _ceil_extra(s, k, t, d, p, q)) for s, k, t, d, (p, q) in steps]
        return kernel, strides, spread, pairs, wide

    def _around(self, pairs: Pairs, value: Any) -> Self:
        return self._pad_constant([(0, 0)] * (self.ndim - len(pairs)) + pairs, value)

    def avg_pool2d(
        self,
        kernel_size: int | Sequence[int] = (2, 2),
        stride: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of every window.

        Args:
            ceil_mode: the number of windows is rounded up; what lies beyond the padding does not
                count.
            count_include_pad: whether zeros of the padding count.

        >>> Tensor.arange(4).reshape(1, 1, 2, 2).avg_pool2d().item()
        1.5
        """
        plan = self._pool_plan(kernel_size, stride, dilation, padding, ceil_mode)
        kernel, strides, spread, pairs, wide = plan
        axes = tuple(range(self.ndim, self.ndim + len(kernel)))
        x = self.cast(self._computed_in())

        def total(values: Self) -> Self:
            return values._around(wide, 0)._windows(kernel, strides, spread).sum(_last(axes))

        if pairs == wide and (count_include_pad or not any(p or q for p, q in pairs)):
            found = x._around(pairs, 0)._windows(kernel, strides, spread).mean(_last(axes))
            return found.cast(self._as_float().dtype)
        ones = x._full(self.shape, 1, x.dtype)
        if count_include_pad:
            inner = ones._around(pairs, 1)
            more = [(a - b, c - d) for (a, c), (b, d) in zip(wide, pairs, strict=True)]
            number = inner._around(more, 0)._windows(kernel, strides, spread).sum(_last(axes))
        else:
            number = total(ones)
        return total(x).div(number).cast(self._as_float().dtype)

    def max_pool2d(
        self,
        kernel_size: int | Sequence[int] = (2, 2),
        stride: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest element of every window; with `return_indices` also its number in the plane.

        >>> Tensor.arange(4).reshape(1, 1, 2, 2).max_pool2d().item()
        3
        """
        plan = self._pool_plan(kernel_size, stride, dilation, padding, ceil_mode)
        kernel, strides, spread, _, wide = plan
        axes = _last(tuple(range(len(kernel))))
        windows = self._around(wide, self.dtype.min)._windows(kernel, strides, spread)
        values = windows.max(axes)
        if not return_indices:
            return values
        planes = self.shape[self.ndim - len(kernel) :]
        numbers = self._iota_along(0, 1, count(planes))._reshaped(planes)
        beyond = count(planes)
        places = numbers._around(wide, beyond)._windows(kernel, strides, spread)
        here = windows.eq(values._reshaped((*values.shape, *(1,) * len(kernel))))
        if self.dtype.kind == "float":
            here = here | windows.isnan()
        return values, here.where(places, beyond).min(axes).cast(dtypes.default_int())

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: int | Sequence[int] = (2, 2),
        stride: int | Sequence[int] | None = None,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Zeros, with the elements at the places that `max_pool2d` found (the last of equals).

        >>> x = Tensor([[[[1.0, 9.0], [3.0, 4.0]]]])
        >>> values, places = x.max_pool2d(return_indices=True)
        >>> values.max_unpool2d(places).tolist()
        [[[[0.0, 9.0], [0.0, 0.0]]]]
        """
        n = len(kernel_size) if isinstance(kernel_size, tuple | list) else 2
        kernel = each(kernel_size, n, "kernel_size")
        strides = kernel if stride is None else each(stride, n, "stride")
        spread, pairs = each(dilation, n, "dilation"), padding_pairs(padding, n)
        lead, sizes = self.shape[: self.ndim - n], self.shape[self.ndim - n :]
        planes = tuple(
            (s - 1) * t - p - q + d * (k - 1) + 1
            for s, t, d, k, (p, q) in zip(sizes, strides, spread, kernel, pairs, strict=True)
        )
        if output_size is not None:
            planes = tuple(output_size)[-n:]
        flat = self._reshaped((*lead, count(sizes)))
        blank = self._full((*lead, count(planes)), 0, self.dtype)
        filled = blank.scatter(-1, indices._reshaped((*lead, count(sizes))), flat)
        return filled._reshaped((*lead, *planes))

    # *** interpolation ***

    def interpolate(
        self, size: Sequence[int], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """The last axes brought to other sizes.

        Args:
            mode: "linear" between the two nearest (uint8 is rounded to nearest, other ints towards
                0), "nearest" (rounded down), "nearest-exact".
            align_corners: whether the first and last elements stay in place ("linear" only).

        >>> Tensor([0.0, 1.0]).interpolate((4,)).tolist()
        [0.0, 0.25, 0.75, 1.0]
        >>> Tensor([0.0, 1.0]).interpolate((3,), align_corners=True).tolist()
        [0.0, 0.5, 1.0]
        """
        if mode not in ("linear", "nearest", "nearest-exact"):
            raise ArgumentError(
                f"expected mode 'linear', 'nearest' or 'nearest-exact', got {mode!r}"
            )
        if not 0 < len(size) <= self.ndim:
            raise ShapeError(f"expected 1 to {self.ndim} sizes, got {size}")
        if align_corners and mode != "linear":
            raise ArgumentError("align_corners goes with mode 'linear' only")
        linear = mode == "linear"
        x = self.cast(self._computed_in()) if linear else self
        for i, new in enumerate(size):
            x = x._interpolated(self.ndim - len(size) + i, new, mode, align_corners)
        x = x.add(0.5) if linear and self.dtype is dtypes.uint8 else x
        return x.cast(self.dtype)

    def _interpolated(self, axis: int, new: int, mode: str, corners: bool) -> Self:
        old = self.shape[axis]
        number = self._iota_along(0, 1, new)
        if mode == "nearest":
            # in whole numbers, so that no rounding moves a place
            return self._gather(number.mul(old)._floor_div(new), axis)
        if mode == "nearest-exact":
            return self._gather(number.mul(2).add(1).mul(old)._floor_div(2 * new), axis)
        if corners:
            place = number.float().mul((old - 1) / max(new - 1, 1))
        else:
            place = number.float().add(0.5).mul(old / new).sub(0.5).clip(0, old - 1)
        low = place.floor()
        first = low.cast(dtypes.int32)
        weight = place.sub(low)._reshaped((new, *(1,) * (self.ndim - axis - 1))).cast(self.dtype)
        near, far = self._gather(first, axis), self._gather(first.add(1).minimum(old - 1), axis)
        # a sum of shares, not near + (far - near) * weight: beside infinity that would be NaN
        between = near.mul(weight.mul(-1).add(1)).add(far.mul(weight))
        return (weight > 0).where(between, near)


def _last(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The last axes, as many as these."""
    return tuple(range(-len(axes), 0))


def _ceil_extra(size: int, k: int, step: int, spread: int, before: int, after: int) -> int:
    """Padding that a rounded up number of windows needs; none may begin in the padding after."""
    reach = size + before + after - spread * (k - 1) - 1
    places = ceildiv(reach, step) + 1
    if (places - 1) * step >= size + before:
        places -= 1
    return max((places - 1) * step - reach, 0)
