"""Checks of functions of tensors: against numpy, against themselves run in other ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyfn.helpers import Context
from tinyfn.tensor import Tensor
from tinyfn.testing.bounds import bounds
from tinyfn.testing.compare import Disagreement, compare
from tinyfn.testing.error_rules import UNIT
from tinyfn.testing.programs import Program
from tinyfn.testing.ways import WAYS, Function, known_ways, run

Array = Any


def copies(arrays: Sequence[Any]) -> list[Tensor]:
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
    result = f(*copies(arrays))
    _, error = bounds(result)
    got = f(*copies(arrays)).numpy()
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
    for way, result in run(program.function, program.tensors, ways, program.reads):
        _same(result, value, 2 * error, way)


def check_function(f: Function, *arrays: Any, ways: Sequence[str] = WAYS) -> None:
    """Check that a function has the same values however it is run.

    Plain and captured with `function`, precompiled, recorded by TinyJit with other values and
    replayed, sharded over 1 to 4 slots along each axis that divides (over 2 also captured,
    precompiled and replayed), as plain Python (`NATIVE=0`), and by the interpreter: of the same
    dtype, ints and bools equal, floats within twice the derived bound.

    Args:
        f: takes tensors, returns one.
        arrays: numpy arrays or Tensors to call it with.
        ways: of "interpreter", "captured", "precompiled", "jitted", "python", "sharded".

    Raises:
        Disagreement: a way gives another shape or value.

    >>> import numpy as np
    >>> check_function(lambda t: t.softmax(), np.ones((4, 3), np.float32))
    """
    ways = known_ways(ways)
    value, error = bounds(f(*copies(arrays)))
    _same(f(*copies(arrays)).numpy(), value, 2 * error, "native")
    for way, result in run(f, lambda: copies(arrays), ways):
        _same(result, value, 2 * error, way)


def _same(got: Array, value: Array, error: Array, way: str) -> None:
    if got.dtype != value.dtype:
        raise Disagreement(f"{way}: expected the dtype {value.dtype}, got {got.dtype}")
    compare(got, value, error, f"{way} against the interpreter")


def check_deterministic(f: Function, *arrays: Any, threads: Sequence[int] = (1, 2, 3, 4)) -> None:
    """Check that a function gives the same bits for every number of threads, and again.

    Raises:
        Disagreement: some bits differ.

    >>> import numpy as np
    >>> check_deterministic(lambda t: t.sum(), np.ones(1000, np.float32))
    """
    first = f(*copies(arrays)).numpy()
    for count in (*threads, threads[0]):
        with Context(THREADS=count):
            again = f(*copies(arrays)).numpy()
        if first.tobytes() != again.tobytes():
            differ = int(np.sum(~((first == again) | (np.isnan(first) & np.isnan(again)))))
            raise Disagreement(
                f"{differ} of {first.size} values differ with {count} threads from those of the "
                "first run: a result must not depend on the number of threads"
            )
