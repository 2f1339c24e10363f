"""Lines whose elements each come from one element of every source."""

from __future__ import annotations

import math

import numpy as np

from tinyfn.dtype import DType
from tinyfn.dtype import dtypes as known
from tinyfn.testing.lines import LARGEST, Draw, Line, Scope
from tinyfn.testing.strategies import DEFAULT_DTYPES, st

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


def cast(draw: Draw, scope: Scope) -> Line | None:
    """The value in another dtype."""
    x = scope.last()
    target = draw(st.sampled_from(DEFAULT_DTYPES))
    if x.is_float and target is known.uint64:
        return None  # beyond int64, where numpy says nothing
    return scope.expression(
        f'{x.name}.cast("{target.name}")', numpy_cast(x.name, x.dtype, target), target
    )
