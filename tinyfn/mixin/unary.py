"""Functions of one operand: signs, rounding, roots, exponentials, questions about values, casts."""

from __future__ import annotations

import math
from typing import Self

from tinyfn.dtype import DType, dtypes
from tinyfn.errors import DTypeError
from tinyfn.mixin.elementwise import ElementwiseMixin


class CastMixin(ElementwiseMixin):
    """Casts by name."""

    __slots__ = ()

    def float(self) -> Self:
        """Cast to float32.

        >>> Tensor([1, 2]).float().tolist()
        [1.0, 2.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """Cast to float64.

        >>> Tensor([0.1]).double().tolist()  # the float32 next to 0.1
        [0.10000000149011612]
        """
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        """Cast to float16.

        >>> Tensor([2049, 65504]).half().tolist()  # 11 digits of 2049
        [2048.0, 65504.0]
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16.

        >>> Tensor([257.0]).bfloat16().tolist()  # 8 digits of it
        [256.0]
        """
        return self.cast(dtypes.bfloat16)

    def int(self) -> Self:
        """Cast to int32.

        >>> Tensor([-1.9, 1.9]).int().tolist()
        [-1, 1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64.

        >>> Tensor([3e9]).long().tolist()
        [3000000000]
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Cast to int16.

        >>> Tensor([32768]).short().tolist()  # ints wrap
        [-32768]
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """Cast to bool: whether an element is not 0.

        >>> Tensor([0.0, 0.5, float("nan")]).bool().tolist()
        [False, True, True]
        """
        return self.cast(dtypes.bool)


class UnaryMixin(CastMixin):
    """Functions of one operand; functions to the reals take ints as the default float."""

    __slots__ = ()

    # *** signs ***

    def neg(self) -> Self:
        """-x (unsigned ints wrap).

        Raises:
            DTypeError: bools have no negative.

        >>> Tensor([1, 255], dtype="uint8").neg().tolist()
        [255, 1]
        """
        if self.dtype.kind == "bool":
            raise DTypeError("bools have no negative; use ~ (not), or cast them to int")
        if self.dtype.kind == "weakint":
            return self._alu("MUL", self._constant(-1, self.dtype))
        return self._alu("NEG")

    def abs(self) -> Self:
        """|x|.

        >>> Tensor([-1.5, -0.0]).abs().tolist()
        [1.5, 0.0]
        """
        return self if self.dtype.kind in ("bool", "uint") else self._alu("ABS")

    def sign(self) -> Self:
        """1, 0 or -1; NaN for NaN.

        >>> Tensor([-2.0, 0.0, 3.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        if self.dtype.kind == "bool":
            return self
        zero, one = self._constant(0, self.dtype), self._constant(1, self.dtype)
        positive = zero._broadcast_to(self.shape)._alu("CMPLT", self)
        rest = zero._broadcast_to(self.shape)
        if self.dtype.kind == "float":
            nan = self._constant(math.nan, self.dtype)
            rest = self._alu("CMPNE", self)._alu("WHERE", nan, rest)
        if self.dtype.kind != "uint":
            minus = self._constant(-1, self.dtype)
            rest = self._alu("CMPLT", zero)._alu("WHERE", minus, rest)
        return positive._alu("WHERE", one, rest)

    # *** rounding ***

    def _rounded(self, name: str) -> Self:
        return self._alu(name) if self.dtype.kind == "float" else self

    def trunc(self) -> Self:
        """Rounded towards zero; ints as they are.

        >>> Tensor([-1.7, 1.7]).trunc().tolist()
        [-1.0, 1.0]
        """
        return self._rounded("TRUNC")

    def floor(self) -> Self:
        """Rounded down.

        >>> Tensor([-1.5, 1.5]).floor().tolist()
        [-2.0, 1.0]
        """
        return self._rounded("FLOOR")

    def ceil(self) -> Self:
        """Rounded up.

        >>> Tensor([-1.5, 1.5]).ceil().tolist()
        [-1.0, 2.0]
        """
        return self._rounded("CEIL")

    def round(self) -> Self:
        """Rounded to the nearest whole number, ties to even.

        >>> Tensor([0.5, 1.5, -2.5]).round().tolist()
        [0.0, 2.0, -2.0]
        """
        return self._rounded("ROUND")

    # *** roots, exponentials, logarithms ***

    def sqrt(self) -> Self:
        """The square root; NaN below 0.

        >>> Tensor([9, -1]).sqrt().tolist()
        [3.0, nan]
        """
        return self._unary_float("SQRT")

    def rsqrt(self) -> Self:
        """1 / sqrt(x).

        >>> Tensor([4.0, 0.0]).rsqrt().tolist()
        [0.5, inf]
        """
        return self._unary_float("RSQRT")

    def reciprocal(self) -> Self:
        """1 / x.

        >>> Tensor([4, 0]).reciprocal().tolist()
        [0.25, inf]
        """
        return self._unary_float("RECIP")

    def exp(self) -> Self:
        """e to the x.

        >>> Tensor([0.0, float("-inf"), 100.0]).exp().tolist()
        [1.0, 0.0, inf]
        """
        return self._unary_float("EXP")

    def exp2(self) -> Self:
        """2 to the x.

        >>> Tensor([3, -1]).exp2().tolist()
        [8.0, 0.5]
        """
        return self._unary_float("EXP2")

    def log(self) -> Self:
        """The natural logarithm; NaN below 0, -inf at 0.

        >>> Tensor([1.0, 0.0, -1.0]).log().tolist()
        [0.0, -inf, nan]
        """
        return self._unary_float("LOG")

    def log2(self) -> Self:
        """The logarithm to base 2.

        >>> Tensor([8, 0.25]).log2().tolist()
        [3.0, -2.0]
        """
        return self._unary_float("LOG2")

    def log10(self) -> Self:
        """The logarithm to base 10.

        >>> Tensor([100.0, 0.0]).log10().tolist()
        [2.0, -inf]
        """
        x = self._as_float()
        return x._alu("LOG")._alu("MUL", x._constant(1.0 / math.log(10.0), x.dtype))

    def erf(self) -> Self:
        """The error function.

        >>> Tensor([0.0, 5.0, -5.0]).erf().tolist()
        [0.0, 1.0, -1.0]
        """
        return self._unary_float("ERF")

    def sigmoid(self) -> Self:
        """1 / (1 + e^-x).

        >>> Tensor([0.0, 100.0, -1000.0]).sigmoid().tolist()
        [0.5, 1.0, 0.0]
        """
        return self._unary_float("SIGMOID")

    # *** circular and hyperbolic functions with an op of their own ***

    def sin(self) -> Self:
        """The sine of radians.

        >>> round(Tensor(np.pi / 6).sin().item(), 6)
        0.5
        """
        return self._unary_float("SIN")

    def cos(self) -> Self:
        """The cosine of radians.

        >>> round(Tensor(np.pi / 3).cos().item(), 6)
        0.5
        """
        return self._unary_float("COS")

    def tan(self) -> Self:
        """The tangent of radians.

        >>> round(Tensor(np.pi / 4).tan().item(), 6)
        1.0
        """
        return self._unary_float("TAN")

    def tanh(self) -> Self:
        """The hyperbolic tangent.

        >>> Tensor([0.0, 20.0, -20.0]).tanh().tolist()
        [0.0, 1.0, -1.0]
        """
        return self._unary_float("TANH")

    # *** questions ***

    def logical_not(self) -> Self:
        """Whether the element is 0.

        >>> Tensor([0.0, 2.0, float("nan")]).logical_not().tolist()
        [True, False, False]
        """
        if self.dtype.kind == "bool":
            return self._alu("NOT")
        return self._alu("CMPEQ", self._constant(0, self.dtype))

    def isnan(self) -> Self:
        """Whether the element is NaN.

        >>> Tensor([float("nan"), float("inf")]).isnan().tolist()
        [True, False]
        """
        return self._alu("CMPNE", self)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Whether the element is infinite, of the signs asked for.

        >>> Tensor([float("-inf"), 1.0]).isinf().tolist()
        [True, False]
        >>> Tensor([float("-inf"), 1.0]).isinf(detect_negative=False).tolist()
        [False, False]
        """
        x = self._as_float()
        positive = x._alu("CMPEQ", x._constant(math.inf, x.dtype))
        negative = x._alu("CMPEQ", x._constant(-math.inf, x.dtype))
        if detect_positive and detect_negative:
            return positive._alu("OR", negative)
        if detect_positive or detect_negative:
            return positive if detect_positive else negative
        return self._full(self.shape, False, dtypes.bool)

    def isfinite(self) -> Self:
        """Whether the element is neither infinite nor NaN.

        >>> Tensor([1.0, float("nan"), float("-inf")]).isfinite().tolist()
        [True, False, False]
        """
        x = self._as_float()
        return x._alu("ABS")._alu("CMPLT", x._constant(math.inf, x.dtype))

    def is_floating_point(self) -> bool:
        """Whether the elements are floats.

        >>> Tensor([1]).is_floating_point(), Tensor([1], dtype="half").is_floating_point()
        (False, True)
        """
        return self.dtype.kind == "float"

    def element_size(self) -> int:
        """The bytes of one element.

        >>> Tensor([1.0], dtype="half").element_size()
        2
        """
        return self.dtype.itemsize

    def _computed_in(self, dtype: DType | None = None) -> DType:
        """The dtype to compute a long expression in: float32 for narrower floats."""
        kind = self._as_float().dtype if dtype is None else dtype
        narrow = kind.kind == "float" and kind.itemsize < 4
        return dtypes.float32 if narrow else kind
