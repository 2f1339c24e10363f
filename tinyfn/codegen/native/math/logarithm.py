"""log, log2, log1p: x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2): near 1 e is 0 and f exact.

float32 sums log(1 + f) = f - f^2/2 + f^3 P(f). float64 would need twenty terms; it divides once and
uses log(1 + f) = 2 atanh(s), s = f / (2 + f), whose series in s^2 <= 0.03 is short. Both give
log(1 + f) = f + t with t small, and add e ln(2) in two parts.
"""

from __future__ import annotations

from tinyfn.codegen.native.math.coefficients import POLYNOMIALS, SPLIT
from tinyfn.codegen.native.math.lanes import INFINITY, NAN, Lanes, Real, Whole
from tinyfn.codegen.native.math.pairs import fast_two_sum, two_product, two_sum

SQRT_HALF = 0.5**0.5


def split(lanes: Lanes, x: Real) -> tuple[Whole, Real]:
    """e and f of a positive normal number."""
    base, mantissa = lanes.pattern(SQRT_HALF), lanes.format.mantissa
    bits = x.bits()
    exponent = (bits - base).signed_shift(mantissa)
    return exponent, (bits - (exponent << mantissa)).real() - 1.0


def split_any(lanes: Lanes, x: Real) -> tuple[Real, Real]:
    """e and f of a positive number, also a denormal one."""
    tiny = x < lanes.format.smallest
    lift = lanes.format.mantissa + 1
    exponent, f = split(lanes, tiny.select(x * 2.0**lift, x))
    return exponent.number() - tiny.pick(float(lift), 0.0), f


def tail(lanes: Lanes, f: Real) -> Real:
    """log(1 + f) - f."""
    if lanes.element == "f32":
        series = lanes.horner(f, POLYNOMIALS["log_tail"]["f32"])
        return f * f * lanes.careful_fma(series, f, -0.5)
    s = f / (f + 2.0)
    square = s * s
    half = f * f * 0.5
    series = lanes.horner(square, POLYNOMIALS["atanh_tail"]["f64"]) * square
    return lanes.fma(s, half + series, -half)


def at_ends(x: Real, result: Real, zero: float) -> Real:
    """-inf at `zero`, NaN below it, x itself at inf and NaN."""
    result = (x < INFINITY).select(result, x)
    result = (x < zero).select(NAN, result)
    return x.equals(zero).select(-INFINITY, result)


def log(lanes: Lanes, x: Real) -> Real:
    """log(x) = e ln(2) + (f + tail(f))."""
    e, f = split_any(lanes, x)
    high, low = SPLIT["ln2"][lanes.element]
    near = f + lanes.fma(e, low, tail(lanes, f))
    return at_ends(x, lanes.fma(e, high, near), 0.0)


def log2(lanes: Lanes, x: Real) -> Real:
    """log2(x) = e + (f + tail(f)) / ln(2), with f / ln(2) to twice the precision."""
    e, f = split_any(lanes, x)
    high, low = SPLIT["log2e"][lanes.element]
    product, error = two_product(lanes, f, high)
    error = lanes.fma(f, low, error)
    if lanes.element == "f64":
        return at_ends(x, e + (product + lanes.fma(tail(lanes, f), high, error)), 0.0)
    # The factor 1 / ln(2) leaves no room for the rounding of f^2: half of it is a term by itself.
    square, square_low = two_product(lanes, f, f)
    cube = f * square * lanes.horner(f, POLYNOMIALS["log_tail"]["f32"])
    error = lanes.fma(lanes.fma(square_low, -0.5, cube), high, error)
    return at_ends(x, e + (product + lanes.careful_fma(square, -0.5 * high, error)), 0.0)


def log1p(lanes: Lanes, x: Real) -> Real:
    """log(1 + x)."""
    return log1p_of_pair(lanes, x, lanes.real(-0.0))


def log1p_of_pair(lanes: Lanes, x: Real, low: Real) -> Real:
    """log(1 + x + low) = log(u) + c / u with 1 + x + low = u + c."""
    u, c = two_sum(lanes.real(1.0), x)
    c = c + low
    exponent, f = split(lanes, u)
    # Far out c no longer counts; the limit keeps the factor 2^-e normal.
    inverse = ((lanes.format.bias - exponent.at_most(64)) << lanes.format.mantissa).real()
    f, c = fast_two_sum(f, c * inverse)
    e = exponent.number()
    high, short = SPLIT["ln2"][lanes.element]
    small = lanes.fma(-f, c, c) + lanes.fma(e, short, tail(lanes, f))
    return at_ends(x, lanes.fma(e, high, f + small), -1.0).with_sign_of(x)
