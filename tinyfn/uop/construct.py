"""Builders of the nodes that are not in the operator vocabulary: memory, calls, kernels, slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

from tinyfn.dtype import DType, dtypes
from tinyfn.errors import ArgumentError, DeviceError, ShapeError
from tinyfn.uop import opcodes
from tinyfn.uop.info import (
    AddrSpace,
    AxisType,
    BufferInfo,
    CallInfo,
    Device,
    ParamInfo,
    ReduceInfo,
    VariableInfo,
    pack,
)
from tinyfn.uop.opcodes import Ops


class Construct:
    """Methods that build nodes; mixed into UOp."""

    __slots__ = ()
    op: Ops
    dtype: DType
    src: tuple[Any, ...]
    arg: Any
    shape: Any
    device: Any
    axis: Any

    def _new(self, op: Ops, dtype: DType, src: Sequence[Any], arg: Any = None) -> Self:
        make: Any = type(self)
        node: Self = make(op, dtype, tuple(src), arg)
        return node

    def _value(self, value: Any, dtype: DType) -> Any:
        """A node of that dtype for a node or a Python scalar."""
        make = cast(Any, type(self))
        return value.cast(dtype) if isinstance(value, make) else make.const(value, dtype)

    def _index_value(self, value: Any) -> Any:
        make = cast(Any, type(self))
        return value if isinstance(value, make) else make.const(value, dtypes.weakint)

    def f(self, op: Ops, **kwargs: Any) -> Self:
        """A node of another op with this one as its only source."""
        src = (self, *kwargs.get("src", ()))
        return self._new(op, kwargs.get("dtype", self.dtype), src, kwargs.get("arg"))

    def alu(self, op: Ops, *src: Any, **kwargs: Any) -> Self:
        """An elementwise node of this and the other operands."""
        return cast(Self, cast(Any, self)._alu(op.name, *src))

    # *** memory and order ***

    def contiguous(self, **kwargs: Any) -> Self:
        """The value stored row-major."""
        if self.op is Ops.CONTIGUOUS:
            return self
        return self._new(Ops.CONTIGUOUS, self.dtype, (self,))

    def contiguous_backward(self) -> Self:
        """The value; its gradient is made contiguous."""
        return self._new(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> Self:
        """The value as a constant: no gradient passes."""
        return self if self.op is Ops.DETACH else self._new(Ops.DETACH, self.dtype, (self,))

    def store(self, src: Any, gate: Any = None, **kwargs: Any) -> Self:
        """Write a value into this place (where the gate holds). Invalid leaves what is there."""
        value = self._value(src, self.dtype)
        return self._new(
            Ops.STORE, dtypes.void, (self, value) if gate is None else (self, value, gate)
        )

    def after(self, *src: Any, **kwargs: Any) -> Self:
        """This value once the other nodes have run."""
        return self._new(Ops.AFTER, self.dtype, (self, *src)) if src else self

    def reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        """The value reduced over whole axes, which stay as size 1."""
        return self._new(Ops.REDUCE_AXIS, self.dtype, (self,), ReduceInfo(op, axes))

    # *** kernels ***

    @classmethod
    def range(
        cls,
        end: Any,
        axis_id: int,
        axis_type: AxisType = AxisType.WEAK,
        *arg: Any,
        dtype: DType = dtypes.weakint,
        src: tuple[Any, ...] = (),
        **kwargs: Any,
    ) -> Self:
        """A loop counter from 0 below `end`."""
        make = cast(Any, cls)
        bound = end if isinstance(end, make) else make.const(end, dtypes.weakint)
        return cast(Self, make(Ops.RANGE, dtype, (bound, *src), (axis_id, axis_type, *arg)))

    def index(self, *srcs: Any, **kwargs: Any) -> Self:
        """One element (or row) of memory."""
        return self._new(Ops.INDEX, self.dtype, (self, *(self._index_value(s) for s in srcs)))

    def load(self, *src: Any, **kwargs: Any) -> Self:
        """The value at an index."""
        return self._new(Ops.LOAD, self.dtype, (self, *src))

    def reduce(self, *src: Any, **kwargs: Any) -> Self:
        """The value combined over ranges; `arg` is the op (ADD where none is given)."""
        return self._new(Ops.REDUCE, self.dtype, (self, *src), kwargs.get("arg", Ops.ADD))

    def end(self, *src: Any) -> Self:
        """The stores in loops over these ranges."""
        return self._new(Ops.END, dtypes.void, (self, *src)) if src else self

    def group(self, *srcs: Any, **kwargs: Any) -> Self:
        """Several stores as one."""
        return self._new(Ops.GROUP, dtypes.void, (self, *srcs))

    def sink(self, *srcs: Any, **kwargs: Any) -> Self:
        """Everything that must happen; `arg` is the KernelInfo."""
        return self._new(Ops.SINK, dtypes.void, (self, *srcs), kwargs.get("arg"))

    @classmethod
    def placeholder(
        cls,
        shape: Sequence[Any],
        dtype: DType,
        slot: int,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        device: Device = None,
        volatile: bool = False,
    ) -> Self:
        """A parameter of a kernel: memory of this shape; scratch where addrspace is not GLOBAL."""
        packed, symbols = pack(tuple(shape))
        info = ParamInfo(slot, packed, device, addrspace)
        return cast(Self, cast(Any, cls)(Ops.PARAM, dtype, symbols, info))

    def placeholder_like(self, slot: int, addrspace: AddrSpace = AddrSpace.GLOBAL) -> Self:
        """A parameter of a kernel for this tensor (for one slot's part of it, where sharded)."""
        shape = cast(Any, self).shard_shape
        return type(self).placeholder(shape, self.dtype, slot, addrspace)

    @classmethod
    def param(
        cls,
        slot: int,
        dtype: DType,
        shape: Sequence[Any] | None = None,
        device: Device = None,
        vmin_vmax: tuple[int, int] | None = None,
        multiple_of: int | None = None,
        name: str | None = None,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
        axis: int | None = None,
        volatile: bool = False,
    ) -> Self:
        """A numbered parameter; sharded along `axis` where one is given."""
        packed, symbols = pack(tuple(shape or ()))
        info = ParamInfo(slot, packed, device, addrspace, name, vmin_vmax)
        node = cast(Self, cast(Any, cls)(Ops.PARAM, dtype, symbols, info))
        return node if axis is None else node.unshard(axis)

    def param_like(self, slot: int) -> Self:
        """The parameter of a body that stands for this argument."""
        shape = cast(Any, self).shard_shape
        packed, symbols = pack(shape)
        node = self._new(Ops.PARAM, self.dtype, symbols, ParamInfo(slot, packed, self.device))
        return node if self.axis is None else node.unshard(self.axis)

    # *** symbolic variables ***

    @classmethod
    def variable(
        cls,
        name: str,
        min_val: int,
        max_val: int,
        dtype: DType = dtypes.weakint,
        multiple_of: int = 1,
        param: bool = False,
    ) -> Self:
        """A symbolic integer between two values, both included."""
        if not name.isidentifier():
            raise ArgumentError(f"expected an identifier as a variable's name, got {name!r}")
        if min_val > max_val:
            raise ArgumentError(f"expected min_val <= max_val for {name}, got {min_val}, {max_val}")
        info = VariableInfo(name, int(min_val), int(max_val))
        return cast(Self, cast(Any, cls)(Ops.VARIABLE, dtypes.weakint, (), info))

    def bind(self, val: Any) -> Self:
        """The variable with its value."""
        if self.op is not Ops.VARIABLE:
            raise ArgumentError(f"only a variable can be bound, got {self!r}")
        value = int(val)
        if not self.arg.low <= value <= self.arg.high:
            raise ArgumentError(
                f"expected a value of {self.arg.name} between {self.arg.low} and {self.arg.high}, "
                f"got {value}"
            )
        return self._new(Ops.BIND, self.dtype, (self, self._index_value(value)))

    # *** devices ***

    @classmethod
    def new_buffer(cls, device: Device, size: Any, dtype: DType, num: int | None = None) -> Self:
        """Memory of its own: `size` elements (or a shape) on a device, on each slot of a tuple."""
        return cls.new_memory(device, size, dtype, "empty", num)

    @classmethod
    def new_memory(
        cls, device: Device, size: Any, dtype: DType, kind: str, num: int | None = None
    ) -> Self:
        """Memory of a kind: data, empty, scratch, state (see BufferInfo)."""
        make = cast(Any, cls)
        shape = (size,) if isinstance(size, int) else tuple(size)
        number = make._next_number() if num is None else num
        return cast(Self, make(Ops.BUFFER, dtype, (), BufferInfo(number, device, shape, kind)))

    def copy_to_device(self, device: Device, arg: Any = None) -> Self:
        """The value on another device; on every slot of a tuple."""
        return self if self.device == device else self._new(Ops.COPY, self.dtype, (self,), device)

    def shard(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """The value over several slots: a copy on each, or its parts along an axis."""
        if axis is None and self.axis is not None:
            return self._new(Ops.COPY, self.dtype, (self,), devices)
        copied = self.copy_to_device(devices)
        if axis is None:
            return copied
        size, count = self.shape[axis], len(devices)
        if not isinstance(size, int) or size % count:
            raise ShapeError(
                f"expected a size that {count} slots divide along axis {axis} to shard shape "
                f"{self.shape}, got {size}; pad the tensor first"
            )
        return self._new(Ops.SHARD, self.dtype, (copied,), axis).unshard(axis)

    def unshard(self, axis: int, device_range: Any = None) -> Self:
        """The parts of the slots as one tensor along an axis."""
        if not isinstance(self.device, tuple):
            raise DeviceError(f"expected a tensor on several slots, got device {self.device}")
        return self._new(Ops.UNSHARD, self.dtype, (self,), axis)

    def mselect(self, arg: int) -> Self:
        """The part of one slot."""
        return self._new(Ops.MSELECT, self.dtype, (self,), arg)

    def mstack(self, *srcs: Any) -> Self:
        """The parts of several slots as one value."""
        return self._new(Ops.MSTACK, self.dtype, (self, *srcs))

    def allreduce(self, op: Ops, device: Device) -> Self:
        """The parts of all slots combined, on every slot of `device`."""
        return self._new(Ops.ALLREDUCE, self.dtype, (self,), (op, device))

    # *** calls ***

    def maketuple(self, *srcs: Any) -> Self:
        """Several values as one node."""
        return self._new(Ops.TUPLE, dtypes.void, (self, *srcs))

    def gettuple(self, idx: int) -> Self:
        """One value of a tuple, or one output of a call."""
        if self.op is Ops.TUPLE:
            return cast(Self, self.src[idx])
        return self._new(Ops.GETTUPLE, self.src[idx].dtype, (self,), idx)

    def call(
        self,
        *srcs: Any,
        ret_dtype: DType | None = None,
        grad_fxn: Any = None,
        name: str | None = None,
        precompile: bool = False,
        precompile_backward: bool = False,
        aux: Any = None,
    ) -> Self:
        """A call of this body on arguments."""
        info = CallInfo(name or "call", grad_fxn, precompile, precompile_backward, aux)
        return self._new(Ops.CALL, dtypes.void, (self, *srcs), info)

    @property
    def has_buffer_identity(self) -> bool:
        """Whether the node is memory seen whole: a buffer or parameter, reshaped or not."""
        node: Any = self
        while node.op in (Ops.RESHAPE, Ops.UNSHARD, Ops.DETACH, Ops.AFTER):
            node = node.src[0]
        return node.op in (Ops.BUFFER, Ops.PARAM, Ops.OUTPUT)

    @property
    def is_movement(self) -> bool:
        """Whether the node only moves elements."""
        return self.op in opcodes.MOVEMENT
