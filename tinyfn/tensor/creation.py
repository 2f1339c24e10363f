"""Tensors made of nothing: filled, empty, scratch, or over memory of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyfn.device import Buffer, Device
from tinyfn.dtype import DType, dtypes, to_dtype
from tinyfn.helpers import argfix, prod
from tinyfn.tensor.base import Handle
from tinyfn.tensor.data import checked_shape
from tinyfn.uop.ops import UOp


class Creation(Handle):
    """Class methods that make tensors, and their forms that follow another tensor."""

    __slots__ = ()

    @classmethod
    def full(
        cls,
        shape: Any,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: Any = None,
        buffer: bool = True,
    ) -> Self:
        """A tensor with one value everywhere.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        kind = dtypes.from_py(fill_value) if dtype is None else to_dtype(dtype)
        sizes = checked_shape(argfix(shape))
        return cls._of(UOp.full(sizes, fill_value, kind, Device.canonicalize(device)))

    @classmethod
    def const(cls, b: Any, dtype: DType | str | None = None) -> Self:
        """A scalar constant, shared by all that use it (no leaf of its own).

        >>> Tensor.const(2.5).shape, Tensor.const(1, "int8").dtype
        ((), dtypes.int8)
        """
        return cls._of(UOp.const(b, None if dtype is None else to_dtype(dtype)))

    @classmethod
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of zeros (float32 unless dtype says otherwise).

        >>> Tensor.zeros(2, 3).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        """
        return cls.full(argfix(*shape), 0.0, **{"dtype": dtypes.default_float(), **kwargs})

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of ones (float32 unless dtype says otherwise).

        >>> Tensor.ones(2, dtype="int").tolist()
        [1, 1]
        """
        return cls.full(argfix(*shape), 1.0, **{"dtype": dtypes.default_float(), **kwargs})

    def full_like(
        self,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: Any = None,
        buffer: bool = True,
    ) -> Self:
        """One value everywhere, in the shape, dtype and place of this tensor.

        >>> Tensor([1, 2]).full_like(2.9).tolist()
        [2, 2]
        """
        kind = self.dtype if dtype is None else to_dtype(dtype)
        where = self.uop.device if device is None else Device.canonicalize(device)
        if isinstance(where, tuple) and self.uop.axis is not None:
            part = UOp.full(self.uop.shard_shape, fill_value, kind, where)
            return self._of(part.unshard(self.uop.axis))
        return self._of(UOp.full(self.shape, fill_value, kind, where))

    def zeros_like(self, **kwargs: Any) -> Self:
        """Zeros in the shape, dtype and place of this tensor.

        >>> Tensor([[1, 2]]).zeros_like().tolist()
        [[0, 0]]
        """
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """Ones in the shape, dtype and place of this tensor.

        >>> Tensor([1, 2]).ones_like(dtype="float").tolist()
        [1.0, 1.0]
        """
        return self.full_like(1, **kwargs)

    @classmethod
    def empty(cls, *shape: Any, device: Any = None, dtype: DType | str | None = None) -> Self:
        """Memory with undefined contents.

        >>> x = Tensor.empty(3, dtype="int")
        >>> x[:] = 7
        >>> x.tolist()
        [7, 7, 7]
        """
        return cls._memory(argfix(*shape), device, dtype, "empty")

    @classmethod
    def invalids(cls, *shape: Any, device: Any = None, dtype: DType | str | None = None) -> Self:
        """Scratch memory: undefined contents, never an input of a captured function.

        >>> Tensor.invalids(3, dtype="int").assign(Tensor([1, 2, 3])).tolist()
        [1, 2, 3]
        """
        return cls._memory(argfix(*shape), device, dtype, "scratch")

    @classmethod
    def _memory(cls, shape: Any, device: Any, dtype: Any, kind: str) -> Self:
        where = Device.canonicalize(device) or Device.DEFAULT
        wanted = dtypes.default_float() if dtype is None else to_dtype(dtype)
        sizes = tuple(s.vmax if isinstance(s, UOp) else s for s in checked_shape(shape))
        return cls._of(UOp.new_memory(where, sizes, wanted, kind=kind))

    def empty_like(self, dtype: DType | str | None = None, device: Any = None) -> Self:
        """Memory with undefined contents in the shape of this tensor.

        >>> Tensor([[1, 2]], dtype="int8").empty_like()
        <Tensor (1, 2) dtypes.int8 on CPU>
        """
        kind = self.dtype if dtype is None else dtype
        where = self.device if device is None else device
        if isinstance(where, tuple) and self.uop.axis is not None:
            part = self._memory(self.uop.shard_shape, where, kind, "empty")
            return self._of(part.uop.unshard(self.uop.axis))
        return self._memory(self.shape, where, kind, "empty")

    @classmethod
    def from_blob(cls, ptr: int, shape: Sequence[int], **kwargs: Any) -> Self:
        """A tensor over memory that somebody else owns and keeps alive; nothing is copied.

        >>> array = np.array([1, 2, 3], np.int32)
        >>> x = Tensor.from_blob(array.ctypes.data, (3,), dtype="int32")
        >>> array[0] = 9
        >>> x.tolist()
        [9, 2, 3]
        """
        kind = to_dtype(kwargs.get("dtype", dtypes.default_float()))
        where = Device.canonicalize(kwargs.get("device")) or Device.DEFAULT
        node = UOp.new_memory(where, tuple(shape), kind, kind="data")
        node.set_buffer(Buffer.from_address(ptr, where, prod(shape), kind))
        return cls._of(node)
