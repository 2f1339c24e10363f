"""Softmax and its family, and normalisation by mean, variance or norm."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.dtype import DType, to_dtype
from tinyfn.errors import ShapeError
from tinyfn.mixin.activation import ActivationMixin
from tinyfn.mixin.core import Axes, resolve_axes, same_size, show


class NormaliseMixin(ActivationMixin):
    """Each reads its rows a few times and writes them once."""

    __slots__ = ()

    def _for_softmax(self, dtype: DType | str | None) -> tuple[Self, DType]:
        """The input in the dtype to compute in, and the dtype of the result."""
        result = self._as_float().dtype if dtype is None else to_dtype(dtype)
        return self.cast(self._computed_in(result)), result

    def _shifted_by_max(self, axes: tuple[int, ...]) -> Self:
        """x minus its largest element, through which no gradient has to pass."""
        if any(same_size(self.shape[a], 0) for a in axes):
            return self
        return self.sub(self._reduced("MAX", axes, True).detach())

    def softmax(self, axis: Axes = -1, dtype: DType | str | None = None) -> Self:
        """e^x over the sum of e^x along an axis; halves are computed in float32.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """
        x, result = self._for_softmax(dtype)
        axes = resolve_axes(axis, x.ndim)
        powers = x._shifted_by_max(axes).exp()
        return powers.div(powers._reduced("ADD", axes, True)).cast(result)

    def log_softmax(self, axis: Axes = -1, dtype: DType | str | None = None) -> Self:
        """The logarithm of softmax, without underflow.

        >>> Tensor([0.0, -1000.0]).log_softmax().tolist()
        [0.0, -1000.0]
        """
        x, result = self._for_softmax(dtype)
        axes = resolve_axes(axis, x.ndim)
        shifted = x._shifted_by_max(axes)
        return shifted.sub(shifted.exp()._reduced("ADD", axes, True).log()).cast(result)

    def softmin(self, axis: Axes = -1, dtype: DType | str | None = None) -> Self:
        """softmax of -x.

        >>> Tensor([0.0, 1000.0]).softmin().tolist()
        [1.0, 0.0]
        """
        return self._as_float().neg().softmax(axis, dtype)

    def logsumexp(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """log of the sum of e^x, without overflow; -inf for no elements, right for infinities.

        >>> Tensor([[1000.0, -1000.0], [5.0, float("-inf")]]).logsumexp(axis=1).tolist()
        [1000.0, 5.0]
        """
        x, result = self._for_softmax(None)
        axes = resolve_axes(axis, x.ndim)
        if any(same_size(x.shape[a], 0) for a in axes):
            return x._reduced("ADD", axes, keepdim).log().cast(result)
        largest = x._reduced("MAX", axes, True).detach()
        shift = largest.isfinite().where(largest, 0)  # inf - inf would be NaN
        total = x.sub(shift).exp()._reduced("ADD", axes, True).log().add(shift)
        return (total if keepdim else total._without_axes(axes)).cast(result)

    def layernorm(self, axis: Axes = -1, eps: float = 1e-5) -> Self:
        """(x - mean) / sqrt(var + eps) along the axes, with the uncorrected variance.

        Ba, Kiros, Hinton: Layer normalization (2016).

        >>> Tensor([[1.0, 3.0], [10.0, 30.0]]).layernorm(eps=0).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
        """
        x, result = self._for_softmax(None)
        axes = resolve_axes(axis, x.ndim)
        centred = x.sub(x.mean(axes, keepdim=True))
        return centred.mul(centred.square().mean(axes, keepdim=True).add(eps).rsqrt()).cast(result)

    def batchnorm(
        self, weight: Any, bias: Any, mean: Self, invstd: Self, axis: int | tuple[int, ...] = 1
    ) -> Self:
        """(x - mean) * invstd * weight + bias with one value of each a channel.

        Ioffe, Szegedy: Batch normalization (2015). `weight` and `bias` may be None.

        >>> x = Tensor([[1.0, 10.0], [3.0, 20.0]])  # a batch of 2, with 2 channels
        >>> scale, mean, invstd = Tensor([1.0, 2.0]), Tensor([2.0, 15.0]), Tensor([1.0, 0.2])
        >>> x.batchnorm(scale, None, mean, invstd).tolist()
        [[-1.0, -2.0], [1.0, 2.0]]
        """
        axes = resolve_axes(axis, self.ndim)
        shape = tuple(s if i in axes else 1 for i, s in enumerate(self.shape))

        def spread(value: Self) -> Self:
            return value.reshape(shape) if len(axes) == 1 or value.ndim != self.ndim else value

        scale = spread(invstd) if weight is None else spread(invstd).mul(spread(weight))
        found = self.sub(spread(mean)).mul(scale)
        return found if bias is None else found.add(spread(bias))

    def normalize(self, p: float = 2.0, dim: Axes = 1, eps: float = 1e-12) -> Self:
        """x over its p-norm along an axis (over eps where the norm is smaller).

        >>> Tensor([[4.0, 0.0, -4.0, 0.0]]).normalize(p=1).tolist()
        [[0.5, 0.0, -0.5, 0.0]]
        """
        axes = resolve_axes(dim, self.ndim)
        if p < 0:
            raise ShapeError(f"expected a norm p of 0 or more, got {p} for {show(self.shape)}")
        x, result = self._for_softmax(None)
        if p == 2:
            norm = x.square()._reduced("ADD", axes, True).sqrt()
        elif p == 0:
            norm = x.ne(0).cast(x.dtype)._reduced("ADD", axes, True)
        elif p == float("inf"):
            norm = x.abs()._reduced("MAX", axes, True)
        else:
            norm = x.abs().pow(p)._reduced("ADD", axes, True).pow(1.0 / p)
        return x.div(norm.maximum(eps)).cast(result)

    # *** attention ***

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(q k^T / sqrt(d)) v over the last two axes (Vaswani et al., 2017).

        Args:
            attn_mask: bool (False leaves a pair out) or float (added to the scores).
            dropout_p: the probability of leaving a pair out in training.
            is_causal: a position sees itself and those before it.
            enable_gqa: several heads of the query share one of key and value.

        >>> x = Tensor([[0.0], [0.0]])  # equal scores: each position gets the mean of what it sees
        >>> x.scaled_dot_product_attention(x, Tensor([[2.0], [4.0]]), is_causal=True).tolist()
        [[2.0], [3.0]]
        """
        if is_causal and attn_mask is not None:
            raise ShapeError("expected is_causal or attn_mask, got both; put one into the mask")
        if not dropout_p:
            fused = self._fused_attention(key, value, attn_mask, is_causal, enable_gqa)
            if fused is not None:
                return fused
        if enable_gqa:
            times = int(self.shape[-3] // key.shape[-3])
            key = key.repeat_interleave(times, -3)
            value = value.repeat_interleave(int(self.shape[-3] // value.shape[-3]), -3)
        size = self.shape[-1]
        scores = self.dot(key.transpose(-2, -1), dtype=self._computed_in()).div(
            self._constant(size, self._computed_in()).sqrt()
        )
        alive = None
        if is_causal:
            rows = scores._iota_along(0, 2, scores.shape[-2])
            columns = scores._iota_along(1, 2, scores.shape[-1])
            scores = (columns <= rows).where(scores, float("-inf"))
        elif attn_mask is not None:
            bools = attn_mask.dtype.kind == "bool"
            scores = attn_mask.where(scores, float("-inf")) if bools else scores.add(attn_mask)
            # a row that sees nothing is 0
            alive = scores._reduced("MAX", (scores.ndim - 1,), True).detach().ne(float("-inf"))
            scores = alive.where(scores, 0)
        weights = scores.softmax(-1).cast(self.dtype)
        weights = weights if alive is None else alive.where(weights, 0)
        if dropout_p:
            weights = _dropout(weights, dropout_p)
        return weights.dot(value)

    def _fused_attention(
        self, key: Self, value: Self, mask: Self | None, causal: bool, grouped: bool
    ) -> Self | None:
        """Attention in kernels of its own, for what has memory; None where there is none."""
        return None


def _dropout(weights: Any, p: float) -> Any:
    """Dropout needs random numbers, which tensors have and nodes do not."""
    return weights.dropout(p)
