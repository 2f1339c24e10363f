"""Operands: what dtype two values meet in, and what shape."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.dtype import DType, Invalid, dtypes, least_upper_dtype, least_upper_float
from tinyfn.errors import ArgumentError, DTypeError
from tinyfn.mixin.core import broadcast_shape, is_numpys, is_scalar
from tinyfn.mixin.movement import MovementMixin


class PromotionMixin(MovementMixin):
    """The one place where operands get a common dtype and shape.

    Python numbers are weak: an int takes the dtype of a number it meets, a float that of a float,
    and only where the tensor's kind is lower (bool < int < float) it brings its own default.
    """

    __slots__ = ()

    def _as_operand(self, x: Any) -> Any:
        """The other operand as a Python number, a symbolic integer, or a value of this class.

        Raises:
            DTypeError: it is none of these.
        """
        if isinstance(x, type(self)) or is_scalar(x) or self._symbolic(x):
            return x
        if is_numpys(x):
            if x.shape == ():
                return x.item()
        elif _is_int(x):
            return int(x)
        raise DTypeError(
            f"expected a {type(self).__name__} or a number beside a {type(self).__name__} of "
            f"{self.dtype}, got {type(x).__name__}; make a {type(self).__name__} of it first"
        )

    def _is_operand(self, x: Any) -> bool:
        """Whether an operator knows what to do with x (else Python asks x)."""
        known = isinstance(x, type(self)) or is_scalar(x) or self._symbolic(x)
        return known or is_numpys(x) or _is_int(x)

    def _weak_dtype(self, x: Any) -> DType:
        """The dtype in which this value and a Python number (or symbolic integer) meet."""
        if isinstance(x, bool) or x is Invalid:
            return self.dtype
        if isinstance(x, float):
            return least_upper_float(self.dtype)
        return dtypes.default_int() if self.dtype.kind == "bool" else self.dtype

    def _number(self, x: Any, dtype: DType) -> Self:
        """A Python number as a constant.

        Raises:
            ArgumentError: an int that the dtype cannot hold.
        """
        whole = isinstance(x, int) and dtypes.is_int(dtype)
        if whole and not dtype.min <= x <= dtype.max:
            raise ArgumentError(
                f"expected an int that {dtype} can hold ({dtype.min} to {dtype.max}), got {x}; "
                "cast the tensor to a wider dtype first"
            )
        return self._constant(x, dtype)

    def _broadcasted(
        self, other: Any, reverse: bool = False, dtype: DType | None = None
    ) -> tuple[Self, Self]:
        """This and another operand in one dtype and one shape, exchanged where `reverse`.

        Constants keep the shape () beside a tensor.

        Raises:
            DTypeError, ShapeError: the operands do not go together.
        """
        y = self._as_operand(other)
        x = self
        if isinstance(y, type(self)):
            kind = least_upper_dtype(x.dtype, y.dtype) if dtype is None else dtype
            if x.shape != y.shape:
                shape = broadcast_shape(x.shape, y.shape)
                x, y = x._broadcast_to(shape), y._broadcast_to(shape)
            x, y = x.cast(kind), y.cast(kind)
        else:
            kind = self._weak_dtype(y) if dtype is None else dtype
            x, y = x.cast(kind), self._number(y, kind)
        return (y, x) if reverse else (x, y)

    def _binary(self, name: str, other: Any, reverse: bool = False) -> Self:
        x, y = self._broadcasted(other, reverse)
        return x._alu(name, y)

    def _as_float(self) -> Self:
        """The values as floats: ints and bools in the default float."""
        return self.cast(least_upper_float(self.dtype))

    def _unary_float(self, name: str) -> Self:
        return self._as_float()._alu(name)

    def _need_ints(self, name: str, *others: Any) -> None:
        for x in (self, *others):
            kind = x.dtype if isinstance(x, type(self)) else None
            if isinstance(x, float) or (kind is not None and kind.kind == "float"):
                raise DTypeError(
                    f"{name} takes ints and bools, got {kind if kind is not None else x!r}; "
                    "cast to an int dtype first"
                )

    def _need_float(self, name: str) -> None:
        if self.dtype.kind != "float":
            raise DTypeError(f"{name} takes a float dtype, got {self.dtype}; cast it first")

    def _without_bool(self) -> Self:
        """Arithmetic that bools do not have is done in int8, as numpy does."""
        return self.cast(dtypes.int8) if self.dtype.kind == "bool" else self


def _is_int(x: Any) -> bool:
    """Whether x counts as an int, and has no operators of this vocabulary itself."""
    return hasattr(x, "__index__") and not isinstance(x, PromotionMixin)
