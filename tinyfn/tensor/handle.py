"""Tensor: schedules, custom kernels and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinyfn import live
from tinyfn.attention import attention
from tinyfn.errors import ArgumentError, GradientError, ShapeError
from tinyfn.gradient import compute_gradient, history
from tinyfn.helpers import TRAINING, Context, prod
from tinyfn.mixin.core import same_shape
from tinyfn.tensor.data import views_of
from tinyfn.tensor.exchange import Exchange
from tinyfn.uop.info import CallInfo
from tinyfn.uop.ops import Ops, UOp


class _Mode(type):
    """Gives the class Tensor the property `training`, which is the flag TRAINING."""

    @property
    def training(cls) -> bool:
        """Whether dropout and batch norm behave as in training."""
        return bool(TRAINING)

    @training.setter
    def training(cls, mode: bool) -> None:
        TRAINING.set(bool(mode))


class Tensor(Exchange, metaclass=_Mode):
    """A lazy n-dimensional array.

    Args:
        data: a Python number, nested lists of numbers, a numpy array, bytes, or a graph node.
            Arrays are copied, so that later changes on either side do not show on the other.
        device: where it lives ("CPU", "CPU:1", ...); the default device where None. A tuple of
            devices puts a copy on each.
        dtype: the type of the elements; that of the data where None.

    Raises:
        ShapeError: nested lists of different lengths.
        DTypeError: data or a dtype that tinyfn has no type for.

    >>> x = Tensor([[1, 2], [3, 4]])
    >>> (x * 10 + x.sum(axis=0)).tolist()
    [[14, 26], [34, 46]]
    """

    __slots__ = ()
    _grad: Tensor | None

    class train(Context):  # noqa: N801 (used as Tensor.train())
        """Set `Tensor.training` for a block: dropout and batch norm behave as in training.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        >>> Tensor.training
        False
        """

        def __init__(self, mode: bool = True) -> None:
            super().__init__(TRAINING=bool(mode))

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has accumulated, or None.

        Raises:
            GradientError: it was still to be computed when what it depends on was overwritten.

        >>> x = Tensor([1.0, 2.0])
        >>> x.grad is None
        True
        >>> _ = (x * 3).sum().backward()
        >>> x.grad.tolist()
        [3.0, 3.0]
        """
        if self._stale:
            raise GradientError(
                "this gradient had not been computed when the tensors it depends on were "
                "overwritten (by an optimizer's step?); call .grad.realize() before that"
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not same_shape(value.shape, self.shape):
            raise ShapeError(f"expected a gradient of shape {self.shape}, got {value.shape}")
        self._grad, self._stale = value, False

    def drop_gradient(self) -> None:
        """Forget a gradient that cannot be computed any more; reading it is an error.

        >>> x = Tensor([1.0])
        >>> x.drop_gradient()
        >>> x.grad
        Traceback (most recent call last):
            ...
        tinyfn.errors.GradientError: this gradient had not been computed when ...
        """
        self._grad, self._stale = None, True

    def linear_with_vars(self, *lst: Tensor) -> tuple[UOp, dict[str, int]]:
        """What realising would run: a LINEAR of calls and the values of the variables.

        Nothing is compiled or computed, and the tensors stay lazy.

        >>> plan, variables = (Tensor([1, 2]) + 1).linear_with_vars()
        >>> len(plan.src), variables
        (1, {})
        """
        every: list[Tensor] = [self, *lst]
        planned = live.plan([t.uop for t in every]).schedule
        return planned.linear, dict(planned.variables)

    # *** calls and gradients ***

    def custom_kernel(
        self, *lst: Tensor, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
    ) -> list[Tensor]:
        """Run a kernel written on graph nodes over these tensors; returns them after it ran.

        Args:
            fxn: called with one placeholder a tensor; returns a SINK of stores, or a PROGRAM.
            grad_fxn: called with the gradients of the outputs that have one and `call=`; returns
                a gradient (or None) for each tensor.

        >>> def double(out, x):
        ...     i = UOp.range(x.shape[0], 0)
        ...     return out[i].store(x[i] * 2).end(i).sink()
        >>> Tensor.empty(3, dtype="int").custom_kernel(Tensor([1, 2, 3]), fxn=double)[0].tolist()
        [2, 4, 6]
        """
        nodes = [_kernel_memory(t.uop) for t in (self, *lst)]
        body = fxn(*(n.placeholder_like(i) for i, n in enumerate(nodes)))
        if body.op not in (Ops.SINK, Ops.PROGRAM):
            raise ArgumentError(f"expected the kernel to return a SINK or a PROGRAM, got {body!r}")
        name = getattr(body.arg, "name", None) or fxn.__name__
        call = UOp(Ops.CALL, src=(body, *nodes), arg=CallInfo(name, grad_fxn))
        return [self._of(node.after(call)) for node in nodes]

    def _fused_attention(
        self, key: Self, value: Self, mask: Self | None, causal: bool, grouped: bool
    ) -> Self | None:
        """Attention in a kernel that holds a tile of scores at a time; None where it cannot."""
        nodes = self.uop, key.uop, value.uop, None if mask is None else mask.uop
        found = attention(*nodes, causal, grouped)
        return None if found is None else self._of(found)

    def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
        """The gradients of this tensor with respect to the targets.

        Args:
            gradient: the gradient of this tensor; 1 where None (which needs a single element).

        Raises:
            GradientError: this tensor does not depend on a target.

        >>> x, y = Tensor([1.0, 2.0]), Tensor([10.0, 20.0])
        >>> [g.tolist() for g in (x * x * y).sum().gradient(x, y)]
        [[20.0, 80.0], [1.0, 4.0]]
        """
        nodes = [t.uop for t in targets if _takes_gradient(t.uop)]
        found = compute_gradient(self.uop, self._root_gradient(gradient), nodes)
        missing = [i for i, t in enumerate(targets) if t.uop not in found]
        if missing:
            raise GradientError(f"the tensor does not depend on target number {missing[0]}")
        return [self._of(found[t.uop]) for t in targets]

    def backward(self, gradient: Tensor | None = None) -> Self:
        """Add the gradients of this tensor to `.grad` of every live float tensor it depends on.

        >>> x = Tensor([1.0, 2.0])
        >>> _ = x.square().sum().backward()
        >>> _ = x.sum().backward()  # adds to what is there
        >>> x.grad.tolist()
        [3.0, 5.0]
        """
        below = set(history.order([self.uop]))
        holders = [t for t in live.tensors() if t.uop in below and _takes_gradient(t.uop)]
        root = self._root_gradient(gradient)
        found = compute_gradient(self.uop, root, [t.uop for t in holders])
        for tensor in holders:
            part = found.get(tensor.uop)
            if part is None:
                continue
            new = self._of(part)
            tensor.grad = new if tensor._grad is None else tensor._grad + new
        return self

    def _root_gradient(self, gradient: Tensor | None) -> UOp:
        if self.dtype.kind != "float":
            raise GradientError(
                f"expected a float tensor to take the gradient of, got {self.dtype}"
            )
        if gradient is not None:
            if not same_shape(gradient.shape, self.shape):
                raise ShapeError(f"expected a gradient of shape {self.shape}, got {gradient.shape}")
            return gradient.cast(self.dtype).uop
        if self.shape and prod(self.shape) != 1:
            raise GradientError(
                f"a tensor of shape {self.shape} needs gradient=; only a single element has 1"
            )
        one = UOp.const(1.0, self.dtype)
        return one._move("RESHAPE", self.shape)


def _takes_gradient(node: UOp) -> bool:
    """Whether it is a float of its own: a constant is one node wherever its number stands."""
    return node.dtype.kind == "float" and node.base.op is not Ops.CONST


def _kernel_memory(node: UOp) -> UOp:
    """The node as memory that a kernel can take: itself, or stored first."""
    if node.base.op in (Ops.BUFFER, Ops.AFTER) and not any(
        n.op in (Ops.SHRINK, Ops.PAD, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP) for n in views_of(node)
    ):
        return node
    return node.contiguous()
