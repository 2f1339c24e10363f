"""Gradients against differences, to second order, with kinks found and reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.errors import ArgumentError
from tinyfn.function import function
from tinyfn.tensor import Tensor
from tinyfn.testing.bounds import bounds
from tinyfn.testing.checks import check_function, copies
from tinyfn.testing.compare import Disagreement, compare
from tinyfn.testing.ways import WAYS, Function, known_ways

Array = Any
Scalar = Callable[[list[Array]], tuple[float, float]]
STEPS = tuple(2.0**-k for k in range(6, 20, 2))
SAFETY = 4.0  # the error of an extrapolation is judged by the one before it


@dataclass(frozen=True)
class GradientReport:
    """What was compared: how many slopes agreed, and where there is no derivative.

    `kinks` lists (order, argument, element) of slopes that differ on both sides; `rough` those that
    differences cannot judge (a function that is not finite nearby).
    """

    checked: int
    kinks: tuple[tuple[int, int, int], ...]
    rough: tuple[tuple[int, int, int], ...]


def extrapolated(values: Sequence[float], noises: Sequence[float], ratio: float, power: int) -> Any:
    """The limit of a sequence of differences (Richardson), and an estimate of its error.

    Each column takes out the next power of the step; the entry whose error (its distance from
    its neighbours, and the rounding it inherits) is least is taken.
    """
    best, error = values[0], np.inf
    column, noise = list(values), list(noises)
    for k in range(1, len(values)):
        factor = ratio ** (power * k)
        former = column
        column = [
            (factor * former[i + 1] - former[i]) / (factor - 1) for i in range(len(former) - 1)
        ]
        noise = [(factor * noise[i + 1] + noise[i]) / (factor - 1) for i in range(len(noise) - 1)]
        for i, (found, rounding) in enumerate(zip(column, noise, strict=True)):
            guess = max(abs(found - former[i]), abs(found - former[i + 1])) + rounding
            if guess < error:
                best, error = found, guess
    return best, error


def _moved(arrays: list[Array], which: int, element: int, by: float) -> list[Array]:
    found = [a.copy() for a in arrays]
    found[which].reshape(-1)[element] += by
    return found


def slope(scalar: Scalar, arrays: list[Array], which: int, element: int) -> Any:
    """Slopes at an element: central with its error, and from the left and the right.

    Returns:
        (central, error), (left, error), (right, error); errors of infinity are not finite values.
    """
    scale = max(1.0, abs(float(arrays[which].reshape(-1)[element])))
    middle, own = scalar(arrays)
    central: list[float] = []
    left: list[float] = []
    right: list[float] = []
    noises: list[float] = []
    for step in STEPS:
        h = step * scale
        above, up = scalar(_moved(arrays, which, element, h))
        below, down = scalar(_moved(arrays, which, element, -h))
        central.append((above - below) / (2 * h))
        left.append((middle - below) / h)
        right.append((above - middle) / h)
        noises.append((max(up, down) + own) / h)
    if not np.all(np.isfinite([*central, *left, *right, *noises])):
        return tuple((float("nan"), np.inf) for _ in range(3))
    return (
        extrapolated(central, noises, 4.0, 2),
        extrapolated(left, noises, 4.0, 1),
        extrapolated(right, noises, 4.0, 1),
    )


def _weights(shape: tuple[int, ...]) -> Array:
    """Fixed weights that turn any result into one number, none of them special."""
    count = int(np.prod(shape))
    return (np.cos(1.0 + np.arange(count)) + 1.5).reshape(shape)


def _tensors(arrays: list[Array]) -> list[Tensor]:
    return [Tensor(a) for a in arrays]


def _weighted(f: Function, given: list[Tensor]) -> Tensor:
    result = f(*given)
    return (result * Tensor(_weights(result.shape)).to(result.device)).sum()


def _first_order(f: Function, given: list[Tensor]) -> Tensor:
    """The weighted sum of the gradients, whose gradient is of second order."""
    gradients = _weighted(f, given).gradient(*given)
    total = Tensor(np.float64(0.0))
    for gradient in gradients:
        total = total + _weighted(lambda g: g * 1.0, [gradient])
    for argument in given:  # a linear function has a gradient that depends on nothing
        total = total + (argument * 0.0).sum()
    return total


def check_gradients(
    f: Function, *tensors: Any, order: int = 1, ways: Sequence[str] = WAYS
) -> GradientReport:
    """Check the gradients of a function against differences in float64.

    The values are taken in float64; every element of every argument is moved. Central
    differences at seven steps are extrapolated (Richardson), with an error estimate from the
    extrapolation and the rounding of `f` itself (`bounds`); differences to each side are the
    second method: where they differ from each other by more than their errors, there is a kink,
    which is reported and not compared (there, a gradient between the two slopes is right).

    Then the gradient of each argument is run in every way, as by `check_function`, and compared
    with the gradients of `f` as a captured and as a precompiled call.

    Args:
        f: takes tensors, returns one; its result is weighted to one number.
        tensors: float arrays or Tensors.
        order: 2 checks the gradient of the gradient, too.
        ways: in which the gradients are run (`check_function`); none for differences only.

    Returns:
        A report with the count of slopes that agree, and where the kinks are.

    Raises:
        Disagreement: a gradient is not what the differences say.

    >>> import numpy as np
    >>> check_gradients(lambda x: x.sin() * x, np.array([0.3, 2.0]), order=2).kinks
    ()
    >>> check_gradients(lambda x: x[::-1].cumsum(), np.ones(2), order=2).checked
    4
    >>> check_gradients(lambda x: x.relu(), np.array([-1.0, 0.0, 1.0])).kinks
    ((1, 0, 1),)
    """
    arrays = [_as_double(t) for t in tensors]
    if order not in (1, 2):
        raise ArgumentError(f"expected the order 1 or 2, got {order}")
    checked, kinks, rough = 0, list[Any](), list[Any]()
    for level in range(1, order + 1):
        objective = _weighted if level == 1 else _first_order
        for place, verdict in _compared(f, arrays, objective, level):
            checked += verdict == "same"
            kinks += [place] if verdict == "kink" else []
            rough += [place] if verdict == "rough" else []
    for which in range(len(tensors)):
        _check_ways(f, tensors, which, known_ways(ways))
    return GradientReport(checked, tuple(kinks), tuple(rough))


def _gradient(f: Function, which: int) -> Function:
    """The gradient in one argument as a function of all of them."""
    return lambda *given: _weighted(f, list(given)).gradient(given[which])[0]


def _check_ways(f: Function, tensors: Sequence[Any], which: int, ways: Sequence[str]) -> None:
    """The gradient however it is run, and that of a call however the call was made."""
    gradient = _gradient(f, which)
    if ways:
        check_function(gradient, *tensors, ways=ways)
    for way in (w for w in ("captured", "precompiled") if w in ways):
        of_call = _gradient(function(f, precompile=way == "precompiled"), which)
        value, error = bounds(gradient(*copies(tensors)))
        _, other = bounds(of_call(*copies(tensors)))
        got = of_call(*copies(tensors)).numpy()
        compare(got, value, error + other, f"argument {which}: the gradient of a {way} call")


def _as_double(values: Any) -> Array:
    array = np.array(values.numpy() if isinstance(values, Tensor) else values)
    if array.dtype.kind != "f":
        raise ArgumentError(f"expected arrays of floats to differentiate by, got {array.dtype}")
    return array.astype(np.float64)


def _compared(
    f: Function, arrays: list[Array], objective: Callable[..., Tensor], level: int
) -> list[tuple[tuple[int, int, int], str]]:
    """Each slope of one order with what became of it: same, kink or rough."""

    def scalar(at: list[Array]) -> tuple[float, float]:
        value, error = bounds(objective(f, _tensors(at)))
        return float(value), float(error)

    given = _tensors(arrays)
    gradients = [g.numpy() for g in objective(f, given).gradient(*given)]
    found = []
    for which, gradient in enumerate(gradients):
        for element, got in enumerate(gradient.reshape(-1)):
            place = (level, which, element)
            found.append(
                (place, _verdict(float(got), slope(scalar, arrays, which, element), place))
            )
    return found


def _verdict(got: float, slopes: Any, place: tuple[int, int, int]) -> str:
    (central, error), (left, left_error), (right, right_error) = slopes
    if not np.isfinite(error):
        return "rough"
    allowed = SAFETY * error + 2.0**-40 * (abs(got) + abs(central))
    both = SAFETY * (left_error + right_error)
    level, which, element = place
    if abs(left - right) > both + 2.0**-20 * (abs(left) + abs(right)):
        low, high = min(left, right) - both, max(left, right) + both
        if not low <= got <= high:
            raise Disagreement(
                f"order {level}, argument {which}, element {element}: the slopes are {left:.9g} on "
                f"the left and {right:.9g} on the right, the gradient {got:.9g} is not between them"
            )
        return "kink"
    if not abs(got - central) <= allowed:
        raise Disagreement(
            f"order {level}, argument {which}, element {element}: differences say "
            f"{central:.12g} within {allowed:.3g}, the gradient is {got:.12g}"
        )
    return "same"
