"""Derive the polynomials of `tinyfn.codegen.native.math` and write its `coefficients.py`.

    pip install mpmath
    python benchmarks/derive_polynomials.py > tinyfn/codegen/native/math/coefficients.py

Each row of `ROWS` is one minimax problem: a target, the weight that turns its error into the
relative error of the finished function, an interval, and the number of terms for float32 and for
float64. The Remez exchange runs on a grid at 60 digits. The coefficients are then rounded one by
one, lowest power first, and the ones still free are fitted again, so that each makes up for the
rounding before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

mp.dps = 60
GRID = 700
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Row:
    """One minimax problem in one variable, written as a polynomial of it."""

    name: str
    meaning: str
    target: Function
    weight: Function
    low: mpf
    high: mpf
    terms: dict[str, int]


def grid(low: mpf, high: mpf) -> list[mpf]:
    """Chebyshev points: dense at the ends, and (an even count) never in the middle."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * (k + mpf(1) / 2) / GRID) for k in range(GRID)]


def alternation(errors: Sequence[mpf], count: int) -> list[int]:
    """Positions of `count` extremes whose signs alternate, the largest there are."""
    peaks: list[int] = []
    for k, error in enumerate(errors):
        if peaks and (error > 0) == (errors[peaks[-1]] > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = k
        else:
            peaks.append(k)
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks


def minimax(
    points: list[mpf], target: list[mpf], weight: list[mpf], powers: Sequence[int]
) -> tuple[list[mpf], mpf]:
    """Coefficients of the given powers with the least largest weighted error, and that error."""
    count = len(powers) + 1
    chosen = [round((k + 0.5) * GRID / count) for k in range(count)]
    columns = [[w * p**power for p, w in zip(points, weight, strict=True)] for power in powers]
    goal = [t * w for t, w in zip(target, weight, strict=True)]
    best: tuple[list[mpf], mpf] = ([], mp.inf)
    for _ in range(30):
        matrix = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, k in enumerate(chosen):
            for column in range(count - 1):
                matrix[row, column] = columns[column][k]
            matrix[row, count - 1] = (-1) ** row
            right[row] = goal[k]
        solution = mp.lu_solve(matrix, right)
        coefficients = list(solution)[:-1]
        errors = [
            g - sum(c * column[k] for c, column in zip(coefficients, columns, strict=True))
            for k, g in enumerate(goal)
        ]
        largest = max(abs(e) for e in errors)
        if largest < best[1]:
            best = (coefficients, largest)
        if largest < abs(solution[count - 1]) * mpf("1.001"):
            break
        peaks = alternation(errors, count)
        if len(peaks) < count:
            break
        chosen = peaks
    return best


def rounded(value: mpf, element: str) -> mpf:
    """The value in the element type."""
    return mpf(float(value)) if element == "f64" else mpf(float(np.float32(float(value))))


def fit(row: Row, element: str) -> tuple[list[mpf], mpf]:
    """Fit and round one row; the error is that of the rounded coefficients.

    Where the interval has 0 inside, the powers still free no longer determine an alternation and
    the exchange may stop early: then the plainly rounded first fit is the better one.
    """
    points = grid(row.low, row.high)
    weight = [abs(row.weight(p)) for p in points]
    target = [row.target(p) for p in points]
    left = list(target)
    fixed: list[mpf] = []
    first: list[mpf] = []
    for power in range(row.terms[element]):
        free, _ = minimax(points, left, weight, range(power, row.terms[element]))
        first = first or [rounded(c, element) for c in free]
        fixed.append(rounded(free[0], element))
        left = [t - fixed[-1] * p**power for t, p in zip(left, points, strict=True)]
    results = [(largest_error(c, points, target, weight), c) for c in (fixed, first)]
    error, coefficients = min(results, key=lambda pair: pair[0])
    return coefficients, error


def largest_error(
    coefficients: list[mpf], points: list[mpf], target: list[mpf], weight: list[mpf]
) -> mpf:
    """The largest weighted error of a polynomial on the grid."""
    rows = zip(points, target, weight, strict=True)
    return max(abs(mp.polyval(coefficients[::-1], p) - t) * w for p, t, w in rows)


def in_square(function: Function) -> Function:
    """A function of x as a function of z = x * x."""
    return lambda z: function(mp.sqrt(z))


EDGE = mp.log(2) / 2 * mpf("1.002")
SMALL, LARGE = mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1
EIGHTH = (mp.pi / 4 * mpf("1.0005")) ** 2
ATANH = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
ROWS = (
    Row(
        "exp_tail",
        "(exp(r) - 1 - r) / r^2, |r| <= ln(2)/2",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.expm1(r),
        -EDGE, EDGE, {"f32": 5, "f64": 10},
    ),
    Row(
        "expm1_tail",
        "the same with one term more, for the relative error of e^r - 1",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.expm1(r),
        -EDGE, EDGE, {"f32": 6, "f64": 11},
    ),
    Row(
        "exp2_tail",
        "(2^r - 1) / r, |r| <= 1/2",
        lambda r: mp.expm1(r * mp.log(2)) / r,
        lambda r: r / mpf(2) ** r,
        -mpf("0.501"), mpf("0.501"), {"f32": 6, "f64": 11},
    ),
    Row(
        "log_tail",
        "(log(1 + f) - f + f^2/2) / f^3, sqrt(1/2) <= 1 + f <= sqrt(2)",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        SMALL, LARGE, {"f32": 8},
    ),
    Row(
        "log2_whole",
        "log2(1 + f) / f, sqrt(1/2) <= 1 + f <= sqrt(2), to 2^-38",
        lambda f: mp.log1p(f) / f / mp.log(2),
        lambda f: f / mp.log1p(f),
        SMALL, LARGE, {"f64": 14},
    ),
    Row(
        "atanh_tail",
        "(2 atanh(s)/s - 2) / z, z = s^2, s <= (sqrt(2)-1)/(sqrt(2)+1)",
        in_square(lambda s: (2 * mp.atanh(s) / s - 2) / s**2),
        lambda z: z / 2,
        mpf(0), ATANH**2, {"f64": 7},
    ),
    Row(
        "atanh_far",
        "(2 atanh(s)/s - 2 - 2z/3) / z^2, z = s^2",
        in_square(lambda s: (2 * mp.atanh(s) / s - 2 - 2 * s**2 / 3) / s**4),
        lambda z: z**2 / 2,
        mpf(0), ATANH**2, {"f64": 8},
    ),
    Row(
        "tanh_tail",
        "(tanh(x) - x) / x^3 of z = x^2, x <= 1",
        in_square(lambda x: (mp.tanh(x) - x) / x**3),
        in_square(lambda x: x**3 / mp.tanh(x)),
        mpf(0), mpf(1), {"f32": 7, "f64": 15},
    ),
    Row(
        "sin_tail",
        "(sin(r) - r) / r^3 of z = r^2, r <= pi/4",
        in_square(lambda r: (mp.sin(r) - r) / r**3),
        in_square(lambda r: r**3 / mp.sin(r)),
        mpf(0), EIGHTH, {"f32": 3, "f64": 6},
    ),
    Row(
        "cos_tail",
        "(cos(r) - 1 + r^2/2) / r^4 of z = r^2, r <= pi/4",
        in_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        in_square(lambda r: r**4 / mp.cos(r)),
        mpf(0), EIGHTH, {"f32": 3, "f64": 6},
    ),
    Row(
        "erf_near",
        "erf(x)/x - 1 of z = x^2, x <= 1",
        in_square(lambda x: mp.erf(x) / x - 1),
        in_square(lambda x: x / mp.erf(x)),
        mpf(0), mpf(1), {"f32": 7, "f64": 13},
    ),
    Row(
        "erf_far",
        "-log(erfc(x)) of t = x - 1, up to where erf(x) rounds to 1 (float64)",
        lambda t: -mp.log(mp.erfc(1 + t)),
        lambda t: mp.erfc(1 + t) / mp.erf(1 + t),
        mpf(0), mpf("4.95"), {"f64": 18},
    ),
    Row(
        "erf_far",
        "-log(erfc(x)) of t = x - 1, up to where erf(x) rounds to 1 (float32)",
        lambda t: -mp.log(mp.erfc(1 + t)),
        lambda t: mp.erfc(1 + t) / mp.erf(1 + t),
        mpf(0), mpf("2.95"), {"f32": 8},
    ),
    Row(
        "atan_tail",
        "(atan(x) - x) / x^3 of z = x^2, x <= 1",
        in_square(lambda x: (mp.atan(x) - x) / x**3),
        in_square(lambda x: x**3 / mp.atan(x)),
        mpf(0), mpf(1), {"f32": 9, "f64": 20},
    ),
    Row(
        "asin_tail",
        "(asin(x) - x) / x^3 of z = x^2, x <= 1/2",
        in_square(lambda x: (mp.asin(x) - x) / x**3),
        in_square(lambda x: x**3 / mp.asin(x)),
        mpf(0), mpf("0.25"), {"f32": 5, "f64": 12},
    ),
)  # fmt: skip


def shown(value: mpf, element: str) -> str:
    """The shortest decimal that reads back as the same number of the element type."""
    number = np.float32(float(value)) if element == "f32" else np.float64(float(value))
    return str(number.item() if element == "f64" else number)


def split(value: mpf, bits: Sequence[int], element: str) -> list[mpf]:
    """The value as a sum of numbers of the given bit counts (the last as wide as the type)."""
    parts: list[mpf] = []
    for count in bits:
        left = value - sum(parts)
        unit = mpf(2) ** (mp.floor(mp.log(abs(left), 2)) - count + 1)
        parts.append(mp.floor(left / unit) * unit)
    return [*parts, rounded(value - sum(parts), element)]


CONSTANTS = (
    ("ln2", lambda: mp.log(2), {"f32": (15,), "f64": (42,)}),
    ("log2e", lambda: 1 / mp.log(2), {"f32": (24,), "f64": (53,)}),
    ("pi", lambda: mp.pi, {"f32": (24,), "f64": (53,)}),
    ("two_thirds", lambda: mpf(2) / 3, {"f64": (53,)}),
    ("two_over_pi", lambda: 2 / mp.pi, {"f32": (24,), "f64": (53,)}),
    ("half_pi", lambda: mp.pi / 2, {"f32": (24, 24), "f64": (53, 53)}),
)


def main() -> None:
    """Write the whole module to standard output, progress to standard error."""
    print('"""Minimax polynomials and split constants, by `benchmarks/derive_polynomials.py`.')
    print("\nEach polynomial is a tuple of coefficients, lowest power first, by element type.")
    print('The comment gives its largest weighted error: relative to the finished function.\n"""\n')
    print("POLYNOMIALS: dict[str, dict[str, tuple[float, ...]]] = {}\n")
    for name in dict.fromkeys(row.name for row in ROWS):
        print(f'POLYNOMIALS["{name}"] = {{')
        for row in (row for row in ROWS if row.name == name):
            for element in row.terms:
                coefficients, error = fit(row, element)
                print(name, element, mp.nstr(mp.log(error, 2), 5), file=sys.stderr, flush=True)
                print(f"    # {row.meaning}: 2^{mp.nstr(mp.log(error, 2), 4)}")
                print(f'    "{element}": (')
                for coefficient in coefficients:
                    print(f"        {shown(coefficient, element)},")
                print("    ),")
        print("}")
    print("\n# Sums of parts: early ones are short, so that small integers times them are exact.")
    print("SPLIT: dict[str, dict[str, tuple[float, ...]]] = {")
    for name, value, widths in CONSTANTS:
        print(f'    "{name}": {{')
        for element, bits in widths.items():
            parts = [shown(part, element) for part in split(value(), bits, element)]
            print(f'        "{element}": ({", ".join(parts)}),')
        print("    },")
    print("}")
    with mp.workprec(1400):
        digits = f"{int(mp.floor(2 / mp.pi * mpf(2) ** 1216)):0304x}"
    print("\n# The first 1216 binary digits of 2/pi behind the point, for reducing large angles.")
    print("TWO_OVER_PI_BITS = 1216\nTWO_OVER_PI = int(")
    for start in range(0, 304, 76):
        print(f'    "{digits[start : start + 76]}"')
    print('    "",\n    16,\n)')


if __name__ == "__main__":
    main()
