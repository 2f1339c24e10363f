"""What a line of the table is: shapes, the work in it, and the same in each library's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LIBRARIES = ("tinyfn", "numpy", "numexpr", "torch", "torch.compile", "jax", "tinygrad")
SCALE = {"GB/s": 1e-9, "GFLOP/s": 1e-9, "Melem/s": 1e-6, "calls/s": 1.0, "steps/s": 1.0}
M = 1 << 20
Function = Callable[..., Any]


@dataclass(frozen=True)
class Input:
    """One array: normal numbers times `scale` plus `offset`, or integers from 0 to `high` - 1."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: int = 0
    positive: bool = False
    scale: float = 1.0
    offset: float = 0.0

    def make(self, rng: np.random.Generator) -> np.ndarray:
        """The array, the same for the same state of the generator."""
        if self.high:
            return rng.integers(0, self.high, self.shape).astype(self.dtype)
        values = rng.standard_normal(self.shape, np.float32) * self.scale + self.offset
        return (np.abs(values) + 1e-3 if self.positive else values).astype(self.dtype)


@dataclass(frozen=True)
class Workload:
    """One line. Each function takes its library's module, then the library's own arrays.

    `array` is numpy's way, which is also the reference in float64 and, with `jax.numpy` as the
    module, jax's unless `jax` is given. `tensor` serves tinyfn and tinygrad. A function returns one
    array or a tuple of them; of a training step it returns a function that makes a step and
    returns the loss, and `array` is then the loss of the first step.
    """

    name: str
    unit: str
    work: float
    inputs: tuple[Input, ...]
    array: Function
    torch: Function | None = None
    tensor: Function | None = None
    jax: Function | None = None
    numexpr: str | None = None
    tolerance: float = 1e-4
    leave_out: tuple[str, ...] = ()
    training: bool = False

    def functions(self) -> dict[str, Function | str]:
        """The libraries that this line is measured in, and what each runs."""
        found = {
            "tinyfn": self.tensor,
            "numpy": None if self.training else self.array,
            "numexpr": self.numexpr,
            "torch": self.torch,
            "torch.compile": self.torch,
            "jax": self.jax or (None if self.training else self.array),
            "tinygrad": self.tensor,
        }
        return {k: v for k, v in found.items() if v is not None and k not in self.leave_out}
