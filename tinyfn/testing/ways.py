"""The ways in which a function of tensors can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyfn.errors import ArgumentError
from tinyfn.function import function
from tinyfn.helpers import Context
from tinyfn.jit import TinyJit
from tinyfn.tensor import Tensor
from tinyfn.testing.compare import compare
from tinyfn.uop.interpret import interpret

Function = Callable[..., Tensor]
Make = Callable[[], list[Tensor]]
Place = Callable[[list[Tensor]], list[Tensor]]
Array = Any
Results = Iterator[tuple[str, Array]]
WAYS = ("interpreter", "captured", "precompiled", "jitted", "python", "sharded")
CAPTURING = ("captured", "precompiled", "jitted")  # values are not known in there


def known_ways(ways: Sequence[str]) -> tuple[str, ...]:
    """The ways themselves.

    Raises:
        ArgumentError: one of them is none.
    """
    unknown = sorted(set(ways) - set(WAYS))
    if unknown:
        raise ArgumentError(f"expected ways of {', '.join(WAYS)}; got {', '.join(unknown)}")
    return tuple(ways)


def run(f: Function, make: Make, ways: Sequence[str], reads: bool = False) -> Results:
    """The values of a function, run in each way on arguments of its own.

    Args:
        f: takes tensors, returns one.
        make: makes the arguments anew.
        ways: of `WAYS`.
        reads: whether the function reads values, which it cannot while it is captured.
    """
    if "interpreter" in ways:
        yield "the interpreter", interpret([f(*make()).uop], {})[0]
    capturing = () if reads else tuple(way for way in CAPTURING if way in ways)
    yield from _captured(f, make, list, capturing)
    if "python" in ways:
        with Context(NATIVE=0):
            yield "plain Python", f(*make()).numpy()
    if "sharded" in ways:
        yield from _sharded(f, make, () if reads else CAPTURING)


def _captured(f: Function, make: Make, place: Place, ways: Sequence[str]) -> Results:
    for way in ("captured", "precompiled"):
        if way in ways:
            yield way, function(f, precompile=way == "precompiled")(*place(make())).numpy()
    if "jitted" in ways:
        yield from _replayed(f, make, place)


def _replayed(f: Function, make: Make, place: Place) -> Results:
    """The second call records, later ones replay what was recorded for other values."""

    def recorded(*given: Tensor) -> tuple[Tensor, Tensor]:
        # beside a result that may be empty: TinyJit refuses what computes nothing
        return f(*given).clone().realize(), Tensor.ones(1).contiguous().realize()

    def called(values: list[Tensor]) -> Array:
        return jitted(*(t.realize() for t in place(values)))[0].numpy()

    jitted = TinyJit(recorded)
    others = []
    for turn in (1, 3):
        yield f"call {turn} of TinyJit", called(make())
        others.append(called([t.flip(tuple(range(t.ndim))).contiguous() for t in make()]))
    compare(others[1], others[0], np.float64(0.0), "call 4 of TinyJit against call 2")


def _sharded(f: Function, make: Make, capturing: Sequence[str]) -> Results:
    """Spread over slots along each axis of the first argument that divides by their count.

    The other arguments are copied to each slot; those of the same shape are spread alike, too.
    """
    first, *rest = make()
    several = any(t.shape == first.shape for t in rest)
    for count in (1, 2, 3, 4):
        slots = tuple(f"CPU:{i}" for i in range(count))
        axes = [a for a, size in enumerate(first.shape) if size and size % count == 0]
        ways = capturing if count == 2 else ()
        for axis in (None, *axes):
            name = f"sharded over {count} slots along {axis}"
            yield from _spread(f, make, _placed(slots, axis, None), name, ways)
            if several and axis is not None:
                alike = _placed(slots, axis, first.shape)
                yield from _spread(f, make, alike, f"{name}, all alike", ways)


def _placed(slots: tuple[str, ...], axis: int | None, shape: tuple[int, ...] | None) -> Place:
    """The first tensor along the axis, and those of this shape; the others whole on each slot."""

    def place(given: list[Tensor]) -> list[Tensor]:
        first, *rest = given
        along = ((axis if t.shape == shape else None) for t in rest)
        others = (t.shard(slots, a) for t, a in zip(rest, along, strict=True))
        return [first.shard(slots, axis), *others]

    return place


def _spread(f: Function, make: Make, place: Place, name: str, capturing: Sequence[str]) -> Results:
    yield name, f(*place(make())).numpy()
    for way, got in _captured(f, make, place, capturing):
        yield f"{name}, {way}", got
