"""Optimizers: from the gradients of parameters to their new values.

What they keep (momenta, powers) are tensors, so that a step can be recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError
from tinyfn.nn.optimizer import Device, Optimizer, OptimizerGroup, refuse_negative
from tinyfn.tensor import Tensor

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adam",
    "AdamW",
    "Muon",
    "Optimizer",
    "OptimizerGroup",
]


class LARS(Optimizer):
    """Momentum with a rate for each parameter that follows the ratio of its norm to its gradient's.

    You, Gitman, Ginsburg: Large batch training of convolutional networks (2017). `SGD` and `Muon`
    are forms of it.

    Args:
        params, lr, device, fused: see `Optimizer`.
        momentum: how much of the last step is kept.
        weight_decay: the pull towards zero.
        ns_steps, ns_coefficients: how often to apply the Newton-Schulz polynomial of these
            coefficients to the step, seen as a matrix; 0 for never.
        nesterov: look ahead by the momentum.
        classic: the momentum holds steps (gradient times rate), not gradients.
        pre_wd: the weight decay is part of the gradient, not a step of its own.
        tcoef: the factor of the ratio; 0 leaves the rate as it is.

    >>> w = Tensor([3.0, 4.0])
    >>> optimizer = LARS([w], lr=0.5, momentum=0.0, weight_decay=0.0, tcoef=1.0)
    >>> with Tensor.train():
    ...     loss = w[1].backward()
    ...     optimizer.step()
    >>> w.tolist()  # the norm of w, 5, is the length of the step before lr
    [3.0, 1.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: tuple[float, float, float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, device, fused)
        refuse_negative(momentum=momentum, weight_decay=weight_decay, tcoef=tcoef)
        if nesterov and not momentum:
            raise ArgumentError("nesterov needs a momentum above 0, got 0")
        self.momentum, self.wd, self.tcoef = momentum, weight_decay, tcoef
        self.nesterov, self.classic, self.pre_wd = nesterov, classic, pre_wd
        self.ns_steps = ns_steps
        self.ns_coefficients: tuple[Any, ...] | None = ns_coefficients
        self.b = self._zeros() if momentum else []

    def _kept(self, index: int) -> list[Tensor]:
        return [self.b[index]] if self.b else []

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> Tensor:
        rate, step = self._rate() * self._trust(value, gradient), gradient
        if self.wd and self.pre_wd:
            step = step + self.wd * value
        step = self._with_momentum(index, step * rate if self.classic else step)
        if self.ns_steps and self.ns_coefficients is not None and step.ndim:
            matrix = step.reshape(step.shape[0], -1)
            step = matrix.newton_schulz(self.ns_steps, self.ns_coefficients).reshape(step.shape)
        if self.wd and not self.pre_wd:
            value = value * (1 - self.wd * self._rate())
        return value - (step if self.classic else step * rate)

    def _trust(self, value: Tensor, gradient: Tensor) -> Tensor | float:
        if not self.tcoef:
            return 1.0
        size, steep = _norm(value), _norm(gradient)
        ratio = self.tcoef * size / (steep + self.wd * size)
        return ((size > 0) & (steep > 0)).where(ratio, 1.0)

    def _with_momentum(self, index: int, step: Tensor) -> Tensor:
        if not self.momentum:
            return step
        kept = self.momentum * self.b[index] + step
        self.b[index].assign(kept)
        return step + self.momentum * kept if self.nesterov else kept


class SGD(LARS):
    """Stochastic gradient descent: value - lr * gradient, with momentum if asked for.

    Args:
        params, lr, device, fused: see `Optimizer`.
        momentum: how much of the last gradients is kept.
        weight_decay: this share of the value is added to its gradient.
        nesterov: look ahead by the momentum.
        classic: the momentum holds steps (gradient times rate), not gradients.

    >>> w = Tensor([1.0, 2.0])
    >>> optimizer = SGD([w], lr=0.5)
    >>> with Tensor.train():
    ...     loss = w.square().sum().backward()
    ...     optimizer.step()
    >>> w.tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            nesterov=nesterov,
            classic=classic,
            tcoef=0.0,
            device=device,
            fused=fused,
        )


class Muon(LARS):
    """Momentum whose steps are made nearly orthogonal, for weights that are matrices.

    Jordan et al.: Muon, an optimizer for hidden layers in neural networks (2024). A parameter
    of more axes is seen as a matrix of as many rows as its first axis has.

    Args:
        params, lr, device, fused: see `Optimizer`.
        momentum: how much of the last gradients is kept.
        weight_decay: times lr, the pull towards zero.
        ns_steps, ns_coefficients: the number of Newton-Schulz steps, and their polynomial.
        nesterov: look ahead by the momentum.

    >>> w = Tensor.zeros(2, 2)
    >>> optimizer = Muon([w], lr=1.0)
    >>> with Tensor.train():
    ...     loss = (w * Tensor([[1e6, 0.0], [0.0, -1e6]])).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round()  # nearly an orthogonal matrix, however large the gradient
    array([[-1.,  0.],
           [ 0.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            ns_steps,
            ns_coefficients,
            nesterov,
            classic=False,
            pre_wd=False,
            tcoef=0.0,
            device=device,
            fused=fused,
        )


class LAMB(Optimizer):
    """Adam with a rate for each parameter that follows the ratio of its norm to its step's.

    You et al.: Large batch optimization for deep learning (2019). `Adam` and `AdamW` are forms
    of it.

    Args:
        params, lr, device, fused: see `Optimizer`.
        b1: how much of the mean of the gradients is kept.
        b2: how much of the mean of their squares is kept.
        eps: added to the root of the latter.
        weight_decay: times lr, the pull towards zero.
        adam: True leaves the rate as it is.

    >>> w = Tensor([3.0, 4.0])
    >>> optimizer = LAMB([w], lr=0.1)
    >>> with Tensor.train():
    ...     loss = (w * 1000).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(2)
    array([2.65, 3.65], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, device, fused)
        refuse_negative(eps=eps, weight_decay=weight_decay)
        for name, value in (("b1", b1), ("b2", b2)):
            if not 0 <= value < 1:
                raise ArgumentError(f"expected {name} of at least 0 and below 1, got {value}")
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        # the powers b1^t and b2^t; in float32, 1 - 0.999 would keep only four digits
        self.b1_t, self.b2_t = (
            Tensor.ones(1, dtype=dtypes.float64, device=self.device) for _ in range(2)
        )
        self.m, self.v = self._zeros(), self._zeros()

    def _begin(self) -> list[Tensor]:
        self.b1_t *= self.b1
        self.b2_t *= self.b2
        return [self.b1_t, self.b2_t]

    def _kept(self, index: int) -> list[Tensor]:
        return [self.m[index], self.v[index]]

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> Tensor:
        mean = self.b1 * self.m[index] + (1 - self.b1) * gradient
        square = self.b2 * self.v[index] + (1 - self.b2) * gradient.square()
        self.m[index].assign(mean)
        self.v[index].assign(square)
        unbiased_mean = mean / (1 - self.b1_t.reshape(())).cast(value.dtype)
        unbiased_square = square / (1 - self.b2_t.reshape(())).cast(value.dtype)
        step = unbiased_mean / (unbiased_square.sqrt() + self.eps)
        if self.wd:
            step = step + self.wd * value
        if self.adam:
            return value - self._rate() * step
        size, length = _norm(value), _norm(step)
        ratio = ((size > 0) & (length > 0)).where(size / length, 1.0)
        return value - self._rate() * ratio * step


class AdamW(LAMB):
    """Adam with weight decay apart from the gradients (Loshchilov, Hutter, 2017).

    Args:
        params, lr, device, fused: see `Optimizer`.
        b1: how much of the mean of the gradients is kept.
        b2: how much of the mean of their squares is kept.
        eps: added to the root of the latter.
        weight_decay: times lr, the pull towards zero.

    >>> w = Tensor([1.0, 2.0])
    >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.5)
    >>> with Tensor.train():
    ...     loss = (w * 1000).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(3)  # less 5 % of itself, less lr
    array([0.85, 1.8 ], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, True, device, fused)


class Adam(LAMB):
    """Adam: steps by the mean of the gradients over the root of the mean of their squares.

    Kingma, Ba: Adam, a method for stochastic optimization (2014).

    Args:
        params, lr, device, fused: see `Optimizer`.
        b1: how much of the mean of the gradients is kept.
        b2: how much of the mean of their squares is kept.
        eps: added to the root of the latter.

    >>> w = Tensor([1.0, 2.0])
    >>> optimizer = Adam([w], lr=0.5)
    >>> with Tensor.train():
    ...     loss = (w * Tensor([1000.0, -0.001])).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(3)  # the first step is lr long, whatever the gradients
    array([0.5, 2.5], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: Device = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, True, device, fused)


def _norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()
