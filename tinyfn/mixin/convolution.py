"""Convolutions: windows of the input times the weight, summed. Any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyfn.dtype import DType, least_upper_dtype
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.mixin.core import as_int, plain, same_size, show
from tinyfn.mixin.gather import GatherMixin


def each(value: Any, n: int, what: str) -> tuple[int, ...]:
    """One int for every spatial axis, given as one for all or one each."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * n
    if len(given) != n:
        raise ArgumentError(f"expected {n} ints (or one) as {what}, got {value}")
    return tuple(as_int(v, what) for v in given)


def padding_pairs(padding: Any, n: int) -> list[tuple[int, int]]:
    """(before, after) of every spatial axis, in order.

    Given as one int, one an axis, or 2n ints that begin with the last axis (as for `pad`).
    """
    given = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * n
    if len(given) == 2 * n and n:
        pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
        return [(as_int(a, "padding"), as_int(b, "padding")) for a, b in pairs]
    return [(p, p) for p in each(padding, n, "padding")]


class ConvolutionMixin(GatherMixin):
    """`conv2d` and its transpose."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dtype: DType | str | None = None,
    ) -> Self:
        """The cross-correlation of (batch, channels in, ...) with (channels out, in / groups, ...).

        As many spatial axes as the weight has. Padding is one int, one an axis, or 2n ints that
        begin with the last axis.

        Raises:
            ShapeError: channels, groups or the sizes of windows do not fit.

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        n = weight.ndim - 2
        if n < 1 or self.ndim != n + 2:
            raise ShapeError(
                f"expected (batch, channels, ...) and (out, in, ...) of as many axes, got "
                f"{show(self.shape)} and {show(weight.shape)}"
            )
        out, inner = weight.shape[:2]
        if not same_size(self.shape[1], inner * groups) or out % groups:
            raise ShapeError(
                f"expected {inner * groups} input channels and output channels that {groups} "
                f"groups divide for the weight {show(weight.shape)}, got input {show(self.shape)}"
            )
        kernel = weight.shape[2:]
        x = self._pad_constant([(0, 0), (0, 0), *padding_pairs(padding, n)], 0)
        x = x._windows(kernel, each(stride, n, "stride"), each(dilation, n, "dilation"))
        batch, places = x.shape[0], x.shape[2 : 2 + n]
        # (batch, groups, out / groups, *places, in / groups, *kernel)
        x = x._reshaped((batch, groups, 1, inner, *places, *kernel))
        x = x._move_axes([3], 3 + n)
        rows = weight._reshaped((1, groups, out // groups, *(1,) * n, inner, *kernel))
        common = least_upper_dtype(self.dtype, weight.dtype)
        found = x._contracted(rows, common, dtype, n + 1)._reshaped((batch, out, *places))
        return found if bias is None else found.add(bias.reshape((1, out, *(1,) * n)))

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
    ) -> Self:
        """The transpose of `conv2d`: weight (channels in, channels out / groups, ...).

        Zeros are put between the elements (stride), and the flipped weight slides over them.

        >>> x, weight = Tensor([[[[1.0, 2.0]]]]), Tensor([[[[1.0, 10.0]]]])
        >>> x.conv_transpose2d(weight).tolist()
        [[[[1.0, 12.0, 20.0]]]]
        >>> x.conv_transpose2d(weight, stride=(1, 2)).tolist()
        [[[[1.0, 10.0, 2.0, 20.0]]]]
        """
        n = weight.ndim - 2
        if n < 1 or self.ndim != n + 2 or not same_size(self.shape[1], weight.shape[0]):
            raise ShapeError(
                f"expected (batch, channels, ...) and (channels, out / groups, ...), got "
                f"{show(self.shape)} and {show(weight.shape)}"
            )
        strides, spread = each(stride, n, "stride"), each(dilation, n, "dilation")
        more = each(output_padding, n, "output_padding")
        kernel, (channels, out) = weight.shape[2:], weight.shape[:2]
        if channels % groups:
            raise ShapeError(f"expected channels that {groups} groups divide, got {channels}")
        rows = weight._reshaped((groups, channels // groups, out, *kernel)).transpose(1, 2)
        rows = rows.flip(tuple(range(3, 3 + n)))
        rows = rows._reshaped((groups * out, channels // groups, *kernel))
        x = self
        for i, s in enumerate(strides):
            x = x._with_gaps(2 + i, s)
        reach = zip(kernel, spread, padding_pairs(padding, n), more, strict=True)
        around = [((k - 1) * d - p, (k - 1) * d - q + m) for k, d, (p, q), m in reach]
        x = x._pad_constant([(0, 0), (0, 0), *around], 0)
        return x.conv2d(rows, bias, groups, 1, spread, 0)

    def _with_gaps(self, axis: int, step: int) -> Self:
        """Zeros put between the elements of an axis, so that they are `step` apart."""
        size = self.shape[axis]
        if step == 1 or same_size(size, 0):
            return self
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        x = self._reshaped((*before, size, 1, *after))._pad_axis(axis + 1, 0, step - 1)
        x = x._reshaped((*before, plain(size * step), *after))
        return x._narrow(axis, 0, plain(size * step - (step - 1)))
