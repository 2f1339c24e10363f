"""pow: |x|^y = 2^(y log2|x|), log2 so precise that its error times the largest y does not show.

float32 takes log2 and its product with y in float64. float64 holds both as pairs.
The exceptions follow C99 (and numpy): x^0 = 1^y = 1 even for NaN, a negative x wants a whole y.
"""

from __future__ import annotations

from tinyfn.codegen.native.math.coefficients import POLYNOMIALS, SPLIT
from tinyfn.codegen.native.math.exponential import REACH2, doubled_exp2, scaled
from tinyfn.codegen.native.math.lanes import INFINITY, NAN, Lanes, Mask, Real
from tinyfn.codegen.native.math.logarithm import split_any
from tinyfn.codegen.native.math.pairs import (
    Pair,
    divide,
    fast_two_sum,
    product_error,
    two_product,
)


def power(lanes: Lanes, x: Real, y: Real) -> Real:
    """x^y."""
    size = abs(x)
    magnitude = (single if lanes.element == "f32" else double)(lanes, size, y)
    magnitude = size.equals(1.0).select(1.0, magnitude)
    whole, odd = parity(lanes, y)
    width = lanes.format.bits
    negative = x.bits() & (1 << (width - 1))
    result = (magnitude.bits() ^ odd.select(negative, 0)).real()
    result = ((x < 0.0) & ~whole & (size < INFINITY)).select(NAN, result)
    return y.equals(0.0).select(1.0, result)


def parity(lanes: Lanes, y: Real) -> tuple[Mask, Mask]:
    """Is y whole, is it odd? |y| + 2^23 (2^52) is a whole number whose last bit is the parity."""
    size, unit = abs(y), lanes.format.unit
    large = size >= unit
    moved = large.select(size, size + unit)
    whole = large | (moved - unit).equals(size)
    odd = (moved.bits() & 1).equals(1) & whole & (size < 2 * unit)
    return whole, odd


def at_limits(size: Real, logarithm: Real) -> Real:
    """-inf at 0, +inf at inf, NaN at NaN."""
    logarithm = (size < INFINITY).select(logarithm, size)
    return size.equals(0.0).select(-INFINITY, logarithm)


def single(lanes: Lanes, size: Real, y: Real) -> Real:
    """float32: log2(1 + f) = f Q(f) in float64; the fraction of the exponent is a float32 again."""
    wide = lanes.of("f64")
    reach = REACH2["f32"]
    e, f = split_any(lanes, size)
    f_wide = f.to("f64")
    series = wide.horner(f_wide, POLYNOMIALS["log2_whole"]["f64"])
    logarithm = wide.fma(series, f_wide, at_limits(size, e).to("f64"))
    exponent = (logarithm * y.to("f64")).at_least(reach.low).at_most(reach.high)
    shifted = exponent + wide.format.rounder
    r = (exponent - (shifted - wide.format.rounder)).to("f32")
    n = shifted.bits().to("f32")
    return scaled(lanes, doubled_exp2(lanes, r), n, exponent.to("f32"), reach)


def double(lanes: Lanes, size: Real, y: Real) -> Real:
    """float64: the exponent y log2|x| as a pair, whose low part goes into the fraction."""
    reach = REACH2["f64"]
    high, low = long_log2(lanes, size)
    high = at_limits(size, high)
    product = y * high
    error = lanes.fma(y, low, product_error(lanes, y, high, product))
    # Beyond the ends of the range (also at inf) the low part does not matter and may be NaN.
    error = (abs(product) < 2000.0).select(error, 0.0)
    exponent = product.at_least(reach.low).at_most(reach.high)
    shifted = exponent + lanes.format.rounder
    r = (exponent - (shifted - lanes.format.rounder)) + error
    return scaled(lanes, doubled_exp2(lanes, r), shifted.bits(), exponent, reach)


def long_log2(lanes: Lanes, x: Real) -> Pair:
    """log2 to about 65 digits: log(1 + f) = 2s + s^3 (2/3 + s^2 far(s^2)), s = f / (2 + f)."""
    e, f = split_any(lanes, x)
    bottom = fast_two_sum(lanes.real(2.0), f)
    s, s_low = fast_two_sum(*divide(lanes, (f, lanes.real(0.0)), bottom))
    z, z_low = two_product(lanes, s, s)
    z_low = lanes.fma(s * 2.0, s_low, z_low)
    third, third_low = SPLIT["two_thirds"]["f64"]
    inner, inner_low = two_product(lanes, z, third)
    inner_low = lanes.fma(z_low, third, lanes.fma(z, third_low, inner_low))
    inner, lost = fast_two_sum(inner, z * z * lanes.horner(z, POLYNOMIALS["atanh_far"]["f64"]))
    cube, cube_low = two_product(lanes, s, inner)
    cube_low = cube_low + lanes.fma(s, inner_low + lost, s_low * inner)
    natural, natural_low = fast_two_sum(s * 2.0, cube)
    natural_low = natural_low + lanes.fma(s_low, 2.0, cube_low)
    factor, factor_low = SPLIT["log2e"]["f64"]
    product, product_low = two_product(lanes, natural, factor)
    product_low = lanes.fma(natural_low, factor, lanes.fma(natural, factor_low, product_low))
    high, low = fast_two_sum(e, product)
    return high, low + product_low
