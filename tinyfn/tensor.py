"""Tensor: a handle on a node of the graph, with numpy in and out, assignment and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from typing import Any, ClassVar, Self, cast

import numpy as np

from tinyfn import live
from tinyfn.call import refuse_while_capturing
from tinyfn.device import Buffer, Device
from tinyfn.dtype import (
    DType,
    Invalid,
    decode_small,
    dtypes,
    encode_small,
    from_numpy_dtype,
    storage_dtype,
    to_dtype,
)
from tinyfn.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tinyfn.gradient import compute_gradient
from tinyfn.helpers import argfix, prod
from tinyfn.mixin import OpMixin
from tinyfn.random import RandomMixin
from tinyfn.uop.info import CallInfo
from tinyfn.uop.node import same_shape
from tinyfn.uop.ops import Ops, UOp, toposort

SMALL_FLOATS = (dtypes.bfloat16, *dtypes.fp8s)


class Tensor(RandomMixin, OpMixin):
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
    """

    __slots__ = ("__weakref__", "_grad", "_stale", "uop")
    training: ClassVar[bool] = False
    uop: UOp

    def __init__(
        self,
        data: Any = None,
        device: str | tuple[str, ...] | None = None,
        dtype: DType | str | None = None,
    ) -> None:
        kind = None if dtype is None else to_dtype(dtype)
        self._grad: Tensor | None = None
        self._stale = False
        self.uop = _node_from(data, Device.canonicalize(device), kind)
        live.register(self)

    class train(ContextDecorator):  # noqa: N801 (used as Tensor.train())
        """Set `Tensor.training` for a block: dropout and batch norm behave as in training."""

        def __init__(self, mode: bool = True) -> None:
            self.mode = mode

        def __enter__(self) -> None:
            self.before, Tensor.training = Tensor.training, self.mode

        def __exit__(self, *exc: object) -> None:
            Tensor.training = self.before

    # *** facts ***

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of every axis (an int, or a symbolic size)."""
        return cast(tuple[Any, ...], self.uop.shape)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.uop.dtype

    @property
    def device(self) -> Any:
        """Where it lives; a tuple where it is spread over several slots."""
        device = self.uop.device
        return Device.DEFAULT if device is None else device

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has accumulated, or None.

        Raises:
            GradientError: it was still to be computed when what it depends on was overwritten.
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
        """Forget a gradient that cannot be computed any more; reading it is an error."""
        self._grad, self._stale = None, True

    def __repr__(self) -> str:
        return f"<Tensor {self.shape} {self.dtype} on {self.device}>"

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of no axes has no length; use item() for its value")
        return int(self.shape[0])

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth value of a tensor of shape {self.shape} is not defined; "
            "use .item(), .any().item() or .all().item()"
        )

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

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

    def _scatter_add(self, index: Any, values: Any, axis: int) -> Self:
        return self._of(self.uop._scatter_add(index.uop, values.uop, axis))

    @staticmethod
    def _symbolic(x: Any) -> bool:
        return isinstance(x, UOp)

    def _from_list(self, values: list[int]) -> Self:
        wide = max(map(abs, values), default=0) > 2**31 - 1
        return type(self)(values, dtype=dtypes.int64 if wide else dtypes.int32)

    def cast(self, dtype: DType | str) -> Self:
        """The values in another dtype: floats round, float to int truncates, ints wrap."""
        kind = to_dtype(dtype)
        return self if kind is self.dtype else self._of(self.uop.cast(kind))

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits as another dtype of the same width."""
        return self._of(self.uop.bitcast(to_dtype(dtype)))

    def contiguous(self, **kwargs: Any) -> Self:
        """The values stored row-major (itself where they are)."""
        return self._of(self.uop.contiguous())

    def contiguous_backward(self) -> Self:
        """The same values; the gradient is stored before it goes on."""
        return self._of(self.uop.contiguous_backward())

    def detach(self) -> Self:
        """The same values with no gradient."""
        return self._of(self.uop.detach())

    # *** creation ***

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
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of zeros (float32 unless dtype says otherwise)."""
        return cls.full(argfix(*shape), 0.0, **{"dtype": dtypes.default_float(), **kwargs})

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of ones (float32 unless dtype says otherwise)."""
        return cls.full(argfix(*shape), 1.0, **{"dtype": dtypes.default_float(), **kwargs})

    def full_like(
        self,
        fill_value: Any,
        dtype: DType | str | None = None,
        device: Any = None,
        buffer: bool = True,
    ) -> Self:
        """One value everywhere, in the shape, dtype and place of this tensor."""
        kind = self.dtype if dtype is None else to_dtype(dtype)
        where = self.uop.device if device is None else Device.canonicalize(device)
        if isinstance(where, tuple) and self.uop.axis is not None:
            part = UOp.full(self.uop.shard_shape, fill_value, kind, where)
            return self._of(part.unshard(self.uop.axis))
        return self._of(UOp.full(self.shape, fill_value, kind, where))

    def zeros_like(self, **kwargs: Any) -> Self:
        """Zeros in the shape, dtype and place of this tensor."""
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """Ones in the shape, dtype and place of this tensor."""
        return self.full_like(1, **kwargs)

    @classmethod
    def empty(cls, *shape: Any, device: Any = None, dtype: DType | str | None = None) -> Self:
        """Memory with undefined contents."""
        return cls._memory(argfix(*shape), device, dtype, "empty")

    @classmethod
    def invalids(cls, *shape: Any, device: Any = None, dtype: DType | str | None = None) -> Self:
        """Scratch memory: undefined contents, never an input of a captured function."""
        return cls._memory(argfix(*shape), device, dtype, "scratch")

    @classmethod
    def _memory(cls, shape: Any, device: Any, dtype: Any, kind: str) -> Self:
        where = Device.canonicalize(device) or Device.DEFAULT
        wanted = dtypes.default_float() if dtype is None else to_dtype(dtype)
        sizes = tuple(s.vmax if isinstance(s, UOp) else s for s in checked_shape(shape))
        return cls._of(UOp.new_memory(where, sizes, wanted, kind=kind))

    def empty_like(self, dtype: DType | str | None = None, device: Any = None) -> Self:
        """Memory with undefined contents in the shape of this tensor."""
        kind = self.dtype if dtype is None else dtype
        where = self.device if device is None else device
        if isinstance(where, tuple) and self.uop.axis is not None:
            part = self._memory(self.uop.shard_shape, where, kind, "empty")
            return self._of(part.uop.unshard(self.uop.axis))
        return self._memory(self.shape, where, kind, "empty")

    @classmethod
    def from_blob(cls, ptr: int, shape: Sequence[int], **kwargs: Any) -> Self:
        """A tensor over memory that somebody else owns and keeps alive; nothing is copied."""
        kind = to_dtype(kwargs.get("dtype", dtypes.default_float()))
        where = Device.canonicalize(kwargs.get("device")) or Device.DEFAULT
        node = UOp.new_memory(where, tuple(shape), kind, kind="data")
        node.set_buffer(Buffer.from_address(ptr, where, prod(shape), kind))
        return cls._of(node)

    # *** values out ***

    def numpy(self) -> Any:
        """The values as a numpy array of their own (bfloat16 and fp8 as float32)."""
        if not all(isinstance(s, int) for s in self.shape):
            return self._of(self._bound_to_values())._numpy_of_memory()
        return self._numpy_of_memory()

    def _bound_to_values(self) -> UOp:
        return self.uop

    def _numpy_of_memory(self) -> Any:
        refuse_while_capturing("numpy()")
        stored = self._of(_stored_whole(self.uop)).realize()
        stored = self._of(_stored_whole(stored.uop)).realize()
        sizes = tuple(_size_value(s) for s in self.shape)
        array = _host_array(stored.uop)
        cut = tuple(slice(0, n) for n in sizes)
        values = np.array(array[cut], copy=True).reshape(sizes)
        if self.dtype in SMALL_FLOATS:
            return decode_small(values, self.dtype)
        return values

    def data(self) -> memoryview:
        """The values as a memoryview that shares the tensor's memory."""
        refuse_while_capturing("data()")
        if self.dtype in SMALL_FLOATS:
            raise DTypeError(f"{self.dtype} has no Python format; cast the tensor to float32 first")
        stored = self.contiguous().realize()
        if stored.uop.device == self.uop.device and not isinstance(stored.uop.device, tuple):
            return memoryview(_host_array(stored.uop))
        return memoryview(self.numpy())

    def item(self) -> Any:
        """The only value as a Python number."""
        if self.numel() != 1:
            raise ShapeError(f"expected a tensor of one element, got shape {self.shape}")
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.numpy().tolist()

    def realize(self, *lst: Tensor, do_update_stats: bool = True) -> Self:
        """Compute this tensor and the others together; returns this one."""
        refuse_while_capturing("realize()")
        every: list[Tensor] = [self, *lst]
        live.realize([t.uop for t in every], count=do_update_stats)
        return self

    def linear_with_vars(self, *lst: Tensor) -> tuple[UOp, dict[str, int]]:
        """What realising would run: a LINEAR of calls and the values of the variables.

        Nothing is compiled or computed, and the tensors stay lazy.
        """
        every: list[Tensor] = [self, *lst]
        planned = live.plan([t.uop for t in every]).schedule
        return planned.linear, dict(planned.variables)

    # *** assignment ***

    def replace(self, x: Tensor) -> Self:
        """Make this tensor a handle on the other's value."""
        if not same_shape(self.shape, x.shape):
            raise ShapeError(f"expected a tensor of shape {self.shape}, got {x.shape}")
        self.uop = x.uop
        return self

    def assign(self, x: Any) -> Self:
        """Write values into this tensor's memory; views of that memory see them.

        Raises:
            ShapeError, DTypeError: the values do not fit.
        """
        value = self._assigned_value(x)
        target = self.uop
        if value is target:
            return self
        memory = target.base
        if memory.op not in (Ops.BUFFER, Ops.AFTER):
            self.uop = value.contiguous() if value.base.op is Ops.BUFFER else value
            return self
        changed = memory.after(target.store(value))
        live.rebase(memory, changed)
        return self

    def _assigned_value(self, x: Any) -> UOp:
        other = x if isinstance(x, Tensor) else Tensor(x, dtype=self.dtype)
        if other.dtype is not self.dtype:
            raise DTypeError(
                f"expected values of {self.dtype} to assign, got {other.dtype}; cast them first"
            )
        node = other.uop
        if not same_shape(other.shape, self.shape):
            node = other._broadcast_to(self.shape).uop
        if isinstance(self.uop.device, tuple) and node.device != self.uop.device:
            return node.shard(self.uop.device, self.uop.axis)
        if node.device not in (None, self.uop.device) and self.uop.device is not None:
            raise ArgumentError(
                f"expected values on {self.device} to assign, got {other.device}; use .to(device)"
            )
        return node

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.uop.base.op not in (Ops.BUFFER, Ops.AFTER):
            self._give_memory()
        kind = self.dtype
        given = value.cast(kind) if isinstance(value, Tensor) else Tensor(value, dtype=kind)
        if self._is_basic_index(index):
            view = self.view_of(index)
            if view.uop is not self.uop or isinstance(value, Tensor):
                view.assign(_fit(given, view))
            else:
                view.assign(given)
            return
        self._store_at(index, given)

    def _give_memory(self) -> None:
        """Put the value into memory of its own, to be written in place."""
        node = self.uop
        where = Device.DEFAULT if node.device is None else node.device
        memory: UOp = UOp.new_memory(where, node.shard_shape, node.dtype, kind="scratch")
        seen = memory if node.axis is None else memory.unshard(node.axis)
        stored = memory.after(seen.store(node))
        self.uop = stored if node.axis is None else stored.unshard(node.axis)

    def _store_at(self, index: Any, value: Tensor) -> None:
        """Write values at the places an index with tensors selects; the last of equals wins."""
        places = Tensor.arange(prod(self.shape)).cast(dtypes.int64).reshape(self.shape)[index]
        flat = places.reshape(-1).contiguous()
        values = _fit(value, places).reshape(-1).contiguous()

        def store_each(memory: UOp, where: UOp, what: UOp) -> UOp:
            i = UOp.range(where.shape[0], 0)
            return memory.flatten()[where[i].cast(dtypes.weakint)].store(what[i]).end(i).sink()

        target = self if self.uop.base is self.uop else self.contiguous()
        written = Tensor.custom_kernel(target, flat, values, fxn=store_each)[0]
        if target is self:
            live.rebase(self.uop, written.uop)
        else:
            self.assign(written)

    def __iadd__(self, x: Any) -> Self:
        return self.assign(self + x)

    def __isub__(self, x: Any) -> Self:
        return self.assign(self - x)

    def __imul__(self, x: Any) -> Self:
        return self.assign(self * x)

    def __itruediv__(self, x: Any) -> Self:
        return self.assign(self / x)

    def __ifloordiv__(self, x: Any) -> Self:
        return self.assign(self // x)

    def __imod__(self, x: Any) -> Self:
        return self.assign(self % x)

    def __ipow__(self, x: Any) -> Self:
        return self.assign(self**x)

    def __imatmul__(self, x: Any) -> Self:  # type: ignore[misc]
        return self.assign(self @ x)

    def __iand__(self, x: Any) -> Self:
        return self.assign(self & x)

    def __ior__(self, x: Any) -> Self:
        return self.assign(self | x)

    def __ixor__(self, x: Any) -> Self:
        return self.assign(self ^ x)

    def __ilshift__(self, x: Any) -> Self:
        return self.assign(self << x)

    def __irshift__(self, x: Any) -> Self:
        return self.assign(self >> x)

    # *** devices ***

    def to(self, device: Any) -> Tensor:
        """The tensor on another device (itself where it is there); a tuple puts a copy on each."""
        where = Device.canonicalize(device)
        if where is None or where == self.device:
            return self
        return self._of(self.uop.copy_to_device(where))

    def to_(self, device: Any) -> Self:
        """Move this tensor to another device."""
        self.uop = self.to(device).uop
        return self

    def shard(self, devices: tuple[str, ...], axis: int | None = None) -> Tensor:
        """The tensor over several slots: a copy on each, or its parts along an axis.

        Raises:
            ShapeError: the number of slots does not divide the size of the axis.
        """
        where = Device.canonicalize(tuple(devices))
        if len(where) == 1:
            return self.to(where[0])
        place = None if axis is None else self._resolve_axis(axis)
        return self._of(self.uop.shard(where, place))

    def shard_(self, devices: tuple[str, ...], axis: int | None = None) -> Self:
        """Spread this tensor over several slots."""
        self.uop = self.shard(devices, axis).uop
        return self

    def shard_like(self, y: Tensor) -> Tensor:
        """The tensor spread as the other is."""
        if not isinstance(y.device, tuple):
            return self.to(y.device)
        if self.device == y.device and self.uop.axis == y.uop.axis:
            return self
        return self.shard(y.device, y.uop.axis)

    def _resolve_axis(self, axis: int) -> int:
        if not -self.ndim <= axis < self.ndim:
            raise ArgumentError(f"expected an axis of a tensor of {self.ndim} axes, got {axis}")
        return axis % self.ndim

    def clone(self, device: Any = None) -> Tensor:
        """A copy with memory of its own; gradients pass through."""
        copied = self._of(self.uop)
        copied._give_memory()
        return copied if device is None else copied.to(device)

    # *** calls and gradients ***

    def custom_kernel(
        self, *lst: Tensor, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
    ) -> list[Tensor]:
        """Run a kernel written on graph nodes over these tensors; returns them after it ran.

        Args:
            fxn: called with one placeholder a tensor; returns a SINK of stores, or a PROGRAM.
            grad_fxn: called with the gradients of the outputs that have one and `call=`; returns
                a gradient (or None) for each tensor.
        """
        nodes = [_kernel_memory(t.uop) for t in (self, *lst)]
        body = fxn(*(n.placeholder_like(i) for i, n in enumerate(nodes)))
        if body.op not in (Ops.SINK, Ops.PROGRAM):
            raise ArgumentError(f"expected the kernel to return a SINK or a PROGRAM, got {body!r}")
        name = getattr(body.arg, "name", None) or fxn.__name__
        call = UOp(Ops.CALL, src=(body, *nodes), arg=CallInfo(name, grad_fxn))
        return [self._of(node.after(call)) for node in nodes]

    def gradient(self, *targets: Tensor, gradient: Tensor | None = None) -> list[Tensor]:
        """The gradients of this tensor with respect to the targets.

        Args:
            gradient: the gradient of this tensor; 1 where None (which needs a single element).

        Raises:
            GradientError: this tensor does not depend on a target.
        """
        found = compute_gradient(self.uop, self._root_gradient(gradient), [t.uop for t in targets])
        missing = [i for i, t in enumerate(targets) if t.uop not in found]
        if missing:
            raise GradientError(f"the tensor does not depend on target number {missing[0]}")
        return [self._of(found[t.uop]) for t in targets]

    def backward(self, gradient: Tensor | None = None) -> Self:
        """Add the gradients of this tensor to `.grad` of every live float tensor it depends on."""
        below = set(toposort([self.uop], enter_calls=False))
        holders = [t for t in live.tensors() if t.uop in below and t.dtype.kind == "float"]
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


def checked_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape of ints (or symbolic sizes), none of them negative."""
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int | np.integer | UOp):
            raise ShapeError(f"expected ints as sizes, got {size!r} in {tuple(shape)}")
        if not isinstance(size, UOp) and size < 0:
            raise ShapeError(f"expected sizes of 0 or more, got {tuple(shape)}")
    return tuple(s if isinstance(s, UOp) else int(s) for s in shape)


def _fit(value: Tensor, view: Tensor) -> Tensor:
    """A value in the shape of the place it goes to; leading axes of size 1 are dropped."""
    while value.ndim > view.ndim and value.shape[0] == 1:
        value = value.reshape(value.shape[1:])
    return value if same_shape(value.shape, view.shape) else value._broadcast_to(view.shape)


def _kernel_memory(node: UOp) -> UOp:
    """The node as memory that a kernel can take: itself, or stored first."""
    if node.base.op in (Ops.BUFFER, Ops.AFTER) and not any(
        n.op in (Ops.SHRINK, Ops.PAD, Ops.EXPAND, Ops.PERMUTE, Ops.FLIP) for n in _views(node)
    ):
        return node
    return node.contiguous()


def _views(node: UOp) -> list[UOp]:
    found = []
    while node is not node.base:
        found.append(node)
        node = node.src[0]
    return found


def _size_value(size: Any) -> int:
    if isinstance(size, int):
        return size
    table = {n: n.src[1] for n in toposort([size]) if n.op is Ops.BIND}
    return int(size.substitute(table).simplify().val)


def _stored_whole(node: UOp) -> UOp:
    """The node as something that memory holds whole and in order."""
    views = _views(node)
    if node.base.op in (Ops.BUFFER, Ops.AFTER) and all(
        v.op in (Ops.RESHAPE, Ops.UNSHARD, Ops.DETACH) for v in views
    ):
        return node
    return node.contiguous()


def _host_array(node: UOp) -> Any:
    """The memory of a stored node as an array of its (largest) shape; parts are put together."""
    chain = [n for n in itertools.chain([node], _views(node)) if n.op is Ops.UNSHARD]
    memory = node.base.buffer
    if isinstance(memory, tuple):
        parts = [m.array().reshape(node.base.max_shape) for m in memory]
        whole = np.concatenate(parts, axis=chain[0].arg) if chain else parts[0]
        return whole.reshape(node.max_shape)
    shape = node.base.max_shape if not all(isinstance(s, int) for s in node.shape) else node.shape
    return memory.array().reshape(shape)


def _node_from(data: Any, device: Any, dtype: DType | None) -> UOp:
    """The node of a value handed to Tensor()."""
    if isinstance(data, UOp):
        node = data
        if node.dtype is dtypes.weakint:
            node = node.cast(dtypes.default_int())
        if device is not None and node.device is not None and node.device != device:
            node = node.copy_to_device(device)
        return node if dtype is None else node.cast(dtype)
    if isinstance(data, Tensor):
        return _node_from(data.uop, device, dtype)
    if data is None:
        return _data_node(np.zeros((0,), np.float32), device, dtype or dtypes.default_float())
    if isinstance(data, bool | int | float) or data is Invalid:
        kind = dtypes.from_py(data) if dtype is None else dtype
        return UOp.full((), data, kind, device)
    if isinstance(data, bytes | bytearray | memoryview):
        raw = np.frombuffer(data, dtype=storage_dtype(dtype or dtypes.uint8))
        return _data_node(raw, device, dtype or dtypes.uint8, stored=True)
    if isinstance(data, list | tuple):
        return _node_from_list(data, device, dtype)
    if isinstance(data, np.ndarray | np.generic) or hasattr(data, "__array__"):
        array = np.asarray(data)
        source = from_numpy_dtype(array.dtype)
        bits = source in SMALL_FLOATS
        array = array.view(storage_dtype(source)) if bits else array
        node = _data_node(array, device, source, stored=True)
        return node if dtype is None else node.cast(dtype)
    raise DTypeError(
        f"expected a number, nested lists of numbers, a numpy array or bytes, "
        f"got {type(data).__name__}"
    )


def _node_from_list(data: Any, device: Any, dtype: DType | None) -> UOp:
    shape = _shape_of_list(data)
    flat = list(data)
    for _ in shape[1:]:
        flat = [item for sub in flat for item in sub]
    if any(isinstance(item, Tensor) for item in flat):
        flat = [item.item() if isinstance(item, Tensor) else item for item in flat]
    kind = dtypes.from_py(flat) if dtype is None else dtype
    if kind.kind in ("int", "uint"):
        array = np.array([dtypes.as_const(v, kind) for v in flat], storage_dtype(kind))
    else:
        array = np.array(flat, np.float64 if kind.kind == "float" else np.bool_)
    return _data_node(array.reshape(shape), device, kind)


def _shape_of_list(data: Any) -> tuple[int, ...]:
    if not isinstance(data, list | tuple):
        return ()
    shapes = {_shape_of_list(item) for item in data}
    if len(shapes) > 1:
        listed = " and ".join(str(s) for s in sorted(shapes))
        raise ShapeError(f"expected nested lists of equal lengths, got parts of shapes {listed}")
    return (len(data), *(shapes.pop() if shapes else ()))


def _data_node(array: Any, device: Any, dtype: DType, stored: bool = False) -> UOp:
    """A buffer with a copy of the array's values."""
    where = Device.DEFAULT if device is None else device
    if not stored and dtype in SMALL_FLOATS:
        array = encode_small(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(array, dtype=storage_dtype(dtype))
    node: UOp = UOp.new_memory(where, tuple(array.shape), dtype, kind="data")
    slots = where if isinstance(where, tuple) else (where,)
    memory = []
    for slot in slots:
        buffer = Buffer(slot, values.size, dtype)
        buffer.copyin(values)
        memory.append(buffer)
    node.set_buffer(tuple(memory) if isinstance(where, tuple) else memory[0])
    return node
