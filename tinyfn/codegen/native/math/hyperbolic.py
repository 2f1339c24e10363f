"""sinh, cosh and the inverse hyperbolic functions.

They are rare: float32 computes them in float64 and rounds once.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyfn.codegen.native.math.exponential import scaled_expm1
from tinyfn.codegen.native.math.lanes import NAN, Lanes, Real
from tinyfn.codegen.native.math.logarithm import log, log1p, log1p_of_pair
from tinyfn.codegen.native.math.pairs import (
    divide,
    fast_two_sum,
    product_error,
    two_product,
    two_sum,
)

Function = Callable[[Lanes, Real], Real]
HIGH = 710.6  # sinh and cosh are infinite from a little below
LN2 = 0.6931471805599453


def in_double(function: Function) -> Function:
    """The function computed in float64 whatever the element type."""

    def rounded(lanes: Lanes, x: Real) -> Real:
        return function(lanes.of("f64"), x.to("f64")).to(lanes.element)

    rounded.__doc__ = function.__doc__
    return rounded


@in_double
def sinh(lanes: Lanes, x: Real) -> Real:
    """(E + E / (E + 1)) / 2 with E = e^|x| - 1, quarters of E as pairs."""
    size = abs(x).at_most(HIGH)
    quarter, low = fast_two_sum(*scaled_expm1(lanes, size, 2))
    # The quotient tends to a quarter: beyond 2^60 it no longer counts.
    near = quarter < 2.0**60
    part, part_low = near.select(quarter, 2.0**60), near.select(low, 0.0)
    bottom, bottom_low = two_sum(lanes.real(1.0), part * 4.0)
    bottom_low = lanes.fma(part_low, 4.0, bottom_low)
    ratio, ratio_low = divide(lanes, (part, part_low), (bottom, bottom_low))
    high, rest = fast_two_sum(quarter, ratio)
    result = (high + (rest + (low + ratio_low))) * 2.0
    return (size < lanes.format.smallest * 8).select(x, result.with_sign_of(x))


@in_double
def cosh(lanes: Lanes, x: Real) -> Real:
    """(p + 1/p) / 2 with p = e^|x| as a pair."""
    quarter, low = fast_two_sum(*scaled_expm1(lanes, abs(x).at_most(HIGH), 2))
    high, rest = two_sum(lanes.real(0.25), quarter)
    return (high + (0.0625 / high + (rest + low))) * 2.0


@in_double
def asinh(lanes: Lanes, x: Real) -> Real:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))), a = |x|; log(2a) where squares would overflow."""
    size = abs(x)
    large = size > 2.0**40
    a = size.at_most(2.0**40)
    square = a * a
    near = log1p(lanes, a + square / (1.0 + (square + 1.0).square_root()))
    return large.select(log(lanes, size) + LN2, near).with_sign_of(x)


@in_double
def acosh(lanes: Lanes, x: Real) -> Real:
    """log1p(t + sqrt(2t + t^2)), t = x - 1; log(2x) where squares would overflow."""
    large = x > 2.0**40
    t = x.at_most(2.0**40) - 1.0
    square, square_low = two_product(lanes, t, t + 2.0)
    root = square.square_root()
    lacks = square_low - product_error(lanes, root, root, square)
    high, low = two_sum(t, root)
    low = low + lacks * 0.5 / root.at_least(lanes.format.smallest)
    near = log1p_of_pair(lanes, high, low)
    return (x < 1.0).select(NAN, large.select(log(lanes, x) + LN2, near))


@in_double
def atanh(lanes: Lanes, x: Real) -> Real:
    """log1p(2a + 2a^2 / (1 - a)) / 2, a = |x|."""
    a = abs(x)
    twice = a + a
    near = log1p(lanes, twice + twice * a / (1.0 - a)) * 0.5
    near = (a > 1.0).select(NAN, near)
    return (a < 2.0**-500).select(a, near).with_sign_of(x)
