"""Tensors among other libraries' arrays, and as copies: numpy's protocols, DLPack, pickle."""

from __future__ import annotations

import copy as python_copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tinyfn.call import refuse_while_capturing
from tinyfn.device import Buffer, Device
from tinyfn.dtype import DType
from tinyfn.errors import DTypeError
from tinyfn.mixin.core import is_numpys
from tinyfn.tensor import dlpack
from tinyfn.tensor.data import SMALL_FLOATS, data_node
from tinyfn.tensor.values import Values
from tinyfn.uop.ops import UOp


class Exchange(Values):
    """What numpy, DLPack and pickle ask of a tensor."""

    __slots__ = ()

    # *** numpy: its functions give arrays, operators beside an array give tensors ***

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The values as an array: the tensor's memory, or a copy where that cannot be.

        Args:
            dtype: another dtype of numpy's (which needs a copy).
            copy: True for memory of its own, False to raise instead of copying.

        Raises:
            ValueError: copy=False, and the values do not lie in memory as the array has to be.
        """
        refuse_while_capturing("__array__")
        shared = None if copy or self.dtype in SMALL_FLOATS else self._shared_array()
        if shared is not None and dtype in (None, shared.dtype):
            return shared
        if copy is False:
            wanted = "its own dtype" if dtype is None else dtype
            raise ValueError(
                f"a tensor of {self.dtype} on {self.device} cannot be an array of {wanted} without "
                "a copy; leave out copy=False"
            )
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_function__(
        self, function: Callable[..., Any], _types: Any, args: Any, kwargs: Any
    ) -> Any:
        """A function of numpy's sees arrays in the places of tensors."""
        return function(*_as_arrays(args), **_as_arrays(kwargs))

    def __buffer__(self, flags: int) -> memoryview:
        """The tensor's memory for `memoryview(x)` (Python 3.12 and newer).

        Raises:
            BufferError: the values do not lie in one memory; `data()` copies then.
        """
        refuse_while_capturing("memoryview()")
        if self.dtype in SMALL_FLOATS:
            raise DTypeError(f"{self.dtype} has no Python format; cast the tensor to float32 first")
        shared = self._shared_array()
        if shared is None:
            raise BufferError(
                f"a tensor of shape {self.shape} on {self.device} has no memory of its own to "
                "share; use x.data(), which copies"
            )
        return memoryview(shared)

    def _as_operand(self, x: Any) -> Any:
        if is_numpys(x) and x.shape:
            return type(self)(x, device=self.uop.device)
        return super()._as_operand(x)

    # *** DLPack ***

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule over the tensor's memory (over a copy where that has to be).

        Raises:
            BufferError: another device than the CPU is asked for, or a copy is needed but refused.
        """
        refuse_while_capturing("__dlpack__")
        if stream is not None or (dl_device is not None and tuple(dl_device) != (dlpack.CPU, 0)):
            raise BufferError("a tensor gives memory of the CPU only, which has no streams")
        shared = None if copy else self._shared_array()
        if shared is None and copy is False:
            raise BufferError(
                f"a tensor of shape {self.shape} on {self.device} has no memory of its own to "
                "share; leave out copy=False"
            )
        array = self._stored_values() if shared is None else shared
        return dlpack.capsule_of(array, self.dtype, max_version)

    @classmethod
    def from_dlpack(cls, x: Any) -> Self:
        """A tensor over the memory of another library's array (numpy's, torch's, jax's, ...).

        Writing to one shows in the other. Memory that may not be written, or has gaps between
        its elements, is copied.

        Raises:
            DTypeError: an object without `__dlpack__`, or a dtype that tinyfn does not have.
            DeviceError: memory of another device than the CPU.

        >>> array = np.arange(3)
        >>> x = Tensor.from_dlpack(array)
        >>> array[0] = 7
        >>> x.tolist()
        [7, 1, 2]
        """
        array, dtype = dlpack.array_of(x)
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        dense = array.transpose(order)
        if not (dense.flags.c_contiguous and dense.flags.writeable and dense.size):
            return cls._of(data_node(array, None, dtype, stored=True))
        return cls._over(dense, dtype, owner=dense).permute(np.argsort(order).tolist())

    @classmethod
    def _over(cls, array: Any, dtype: DType, owner: Any) -> Self:
        """A tensor over the memory of a contiguous array of the storage dtype."""
        node = UOp.new_memory(Device.DEFAULT, tuple(array.shape), dtype, kind="data")
        address = array.ctypes.data
        node.set_buffer(Buffer.from_address(address, Device.DEFAULT, array.size, dtype, owner))
        return cls._of(node)

    # *** copies ***

    def __copy__(self) -> Self:
        copied = self._of(self.uop.detach())
        copied.give_memory()
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = self.__copy__()
        copied._grad, copied._stale = python_copy.deepcopy(self._grad, memo), self._stale
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        place = (self.uop.device, self.uop.axis)
        restore = type(self)._restored
        return restore, (self._stored_values(), self.dtype, *place), (self._grad, self._stale)

    def __setstate__(self, state: tuple[Any, bool]) -> None:
        self._grad, self._stale = state

    @classmethod
    def _restored(cls, values: Any, dtype: DType, device: Any, axis: int | None) -> Self:
        """A tensor of stored values, where it was and spread as it was."""
        if axis is None:
            return cls._of(data_node(values, device, dtype, stored=True))
        return cls._of(data_node(values, device[0], dtype, stored=True)).shard(device, axis)


def _as_arrays(value: Any) -> Any:
    """Nested arguments with arrays in the places of tensors."""
    if isinstance(value, Exchange):
        return np.asarray(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_as_arrays(v) for v in value)
    if isinstance(value, dict):
        return {k: _as_arrays(v) for k, v in value.items()}
    return value
