"""A line of a random program, in tinyfn and in numpy, and the values that lines may use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.dtype import DType
from tinyfn.testing.strategies import st

Draw = Any
LARGEST = 4096  # elements of a value


@dataclass(frozen=True)
class Operand:
    """A value of the program so far."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    value: Any

    @property
    def is_float(self) -> bool:
        """Whether it holds floating point numbers."""
        return self.dtype.kind == "float"


@dataclass(frozen=True)
class Line:
    """One line in tinyfn and in numpy, and functions that it calls.

    A line `reads` where it has to know values to tell the shape of its result.
    """

    name: str
    tinyfn: str
    numpy: str
    dtype: DType
    defined: tuple[str, str] = ("", "")
    reads: bool = False

    def before(self, in_numpy: bool) -> str:
        """The functions that have to be defined first."""
        return self.defined[1 if in_numpy else 0]


class Scope:
    """The values that a new line may use, and the names that are taken."""

    def __init__(self, operands: list[Operand]) -> None:
        self.operands = operands
        self.values: dict[str, Any] = {"np": np, "inf": math.inf, "nan": math.nan}
        self.values |= {o.name: o.value for o in operands}
        self.functions: list[tuple[str, DType]] = []
        self.inputs = tuple(operands)

    def fresh(self) -> str:
        """A name that is not taken."""
        return f"v{len(self.operands)}"

    def last(self) -> Operand:
        """The newest value."""
        return self.operands[-1]

    def add(self, line: Line) -> Line:
        """Run a line in numpy, so that later lines know its shape."""
        with np.errstate(all="ignore"):
            exec(
                line.numpy if not line.defined[1] else f"{line.defined[1]}\n{line.numpy}",
                self.values,
            )
        value = np.asarray(self.values[line.name])
        self.operands.append(Operand(line.name, value.shape, line.dtype, value))
        return line

    def expression(
        self, tinyfn: str, numpy: str, dtype: DType, defined: str = "", reads: bool = False
    ) -> Line:
        """A line that names an expression, and the functions that it needs in numpy."""
        name = self.fresh()
        whole = (f"{name} = {tinyfn}", f"{name} = {numpy}")
        return Line(name, *whole, dtype, ("", defined), reads)

    def another(self, draw: Draw, one: Operand) -> Operand | None:
        """A value of the same dtype that broadcasts with one, or itself."""

        def fits(other: Operand) -> bool:
            try:
                shape = np.broadcast_shapes(one.shape, other.shape)
            except ValueError:
                return False
            return other.dtype is one.dtype and math.prod(shape) <= LARGEST

        found = [o for o in self.operands if fits(o)]
        return draw(st.sampled_from(found)) if found else None


Maker = Callable[[Draw, Scope], Line | None]
OfOperand = Callable[[Draw, Scope, Operand], Line | None]


def array_text(array: Any) -> str:
    """An array of numpy's as it is written."""
    plain = array.size and array.dtype in (np.int64, np.bool_)
    text = f"np.array({array.tolist()}" + ("" if plain else f", '{array.dtype}'") + ")"
    return text if array.size or array.ndim == 1 else f"{text}.reshape({array.shape})"


def index_text(index: Any) -> str:
    """An index as it is written."""

    def one(part: Any) -> str:
        if isinstance(part, slice):
            ends = ["" if e is None else str(e) for e in (part.start, part.stop)]
            return ":".join([*ends, *([] if part.step is None else [str(part.step)])])
        if isinstance(part, np.ndarray):
            return array_text(part)
        return "..." if part is Ellipsis else repr(part)

    parts = [one(p) for p in index]
    return ", ".join(parts) if parts else "..."
