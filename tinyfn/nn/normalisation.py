"""Layers that normalise: by batch, by group of channels, or along the last axes."""

from __future__ import annotations

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.helpers import prod
from tinyfn.tensor import Tensor


def _per_channel(value: Tensor, ndim: int) -> Tensor:
    """A vector of channels, to be broadcast over (batch, channels, ...)."""
    return value.reshape(1, -1, *(1,) * (ndim - 2))


def _check_channels(x: Tensor, channels: int, layer: str) -> None:
    if x.ndim < 2 or x.shape[1] != channels:
        raise ShapeError(
            f"{layer} expects an input of shape (batch, {channels}, ...), got {x.shape}"
        )


class BatchNorm:
    """(x - mean) / sqrt(var + eps) of each channel over the batch, times weight plus bias.

    While `Tensor.training` is set, mean and variance are those of the batch, and the running
    ones move towards them by `momentum` (the variance with its unbiased estimate). Else the
    running ones are used. Ioffe, Szegedy: Batch normalization (2015).

    Args:
        sz: the number of channels, axis 1 of the input.
        eps: added to the variance.
        affine: whether weight and bias are learned.
        track_running_stats: False uses the statistics of the batch always.
        momentum: the weight of the new batch in the running statistics.

    >>> BatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        self.track_running_stats = track_running_stats
        self.weight = Tensor.ones(sz) if affine else None
        self.bias = Tensor.zeros(sz) if affine else None
        self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64)
        if track_running_stats:
            self.running_mean, self.running_var = Tensor.zeros(sz), Tensor.ones(sz)
        self._channels = sz

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and (biased) variance of each channel: the batch's in training, else running."""
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        axes = tuple(i for i in range(x.ndim) if i != 1)
        mean = x.mean(axes)
        # around the batch's own mean: the difference of two large sums would lose digits
        return mean, (x - _per_channel(mean, x.ndim)).square().mean(axes)

    def __call__(self, x: Tensor) -> Tensor:
        _check_channels(x, self._channels, type(self).__name__)
        mean, variance = self.calc_stats(x)
        if self.track_running_stats and Tensor.training:
            self._track(mean.detach(), variance.detach(), x.numel() // self._channels)
        inverse = variance.add(self.eps).rsqrt()
        return x.batchnorm(self.weight, self.bias, mean, inverse)

    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics towards those of a batch of `count` values a channel."""
        unbiased = variance * (count / (count - 1)) if count > 1 else variance
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.assign(
                running * (1 - self.momentum) + (new * self.momentum).cast(running.dtype)
            )
        self.num_batches_tracked += 1


class BatchNorm2d(BatchNorm):
    """`BatchNorm` of (batch, channels, height, width).

    >>> norm, x = BatchNorm2d(1, eps=0), Tensor([1.0, 3.0]).reshape(2, 1, 1, 1)
    >>> with Tensor.train():
    ...     norm(x).flatten().tolist()
    [-1.0, 1.0]
    >>> norm.running_mean.numpy().round(3), norm.running_var.numpy().round(3)
    (array([0.2], dtype=float32), array([1.1], dtype=float32))
    """


class BatchNorm3d(BatchNorm):
    """`BatchNorm` of (batch, channels, depth, height, width).

    >>> BatchNorm3d(3)(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """


class GroupNorm:
    """Each group of channels of each sample normalised by its own mean and variance.

    Wu, He: Group normalization (2018).

    Args:
        num_groups: the number of groups; divides the channels.
        num_channels: axis 1 of the input.
        eps: added to the variance.
        affine: whether a weight and a bias of each channel are learned.

    >>> x = Tensor([1.0, 3.0, 10.0, 30.0]).reshape(1, 4, 1)
    >>> GroupNorm(2, 4, eps=0)(x).flatten().tolist()
    [-1.0, 1.0, -1.0, 1.0]
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(
                f"expected groups that divide the channels, got {num_groups} groups for "
                f"{num_channels} channels"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        _check_channels(x, self.num_channels, type(self).__name__)
        inner = prod(x.shape[1:]) // self.num_groups
        y = x.reshape(x.shape[0], self.num_groups, inner).layernorm(eps=self.eps).reshape(x.shape)
        if self.weight is None or self.bias is None:
            return y
        return y * _per_channel(self.weight, x.ndim) + _per_channel(self.bias, x.ndim)


class InstanceNorm(GroupNorm):
    """Each channel of each sample normalised by its own mean and variance.

    Args:
        num_features: the number of channels, axis 1 of the input.
        eps: added to the variance.
        affine: whether a weight and a bias of each channel are learned.

    >>> x = Tensor([[[1.0, 3.0], [10.0, 30.0]]])
    >>> InstanceNorm(2, eps=0)(x).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class LayerNorm:
    """(x - mean) / sqrt(var + eps) over the last axes, times weight plus bias.

    Ba, Kiros, Hinton: Layer normalization (2016).

    Args:
        normalized_shape: the size of the last axis, or the sizes of the last axes.
        eps: added to the variance.
        elementwise_affine: whether weight and bias, of that shape, are learned.

    >>> LayerNorm(2, eps=0)(Tensor([[1.0, 3.0], [10.0, 30.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.axis, self.eps = tuple(-1 - i for i in range(len(sizes))), eps
        self.weight = Tensor.ones(*sizes) if elementwise_affine else None
        self.bias = Tensor.zeros(*sizes) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if tuple(x.shape[-len(self.normalized_shape) :]) != self.normalized_shape:
            raise ShapeError(
                f"{type(self).__name__} normalises last axes of shape {self.normalized_shape}, "
                f"got an input of shape {x.shape}"
            )
        y = x.layernorm(self.axis, self.eps)
        return y if self.weight is None or self.bias is None else y * self.weight + self.bias


class LayerNorm2d(LayerNorm):
    """`LayerNorm` over the channels of (batch, channels, height, width).

    >>> x = Tensor([1.0, 3.0]).reshape(1, 2, 1, 1)
    >>> LayerNorm2d(2, eps=0)(x).flatten().tolist()
    [-1.0, 1.0]
    """

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) over the last axis, times weight; computed in float32 or wider.

    Zhang, Sennrich: Root mean square layer normalization (2019).

    Args:
        dim: the size of the last axis.
        eps: added to the mean of the squares.
        elementwise_affine: whether a weight is learned.

    >>> RMSNorm(4, eps=0)(Tensor([1.0, -1.0, 1.0, 1.0])).tolist()  # the mean is not subtracted
    [1.0, -1.0, 1.0, 1.0]
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        wide = x if x.dtype is dtypes.float64 else x.float()
        y = (wide * wide.square().mean(-1, keepdim=True).add(self.eps).rsqrt()).cast(x.dtype)
        return y if self.weight is None else y * self.weight
