"""The handle on a node: facts about the value, and what the operator vocabulary asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np

from tinyfn import live
from tinyfn.device import Device
from tinyfn.dtype import DType, dtypes, storage_dtype, to_dtype
from tinyfn.mixin import OpMixin
from tinyfn.mixin.core import show
from tinyfn.random import RandomMixin
from tinyfn.tensor.bits import bitcast_regrouped
from tinyfn.tensor.data import node_from
from tinyfn.uop.ops import UOp


class Handle(RandomMixin, OpMixin):
    """What every tensor is: a node of the graph, with the facts about it and the vocabulary."""

    __slots__ = ("__weakref__", "_grad", "_stale", "uop")
    uop: UOp
    _grad: Any
    _stale: bool

    def __init__(
        self,
        data: Any = None,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
    ) -> None:
        kind = None if dtype is None else to_dtype(dtype)
        self._grad = None
        self._stale = False
        self.uop = node_from(data, Device.canonicalize(device), kind)
        live.register(self)

    # *** facts ***

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of every axis (an int, or a symbolic size).

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shape
        (2, 3)
        """
        return cast(tuple[Any, ...], self.uop.shape)

    @property
    def dtype(self) -> DType:
        """The type of the elements.

        >>> Tensor([1, 2]).dtype, Tensor([1, 2.5]).dtype, Tensor([2**40]).dtype
        (dtypes.int32, dtypes.float32, dtypes.int64)
        """
        return self.uop.dtype

    @property
    def device(self) -> Any:
        """Where it lives; a tuple where it is spread over several slots.

        >>> Tensor([1, 2]).device, Tensor([1, 2]).shard(("CPU", "CPU:1"), axis=0).device
        ('CPU', ('CPU', 'CPU:1'))
        """
        device = self.uop.device
        return Device.DEFAULT if device is None else device

    def __repr__(self) -> str:
        along = "" if self.uop.axis is None else f" along axis {self.uop.axis}"
        return f"<Tensor {show(self.shape)} {self.dtype} on {self.device}{along}>"

    __hash__ = object.__hash__

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of no axes has no length; use item() for its value")
        if not isinstance(self.shape[0], int):
            raise TypeError(
                f"a tensor of shape {show(self.shape)} has no length before its size is known; "
                "use x.shape[0]"
            )
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth value of a tensor of shape {show(self.shape)} is not defined; "
            "use .item(), .any().item() or .all().item()"
        )

    # *** what the operator vocabulary asks for ***

    @classmethod
    def _of(cls, node: UOp) -> Self:
        tensor = cls.__new__(cls)
        tensor._grad = None
        tensor._stale = False
        tensor.uop = node
        live.register(tensor)
        return tensor

    def _alu(self, name: str, *others: Any) -> Self:
        return self._of(self.uop._alu(name, *(o.uop for o in others)))

    def _move(self, name: str, arg: Sequence[Any]) -> Self:
        node = self.uop._move(name, arg)
        return self if node is self.uop else self._of(node)

    def _reduce(self, name: str, axes: tuple[int, ...]) -> Self:
        return self._of(self.uop._reduce(name, axes))

    def _constant(self, value: Any, dtype: DType) -> Self:
        return self._of(UOp.const(value, dtype))

    @classmethod
    def _iota(cls, n: Any, dtype: DType, device: Any = None) -> Self:
        return cls._of(UOp._iota(n, dtype))

    def _gather(self, index: Any, axis: int) -> Self:
        return self._of(self.uop._gather(index.uop, axis))

    def _scatter(self, name: str, index: Any, values: Any, axis: int) -> Self:
        return self._of(self.uop._scatter(name, index.uop, values.uop, axis))

    def _scan(
        self, name: str, axis: int, reverse: bool = False, factor: Self | None = None
    ) -> Self:
        other = None if factor is None else factor.uop
        return self._of(self.uop._scan(name, axis, reverse, other))

    def _argsort(self, descending: bool = False, count: int | None = None) -> Self:
        return self._of(self.uop._argsort(descending, count))

    @staticmethod
    def _symbolic(x: Any) -> bool:
        return isinstance(x, UOp)

    def _beside(self, other: Handle) -> Self:
        """The other tensor where this one is."""
        where = self.uop.device
        here = where is None or other.uop.device in (None, where)
        return self._of(other.uop if here else other.uop.copy_to_device(where))

    def _from_list(self, values: Sequence[int]) -> Self:
        numbers = np.asarray(values, np.int64)
        wide = np.abs(numbers).max(initial=0) > 2**31 - 1
        kind = dtypes.int64 if wide else dtypes.int32
        return type(self)(numbers.astype(storage_dtype(kind)), device=self.uop.device)

    def cast(self, dtype: DType | str) -> Self:
        """The values in another dtype: floats round, float to int truncates, ints wrap.

        >>> Tensor([-1.9, 300.5]).cast("int32").tolist(), Tensor([300]).cast("uint8").tolist()
        ([-1, 300], [44])
        """
        kind = to_dtype(dtype)
        return self if kind is self.dtype else self._of(self.uop.cast(kind))

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits as another dtype; of another width along the last axis, as numpy's view.

        Raises:
            ShapeError: the bytes of the last axis do not make whole elements.

        >>> Tensor([1, 256], dtype="uint16").bitcast("uint8").tolist()
        [1, 0, 0, 1]
        """
        kind = to_dtype(dtype)
        if kind.itemsize != self.dtype.itemsize:
            return cast(Self, bitcast_regrouped(self, kind))
        return self._of(self.uop.bitcast(kind))

    def contiguous(self, **kwargs: Any) -> Self:
        """The values stored row-major (itself where they are).

        >>> x = Tensor([[1, 2], [3, 4]]).T.contiguous()
        >>> np.asarray(x).strides  # without contiguous() it would be a view, of strides (4, 8)
        (8, 4)
        """
        return self._of(self.uop.contiguous())

    def contiguous_backward(self) -> Self:
        """The same values; the gradient is stored before it goes on.

        >>> Tensor([1.0, 2.0]).contiguous_backward().tolist()
        [1.0, 2.0]
        """
        return self._of(self.uop.contiguous_backward())

    def detach(self) -> Self:
        """The same values with no gradient.

        >>> x = Tensor(3.0)
        >>> (x * x.detach()).gradient(x)[0].item()  # one of the two factors is a constant
        3.0
        """
        return self._of(self.uop.detach())
