"""Checks of functions of tensors: against numpy, against themselves run in other ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyfn.errors import ArgumentError
from tinyfn.function import function
from tinyfn.helpers import Context
from tinyfn.jit import TinyJit
from tinyfn.tensor import Tensor
from tinyfn.testing.bounds import allowed, bounds
from tinyfn.testing.error_rules import UNIT
from tinyfn.testing.programs import Program
from tinyfn.uop.interpret import interpret

Function = Callable[..., Tensor]
Array = Any
WAYS = ("interpreter", "captured", "precompiled", "jitted", "python", "sharded")
CAPTURING = ("captured", "precompiled", "jitted")  # values are not known in there


class Disagreement(AssertionError):  # noqa: N818 (what it is, as users read it)
    """Two ways to compute the same thing differ by more than rounding allows."""


def compare(got: Array, value: Array, error: Array, what: str) -> None:
    """Raise a `Disagreement` unless `got` is within `error` of `value` everywhere.

    Equal infinities and NaNs agree; ints and bools have to be equal where their error is 0.
    """
    got, value = np.asarray(got), np.asarray(value)
    if got.shape != value.shape:
        raise Disagreement(f"{what}: expected the shape {value.shape}, got {got.shape}")
    wrong = np.argwhere(~np.broadcast_to(allowed(got, value, error), value.shape))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        limit = np.broadcast_to(error, value.shape)[place]
        raise Disagreement(
            f"{what}: {len(wrong)} of {value.size} values differ by more than rounding allows; "
            f"at {place} expected {value[place]!r} within {limit:.3g}, got {got[place]!r}"
        )


def _copies(arrays: Sequence[Any]) -> list[Tensor]:
    """New tensors with the values of arrays or tensors, each with memory of its own."""
    return [a.clone().realize() if isinstance(a, Tensor) else Tensor(a) for a in arrays]


def assert_matches_numpy(
    f: Function, *arrays: Any, reference: Callable[..., Any], allow_overflow: bool = False
) -> None:
    """Check a function of tensors against the same function of numpy arrays.

    The allowed difference is derived: a running error analysis of the graph of `f` (`bounds`), for
    its dtypes, reduction lengths and these very values. The reference gets floats in double
    precision, so that its own rounding does not count (for float64 it counts once more).

    Args:
        f: takes tensors, returns one.
        arrays: numpy arrays, or Tensors (for bfloat16, say).
        reference: takes arrays, returns one.
        allow_overflow: accept infinity and NaN where a number on the way is beyond the dtype's
            range, though the right result is not.

    Raises:
        Disagreement: a shape or a value differs.

    >>> import numpy as np
    >>> x = np.linspace(-3, 3, 7, dtype=np.float32)
    >>> assert_matches_numpy(lambda t: t.exp().sum(), x, reference=lambda a: np.exp(a).sum())
    """
    result = f(*_copies(arrays))
    _, error = bounds(result)
    got = f(*_copies(arrays)).numpy()
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference(*(_wide(a) for a in arrays)))
    own = 2 if got.dtype == np.float64 else 1
    if result.dtype in UNIT and not allow_overflow and wanted.shape == got.shape:
        in_range = np.abs(wanted) <= UNIT[result.dtype][2]
        error = np.where(in_range & ~np.isfinite(got), 0.0, error)
    compare(got, wanted, own * error, "the result against numpy")


def _wide(array: Any) -> Array:
    held = array.numpy() if isinstance(array, Tensor) else np.array(array)
    return held.astype(np.float64) if held.dtype.kind == "f" else held


def check_program(program: Program, ways: Sequence[str] = WAYS) -> None:
    """Check a random program: its numpy meaning, and the same values however it is run.

    Raises:
        Disagreement: a way to run it gives other values.
    """
    value, error = bounds(program.function(*program.tensors()))
    got = program.function(*program.tensors())
    if got.dtype is not program.dtype:
        raise Disagreement(f"expected the dtype {program.dtype}, got {got.dtype}")
    native = got.numpy()
    compare(native, value, 2 * error, "native against the interpreter")
    compare(native, program.numpy(), 2 * error, "native against numpy")
    if program.reads:
        ways = [way for way in ways if way not in CAPTURING]
    for way, result in _ways(program.function, program.tensors, ways):
        compare(result, value, 2 * error, f"{way} against the interpreter")


def check_function(f: Function, *arrays: Any, ways: Sequence[str] = WAYS) -> None:
    """Check that a function has the same values however it is run.

    Plain and captured with `function`, precompiled, replayed by TinyJit, sharded over 1 to 4
    slots along each axis that divides, as plain Python (`NATIVE=0`), and by the interpreter:
    ints and bools equal, floats within twice the derived bound.

    Args:
        f: takes tensors, returns one.
        arrays: numpy arrays or Tensors to call it with.
        ways: of "interpreter", "captured", "precompiled", "jitted", "python", "sharded".

    Raises:
        Disagreement: a way gives another shape or value.

    >>> import numpy as np
    >>> check_function(lambda t: t.softmax(), np.ones((4, 3), np.float32))
    """
    unknown = sorted(set(ways) - set(WAYS))
    if unknown:
        raise ArgumentError(f"expected ways of {', '.join(WAYS)}; got {', '.join(unknown)}")
    value, error = bounds(f(*_copies(arrays)))
    compare(f(*_copies(arrays)).numpy(), value, 2 * error, "native against the interpreter")
    for way, result in _ways(f, lambda: _copies(arrays), ways):
        compare(result, value, 2 * error, f"{way} against the interpreter")


def _ways(
    f: Function, make: Callable[[], list[Tensor]], ways: Sequence[str]
) -> Iterator[tuple[str, Array]]:
    """The values of the function, run in each way on arguments of its own."""
    if "interpreter" in ways:
        yield "the interpreter", interpret([f(*make()).uop], {})[0]
    for way, precompile in (("captured", False), ("precompiled", True)):
        if way in ways:
            yield way, function(f, precompile=precompile)(*make()).numpy()
    if "jitted" in ways and math.prod(f(*make()).shape):  # TinyJit refuses what computes nothing
        jitted = TinyJit(lambda *given: f(*given).clone().realize())
        for turn in range(3):
            yield f"call {turn + 1} of TinyJit", jitted(*(t.realize() for t in make())).numpy()
    if "python" in ways:
        with Context(NATIVE=0):
            yield "plain Python", f(*make()).numpy()
    if "sharded" in ways:
        yield from _sharded(f, make)


def _sharded(f: Function, make: Callable[[], list[Tensor]]) -> Iterator[tuple[str, Array]]:
    """Spread over slots along each axis of the first argument that divides by their count."""
    first = make()[0]
    for count in (1, 2, 3, 4):
        slots = tuple(f"CPU:{i}" for i in range(count))
        axes = [a for a, size in enumerate(first.shape) if size and size % count == 0]
        for axis in (None, *axes):
            given = [_spread(t, slots, axis, i == 0) for i, t in enumerate(make())]
            yield f"sharded over {count} slots along {axis}", f(*given).numpy()


def _spread(tensor: Tensor, slots: tuple[str, ...], axis: int | None, along: bool) -> Tensor:
    return tensor.shard(slots, axis if along else None)


def check_deterministic(f: Function, *arrays: Any, threads: Sequence[int] = (1, 2, 3, 4)) -> None:
    """Check that a function gives the same bits for every number of threads, and again.

    Raises:
        Disagreement: some bits differ.

    >>> import numpy as np
    >>> check_deterministic(lambda t: t.sum(), np.ones(1000, np.float32))
    """
    first = f(*_copies(arrays)).numpy()
    for count in (*threads, threads[0]):
        with Context(THREADS=count):
            again = f(*_copies(arrays)).numpy()
        if first.tobytes() != again.tobytes():
            differ = int(np.sum(~((first == again) | (np.isnan(first) & np.isnan(again)))))
            raise Disagreement(
                f"{differ} of {first.size} values differ with {count} threads from those of the "
                "first run: a result must not depend on the number of threads"
            )
