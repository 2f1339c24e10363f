"""Arithmetic, comparison, bits and selection: operations of two and three operands."""

from __future__ import annotations

from typing import Any, Self, cast

from tinyfn.dtype import DType, Invalid, dtypes, least_upper_dtype
from tinyfn.errors import ArgumentError, DTypeError
from tinyfn.mixin.core import broadcast_shape, is_scalar
from tinyfn.mixin.promotion import PromotionMixin


class ElementwiseMixin(PromotionMixin):
    """Operations on two operands; `reverse` exchanges them."""

    __slots__ = ()

    # *** arithmetic ***

    def add(self, x: Any, reverse: bool = False) -> Self:
        """The sum; for bools `or`, as in numpy.

        >>> Tensor([1, 2]).add(1).tolist()
        [2, 3]
        """
        a, b = self._broadcasted(x, reverse)
        return a._alu("OR" if a.dtype.kind == "bool" else "ADD", b)

    def sub(self, x: Any, reverse: bool = False) -> Self:
        """The difference.

        Raises:
            DTypeError: both are bool.

        >>> Tensor([5, 7]).sub(2, reverse=True).tolist()
        [-3, -5]
        """
        a, b = self._broadcasted(x, reverse)
        if a.dtype.kind == "bool":
            raise DTypeError("bools cannot be subtracted; use ^ (xor), or cast them to int")
        return a._alu("SUB", b)

    def mul(self, x: Any, reverse: bool = False) -> Self:
        """The product; for bools `and`, as in numpy.

        >>> Tensor([True, True]).mul(Tensor([True, False])).tolist()
        [True, False]
        """
        a, b = self._broadcasted(x, reverse)
        return a._alu("AND" if a.dtype.kind == "bool" else "MUL", b)

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """The quotient; of ints, too, it is a float.

        Args:
            rounding_mode: "floor" or "trunc" round the quotient; ints then stay ints, and an int
                divided by 0 gives 0.

        >>> Tensor([7, -7]).div(2, rounding_mode="trunc").tolist()
        [3, -3]
        """
        if rounding_mode == "floor":
            return self._floor_div(x, reverse)
        if rounding_mode not in (None, "trunc"):
            raise ArgumentError(
                f"expected rounding_mode None, 'floor' or 'trunc', got {rounding_mode!r}"
            )
        a, b = self._broadcasted(x, reverse)
        if rounding_mode == "trunc" and a.dtype.kind != "float":
            return a._without_bool()._trunc_div_ints(b._without_bool())
        quotient = a._as_float()._alu("DIV", b._as_float())
        return quotient if rounding_mode is None else quotient._alu("TRUNC")

    def _floor_div(self, x: Any, reverse: bool = False) -> Self:
        a, b = self._broadcasted(x, reverse)
        return a._without_bool()._alu("IDIV", b._without_bool())

    def _trunc_div_ints(self, b: Self) -> Self:
        quotient = self._alu("IDIV", b)
        if self.dtype.kind == "uint":
            return quotient
        # floor and truncation differ by one where the signs differ and the division is not exact
        zero = self._constant(0, self.dtype)
        rest = self._alu("SUB", quotient._alu("MUL", b))
        signs_differ = self._alu("CMPLT", zero)._alu("CMPNE", b._alu("CMPLT", zero))
        inexact = rest._alu("CMPNE", zero)._alu("AND", b._alu("CMPNE", zero))
        correction = inexact._alu("AND", signs_differ).cast(self.dtype)
        return quotient._alu("ADD", correction)

    def mod(self, x: Any, reverse: bool = False) -> Self:
        """The rest of floor division: it has the sign of the divisor. An int modulo 0 is 0.

        >>> Tensor([7, -7]).mod(3).tolist()
        [1, 2]
        """
        a, b = self._broadcasted(x, reverse)
        return a._without_bool()._alu("MOD", b._without_bool())

    def fmod(self, x: Any) -> Self:
        """The rest of truncated division: it has the sign of the dividend (C's fmod).

        >>> Tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        a, b = self._broadcasted(x)
        a, b = a._without_bool(), b._without_bool()
        if a.dtype.kind != "float":
            return a._alu("SUB", a._trunc_div_ints(b)._alu("MUL", b))
        negative = a._alu("CMPLT", self._constant(0, a.dtype))
        size = negative._alu("WHERE", a._alu("NEG"), a)  # |a|, whose gradient at 0 is 1
        rest = size._alu("MOD", b._alu("ABS"))
        return negative._alu("WHERE", rest._alu("NEG"), rest)

    def maximum(self, x: Any) -> Self:
        """The larger of both; NaN where either is NaN.

        >>> Tensor([1.0, float("nan")]).maximum(2).tolist()
        [2.0, nan]
        """
        return self._binary("MAX", x)

    def minimum(self, x: Any) -> Self:
        """The smaller of both; NaN where either is NaN.

        >>> Tensor([[1], [3]]).minimum(Tensor([2, 0])).tolist()
        [[1, 0], [2, 0]]
        """
        return self._binary("MIN", x)

    # *** comparison ***

    def _compare(self, name: str, x: Any, reverse: bool = False) -> Self:
        y = self._as_operand(x)
        if isinstance(y, int) and dtypes.is_int(self.dtype) and not isinstance(y, bool):
            outside = self._compare_outside(name, y, reverse)
            if outside is not None:
                return outside
        return self._binary(name, y, reverse)

    def _compare_outside(self, name: str, y: int, reverse: bool) -> Self | None:
        """A comparison with an int that the dtype cannot hold has the same answer everywhere."""
        if self.dtype.min <= y <= self.dtype.max:
            return None
        above = y > self.dtype.max
        answer = name == "CMPNE" if name in ("CMPEQ", "CMPNE") else above != reverse
        return self._full(self.shape, answer, dtypes.bool)

    def eq(self, x: Any) -> Self:
        """Whether the elements are equal (NaN is equal to nothing).

        >>> nan = float("nan")
        >>> Tensor([1.0, nan]).eq(Tensor([1.0, nan])).tolist()
        [True, False]
        """
        return self._compare("CMPEQ", x)

    def ne(self, x: Any) -> Self:
        """Whether the elements differ.

        >>> Tensor([1, 2], dtype="uint8").ne(257).tolist()  # 257 does not wrap to 1
        [True, True]
        """
        return self._compare("CMPNE", x)

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Whether |self - other| <= atol + rtol * |other|, numpy's rule; infinities by equality.

        >>> Tensor([100.0, 1.0]).isclose(Tensor([100.001, 1.001])).tolist()
        [True, False]
        """
        a, b = self._broadcasted(other)
        a, b = a._as_float(), b._as_float()
        limit = b._alu("ABS").mul(rtol).add(atol)
        near = a._alu("SUB", b)._alu("ABS")._alu("CMPLE", limit)
        finite = b._alu("ABS")._alu("CMPLT", self._constant(float("inf"), b.dtype))
        found = a._alu("CMPEQ", b)._alu("OR", near._alu("AND", finite))
        if equal_nan:
            found = found._alu("OR", a._alu("CMPNE", a)._alu("AND", b._alu("CMPNE", b)))
        return found

    # *** bits ***

    def _bits(self, name: str, x: Any, reverse: bool = False) -> Self:
        self._need_ints(name, x)
        return self._binary(name, x, reverse)

    def bitwise_and(self, x: Any, reverse: bool = False) -> Self:
        """The bits that both have; logical `and` of bools.

        Raises:
            DTypeError: an operand is a float.

        >>> Tensor([12, -1]).bitwise_and(10).tolist()
        [8, 10]
        """
        return self._bits("AND", x, reverse)

    def bitwise_or(self, x: Any, reverse: bool = False) -> Self:
        """The bits that either has; logical `or` of bools.

        >>> Tensor([12, 0]).bitwise_or(10).tolist()
        [14, 10]
        """
        return self._bits("OR", x, reverse)

    def bitwise_xor(self, x: Any, reverse: bool = False) -> Self:
        """The bits that one only has; for bools whether they differ.

        >>> Tensor([12, 10]).bitwise_xor(10).tolist()
        [6, 0]
        """
        return self._bits("XOR", x, reverse)

    def lshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved up; by the width or more: 0.

        Raises:
            DTypeError: an operand is a float.

        >>> Tensor([1, 3]).lshift(4).tolist(), Tensor([1]).lshift(32).tolist()
        ([16, 48], [0])
        """
        return self._shifted("SHL", x, reverse)

    def rshift(self, x: Any, reverse: bool = False) -> Self:
        """Bits moved down (the sign stays); by the width or more: 0, or -1 for negative ints.

        >>> Tensor([17, -17]).rshift(2).tolist()
        [4, -5]
        """
        return self._shifted("SHR", x, reverse)

    def _shifted(self, name: str, x: Any, reverse: bool) -> Self:
        self._need_ints(name, x)
        a, b = self._broadcasted(x, reverse)
        return a._without_bool()._alu(name, b._without_bool())

    def bitwise_not(self) -> Self:
        """All bits inverted; logical `not` of bools.

        >>> Tensor([0, 5]).bitwise_not().tolist(), Tensor([True]).bitwise_not().tolist()
        ([-1, -6], [False])
        """
        self._need_ints("NOT")
        return self._alu("NOT")

    def threefry(self, seed: Self) -> Self:
        """Threefry2x32 of this counter (uint64) under a key (uint64): 64 random bits.

        Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).

        >>> counters = Tensor([0, 1], dtype="uint64")
        >>> [hex(bits) for bits in counters.threefry(Tensor([0], dtype="uint64")).tolist()]
        ['0x99ba4efe6b200159', '0xc0de3f32508efb2c']
        """
        a, b = self._broadcasted(seed, dtype=dtypes.uint64)
        return a._alu("THREEFRY", b)

    # *** selection ***

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true, else y; all three broadcast.

        >>> Tensor([True, False]).where(Tensor([1, 2]), 0).tolist()
        [1, 0]
        """
        condition = self.cast(dtypes.bool)
        first, second = self._as_operand(x), self._as_operand(y)
        kind = self._chosen_dtype(first, second)
        values = [
            v.cast(kind) if isinstance(v, type(self)) else self._number(v, kind)
            for v in (first, second)
        ]
        shape = broadcast_shape(condition.shape, *(v.shape for v in values))
        stretched = (
            v if not v.shape and shape and is_scalar(given) else v._broadcast_to(shape)
            for v, given in zip(values, (first, second), strict=True)
        )
        return condition._broadcast_to(shape)._alu("WHERE", *stretched)

    def _chosen_dtype(self, x: Any, y: Any) -> DType:
        tensors = [v for v in (x, y) if isinstance(v, type(self))]
        if len(tensors) == 2:
            return least_upper_dtype(tensors[0].dtype, tensors[1].dtype)
        numbers = [v for v in (x, y) if not isinstance(v, type(self))]
        if tensors:
            return tensors[0]._weak_dtype(numbers[0])
        known = [
            dtypes.default_int() if self._symbolic(v) else dtypes.from_py(v)
            for v in numbers
            if v is not Invalid
        ]
        return least_upper_dtype(*known) if known else dtypes.default_float()

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where the mask is true, else this.

        >>> Tensor([1.0, 2.0]).masked_fill(Tensor([False, True]), float("-inf")).tolist()
        [1.0, -inf]
        """
        return cast(Self, self._as_operand(mask).where(value, self))

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Values below `min_` become it, values above `max_` become it; NaN stays.

        Raises:
            ArgumentError: neither is given.

        >>> Tensor([-5, 0, 5]).clamp(max_=1).tolist()
        [-5, 0, 1]
        """
        if min_ is None and max_ is None:
            raise ArgumentError("clip takes min_ or max_ or both, got neither")
        x = self
        # a choice and not MAX: the gradient at the bounds is then 1, as in torch
        if min_ is not None:
            x = x._bounded("CMPLT", min_)
        return x if max_ is None else x._bounded("CMPLT", max_, reverse=True)

    def _bounded(self, name: str, bound: Any, reverse: bool = False) -> Self:
        if isinstance(bound, type(self)):
            return self.minimum(bound) if reverse else self.maximum(bound)
        whole = isinstance(bound, int) and dtypes.is_int(self.dtype)
        if whole and not self.dtype.min <= bound <= self.dtype.max:
            harmless = bound > self.dtype.max if reverse else bound < self.dtype.min
            if harmless:
                return self
        x, limit = self._broadcasted(bound)
        outside = limit._alu(name, x) if reverse else x._alu(name, limit)
        return outside._alu("WHERE", limit, x)

    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """The same as `clamp`.

        >>> Tensor([1, 5, 9]).clip(2, 8).tolist()
        [2, 5, 8]
        """
        return self.clamp(min_, max_)

    def lerp(self, end: Any, weight: Any) -> Self:
        """self + (end - self) * weight, in floats; of uint8 with a tensor of weights rounded back.

        >>> Tensor([0, 10]).lerp(Tensor([1, 0]), 0.25).tolist()
        [0.25, 7.5]
        """
        x = self._as_float()
        found = x.add(x.sub(end, reverse=True).mul(weight))
        pixels = self.dtype is dtypes.uint8 and isinstance(end, type(self))
        if pixels and end.dtype is dtypes.uint8 and isinstance(weight, type(self)):
            return found.add(0.5).cast(dtypes.uint8)  # above 0: rounded down
        return found

    def copysign(self, other: Any) -> Self:
        """The magnitude of this with the sign of the other (the sign of 0 and NaN included).

        >>> Tensor([1.0, 2.0]).copysign(Tensor([-0.0, 3.0])).tolist()
        [-1.0, 2.0]
        """
        x, y = self._broadcasted(other)
        x, y = x._as_float(), y._as_float()
        signed = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
        bits = y.bitcast(signed[y.dtype.itemsize])
        negative = bits._alu("CMPLT", self._constant(0, bits.dtype))._broadcast_to(x.shape)
        size = x._alu("ABS")
        return negative._alu("WHERE", size._alu("NEG"), size)

    def logaddexp(self, other: Any) -> Self:
        """log(e^self + e^other) without overflow.

        >>> Tensor([0.0, 1000.0]).logaddexp(Tensor([0.0, 1000.0])).tolist()
        [0.6931471824645996, 1000.693...
        """
        a, b = self._broadcasted(other)
        a, b = a._as_float(), b._as_float()
        zero = self._constant(0.0, a.dtype)
        apart = a._alu("CMPEQ", b)._alu("WHERE", zero, a._alu("SUB", b))  # inf - inf is NaN
        # -|apart|, through which the gradient of a NaN is NaN (that of ABS is 0)
        below = apart._alu("CMPLT", zero)._alu("WHERE", apart, apart._alu("NEG"))
        small = below._alu("EXP")._alu("LOG1P")
        return a._alu("MAX", b)._alu("ADD", small)
