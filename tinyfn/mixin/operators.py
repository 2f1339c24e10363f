"""Python's operators. In-place ones are Tensor's own, for a node never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

from tinyfn.mixin.power import PowerMixin
from tinyfn.mixin.unary import UnaryMixin


class OperatorMixin(UnaryMixin, PowerMixin):
    """The operators as methods of two operands; NotImplemented for what is no operand."""

    __slots__ = ()
    __array_priority__ = 1000  # so that numpy's scalars and arrays leave the operator to us

    def _operate(self, method: Callable[..., Self], other: Any, *args: Any) -> Self:
        return method(other, *args) if self._is_operand(other) else cast(Self, NotImplemented)

    def __add__(self, other: Any) -> Self:
        return self._operate(self.add, other)

    def __radd__(self, other: Any) -> Self:
        return self._operate(self.add, other, True)

    def __sub__(self, other: Any) -> Self:
        return self._operate(self.sub, other)

    def __rsub__(self, other: Any) -> Self:
        return self._operate(self.sub, other, True)

    def __mul__(self, other: Any) -> Self:
        return self._operate(self.mul, other)

    def __rmul__(self, other: Any) -> Self:
        return self._operate(self.mul, other, True)

    def __truediv__(self, other: Any) -> Self:
        return self._operate(self.div, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._operate(self.div, other, True)

    def __floordiv__(self, other: Any) -> Self:
        return self._operate(self._floor_div, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._operate(self._floor_div, other, True)

    def __mod__(self, other: Any) -> Self:
        return self._operate(self.mod, other)

    def __rmod__(self, other: Any) -> Self:
        return self._operate(self.mod, other, True)

    def __pow__(self, other: Any) -> Self:
        return self._operate(self.pow, other)

    def __rpow__(self, other: Any) -> Self:
        return self._operate(self.pow, other, True)

    def __and__(self, other: Any) -> Self:
        return self._operate(self.bitwise_and, other)

    def __rand__(self, other: Any) -> Self:
        return self._operate(self.bitwise_and, other, True)

    def __or__(self, other: Any) -> Self:
        return self._operate(self.bitwise_or, other)

    def __ror__(self, other: Any) -> Self:
        return self._operate(self.bitwise_or, other, True)

    def __xor__(self, other: Any) -> Self:
        return self._operate(self.bitwise_xor, other)

    def __rxor__(self, other: Any) -> Self:
        return self._operate(self.bitwise_xor, other, True)

    def __lshift__(self, other: Any) -> Self:
        return self._operate(self.lshift, other)

    def __rlshift__(self, other: Any) -> Self:
        return self._operate(self.lshift, other, True)

    def __rshift__(self, other: Any) -> Self:
        return self._operate(self.rshift, other)

    def __rrshift__(self, other: Any) -> Self:
        return self._operate(self.rshift, other, True)

    def __lt__(self, other: Any) -> Self:
        return self._operate(self._less, other)

    def __gt__(self, other: Any) -> Self:
        return self._operate(self._less, other, "CMPLT", True)

    def __le__(self, other: Any) -> Self:
        return self._operate(self._less, other, "CMPLE")

    def __ge__(self, other: Any) -> Self:
        return self._operate(self._less, other, "CMPLE", True)

    def _less(self, other: Any, name: str = "CMPLT", reverse: bool = False) -> Self:
        return self._compare(name, other, reverse)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._operate(self.eq, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._operate(self.ne, other)

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self.bitwise_not()
