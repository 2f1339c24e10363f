"""erf: an odd series up to 1, then 1 - exp(-G) with G = -log(erfc) as a polynomial."""

from __future__ import annotations

from tinyfn.codegen.native.math.coefficients import POLYNOMIALS
from tinyfn.codegen.native.math.exponential import narrow_exp
from tinyfn.codegen.native.math.lanes import Lanes, Real

ONES = {"f32": 3.95, "f64": 5.95}  # erf is 1 from here up


def erf(lanes: Lanes, x: Real) -> Real:
    """x + x P(x^2) up to 1; beyond, 1 - exp(-G(|x| - 1)), where the subtrahend is below 0.16."""
    size = abs(x).at_most(ONES[lanes.element])
    series = lanes.horner(size * size, POLYNOMIALS["erf_near"][lanes.element])
    near = lanes.careful_fma(series, size, size)
    fall = lanes.horner(size - 1.0, POLYNOMIALS["erf_far"][lanes.element])
    far = 1.0 - narrow_exp(lanes, -fall)
    return (size > 1.0).select(far, near).with_sign_of(x)
