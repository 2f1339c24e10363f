"""Powers: by multiplication where the exponent is a small or whole number, else by the op POW."""

from __future__ import annotations

from typing import Any, Self

from tinyfn.errors import ArgumentError
from tinyfn.mixin.elementwise import ElementwiseMixin

EXACT = 4
"""Up to this exponent, repeated multiplication of floats is as accurate as POW."""


class PowerMixin(ElementwiseMixin):
    """`pow` and its special cases."""

    __slots__ = ()

    def pow(self, x: Any, reverse: bool = False) -> Self:
        """This to the power x. Ints stay ints (exact, wrapping).

        Raises:
            ArgumentError: an int to a negative Python int.

        >>> Tensor([2, 3]).pow(2).tolist()
        [4, 9]
        """
        exponent = self._as_operand(x)
        if not reverse and isinstance(exponent, int | float):
            return self._to_number(exponent)
        if reverse and isinstance(exponent, int | float):
            return self._of_number(exponent)
        a, b = self._broadcasted(x, reverse)
        a, b = a._without_bool(), b._without_bool()
        return a._alu("POW", b) if a.dtype.kind == "float" else a._int_power(b)

    def _to_number(self, n: float) -> Self:
        kind = self._weak_dtype(n)
        if kind.kind != "float":
            return self._without_bool()._to_whole(int(n))
        x = self.cast(kind)
        if n in (0.5, -0.5):
            return x._alu("SQRT" if n > 0 else "RSQRT")
        if 0 < abs(n) <= EXACT and n == int(n):
            # 1/x first: (x^n)'s gradient is 0 * inf where x is 0 or infinite
            return (x if n > 0 else x._alu("RECIP"))._multiplied(abs(int(n)))
        return x._alu("POW", self._constant(n, kind))

    def _to_whole(self, n: int) -> Self:
        if n < 0:
            raise ArgumentError(
                f"ints cannot be raised to a negative power, got {n}; cast the tensor to float"
            )
        if n == 0:
            return self._full(self.shape, 1, self.dtype)
        return self._multiplied(n)

    def _multiplied(self, n: int) -> Self:
        """The n-th power (n > 0) by squaring."""
        result, square = None, self
        while True:
            if n & 1:
                result = square if result is None else result._alu("MUL", square)
            n >>= 1
            if not n:
                return self if result is None else result
            square = square._alu("MUL", square)

    def _of_number(self, base: float) -> Self:
        kind = self._weak_dtype(base)
        exponent = self.cast(kind)._without_bool()
        if kind.kind != "float":
            if base == 2:
                one = self._constant(1, exponent.dtype)._broadcast_to(exponent.shape)
                return one._alu("SHL", exponent)
            same = self._number(int(base), exponent.dtype)._broadcast_to(exponent.shape)
            return same._int_power(exponent)
        if base == 2:
            return exponent._alu("EXP2")
        return self._constant(base, kind)._broadcast_to(exponent.shape)._alu("POW", exponent)

    def _int_power(self, exponent: Self) -> Self:
        """Ints to ints, by the bits of the exponent; a negative exponent truncates 1 / x^-n."""
        kind = self.dtype
        zero, one = self._constant(0, kind), self._constant(1, kind)
        result, square = self._full(self.shape, 1, kind), self
        bits = kind.itemsize * 8 - (kind.kind != "uint")
        for place in range(bits):
            mask = self._constant(1 << place, kind)
            taken = exponent._alu("AND", mask)._alu("CMPNE", zero)
            result = taken._alu("WHERE", result._alu("MUL", square), result)
            square = square._alu("MUL", square) if place < bits - 1 else square
        if kind.kind == "uint":
            return result
        odd = exponent._alu("AND", one)._alu("CMPNE", zero)
        minus_one = self._constant(-1, kind)
        is_unit = self._alu("CMPEQ", one)
        of_minus = odd._alu("WHERE", minus_one._broadcast_to(self.shape), one)
        truncated = is_unit._alu("WHERE", one._broadcast_to(self.shape), zero)
        truncated = self._alu("CMPEQ", minus_one)._alu("WHERE", of_minus, truncated)
        return exponent._alu("CMPLT", zero)._alu("WHERE", truncated, result)

    def square(self) -> Self:
        """x * x.

        >>> Tensor([-3, 100], dtype="int8").square().tolist()  # ints wrap
        [9, 16]
        """
        return self.mul(self)
