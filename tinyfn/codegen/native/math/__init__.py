"""exp, log, sin, erf, pow ... as straight LLVM IR on scalars or vectors, without calls.

`emit` is the door. float32 results are within 1 ulp of the exact value, float64 (and pow, erf)
within 2; 0, -0.0, inf, NaN, denormals and the ends of the range give what C99 and numpy say.
`lanes` has the operators, `pairs` the double-length arithmetic; `coefficients` is written by
`benchmarks/derive_polynomials.py`; the other modules hold one family of functions each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyfn.codegen.native.math.error_function import erf
from tinyfn.codegen.native.math.exponential import exp, exp2, expm1, sigmoid, tanh
from tinyfn.codegen.native.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from tinyfn.codegen.native.math.inverse import acos, asin, atan
from tinyfn.codegen.native.math.lanes import Lanes, Real
from tinyfn.codegen.native.math.logarithm import log, log1p, log2
from tinyfn.codegen.native.math.power import power
from tinyfn.codegen.native.math.trigonometry import cos, sin, tan

FUNCTIONS: dict[str, Callable[..., Real]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "pow": power,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}


def emit(
    name: str,
    builder: Any,
    args: Sequence[Any],
    elt: str,
    lanes: int,
    *,
    fma: bool = True,
    branches: bool = False,
) -> Any:
    """Emit the function at the builder's position and return its LLVM value.

    `elt` is "f32" or "f64"; the arguments are scalars for `lanes == 1`, else vectors.
    `fma=False` is for CPUs without fused multiply-add, where the intrinsic would become a call.
    `branches=True` lets sin, cos and tan skip the reduction of huge angles when no lane has one;
    the builder then ends up in a new basic block.
    """
    place = Lanes(builder, elt, lanes, fma, branches)
    return FUNCTIONS[name](place, *(Real(place, value) for value in args)).value
