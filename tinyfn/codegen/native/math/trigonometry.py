"""sin, cos, tan of |x| = n pi/2 + r: polynomials on |r| <= pi/4, swapped and signed by n modulo 4.

r is a pair (see `angle`): its low part enters to first order, sin(r + l) = sin(r) + l cos(r).
"""

from __future__ import annotations

from tinyfn.codegen.native.math import angle
from tinyfn.codegen.native.math.coefficients import POLYNOMIALS
from tinyfn.codegen.native.math.lanes import Lanes, Real, Whole
from tinyfn.codegen.native.math.pairs import Pair, divide, fast_two_sum, product_error


def sine(lanes: Lanes, r: Real, low: Real, exact: bool = False) -> Pair:
    """sin(r + low) as r + (r^3 S(r^2) + low); `exact`: low (1 - r^2/2), up to a sixth of a unit."""
    square = r * r
    if exact:
        low = lanes.fma(low * -0.5, square, low)
    series = lanes.horner(square, POLYNOMIALS["sin_tail"][lanes.element])
    return r, lanes.fma(square * r, series, low)


def cosine(lanes: Lanes, r: Real, low: Real, exact: bool = False) -> Pair:
    """cos(r + low) as (1 - r^2/2) + (r^4 C(r^2) - r low + error of the first sum).

    `exact` adds the rounding error of r^2, a quarter of a unit, for results that are worked on.
    """
    square = r * r
    series = lanes.horner(square, POLYNOMIALS["cos_tail"][lanes.element])
    half = square * 0.5
    high = 1.0 - half
    first_order = r * low
    if exact:
        first_order = first_order + product_error(lanes, r, r, square) * 0.5
    rest = lanes.fma(square * square, series, -first_order)
    return high, ((1.0 - high) - half) + rest


def choose(lanes: Lanes, quarter: Whole, sign: Whole, r: Real, low: Real) -> Real:
    """The sine where the quarter is even, else the cosine, negated in the quarters 2 and 3."""
    odd = (quarter & 1).equals(1)
    s, c = sine(lanes, r, low), cosine(lanes, r, low)
    result = odd.select(c[0], s[0]) + odd.select(c[1], s[1])
    width = lanes.format.bits
    flip = (quarter << (width - 2)) ^ sign
    return (result.bits() ^ (flip & (1 << (width - 1)))).real()


def sin(lanes: Lanes, x: Real) -> Real:
    """sin(x) = sign(x) sin(|x|)."""
    n, r, low = angle.reduce(lanes, abs(x))
    return choose(lanes, n, x.bits(), r, low)


def cos(lanes: Lanes, x: Real) -> Real:
    """cos(x) = sin(|x| + pi/2): a quarter further."""
    n, r, low = angle.reduce(lanes, abs(x))
    return choose(lanes, n + 1, lanes.whole(0), r, low)


def tan(lanes: Lanes, x: Real) -> Real:
    """sin(r)/cos(r) in even quarters, -cos(r)/sin(r) in odd ones; both as pairs, divided once."""
    n, r, low = angle.reduce(lanes, abs(x))
    s = fast_two_sum(*sine(lanes, r, low, exact=True))
    c = fast_two_sum(*cosine(lanes, r, low, exact=True))
    odd = (n & 1).equals(1)
    top = (odd.select(c[0], s[0]), odd.select(c[1], s[1]))
    bottom = (odd.select(s[0], c[0]), odd.select(s[1], c[1]))
    quotient, correction = divide(lanes, top, bottom)
    top_bit = lanes.format.bits - 1
    sign = (x.bits() ^ (n << top_bit)) & (1 << top_bit)
    # Tiny angles are their own tangent: the correction of a quotient of denormals is not.
    tangent = ((quotient + correction).bits() ^ sign).real()
    return (abs(x) < lanes.format.smallest * 2.0**30).select(x, tangent)
