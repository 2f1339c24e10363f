"""asin, acos, atan: odd series near 0, and a reflection that brings the rest there."""

from __future__ import annotations

from tinyfn.codegen.native.math.coefficients import POLYNOMIALS, SPLIT
from tinyfn.codegen.native.math.lanes import Lanes, Mask, Real
from tinyfn.codegen.native.math.pairs import fast_two_sum, product_error, two_product


def atan(lanes: Lanes, x: Real) -> Real:
    """x + x^3 P(x^2) up to 1; beyond, pi/2 - atan(1/x); w = -1/x is off by about (1 + w x) w.

    Near 1 the cube is so large a part that float32 needs its rounding error too.
    """
    size = abs(x).at_most(2.0**60)
    far = size > 1.0
    w = far.select(-1.0 / size, size)
    square, square_low = two_product(lanes, w, w)
    cube, cube_low = two_product(lanes, square, w)
    cube_low = lanes.fma(square_low, w, cube_low)
    coefficients = POLYNOMIALS["atan_tail"][lanes.element]
    series = lanes.horner(square, coefficients[1:])
    series = lanes.careful_fma(series, square, coefficients[0])
    missing = product_error(lanes, w, size, lanes.real(-1.0)) * w
    missing = lanes.fma(missing * -0.5, square, missing)
    first, second, *_ = SPLIT["half_pi"][lanes.element]
    high, low = fast_two_sum(far.pick(first, 0.0), w)
    rest = lanes.fma(cube_low, series, far.select(missing + second, 0.0))
    return (high + (low + lanes.careful_fma(cube, series, rest))).with_sign_of(x)


def core(lanes: Lanes, size: Real) -> tuple[Mask, Real, Real]:
    """Is |x| beyond 1/2, and asin(v) as a pair: v = |x|, or beyond v = sqrt((1 - |x|)/2).

    The root is rounded; what it lacks is (w - v^2) / 2v.
    """
    far = size > 0.5
    w = far.select((1.0 - size) * 0.5, size * size)
    root = w.square_root()
    missing = -product_error(lanes, root, root, w) / (root + root).at_least(lanes.format.smallest)
    series = lanes.horner(w, POLYNOMIALS["asin_tail"][lanes.element])
    v = far.select(root, size)
    return far, v, lanes.careful_fma(v * w, series, far.select(missing, 0.0))


def asin(lanes: Lanes, x: Real) -> Real:
    """asin(|x|) = pi/2 - 2 asin(sqrt((1 - |x|)/2)) beyond 1/2."""
    far, v, tail = core(lanes, abs(x))
    factor = far.pick(-2.0, 1.0)
    first, second, *_ = SPLIT["half_pi"][lanes.element]
    high, low = fast_two_sum(far.pick(first, 0.0), v * factor)
    return (high + (low + lanes.fma(tail, factor, far.pick(second, 0.0)))).with_sign_of(x)


def acos(lanes: Lanes, x: Real) -> Real:
    """pi/2 - asin(x) up to 1/2; beyond, 2 asin(sqrt((1 - |x|)/2)), pi minus that for negative x."""
    far, v, tail = core(lanes, abs(x))
    negative = x < 0.0
    factor = far.select(negative.pick(-2.0, 2.0), negative.pick(1.0, -1.0))
    half, whole = SPLIT["half_pi"][lanes.element], SPLIT["pi"][lanes.element]
    base = far.select(negative.pick(whole[0], 0.0), half[0])
    base_low = far.select(negative.pick(whole[1], 0.0), half[1])
    high, low = fast_two_sum(base, v * factor)
    return high + (low + lanes.fma(tail, factor, base_low))
