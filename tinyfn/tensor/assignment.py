"""Writing into the memory of a tensor: whole, through views, at indices, in place."""

from __future__ import annotations

from typing import Any, Self, cast

from tinyfn import live
from tinyfn.device import Device
from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError
from tinyfn.helpers import prod
from tinyfn.mixin.core import same_shape
from tinyfn.tensor.base import Handle
from tinyfn.tensor.creation import Creation
from tinyfn.uop.ops import Ops, UOp, substitute


class Assignment(Creation):
    """assign, item assignment, and the in-place operators."""

    __slots__ = ()

    def replace(self, x: Handle) -> Self:
        """Make this tensor a handle on the other's value.

        >>> x = Tensor([1, 2])
        >>> x.replace(Tensor([3, 4])) is x, x.tolist()
        (True, [3, 4])
        """
        if not same_shape(self.shape, x.shape):
            raise ShapeError(f"expected a tensor of shape {self.shape}, got {x.shape}")
        live.rebind(self, x.uop)
        return self

    def assign(self, x: Any) -> Self:
        """Write values into this tensor's memory; views of that memory see them.

        Raises:
            ShapeError, DTypeError: the values do not fit.

        >>> x = Tensor([1, 2, 3])
        >>> view = x[1:]
        >>> x.assign(x * 10).tolist(), view.tolist()
        ([10, 20, 30], [20, 30])
        """
        value = self._assigned_value(x)
        target = self.uop
        if value is target:
            return self
        memory = target.base
        if memory.op not in (Ops.BUFFER, Ops.AFTER):
            live.rebind(self, value.contiguous() if value.base.op is Ops.BUFFER else value)
            return self
        parts = _crossed(target)
        if parts is not None:
            target, value = parts, self._of(parts)._whole_with(target, value)
        changed = memory.after(target.store(value))
        live.rebase(memory, changed)
        return self

    def _whole_with(self, view: UOp, value: UOp) -> UOp:
        """A copy of all parts on every slot, with the value written at the view of it."""
        whole = self._of(self.uop.shard(self.uop.device))
        whole.give_memory()
        (seen,) = substitute([view], {self.uop: whole.uop})
        return whole.uop.after(seen.store(value))

    def _assigned_value(self, x: Any) -> UOp:
        other = x if isinstance(x, Handle) else self._given(x)
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

    def _given(self, x: Any) -> Self:
        """Values that are no tensor yet, in this tensor's dtype and on its device."""
        where = None if isinstance(self.uop.device, tuple) else self.uop.device
        return type(self)(x, dtype=self.dtype, device=where)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.uop.base.op not in (Ops.BUFFER, Ops.AFTER):
            self.give_memory()
        given = value.cast(self.dtype) if isinstance(value, Handle) else self._given(value)
        mask = self._whole_mask(index)
        if mask is not None and _is_same_everywhere(given, self.ndim - mask.ndim):
            rest = self.shape[mask.ndim :]
            value = _fit(given, rest) if given.ndim > len(rest) else given
            value = self._beside(value)
            mask = self._beside(mask.reshape((*mask.shape, *(1,) * len(rest))))
            self.assign(mask._broadcast_to(self.shape).where(value, self))
        elif self._is_basic_index(index):
            view = self.view_of(index)
            view.assign(_fit(given, view.shape))
        elif self.uop.axis is not None:
            whole = self._of(self.uop.shard(self.uop.device))
            whole[index] = given
            self.assign(whole)
        else:
            self._store_at(index, given)

    def _whole_mask(self, index: Any) -> Handle | None:
        """A mask over the leading axes as a tensor (its values need not be known), else None."""
        if isinstance(index, tuple) and len(index) == 1:
            (index,) = index
        if not isinstance(index, Handle):
            values = self._known_mask(index)
            index = None if values is None else type(self)(values, device=self.uop.device)
        if index is None or index.dtype is not dtypes.bool or not index.ndim:
            return None
        return index if same_shape(index.shape, self.shape[: index.ndim]) else None

    def give_memory(self) -> None:
        """Put the value into memory of its own, to be written in place (lazily).

        >>> x = Tensor.zeros(2) + 1
        >>> x.give_memory()
        >>> x[0] = 5
        >>> x.tolist()
        [5.0, 1.0]
        """
        node = self.uop
        where = Device.DEFAULT if node.device is None else node.device
        memory: UOp = UOp.new_memory(where, node.shard_shape, node.dtype, kind="scratch")
        seen = memory if node.axis is None else memory.unshard(node.axis)
        stored = memory.after(seen.store(node))
        self.uop = stored if node.axis is None else stored.unshard(node.axis)

    def _store_at(self, index: Any, value: Handle) -> None:
        """Write values at the places an index with tensors selects; the last of equals wins."""
        # numbered from 1: an index out of range reads 0, and 0 writes nothing
        numbers = type(self).arange(1, prod(self.shape) + 1, dtype=dtypes.int64)
        places = numbers.reshape(self.shape)[index]
        flat = self._whole_beside(places.reshape(-1)).contiguous()
        values = self._whole_beside(_fit(value, places.shape).reshape(-1)).contiguous()

        def store_each(memory: UOp, where: UOp, what: UOp) -> UOp:
            i = UOp.range(where.shape[0], 0)
            number = where[i].cast(dtypes.weakint)
            place = (number > 0).where(number - 1, UOp.const(Invalid, dtypes.weakint))
            return memory.flatten()[place].store(what[i]).end(i).sink()

        target = self if self.uop.base is self.uop else self.contiguous()
        kernel = cast(Any, type(self)).custom_kernel
        written = kernel(target, flat, values, fxn=store_each, grad_fxn=self._gradient_of_places)[0]
        if target is self:
            live.rebase(self.uop, written.uop)
        else:
            self.assign(written)

    def _whole_beside(self, other: Handle) -> Self:
        """The other tensor where this one is, all of it on every slot."""
        moved = self._beside(other)
        return moved if moved.uop.axis is None else self._of(moved.uop.shard(moved.uop.device))

    @classmethod
    def _gradient_of_places(cls, g: UOp, call: UOp) -> tuple[Self, None, Self]:
        """What was overwritten gets 0, each value the gradient of its place."""
        flat, places = cls._of(g).flatten(), cls._of(call.src[2]) - 1
        ones = flat._constant(1.0, flat.dtype)._broadcast_to(places.shape)
        count = flat._constant(0.0, flat.dtype)._broadcast_to(flat.shape)
        count = count._scatter("ADD", places, ones, 0)
        return count.eq(0).where(flat, 0).reshape(g.shape), None, flat._gather(places, 0)

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


def _crossed(view: UOp) -> UOp | None:
    """The parts below a view that is not a view of every slot's part alike."""
    node = view
    while view.axis is None and node is not node.base:
        if node.op is Ops.UNSHARD:
            return node
        node = node.src[0]
    return None


def _is_same_everywhere(value: Handle, rest: int) -> bool:
    """Whether every place that a mask selects gets the same value, of `rest` axes."""
    leading = value.shape[: max(value.ndim - rest, 0)]
    return all(isinstance(s, int) and s == 1 for s in leading)


def _fit(value: Handle, shape: tuple[Any, ...]) -> Handle:
    """A value in the shape of the place it goes to; leading axes of size 1 are dropped."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value.reshape(value.shape[1:])
    return value if same_shape(value.shape, shape) else value._broadcast_to(shape)
