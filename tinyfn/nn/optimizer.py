"""What all optimizers share: parameters, gradients, the learning rate, and several as one."""

from __future__ import annotations

from collections.abc import Iterable

from tinyfn.dtype import DType, dtypes
from tinyfn.errors import ArgumentError, GradientError
from tinyfn.helpers import dedup, flatten
from tinyfn.tensor import Tensor

Device = str | tuple[str, ...] | None


class Optimizer:
    """What all optimizers share; `step` moves the parameters against their gradients.

    Args:
        params: the tensors to change, such as `get_parameters(model)`; those that are no floats
            or have no gradient (running statistics, say) are only realised by a step.
        lr: the learning rate; afterwards a tensor, to be changed by `optimizer.lr.assign([0.1])`.
        device: where the learning rate lives; that of the first parameter where None.
        fused: accepted for other programs' sake; the schedule joins the updates as it can.

    Raises:
        ArgumentError: nothing to train, or a setting out of range.

    >>> from tinyfn.nn.optim import SGD
    >>> w = Tensor([1.0])
    >>> optimizer = SGD([w], lr=0.5)
    >>> optimizer.zero_grad()
    >>> with Tensor.train():
    ...     loss = (w * w).sum().backward()
    ...     optimizer.step()
    >>> w.tolist()  # 1 - 0.5 * 2
    [0.0]
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, device: Device = None, fused: bool | None = None
    ) -> None:
        given = [params] if isinstance(params, Tensor) else list(params)
        wrong = [type(p).__name__ for p in given if not isinstance(p, Tensor)]
        if wrong:
            raise ArgumentError(f"an optimizer takes tensors as parameters, got {wrong[0]}")
        given = dedup(given)
        self.params = [p for p in given if p.dtype.kind == "float"]
        self.buffers = [p for p in given if p.dtype.kind != "float"]
        if not self.params:
            raise ArgumentError("an optimizer needs a float tensor to train, got none")
        refuse_negative(lr=lr)
        self.device = self.params[0].device if device is None else device
        self.lr = Tensor([lr], dtype=wide_dtype(dtypes.default_float()), device=self.device)
        # stored once here, not as a part of the first step: every step has the same graph then
        Tensor.realize(*self.params, *self.buffers)

    def zero_grad(self) -> None:
        """Forget all gradients; `backward` adds to those that are there."""
        for parameter in self.params:
            parameter.grad = None

    def step(self) -> None:
        """Move the parameters and realise them.

        Raises:
            GradientError: no parameter has a gradient, or `Tensor.training` is not set.
        """
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Move the parameters, lazily; returns every tensor that has to be realised."""
        if not Tensor.training:
            raise GradientError(
                "an optimizer's step needs Tensor.training to be set, so that dropout and batch "
                "norm train, too: wrap it in `with Tensor.train():`"
            )
        # one look at each: reading a gradient that was lost is an error
        gradients = [p.grad for p in self.params]
        if all(g is None for g in gradients):
            raise GradientError(
                "no parameter has a gradient: call backward() on a loss that depends on them first"
            )
        changed = self._begin()
        for index, (parameter, gradient) in enumerate(zip(self.params, gradients, strict=True)):
            if gradient is None:
                continue
            kind = wide_dtype(parameter.dtype)
            new = self._update(index, parameter.detach().cast(kind), gradient.cast(kind))
            parameter.assign(new.cast(parameter.dtype))
            changed += self._kept(index)
        return [*changed, *self.params, *self.buffers]

    def _begin(self) -> list[Tensor]:
        """Move what is common to all parameters; returns what has changed."""
        return []

    def _update(self, index: int, value: Tensor, gradient: Tensor) -> Tensor:
        """The new value of parameter number `index`."""
        raise TypeError(f"{type(self).__name__} has no rule of its own; use SGD, Adam or another")

    def _kept(self, index: int) -> list[Tensor]:
        """What is kept for parameter number `index`."""
        return []

    def _rate(self) -> Tensor:
        """The learning rate without an axis, so that it fits parameters of any shape."""
        return self.lr.reshape(())

    def _zeros(self) -> list[Tensor]:
        """A tensor of zeros for each parameter, wide enough to sum many gradients."""
        return [p.zeros_like(dtype=wide_dtype(p.dtype)) for p in self.params]


class OptimizerGroup(Optimizer):
    """Several optimizers as one.

    >>> from tinyfn.nn.optim import SGD
    >>> weight, bias = Tensor.ones(2), Tensor.zeros(2)
    >>> group = OptimizerGroup(SGD([weight], lr=0.1), SGD([bias], lr=0.2))
    >>> len(group.params)
    2
    """

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise ArgumentError("an OptimizerGroup needs an optimizer or more, got none")
        self.optimizers = optimizers
        self.params = flatten(o.params for o in optimizers)
        self.buffers = flatten(o.buffers for o in optimizers)
        self.device = optimizers[0].device

    def __getitem__(self, index: int) -> Optimizer:
        return self.optimizers[index]

    def zero_grad(self) -> None:
        """Forget the gradients of all."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def schedule_step(self) -> list[Tensor]:
        """Move the parameters of all, lazily; returns every tensor that has to be realised."""
        return flatten(o.schedule_step() for o in self.optimizers)


def wide_dtype(kind: DType) -> DType:
    """The dtype to compute in: float32, or float64 for float64."""
    return kind if kind is dtypes.float64 else dtypes.float32


def refuse_negative(**settings: float) -> None:
    """Raise where a setting is below 0 or NaN."""
    for name, value in settings.items():
        if not value >= 0:
            raise ArgumentError(f"expected {name} of 0 or more, got {value}")
