"""Lines of indices, assignments and calls of functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfn.dtype import dtypes as known
from tinyfn.testing.catalogue.elementwise import BINARY_ANY
from tinyfn.testing.lines import LARGEST, Draw, Line, Scope, index_text
from tinyfn.testing.strategies import indices, st


def index(draw: Draw, scope: Scope) -> Line | None:
    """Elements by numpy's indices."""
    x = scope.last()
    found = draw(indices(x.shape))
    if np.empty(x.shape, np.bool_)[found].size > LARGEST:
        return None
    text = index_text(found)
    return scope.expression(f"{x.name}[{text}]", f"{x.name}[{text}]", x.dtype)


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
