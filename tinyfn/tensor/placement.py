"""Tensors on other devices and spread over several slots."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.device import Device
from tinyfn.errors import ArgumentError
from tinyfn.tensor.assignment import Assignment
from tinyfn.tensor.base import Handle


class Placement(Assignment):
    """to, shard and clone."""

    __slots__ = ()

    def to(self, device: Any) -> Self:
        """The tensor on another device (itself where it is there); a tuple puts a copy on each.

        >>> Tensor([1, 2]).to("CPU:1").device
        'CPU:1'
        """
        where = Device.canonicalize(device)
        if where is None or where == self.device:
            return self
        return self._of(self.uop.copy_to_device(where))

    def to_(self, device: Any) -> Self:
        """Move this tensor to another device.

        >>> x = Tensor([1, 2])
        >>> x.to_("CPU:1") is x, x.device
        (True, 'CPU:1')
        """
        self.uop = self.to(device).uop
        return self

    def shard(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """The tensor over several slots: a copy on each, or its parts along an axis.

        Raises:
            ShapeError: the number of slots does not divide the size of the axis.

        >>> Tensor([1, 2, 3, 4]).shard(("CPU", "CPU:1"), axis=0)
        <Tensor (4,) dtypes.int32 on ('CPU', 'CPU:1') along axis 0>
        """
        where = Device.canonicalize(tuple(devices))
        if len(where) == 1:
            return self.to(where[0])
        place = None if axis is None else self._resolve_axis(axis)
        return self._of(self.uop.shard(where, place))

    def shard_(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """Spread this tensor over several slots.

        >>> x = Tensor([[1, 2], [3, 4]])
        >>> x.shard_(("CPU", "CPU:1"), axis=1) is x, x.tolist()
        (True, [[1, 2], [3, 4]])
        """
        self.uop = self.shard(devices, axis).uop
        return self

    def shard_like(self, y: Handle) -> Self:
        """The tensor spread as the other is.

        >>> x = Tensor([1, 2]).shard(("CPU", "CPU:1"), axis=0)
        >>> Tensor([3, 4]).shard_like(x)
        <Tensor (2,) dtypes.int32 on ('CPU', 'CPU:1') along axis 0>
        """
        if not isinstance(y.device, tuple):
            return self.to(y.device)
        if self.device == y.device and self.uop.axis == y.uop.axis:
            return self
        return self.shard(y.device, y.uop.axis)

    def _resolve_axis(self, axis: int) -> int:
        if not -self.ndim <= axis < self.ndim:
            raise ArgumentError(f"expected an axis of a tensor of {self.ndim} axes, got {axis}")
        return axis % self.ndim

    def clone(self, device: Any = None) -> Self:
        """A copy with memory of its own; gradients pass through.

        >>> x = Tensor([1, 2])
        >>> y = x.clone()
        >>> y[0] = 9
        >>> x.tolist(), y.tolist()
        ([1, 2], [9, 2])
        """
        copied = self._of(self.uop)
        copied.give_memory()
        return copied if device is None else copied.to(device)
