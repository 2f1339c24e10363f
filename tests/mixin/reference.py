"""The primitives in numpy, computed at once: a class on which the vocabulary can be tested."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfn.dtype import dtypes, from_numpy_dtype
from tinyfn.mixin import OpMixin
from tinyfn.uop.arithmetic import cast, elementwise
from tinyfn.uop.opcodes import Ops

REDUCERS = {"ADD": np.add, "MUL": np.multiply, "MAX": np.maximum, "MIN": np.minimum}


def narrow(dtype: Any) -> Any:
    """The numpy dtype of a dtype that numpy has."""
    return np.dtype(np.int64 if dtype is dtypes.weakint else dtype.name)


class Eager(OpMixin):
    """An array with the primitives; every primitive checks what it was promised."""

    __slots__ = ("array",)
    device = "CPU"

    def __init__(self, data: Any, dtype: Any = None) -> None:
        if isinstance(data, np.ndarray | np.generic):
            self.array = np.asarray(data) if dtype is None else np.asarray(data, narrow(dtype))
        else:
            kind = dtypes.from_py(data) if dtype is None else dtype
            self.array = np.array(data, narrow(kind))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return from_numpy_dtype(self.array.dtype)

    def numpy(self) -> Any:
        return self.array

    def tolist(self) -> Any:
        return self.array.tolist()

    def item(self) -> Any:
        return self.array.item()

    def _alu(self, name: str, *others: Eager) -> Eager:
        values = (self, *others)
        assert len({v.shape for v in values if v.shape}) <= 1, [v.shape for v in values]
        kinds = {v.dtype for v in (others if name == "WHERE" else values)}
        assert len(kinds) == 1, (name, kinds)
        kind = kinds.pop()
        if name == "WHERE":
            assert self.dtype is dtypes.bool
        if name in ("AND", "OR", "XOR", "NOT", "SHL", "SHR"):
            assert kind.kind != "float"
        if kind is dtypes.bool:
            assert name not in ("ADD", "SUB", "MUL", "NEG", "ABS", "IDIV", "MOD", "SHL", "SHR")
        result = dtypes.bool if name.startswith("CMP") else kind
        return Eager(elementwise(Ops[name], result, *(v.array for v in values)))

    def _move(self, name: str, arg: tuple[Any, ...]) -> Eager:
        assert isinstance(arg, tuple) and all(type(a) is int for a in arg), arg
        return Eager(MOVES[name](self.array, arg))

    def _reduce(self, name: str, axes: tuple[int, ...]) -> Eager:
        assert axes == tuple(sorted(set(axes))) and all(0 <= a < self.ndim for a in axes)
        assert all(self.shape[a] for a in axes)
        with np.errstate(all="ignore"):
            found = REDUCERS[name].reduce(self.array, axis=axes, keepdims=True)
        return Eager(np.asarray(found, self.array.dtype))

    def _constant(self, value: Any, dtype: Any) -> Eager:
        return Eager(np.array(dtypes.as_const(value, dtype), narrow(dtype)))

    @classmethod
    def _iota(cls, n: int, dtype: Any, device: Any = None) -> Eager:
        return cls(np.arange(n, dtype=narrow(dtype)))

    def _gather(self, index: Eager, axis: int) -> Eager:
        size, numbers = self.shape[axis], index.array
        inside = (numbers >= 0) & (numbers < size)
        if not size:
            shape = (*self.shape[:axis], *index.shape, *self.shape[axis + 1 :])
            return Eager(np.zeros(shape, self.array.dtype))
        taken = np.take(self.array, np.where(inside, numbers, 0), axis=axis)
        mask = inside.reshape(inside.shape + (1,) * (self.ndim - axis - 1))
        return Eager(np.where(mask, taken, taken.dtype.type(0)))

    def _scatter(self, name: str, index: Eager, values: Eager, axis: int) -> Eager:
        assert values.shape == (*self.shape[:axis], *index.shape, *self.shape[axis + 1 :])
        total = np.moveaxis(self.array, axis, 0).copy()
        places = index.array.reshape(-1)
        rows = values.array.reshape((*self.shape[:axis], places.size, *self.shape[axis + 1 :]))
        inside = (places >= 0) & (places < self.shape[axis])
        combine = {"ADD": np.add, "MUL": np.multiply, "MAX": np.maximum, "MIN": np.minimum}[name]
        combine.at(total, places[inside], np.moveaxis(rows, axis, 0)[inside])
        return Eager(np.moveaxis(total, 0, axis))

    def _scan(
        self, name: str, axis: int, reverse: bool = False, factor: Eager | None = None
    ) -> Eager:
        assert 0 <= axis < self.ndim
        assert factor is None
        x = np.flip(self.array, axis) if reverse else self.array
        with np.errstate(all="ignore"):
            found = REDUCERS[name].accumulate(x, axis).astype(x.dtype)
        return Eager(np.flip(found, axis) if reverse else found)

    def _argsort(self, descending: bool = False, count: int | None = None) -> Eager:
        assert self.ndim and (count is None or 0 <= count <= self.shape[-1])
        x = np.moveaxis(self.array, -1, 0)
        order = np.argsort(x[::-1] if descending else x, axis=0, kind="stable")
        order = (len(x) - 1 - order)[::-1] if descending else order
        return Eager(np.moveaxis(order[:count], 0, -1).astype(np.int32))

    @staticmethod
    def _symbolic(x: Any) -> bool:
        return False

    def cast(self, dtype: Any) -> Eager:
        return self if dtype is self.dtype else Eager(cast(self.array, self.dtype, dtype))

    def bitcast(self, dtype: Any) -> Eager:
        return Eager(np.ascontiguousarray(self.array).view(narrow(dtype)).reshape(self.shape))

    def contiguous(self, **kwargs: Any) -> Eager:
        return self

    def contiguous_backward(self) -> Eager:
        return self

    def detach(self) -> Eager:
        return self


def _expand(x: Any, shape: Any) -> Any:
    assert x.ndim == len(shape)
    assert all(a == b or a == 1 for a, b in zip(x.shape, shape, strict=True))
    return np.broadcast_to(x, shape)


def _pad(x: Any, flat: Any) -> Any:
    assert len(flat) == 2 * x.ndim and all(n >= 0 for n in flat)
    return np.pad(x, list(zip(flat[::2], flat[1::2], strict=True)))


def _shrink(x: Any, flat: Any) -> Any:
    assert len(flat) == 2 * x.ndim
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    assert all(b >= 0 and n >= 0 and b + n <= s for (b, n), s in zip(pairs, x.shape, strict=True))
    return x[tuple(slice(b, b + n) for b, n in pairs)]


MOVES: dict[str, Any] = {
    "RESHAPE": lambda x, shape: x.reshape(shape),
    "EXPAND": _expand,
    "PERMUTE": lambda x, order: x.transpose(order),
    "PAD": _pad,
    "SHRINK": _shrink,
    "FLIP": lambda x, axes: np.flip(x, axes),
}
