"""Layers that multiply by a weight matrix: linear and convolutions.

Weights and biases start as torch's do: uniform within 1 / sqrt(what one output sums over).
"""

from __future__ import annotations

import math
from typing import Any

from tinyfn.errors import ArgumentError
from tinyfn.helpers import prod
from tinyfn.tensor import Tensor

Sizes = int | tuple[int, ...]
Padding = int | tuple[int, ...] | str


def _uniform(shape: tuple[int, ...], fan_in: int) -> Tensor:
    """A start for weights of which one output sums `fan_in`."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Tensor.uniform(*shape, low=-bound, high=bound)


class Linear:
    """x @ weight.T + bias over the last axis.

    Args:
        in_features: the size of the last axis of the input.
        out_features: the size of the last axis of the result.
        bias: whether there is one.

    >>> Linear(3, 2)(Tensor.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = _uniform((out_features, in_features), in_features)
        self.bias = _uniform((out_features,), in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


def _per_axis(value: Sizes, axes: int, what: str) -> tuple[int, ...]:
    """An int for every spatial axis, or one each."""
    if isinstance(value, int):
        return (value,) * axes
    if len(value) != axes:
        raise ArgumentError(f"expected {what} as an int or {axes} ints, got {value}")
    return tuple(value)


def _check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ArgumentError(
            f"expected groups that divide the channels, got {groups} groups for "
            f"{in_channels} channels in and {out_channels} out"
        )


def _same_padding(kernel: tuple[int, ...], stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    """Zeros on both sides of every axis (last axis first) that keep its size."""
    if any(s != 1 for s in _per_axis(stride, len(kernel), "stride")):
        raise ArgumentError(f"padding 'same' needs a stride of 1, got {stride}")
    padding: list[int] = []
    steps = _per_axis(dilation, len(kernel), "dilation")
    for size, step in reversed(list(zip(kernel, steps, strict=True))):
        total = step * (size - 1)
        padding += [total // 2, total - total // 2]
    return tuple(padding)


class _Convolution:
    """What convolutions and transposed ones share."""

    axes = 2

    def __init__(self, kernel_size: Sizes, stride: Sizes, dilation: Sizes, groups: int) -> None:
        self.kernel_size = _per_axis(kernel_size, self.axes, "kernel_size")
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.weight: Tensor
        self.bias: Tensor | None

    def _start(self, shape: tuple[int, ...], outputs: int, bias: bool) -> None:
        fan_in = prod(shape[1:])
        self.weight = _uniform(shape, fan_in)
        self.bias = _uniform((outputs,), fan_in) if bias else None


class Conv2d(_Convolution):
    """A convolution of (batch, channels, height, width) with `out_channels` learned kernels.

    Args:
        in_channels: the channels of the input.
        out_channels: the channels of the result.
        kernel_size, stride, dilation: one number for both axes, or one each.
        padding: zeros on both sides of each axis; also a tuple (one an axis, or left, right,
            top, bottom), or "same" to keep the size.
        groups: the channels are convolved in so many separate groups.
        bias: whether a learned number a channel is added.

    Raises:
        ArgumentError: groups do not divide the channels, or sizes do not fit.

    >>> Conv2d(1, 4, 3, padding="same")(Tensor.ones(2, 1, 8, 8)).shape
    (2, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(in_channels, out_channels, groups)
        super().__init__(kernel_size, stride, dilation, groups)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ArgumentError(f"expected padding 'same', 'valid' or ints, got {padding!r}")
            same = padding == "same"
            padding = _same_padding(self.kernel_size, stride, dilation) if same else 0
        self.padding = padding
        self._start((out_channels, in_channels // groups, *self.kernel_size), out_channels, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


class Conv1d(Conv2d):
    """A convolution of (batch, channels, length); see `Conv2d`.

    >>> Conv1d(1, 4, 3, stride=2)(Tensor.ones(2, 1, 9)).shape
    (2, 4, 4)
    """

    axes = 1


class ConvTranspose2d(_Convolution):
    """The transpose of a convolution: what the gradient of `Conv2d` does to its input.

    Args:
        in_channels: the channels of the input.
        out_channels: the channels of the result.
        kernel_size, stride, padding, dilation: those of the convolution.
        output_padding: added to the size of the result on one side.
        groups: the channels are convolved in so many separate groups.
        bias: whether a learned number a channel is added.

    Raises:
        ArgumentError: groups do not divide the channels, or sizes do not fit.

    >>> ConvTranspose2d(4, 1, 3, stride=2)(Tensor.ones(2, 4, 4, 4)).shape  # (4 - 1) * 2 + 3
    (2, 1, 9, 9)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        _check_groups(in_channels, out_channels, groups)
        super().__init__(kernel_size, stride, dilation, groups)
        self.padding, self.output_padding = padding, output_padding
        self._start((in_channels, out_channels // groups, *self.kernel_size), out_channels, bias)

    def __call__(self, x: Tensor) -> Tensor:
        options: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("groups", "stride", "dilation", "padding", "output_padding")
        }
        return x.conv_transpose2d(self.weight, self.bias, **options)


class ConvTranspose1d(ConvTranspose2d):
    """The transpose of a convolution of (batch, channels, length); see `ConvTranspose2d`.

    >>> ConvTranspose1d(4, 1, 3, stride=2)(Tensor.ones(2, 4, 4)).shape
    (2, 1, 9)
    """

    axes = 1
