"""Values out: realisation, arrays, lists and Python numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from tinyfn import live
from tinyfn.call import capturing, refuse_while_capturing
from tinyfn.dtype import decode_small
from tinyfn.errors import BindingError, DTypeError, ShapeError
from tinyfn.runtime import execute
from tinyfn.tensor.data import (
    SMALL_FLOATS,
    host_array,
    memory_view,
    size_value,
    stored_whole,
)
from tinyfn.tensor.placement import Placement
from tinyfn.uop.ops import Ops


class Values(Placement):
    """What computes a tensor and hands its values to Python."""

    __slots__ = ()

    def realize(self, *lst: Self, do_update_stats: bool = True) -> Self:
        """Compute this tensor and the others together; returns this one.

        >>> x, y = Tensor([1, 2]) + 1, Tensor([3.0]).exp2()
        >>> x.realize(y) is x  # both are computed, together
        True
        """
        refuse_while_capturing("realize()")
        self._compute([self, *lst], do_update_stats, keep_history=False)
        return self

    def _compute(self, every: list[Self], count: bool, keep_history: bool) -> None:
        try:
            live.realize([t.uop for t in every], count, keep_history)
        except BindingError:  # values of another binding, that have to be computed before?
            live.realize_readers([t.uop for t in every])
            live.realize([t.uop for t in every], count, keep_history)

    def numpy(self) -> Any:
        """The values as a numpy array of their own (bfloat16 and fp8 as float32).

        >>> array = Tensor([[1, 2]], dtype="int8").numpy()
        >>> array.dtype, array.shape
        (dtype('int8'), (1, 2))
        """
        stored = self._stored_values()
        return decode_small(stored, self.dtype) if self.dtype in SMALL_FLOATS else stored

    def _stored_values(self) -> Any:
        """The values as an array of their own in the storage dtype."""
        refuse_while_capturing("reading values")
        stored = self
        for _ in range(2):  # memory that is a view after all has to be stored once more
            stored = self._of(stored_whole(stored.uop))
            self._compute([stored], count=True, keep_history=True)
        sizes = tuple(size_value(s) for s in self.shape)
        cut = tuple(slice(0, n) for n in sizes)
        return np.array(host_array(stored.uop)[cut], copy=True).reshape(sizes)

    def _known_values(self) -> Any:
        """The values, where they lie in memory already and are not those of one call of many."""
        if capturing.names or execute.recorders.active:
            return None
        known = self.uop.base.op in (Ops.BUFFER, Ops.CONST, Ops.FULL)
        return self.numpy() if known else None

    def _has_plain_shape(self) -> bool:
        return all(isinstance(s, int) for s in self.shape)

    def _shared_array(self) -> Any:
        """The tensor's own memory as an array in the storage dtype, or None where it cannot be.

        Computed first; a view of memory is an array with other strides.
        """
        if not self._has_plain_shape():
            return None
        self.realize()
        if self.uop.base.op is not Ops.BUFFER:
            self.give_memory()  # a constant that no memory holds yet
            self.realize()
        return memory_view(self.uop)

    def data(self) -> memoryview:
        """The values as a memoryview: of the tensor's memory where that holds them in order.

        Raises:
            DTypeError: bfloat16 and fp8, which Python has no format for.

        >>> x = Tensor([1, 2, 3])
        >>> x.data()[1] = 9  # the memory of x itself
        >>> x.tolist()
        [1, 9, 3]
        """
        refuse_while_capturing("data()")
        if self.dtype in SMALL_FLOATS:
            raise DTypeError(f"{self.dtype} has no Python format; cast the tensor to float32 first")
        shared = self._shared_array()
        if shared is None or not shared.flags.c_contiguous:
            return memoryview(self.numpy())
        return memoryview(shared)

    def item(self) -> Any:
        """The only value as a Python number.

        >>> Tensor([[1.5]]).item()
        1.5
        """
        if self._has_plain_shape() and self.numel() != 1:
            raise ShapeError(f"expected a tensor of one element, got shape {self.shape}")
        values = self.numpy()
        if values.size != 1:
            raise ShapeError(f"expected a tensor of one element, got shape {values.shape}")
        return values.reshape(()).item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers.

        >>> Tensor([[1, 2], [3, 4]]).tolist(), Tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
        """
        return self.numpy().tolist()

    # *** as a Python number ***

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in ("int", "uint"):
            raise TypeError(
                f"only an int tensor of no axes counts as an int, got shape {self.shape} of "
                f"{self.dtype}; use int(x.item())"
            )
        return operator.index(self.item())

    # *** as a collection ***

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        found = self.eq(value)
        return bool(found.any().item())
