"""When two results are the same, and what is said where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfn.testing.bounds import allowed

Array = Any


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
