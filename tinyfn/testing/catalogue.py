"""The lines that random programs are made of: a drawing function for each kind of line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.dtype import DType, sum_acc_dtype
from tinyfn.dtype import dtypes as known
from tinyfn.testing.strategies import DEFAULT_DTYPES, indices, st

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
    """One line in tinyfn and in numpy, and functions that it calls."""

    name: str
    tinyfn: str
    numpy: str
    dtype: DType
    defined: tuple[str, str] = ("", "")

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

    def expression(self, tinyfn: str, numpy: str, dtype: DType) -> Line:
        """A line that gives a new name to an expression."""
        name = self.fresh()
        return Line(name, f"{name} = {tinyfn}", f"{name} = {numpy}", dtype)

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
CATALOGUE: dict[str, Maker] = {}


def makes(name: str) -> Callable[[Maker], Maker]:
    """Decorator: the function that draws lines of this name."""

    def add(maker: Maker) -> Maker:
        CATALOGUE[name] = maker
        return maker

    return add


# *** elementwise ***

# tinyfn, numpy
UNARY_ANY = [
    ("-{x}", "-{x}"),
    ("{x}.abs()", "np.abs({x})"),
    ("{x} * {x}", "{x} * {x}"),
    ("{x} + 1", "{x} + 1"),
    ("{x} * 2", "{x} * 2"),
    ("{x}.relu()", "np.where({x} > 0, {x}, np.where({x} == {x}, 0, {x}))"),
]
UNARY_FLOAT = [
    *(
        (f"{{x}}.{n}()", f"np.{n}({{x}})")
        for n in (
            "exp",
            "sqrt",
            "sin",
            "cos",
            "tanh",
            "log",
            "exp2",
            "log2",
            "floor",
            "ceil",
            "trunc",
        )
    ),
    ("{x}.round()", "np.rint({x})"),
    ("{x}.sigmoid()", "1 / (1 + np.exp(-{x}))"),
    ("{x}.reciprocal()", "1 / {x}"),
    ("{x}.rsqrt()", "1 / np.sqrt({x})"),
    ("{x} * 0.25", "{x} * 0.25"),
    ("{x} / 3", "{x} / 3"),
    ("{x} ** 2", "{x} ** 2"),
    ("{x} ** 3", "{x} ** 3"),
    ("({x}.abs() + 1).log()", "np.log(np.abs({x}) + 1)"),
]


@makes("unary")
def unary(draw: Draw, scope: Scope) -> Line | None:
    """A function of each element."""
    x = scope.last()
    if x.dtype is known.bool:
        return scope.expression(f"{x.name}.logical_not()", f"~{x.name}", x.dtype)
    texts = UNARY_ANY + (UNARY_FLOAT if x.is_float else [])
    tiny, numpy = draw(st.sampled_from(texts))
    return scope.expression(tiny.format(x=x.name), numpy.format(x=x.name), x.dtype)


BINARY_ANY = [
    ("{x} + {y}", "{x} + {y}"),
    ("{x} - {y}", "{x} - {y}"),
    ("{x} * {y}", "{x} * {y}"),
    ("{x}.maximum({y})", "np.maximum({x}, {y})"),
    ("{x}.minimum({y})", "np.minimum({x}, {y})"),
    ("({x} < {y}).where({x}, {y})", "np.where({x} < {y}, {x}, {y})"),
]
BINARY_INT = [
    ("{x} // {y}", "{x} // {y}"),
    ("{x} % {y}", "{x} % {y}"),
    ("{x} & {y}", "{x} & {y}"),
    ("{x} | {y}", "{x} | {y}"),
    ("{x} ^ {y}", "{x} ^ {y}"),
]
BINARY_BOOL = BINARY_INT[2:]
BINARY_FLOAT = [("{x} / {y}", "{x} / {y}"), ("{x} / ({y} * {y} + 1)", "{x} / ({y} * {y} + 1)")]


@makes("binary")
def binary(draw: Draw, scope: Scope) -> Line | None:
    """A function of two elements, with broadcasting."""
    x = scope.last()
    y = scope.another(draw, x)
    if y is None:
        return None
    kinds = {"bool": BINARY_BOOL, "float": BINARY_ANY + BINARY_FLOAT}
    tiny, numpy = draw(st.sampled_from(kinds.get(x.dtype.kind, BINARY_ANY + BINARY_INT)))
    return scope.expression(
        tiny.format(x=x.name, y=y.name), numpy.format(x=x.name, y=y.name), x.dtype
    )


@makes("compare")
def compare(draw: Draw, scope: Scope) -> Line | None:
    """Truths about two values."""
    x = scope.last()
    y = scope.another(draw, x)
    if y is None or x.dtype is known.bool:
        return None
    sign = draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
    text = f"({x.name} {sign} {y.name})"
    if draw(st.booleans()):
        return scope.expression(text, text, known.bool)
    other = scope.another(draw, x) or y
    if math.prod(np.broadcast_shapes(x.shape, y.shape, other.shape)) > LARGEST:
        return None
    return scope.expression(
        f"{text}.where({x.name}, {other.name})",
        f"np.where({text}, {x.name}, {other.name})",
        x.dtype,
    )


def numpy_cast(name: str, source: DType, target: DType) -> str:
    """The text of a cast in numpy, whose floats are in double precision."""
    if target.kind == "float":
        return f"{name}.astype(np.float64)"
    if source.kind == "float" and target.kind != "bool":
        return f"{name}.astype(np.int64).astype(np.{target.name})"
    return f"{name}.astype(np.{'bool_' if target.kind == 'bool' else target.name})"


@makes("cast")
def cast(draw: Draw, scope: Scope) -> Line | None:
    """The value in another dtype."""
    x = scope.last()
    target = draw(st.sampled_from(DEFAULT_DTYPES))
    if x.is_float and target is known.uint64:
        return None  # beyond int64, where numpy says nothing
    return scope.expression(
        f'{x.name}.cast("{target.name}")', numpy_cast(x.name, x.dtype, target), target
    )


# *** movement ***


@makes("movement")
def movement(draw: Draw, scope: Scope) -> Line | None:
    """The same elements at other places."""
    x = scope.last()
    if not x.shape:
        return scope.expression(f"{x.name}.reshape(1)", f"{x.name}.reshape(1)", x.dtype)
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    size = x.shape[axis]
    kind = draw(
        st.sampled_from(
            ["permute", "flip", "flatten", "shrink", "pad", "expand", "roll", "cat", "split"]
        )
    )
    if kind == "permute":
        order = tuple(draw(st.permutations(range(len(x.shape)))))
        return scope.expression(f"{n}.permute({order})", f"{n}.transpose({order})", x.dtype)
    if kind == "flip":
        return scope.expression(f"{n}.flip({axis})", f"np.flip({n}, {axis})", x.dtype)
    if kind == "flatten":
        return scope.expression(f"{n}.flatten()", f"{n}.reshape(-1)", x.dtype)
    if kind == "roll":
        by = draw(st.integers(-3, 3))
        return scope.expression(f"{n}.roll({by}, {axis})", f"np.roll({n}, {by}, {axis})", x.dtype)
    if kind == "split":
        if size % 2 or not size:
            return None
        shape = (*x.shape[:axis], 2, size // 2, *x.shape[axis + 1 :])
        return scope.expression(f"{n}.reshape({shape})", f"{n}.reshape({shape})", x.dtype)
    return _resized(draw, scope, kind, axis)


def _resized(draw: Draw, scope: Scope, kind: str, axis: int) -> Line | None:
    """Movement that changes the count of elements."""
    x = scope.last()
    n, size, rank = x.name, x.shape[axis], len(x.shape)
    if kind == "shrink":
        begin = draw(st.integers(0, max(size - 1, 0)))
        box = tuple((begin, s) if a == axis else (0, s) for a, s in enumerate(x.shape))
        cut = f"{n}[{', '.join([':'] * axis + [f'{begin}:'])}]"
        return scope.expression(f"{n}.shrink({box})", cut, x.dtype)
    if x.value.size * 3 > LARGEST:
        return None
    if kind == "pad":
        around = (draw(st.integers(0, 2)), draw(st.integers(0, 3)))
        pads = tuple(around if a == axis else (0, 0) for a in range(rank))
        return scope.expression(f"{n}.pad({pads})", f"np.pad({n}, {pads})", x.dtype)
    if kind == "expand":
        shape = (2, *x.shape)
        return scope.expression(f"{n}.expand({shape})", f"np.broadcast_to({n}, {shape})", x.dtype)
    joined = f"{n}, {n}.flip({axis})"
    return scope.expression(
        f"Tensor.cat({joined}, dim={axis})",
        f"np.concatenate([{n}, np.flip({n}, {axis})], {axis})",
        x.dtype,
    )


# *** reductions ***


@makes("reduce")
def reduce(draw: Draw, scope: Scope) -> Line | None:
    """One value out of many along an axis or all."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    axis = draw(st.sampled_from([*range(len(x.shape)), None, -1]))
    keep = draw(st.booleans()) and axis is not None
    n, tiny, numpy = x.name, f"{axis}, keepdim={keep}", f"axis={axis}, keepdims={keep}"
    kind = draw(st.sampled_from(["sum", "max", "min", "mean", "argmax", "any", "var"]))
    if kind == "sum":
        wide = sum_acc_dtype(x.dtype)
        as_wide = "" if x.is_float else f", dtype=np.{wide.name}"
        return scope.expression(f"{n}.sum({tiny})", f"{n}.sum({numpy}{as_wide})", wide)
    if kind == "argmax":
        return scope.expression(
            f"{n}.argmax({tiny})", f"{n}.argmax({numpy}).astype(np.int32)", known.int32
        )
    if kind == "any":
        return scope.expression(f"({n} != 0).any({tiny})", f"({n} != 0).any({numpy})", known.bool)
    if kind in ("max", "min") or not x.is_float:
        kind = kind if kind in ("max", "min") else "max"
        return scope.expression(f"{n}.{kind}({tiny})", f"{n}.{kind}({numpy})", x.dtype)
    more = ", correction=0" if kind == "var" else ""
    return scope.expression(f"{n}.{kind}({tiny}{more})", f"{n}.{kind}({numpy})", x.dtype)


@makes("rows")
def rows(draw: Draw, scope: Scope) -> Line | None:
    """Functions of whole rows: softmax, normalisation, scans, sorts."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    axis = draw(st.integers(0, len(x.shape) - 1))
    n, kinds = x.name, ["sort", "cumsum", "cummax"]
    kind = draw(st.sampled_from(["softmax", "centre", *kinds] if x.is_float else kinds))
    if kind == "softmax":
        top = f"np.exp({n} - {n}.max({axis}, keepdims=True))"
        return scope.expression(
            f"{n}.softmax({axis})", f"{top} / {top}.sum({axis}, keepdims=True)", x.dtype
        )
    if kind == "centre":
        return scope.expression(
            f"{n} - {n}.mean({axis}, keepdim=True)",
            f"{n} - {n}.mean({axis}, keepdims=True)",
            x.dtype,
        )
    if x.dtype is known.bool:
        return None
    if kind == "sort":
        return scope.expression(f"{n}.sort({axis})[0]", f"np.sort({n}, {axis})", x.dtype)
    if kind == "cummax":
        return scope.expression(
            f"{n}.cummax({axis})[0]", f"np.maximum.accumulate({n}, {axis})", x.dtype
        )
    wide = sum_acc_dtype(x.dtype)
    as_wide = "" if x.is_float else f", dtype=np.{wide.name}"
    return scope.expression(f"{n}.cumsum({axis})", f"np.cumsum({n}, {axis}{as_wide})", wide)


@makes("contraction")
def contraction(draw: Draw, scope: Scope) -> Line | None:
    """Products of matrices."""
    x = scope.last()
    if len(x.shape) < 2 or x.dtype is known.bool:
        return None
    if x.value.size * x.shape[-2] > 16 * LARGEST or x.value.size // max(x.shape[-1], 1) > 200:
        return None
    kind = draw(st.sampled_from(["gram", "einsum", "vector"]))
    if kind == "vector":
        return scope.expression(
            f"{x.name} @ {x.name}[..., 0, :].flatten()[:{x.shape[-1]}]",
            f"{x.name} @ {x.name}[..., 0, :].reshape(-1)[:{x.shape[-1]}]",
            x.dtype,
        )
    if kind == "einsum" and len(x.shape) == 2:
        return scope.expression(
            f'Tensor.einsum("ij,ik->jk", {x.name}, {x.name})',
            f'np.einsum("ij,ik->jk", {x.name}, {x.name})',
            x.dtype,
        )
    return scope.expression(
        f"{x.name} @ {x.name}.transpose(-1, -2)",
        f"{x.name} @ np.swapaxes({x.name}, -1, -2)",
        x.dtype,
    )


# *** indexing, assignment, calls ***


def index_text(index: Any) -> str:
    """An index as it is written."""

    def one(part: Any) -> str:
        if isinstance(part, slice):
            ends = ["" if e is None else str(e) for e in (part.start, part.stop)]
            return ":".join([*ends, *([] if part.step is None else [str(part.step)])])
        if isinstance(part, np.ndarray):
            plain = part.size and part.dtype in (np.int64, np.bool_)
            text = f"np.array({part.tolist()}" + ("" if plain else f", '{part.dtype}'") + ")"
            return text if part.size or part.ndim == 1 else f"{text}.reshape({part.shape})"
        return "..." if part is Ellipsis else repr(part)

    parts = [one(p) for p in index]
    return ", ".join(parts) if parts else "..."


@makes("index")
def index(draw: Draw, scope: Scope) -> Line | None:
    """Elements by numpy's indices."""
    x = scope.last()
    found = draw(indices(x.shape))
    if np.empty(x.shape, np.bool_)[found].size > LARGEST:
        return None
    text = index_text(found)
    return scope.expression(f"{x.name}[{text}]", f"{x.name}[{text}]", x.dtype)


@makes("assign")
def assign(draw: Draw, scope: Scope) -> Line | None:
    """A copy of a value, parts of which are written."""
    x = scope.last()
    found = draw(indices(x.shape))
    name, text = scope.fresh(), index_text(found)
    value: Any = draw(st.integers(0, 3))
    if x.is_float:
        value = value / 2
    elif x.dtype is known.bool:
        value = bool(value)
    return Line(
        name,
        f"{name} = {x.name}.clone()\n{name}[{text}] = {value}",
        f"{name} = np.array({x.name})\n{name}[{text}] = {value}",
        x.dtype,
    )


@makes("call")
def call(draw: Draw, scope: Scope) -> Line | None:
    """A captured function, perhaps precompiled, perhaps calling another one."""
    x = scope.last()
    y = scope.another(draw, x)
    if y is None or x.dtype is known.bool:
        return None
    name, defined = scope.fresh(), f"f{len(scope.operands)}"
    (tiny, numpy) = draw(st.sampled_from(BINARY_ANY[:4]))
    inner = [f for f, kind in scope.functions if kind.kind == x.dtype.kind]
    wrap = draw(st.sampled_from(["{0}", *(f"{f}({{0}}, x)" for f in inner)]))
    options = draw(st.sampled_from(["", "(precompile=True)"]))
    bodies = [wrap.format(t.format(x="x", y="y")) for t in (tiny, numpy)]
    scope.functions.append((defined, x.dtype))
    signature = f"def {defined}(x, y):\n    return "
    given = f"{name} = {defined}({x.name}, {y.name})"
    return Line(
        name,
        given,
        given,
        x.dtype,
        (f"@function{options}\n{signature}{bodies[0]}", f"{signature}{bodies[1]}"),
    )
