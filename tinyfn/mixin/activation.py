"""Activations and the functions without an op of their own."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError
from tinyfn.mixin.indexing import IndexingMixin


class ActivationMixin(IndexingMixin):
    """Functions of one operand that a network applies between layers.

    A branch not taken never sees a value whose function or derivative overflows: its gradient
    would be 0 * inf.
    """

    __slots__ = ()

    def _bit(self, value: float) -> Self:
        return self._constant(value, self.dtype)

    def _negative_part(self) -> Self:
        """x below 0, else 0; NaN stays."""
        zero = self._bit(0)
        return zero._broadcast_to(self.shape)._alu("CMPLT", self)._alu("WHERE", zero, self)

    def relu(self) -> Self:
        """x above 0, else 0; NaN stays. The gradient at 0 is 0.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        x = self._without_bool()
        zero = x._bit(0)
        return x._alu("CMPLE", zero)._alu("WHERE", zero, x)

    def relu6(self) -> Self:
        """x between 0 and 6.

        >>> Tensor([-1.0, 3.0, 8.0]).relu6().tolist()
        [0.0, 3.0, 6.0]
        """
        return self._saturated(0, 6)

    def _saturated(self, low: float, high: float) -> Self:
        """x between two bounds, with gradient 0 at the bounds themselves (torch's hardtanh)."""
        x, least = self._broadcasted(low)
        x = x._alu("CMPLE", least)._alu("WHERE", least, x)
        x, most = x._broadcasted(high)
        return most._broadcast_to(x.shape)._alu("CMPLE", x)._alu("WHERE", most, x)

    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """x above 0, else neg_slope * x (Maas et al., 2013).

        >>> Tensor([-8.0, 2.0]).leaky_relu(0.25).tolist()
        [-2.0, 2.0]
        """
        x = self._as_float()
        positive = x._bit(0)._broadcast_to(x.shape)._alu("CMPLT", x)
        return positive._alu("WHERE", x, x._alu("MUL", x._bit(neg_slope)))

    def elu(self, alpha: float = 1.0) -> Self:
        """x above 0, else alpha * (e^x - 1) (Clevert et al., 2015).

        >>> Tensor([-100.0, 2.0]).elu(alpha=0.5).tolist()
        [-0.5, 2.0]
        """
        x = self._as_float()
        low = x._negative_part()._alu("EXPM1")._alu("MUL", x._bit(alpha))
        return x._bit(0)._broadcast_to(x.shape)._alu("CMPLT", x)._alu("WHERE", x, low)

    def celu(self, alpha: float = 1.0) -> Self:
        """x above 0, else alpha * (e^(x / alpha) - 1) (Barron, 2017).

        >>> round(Tensor(-1.0).celu(alpha=0.5).item(), 4)  # 0.5 * (e^-2 - 1)
        -0.4323
        """
        x = self._as_float()
        low = x._negative_part().div(alpha)._alu("EXPM1")._alu("MUL", x._bit(alpha))
        return x._bit(0)._broadcast_to(x.shape)._alu("CMPLT", x)._alu("WHERE", x, low)

    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """gamma * elu(x, alpha) (Klambauer et al., 2017).

        >>> round(Tensor(-100.0).selu().item(), 4)
        -1.7581
        """
        return self.elu(alpha).mul(gamma)

    def silu(self) -> Self:
        """x * sigmoid(x) (Elfwing et al., 2017).

        >>> Tensor([0.0, 100.0, -1000.0]).silu().tolist()
        [0.0, 100.0, -0.0]
        """
        return self.mul(self.sigmoid())

    def swish(self) -> Self:
        """The same as `silu`.

        >>> round(Tensor(1.0).swish().item(), 4)
        0.7311
        """
        return self.silu()

    def gelu(self, approximate: str = "tanh") -> Self:
        """x times the normal distribution function (Hendrycks and Gimpel, 2016).

        Args:
            approximate: "tanh" for the formula with tanh, "none" for the one with erf.

        >>> round(Tensor(1.0).gelu().item(), 4), round(Tensor(1.0).gelu("none").item(), 4)
        (0.8412, 0.8413)
        """
        x = self._as_float()
        if approximate == "tanh":
            inner = x.mul(math.sqrt(2 / math.pi)).mul(x.mul(x).mul(0.044715).add(1.0))
            return x.mul(0.5).mul(inner.tanh().add(1.0))
        if approximate != "none":
            raise ArgumentError(f"expected approximate 'tanh' or 'none', got {approximate!r}")
        return x.mul(0.5).mul(x.mul(math.sqrt(0.5)).erf().add(1.0))

    def quick_gelu(self) -> Self:
        """x * sigmoid(1.702 x).

        >>> round(Tensor(1.0).quick_gelu().item(), 4)
        0.8458
        """
        return self.mul(self.mul(1.702).sigmoid())

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + e^(beta x)) / beta, without overflow.

        >>> Tensor([1000.0, -1000.0]).softplus().tolist()
        [1000.0, 0.0]
        >>> round(Tensor(0.0).softplus(beta=2.0).item(), 4)  # log(2) / 2
        0.3466
        """
        scaled = self.mul(float(beta))
        return scaled.logaddexp(0.0).div(float(beta))

    def logsigmoid(self) -> Self:
        """log(sigmoid(x)), without underflow.

        >>> Tensor([1000.0, -1000.0]).logsigmoid().tolist()
        [-0.0, -1000.0]
        """
        return self._as_float().neg().softplus().neg()

    def mish(self) -> Self:
        """x * tanh(softplus(x)) (Misra, 2019).

        >>> round(Tensor(1.0).mish().item(), 4)
        0.8651
        """
        return self.mul(self.softplus().tanh())

    def softsign(self) -> Self:
        """x / (1 + |x|).

        >>> Tensor([-1, 3]).softsign().tolist()
        [-0.5, 0.75]
        """
        x = self._as_float()
        return x.div(x.abs().add(1.0))

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """x between min_val and max_val.

        >>> Tensor([-2.0, 0.5, 3.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        return self._saturated(min_val, max_val)

    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha * x + beta between 0 and 1.

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return self.mul(float(alpha)).add(float(beta))._saturated(0.0, 1.0)

    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6 (Howard et al., 2019).

        >>> Tensor([-4.0, 0.0, 4.0]).hardswish().tolist()
        [-0.0, 0.0, 4.0]
        """
        return self.mul(self.add(3).relu6()).mul(1 / 6)

    # *** hyperbolic and inverse functions ***

    def _exp_half(self) -> tuple[Self, Self, Self]:
        """Whether |x| is so large that e^-|x| does not count, |x|, and e^|x| / 2 where it is.

        e^(|x| - 1) e / 2: the difference is exact, and neither it nor its gradient overflows early.
        """
        size = (self < 0).where(-self, self)
        large = size > 20.0
        return large, size, (large.where(size, 1.0) - 1.0).exp() * (math.e / 2)

    def sinh(self) -> Self:
        """The hyperbolic sine.

        >>> round(Tensor(-1.0).sinh().item(), 4)
        -1.1752
        """
        x = self._as_float()
        large, _, far = x._exp_half()
        near = large.where(0.0, x)
        near = (near._alu("EXPM1") - near.neg()._alu("EXPM1")) * 0.5
        return large.where((x < 0).where(-far, far), near)

    def cosh(self) -> Self:
        """The hyperbolic cosine.

        >>> round(Tensor(-1.0).cosh().item(), 4)
        1.5431
        """
        large, size, far = self._as_float()._exp_half()
        near = large.where(0.0, size)
        return large.where(far, (near.exp() + near.neg().exp()) * 0.5)

    def asinh(self) -> Self:
        """The inverse hyperbolic sine.

        >>> round(Tensor(-1.0).asinh().item(), 4)
        -0.8814
        """
        x = self._as_float()
        negative = x < 0
        size = negative.where(-x, x)
        huge = size > 1e9
        small = huge.where(1.0, size)
        near = (small + small * small / (1.0 + (small * small + 1.0).sqrt()))._alu("LOG1P")
        far = huge.where(size, 1.0).log() + math.log(2.0)
        found = huge.where(far, near)
        return x.eq(0).where(x, negative.where(-found, found))  # -0.0 stays

    def acosh(self) -> Self:
        """The inverse hyperbolic cosine; NaN below 1.

        >>> Tensor([1.0, 0.5]).acosh().tolist()
        [0.0, nan]
        """
        x = self._as_float()
        huge = x > 1e9
        above = huge.where(1.0, x) - 1.0
        near = (above + above.sqrt() * (above + 2.0).sqrt())._alu("LOG1P")
        return huge.where(huge.where(x, 1.0).log() + math.log(2.0), near)

    def atanh(self) -> Self:
        """The inverse hyperbolic tangent; NaN outside of -1 to 1.

        >>> Tensor([0.0, 1.0, 2.0]).atanh().tolist()
        [0.0, inf, nan]
        """
        x = self._as_float()
        return (x._alu("LOG1P") - x.neg()._alu("LOG1P")) * 0.5

    def atan(self) -> Self:
        """The arctangent: above 1 by that of 1/x, then twice half the angle, then a series.

        >>> round(Tensor(float("-inf")).atan().item(), 4)  # -pi / 2
        -1.5708
        """
        x = self._as_float()
        if x.dtype.itemsize < 4:
            return x.float().atan().cast(x.dtype)
        steep = x.abs() > 1.0
        found = steep.where(steep.where(x, 1.0).reciprocal(), x)._atan_below_one()
        right = x.sign() * (math.pi / 2)
        return steep.where(right - found, found)

    def _atan_below_one(self) -> Self:
        """The arctangent for |x| <= 1: tan(a/2) = t / (1 + sqrt(1 + t^2)), then Taylor's series."""
        t = self
        for _ in range(2):
            t = t / ((t * t + 1.0).sqrt() + 1.0)
        square = t * t
        terms = 6 if self.dtype is dtypes.float32 else 12
        total = self._bit((-1) ** terms / (2 * terms + 1))._broadcast_to(self.shape)
        for k in reversed(range(1, terms)):
            total = total * square + (-1) ** k / (2 * k + 1)
        return t.eq(0).where(t, t + t * (square * total)) * 4.0  # -0.0 stays

    def asin(self) -> Self:
        """The arcsine, by the tangent of half the angle; NaN outside of -1 to 1.

        >>> round(Tensor(0.5).asin().item(), 4)  # pi / 6
        0.5236
        """
        x = self._as_float()
        if x.dtype.itemsize < 4:
            return x.float().asin().cast(x.dtype)
        cosine = (1.0 - x).sqrt() * (x + 1.0).sqrt()
        return (x / (cosine + 1.0))._atan_below_one() * 2.0

    def acos(self) -> Self:
        """The arccosine, by the tangent of a quarter of the angle; NaN outside of -1 to 1.

        >>> round(Tensor(-1.0).acos().item(), 4)  # pi
        3.1416
        """
        x = self._as_float()
        if x.dtype.itemsize < 4:
            return x.float().acos().cast(x.dtype)
        quarter = (1.0 - x).sqrt() / ((x + 1.0).sqrt() + math.sqrt(2.0))
        return quarter._atan_below_one() * 4.0

    def sequential(self, ll: list[Any]) -> Any:
        """The functions of a list applied one after the other.

        >>> Tensor([1.0]).sequential([lambda x: x + 1, Tensor.square]).tolist()
        [4.0]
        """
        x: Any = self
        for function in ll:
            x = function(x)
        return x
