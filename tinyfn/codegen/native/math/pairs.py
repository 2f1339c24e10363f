"""Sums and products with their rounding errors: numbers held as an unevaluated sum high + low.

Knuth's two-sum and Dekker's fast two-sum are exact in any case; the product's error is one fused
multiply-add, or Veltkamp's split where the CPU has none.
"""

from __future__ import annotations

from tinyfn.codegen.native.math.lanes import Lanes, Real

Pair = tuple[Real, Real]


def two_sum(a: Real, b: Real) -> Pair:
    """a + b exactly."""
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


def fast_two_sum(a: Real, b: Real) -> Pair:
    """a + b exactly, where a is 0 or not smaller than b."""
    high = a + b
    return high, b - (high - a)


def halves(lanes: Lanes, a: Real) -> Pair:
    """The upper and the lower half of the digits: products of halves are exact."""
    width = (lanes.format.mantissa + 2) // 2
    upper = (a.bits() & ~((1 << width) - 1)).real()
    return upper, a - upper


def product_error(lanes: Lanes, a: Real, b: Real, product: Real) -> Real:
    """a * b - product, where the product is a * b rounded (or near it)."""
    if lanes.fused or lanes.element == "f32":
        return lanes.careful_fma(a, b, -product)
    a_high, a_low = halves(lanes, a)
    b_high, b_low = halves(lanes, b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def two_product(lanes: Lanes, a: Real, b: float | Real) -> Pair:
    """a * b exactly (short of underflow)."""
    b = lanes.real(b)
    product = a * b
    return product, product_error(lanes, a, b, product)


def divide(lanes: Lanes, top: Pair, bottom: Pair) -> Pair:
    """top / bottom to about twice the precision, with one division.

    q = top * (1/bottom) is off by a few units; the remainder top - q * bottom, which the pairs give
    almost exactly, times 1/bottom is the correction.
    """
    inverse = 1.0 / bottom[0]
    quotient = top[0] * inverse
    remainder = top[1] - product_error(lanes, quotient, bottom[0], top[0])
    remainder = lanes.fma(-quotient, bottom[1], remainder)
    return quotient, remainder * inverse
