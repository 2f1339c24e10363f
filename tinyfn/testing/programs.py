"""Random programs: lines of tinyfn code, each with its meaning in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyfn.dtype import DType
from tinyfn.errors import ArgumentError
from tinyfn.function import function
from tinyfn.tensor import Tensor
from tinyfn.testing.catalogue import CATALOGUE
from tinyfn.testing.lines import Line, Operand, Scope
from tinyfn.testing.strategies import as_array, drawn_values, dtypes, shapes, st

HEAD = "import numpy as np\nfrom math import inf, nan\n"


@dataclass(frozen=True)
class Input:
    """An argument of a program: its values as Python numbers."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    numbers: tuple[Any, ...]

    @property
    def array(self) -> Any:
        """The values in numpy; floats in double precision."""
        return as_array(self.numbers, self.shape, self.dtype)

    def tensor(self) -> Tensor:
        """The values as a new Tensor."""
        return Tensor(self.array, dtype=self.dtype)

    def listing(self) -> str:
        """The values as text that makes the array again."""
        flat = f"{list(self.numbers)!r}"
        kind = "float64" if self.dtype.kind == "float" else self.dtype.name
        ends = "" if len(self.shape) == 1 else f".reshape({self.shape})"
        return f"np.array({flat}, dtype=np.{kind}){ends}"


@dataclass(frozen=True)
class Program:
    """A function of tensors as text, the same in numpy, and the arguments to call it with."""

    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    result: str
    dtype: DType
    ops: tuple[str, ...] = field(default=())

    @property
    def reads(self) -> bool:
        """Whether it has to know values while it runs, which cannot be captured."""
        return any(line.reads for line in self.lines)

    def body(self, in_numpy: bool = False) -> str:
        """The program as one function, `program`."""
        defined = [line.before(in_numpy) for line in self.lines if line.before(in_numpy)]
        before = dict.fromkeys(defined)  # one of numpy may serve several lines
        inside = [line.numpy if in_numpy else line.tinyfn for line in self.lines]
        text = "\n".join("    " + part for whole in inside for part in whole.split("\n"))
        names = ", ".join(i.name for i in self.inputs)
        return (
            "".join(f"{b}\n\n\n" for b in before)
            + f"def program({names}):\n{text}\n    return {self.result}\n"
        )

    def source(self, in_numpy: bool = False) -> str:
        """A file that can be run: what it prints is the result."""
        head = HEAD if in_numpy else HEAD + "from tinyfn import Tensor, function\n"
        lines = [head, "", self.body(in_numpy), ""]
        for i in self.inputs:
            made = i.listing() if in_numpy else f'Tensor({i.listing()}, dtype="{i.dtype.name}")'
            lines.append(f"{i.name} = {made}")
        names = ", ".join(i.name for i in self.inputs)
        lines.append(f"print(program({names}){'' if in_numpy else '.numpy()'})")
        return "\n".join(lines) + "\n"

    def _named(self, in_numpy: bool) -> Callable[..., Any]:
        names: dict[str, Any] = {"np": np, "inf": math.inf, "nan": math.nan}
        if not in_numpy:
            names |= {"Tensor": Tensor, "function": function}
        exec(compile(self.body(in_numpy), "<program>", "exec"), names)
        found: Callable[..., Any] = names["program"]
        return found

    @property
    def function(self) -> Callable[..., Tensor]:
        """The program as a function of tensors."""
        return self._named(in_numpy=False)

    def tensors(self) -> list[Tensor]:
        """New tensors with the program's arguments."""
        return [i.tensor() for i in self.inputs]

    def numpy(self) -> Any:
        """What numpy computes, floats in double precision."""
        with np.errstate(all="ignore"):
            return self._named(in_numpy=True)(*(i.array.copy() for i in self.inputs))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis prints the code, not the fields

    def __repr__(self) -> str:
        return f"\n{self.source()}\n# the same in numpy\n{self.source(in_numpy=True)}"


def _draw_input(draw: Any, name: str, dtype: Any, shape: Any) -> Input:
    kind, size, numbers = drawn_values(draw, shape, dtype, None)
    return Input(name, kind, size, tuple(numbers))


def _program(draw: Any, ops: tuple[str, ...], length: int, dtype: Any) -> Program:
    kind = draw(dtype)
    shape = draw(shapes(1, 3))
    inputs = [_draw_input(draw, "a", kind, shape)]
    if draw(st.booleans()):
        inputs.append(_draw_input(draw, "b", kind, draw(st.sampled_from([shape, shape[-1:]]))))
    scope = Scope([Operand(i.name, i.shape, i.dtype, i.array) for i in inputs])
    lines: list[Line] = []
    for _ in range(draw(st.integers(1, length))):
        name = draw(st.sampled_from(ops))
        line = CATALOGUE[name](draw, scope)
        if line is not None:
            lines.append(scope.add(line))
    last = scope.operands[-1]
    return Program(tuple(inputs), tuple(lines), last.name, last.dtype, ops)


def programs(ops: Sequence[str] | None = None, length: int = 6, dtype: Any = None) -> Any:
    """Random well-typed programs of up to `length` lines, each with its numpy meaning.

    Args:
        ops: names of `CATALOGUE` to choose from; all where None.
        length: the most lines.
        dtype: a strategy of the dtype of the arguments.

    Raises:
        ArgumentError: a name is not in the catalogue.
    """
    names = tuple(CATALOGUE) if ops is None else tuple(ops)
    unknown = [n for n in names if n not in CATALOGUE]
    if unknown or not names:
        raise ArgumentError(
            f"expected ops of {', '.join(CATALOGUE)}; got {', '.join(unknown) or 'none'}"
        )
    return st.composite(_program)(names, length, dtypes() if dtype is None else dtype)
