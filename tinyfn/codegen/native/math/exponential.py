"""exp and what is made of it.

All reduce x = n ln(2) + r with n whole and |r| <= ln(2)/2 (Cody and Waite: ln(2) in two parts, the
first short enough that n times it is exact), then e^x = 2^n e^r with a minimax polynomial for e^r.
n is rounded by adding 1.5 * 2^23 (2^52 in float64), which leaves it in the low bits of the sum,
ready to become an exponent.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyfn.codegen.native.math.coefficients import POLYNOMIALS, SPLIT
from tinyfn.codegen.native.math.lanes import Lanes, Real, Whole
from tinyfn.codegen.native.math.pairs import Pair, divide, fast_two_sum

# Smaller results are denormal: they are computed 2^64 times as large and scaled down at the end.
LIFT = 64
LOWER = 2.0**-LIFT


@dataclass(frozen=True)
class Reach:
    """Where results leave the format."""

    low: float  # exp is 0 from here down
    normal: float  # exp is normal from here up
    high: float  # exp is infinite from here up


REACH = {"f32": Reach(-104.0, -86.0, 89.0), "f64": Reach(-746.0, -707.0, 710.0)}
REACH2 = {"f32": Reach(-151.0, -125.0, 129.0), "f64": Reach(-1076.0, -1021.0, 1025.0)}
ONES = {"f32": 10.0, "f64": 20.0}  # tanh is 1 from here up
MINUS_ONE = {"f32": -20.0, "f64": -40.0}  # expm1 is -1 from here down


def reduce(lanes: Lanes, x: Real) -> tuple[Whole, Real, Real]:
    """n in the low bits, and r as a pair."""
    rounder = lanes.format.rounder
    shifted = lanes.fma(x, SPLIT["log2e"][lanes.element][0], rounder)
    n = shifted - rounder
    high, low = SPLIT["ln2"][lanes.element]
    first = lanes.fma(n, -high, x)
    r = lanes.fma(n, -low, first)
    return shifted.bits(), r, lanes.fma(n, -low, first - r)


def power_of_two(lanes: Lanes, n: Whole, offset: int | Whole = 0) -> Real:
    """2^(n + offset), n in the low bits; the result has to be normal."""
    return ((n + (lanes.whole(offset) + lanes.format.bias)) << lanes.format.mantissa).real()


def tail(lanes: Lanes, r: Real, factor: float = 1.0) -> Real:
    """factor * (e^r - 1 - r) / r^2."""
    return lanes.horner(r, [factor * c for c in POLYNOMIALS["exp_tail"][lanes.element]])


def scaled(lanes: Lanes, doubled: Real, n: Whole, x: Real, reach: Reach) -> Real:
    """2^n * doubled / 2 with one rounding: n up to the end of the range, and denormal results."""
    small = x < reach.normal
    scale = power_of_two(lanes, n, small.pick_whole(LIFT - 1, -1))
    return doubled * scale * small.pick(LOWER, 1.0)


def exp(lanes: Lanes, x: Real) -> Real:
    """e^x = 2^n (1 + r + r^2 tail(r))."""
    reach = REACH[lanes.element]
    x = x.at_least(reach.low).at_most(reach.high)
    n, r, _ = reduce(lanes, x)
    # Twice e^r, so that 2^(n - 1) is finite wherever the result is.
    inner = lanes.fma(tail(lanes, r, 2.0), r, 2.0)
    return scaled(lanes, lanes.careful_fma(inner, r, 2.0), n, x, reach)


def exp2(lanes: Lanes, x: Real) -> Real:
    """2^x = 2^n 2^r: the reduction is exact."""
    reach = REACH2[lanes.element]
    x = x.at_least(reach.low).at_most(reach.high)
    shifted = x + lanes.format.rounder
    r = x - (shifted - lanes.format.rounder)
    return scaled(lanes, doubled_exp2(lanes, r), shifted.bits(), x, reach)


def doubled_exp2(lanes: Lanes, r: Real) -> Real:
    """2 * 2^r, |r| <= 1/2."""
    inner = lanes.horner(r, [2 * c for c in POLYNOMIALS["exp2_tail"][lanes.element]])
    return lanes.careful_fma(inner, r, 2.0)


def expm1(lanes: Lanes, x: Real) -> Real:
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1); half of it until the end, so that 2^n stays finite."""
    top = x.at_least(MINUS_ONE[lanes.element]).at_most(REACH[lanes.element].high)
    high, low = scaled_expm1(lanes, top, 1)
    result = (high + low) * 2.0
    # Halving loses the last digit of denormal numbers, and 0 its sign.
    return (abs(x) < lanes.format.smallest * 4).select(x, result)


def scaled_expm1(lanes: Lanes, x: Real, halvings: int) -> Pair:
    """(e^x - 1) / 2^halvings as a pair, where that is within the range of float."""
    n, r, r_low = reduce(lanes, x)
    scale, one = power_of_two(lanes, n, -halvings), 0.5**halvings
    whole = scale - one
    high, low = fast_two_sum(whole, r * scale)
    low = low + ((scale - whole) - one)
    series = lanes.horner(r, POLYNOMIALS["expm1_tail"][lanes.element])
    return high, lanes.fma(lanes.careful_fma(r * r, series, r_low), scale, low)


def narrow_exp(lanes: Lanes, x: Real) -> Real:
    """e^x where neither it nor its neighbours overflow or get denormal."""
    n, r, _ = reduce(lanes, x)
    inner = lanes.fma(tail(lanes, r), r, 1.0)
    return (lanes.careful_fma(inner, r, 1.0).bits() + (n << lanes.format.mantissa)).real()


def tanh(lanes: Lanes, x: Real) -> Real:
    """x + x^3 P(x^2) up to 1; beyond, 1 - 2 / (e^2x + 1): what is taken off is below a quarter."""
    size = abs(x).at_most(ONES[lanes.element])
    far = 1.0 - 2.0 / (narrow_exp(lanes, size + size) + 1.0)
    square = size * size
    series = lanes.horner(square, POLYNOMIALS["tanh_tail"][lanes.element])
    near = lanes.careful_fma(series * square, size, size)
    return (size > 1.0).select(far, near).with_sign_of(x)


def sigmoid(lanes: Lanes, x: Real) -> Real:
    """1 / (1 + e) for x >= 0, e / (1 + e) for x < 0, e = exp(-|x|); a quotient of pairs.

    Numerators are 2^64 times as large until the end, so that e / (1 + e) can get denormal.
    """
    size = (-abs(x)).at_least(REACH[lanes.element].low)
    n, r, r_low = reduce(lanes, size)
    rest = r + lanes.fma(r * r, tail(lanes, r), r_low)
    power, power_low = fast_two_sum(lanes.real(1.0), rest)
    scale = power_of_two(lanes, n, LIFT)
    lifted, lifted_low = power * scale, power_low * scale
    bottom = lanes.fma(lifted, LOWER, 1.0)
    bottom_low = lanes.fma(lifted_low, LOWER, lanes.fma(lifted, LOWER, 1.0 - bottom))
    negative = x < 0.0
    top = (negative.select(lifted, 1.0 / LOWER), negative.select(lifted_low, 0.0))
    quotient, correction = divide(lanes, top, (bottom, bottom_low))
    return (quotient + correction) * LOWER
