"""Lines that read and write elements by their numbers along an axis, or where a mask is true."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyfn.dtype import dtypes as known
from tinyfn.testing.lines import Draw, Line, Operand, Scope, array_text
from tinyfn.testing.strategies import st

MOST = 64  # numbers of an index, which stands in the program


def numbers(draw: Draw, shape: tuple[int, ...], low: int, high: int) -> Any:
    """An array of whole numbers from low to high."""
    count = math.prod(shape)
    if count <= 8:
        found = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
    else:
        found = np.random.default_rng(draw(st.integers(0, 255))).integers(low, high + 1, count)
    kind = draw(st.sampled_from(["int64", "int32", *(["int8"] if high < 100 else [])]))
    return np.array(found, kind).reshape(shape)


def _places(draw: Draw, x: Operand, axis: int) -> tuple[Any, tuple[str, str]]:
    """Numbers along an axis, some before the first and after the last, and their two texts."""
    shape = [draw(st.integers(1, min(size, 3))) for size in x.shape]
    shape[axis] = draw(st.integers(0, min(4, max(1, MOST * shape[axis] // math.prod(shape)))))
    found = numbers(draw, tuple(shape), -x.shape[axis] - 1, x.shape[axis])
    text = array_text(found)
    return found, (f"Tensor({text}, device={x.name}.device)", text)


GATHER = """def gather(x, axis, places):
    box = [slice(None) if a == axis else slice(n) for a, n in enumerate(places.shape)]
    size = x.shape[axis]
    inside = (places >= -size) & (places < size)
    found = np.take_along_axis(x[tuple(box)], np.where(inside, places, 0), axis)
    return np.where(inside, found, x.dtype.type(0))"""


def gather(draw: Draw, scope: Scope) -> Line | None:
    """Elements at numbers along an axis, and numbers as truths at their place."""
    x = scope.last()
    if x.dtype.kind in ("int", "uint") and x.value.size <= 512 and draw(st.booleans()):
        classes = draw(st.integers(0, 5))
        numpy = f"({x.name}[..., None] == np.arange({classes})).astype(np.int32)"
        return scope.expression(f"{x.name}.one_hot({classes})", numpy, known.int32)
    if not x.shape or not x.value.size:
        return None
    axis = draw(st.integers(0, len(x.shape) - 1))
    _, (tiny, numpy) = _places(draw, x, axis)
    return scope.expression(
        f"{x.name}.gather({axis}, {tiny})", f"gather({x.name}, {axis}, {numpy})", x.dtype, GATHER
    )


SCATTER = '''def scatter(x, axis, places, source, combine=None, include_self=True, mean=False):
    """Each number of the index after the other."""
    total, size = np.array(x), x.shape[axis]
    taken = np.full(x.shape, int(include_self), x.dtype)
    if np.ndim(source) == 0:
        source = np.full(places.shape, source, x.dtype)
    for at in np.ndindex(places.shape):
        if -size <= places[at] < size:
            to = (*at[:axis], places[at], *at[axis + 1 :])
            alone = combine is None or not taken[to]
            total[to] = source[at] if alone else combine(total[to], source[at])
            taken[to] += 1
    if not mean:
        return total
    taken = np.maximum(taken, 1)
    return total / taken if x.dtype.kind == "f" else total // taken'''

COMBINED = {"sum": "np.add", "prod": "np.multiply", "amax": "np.maximum", "amin": "np.minimum"}


def scatter(draw: Draw, scope: Scope) -> Line | None:
    """Elements written at numbers along an axis, over what is there or combined with it."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    found, (tiny, numpy) = _places(draw, x, axis)
    head, body = f"{axis}, {tiny}, ", f"scatter({n}, {axis}, {numpy}, "
    has_source = found.shape[axis] <= x.shape[axis]
    number = {"bool": "True", "float": "0.5"}.get(x.dtype.kind, "2")
    source = (f"{n}.flip({axis})", f"np.flip({n}, {axis})") if has_source else (number, number)
    if not has_source or draw(st.booleans()):
        kinds = [("", ""), (', "add"', ", np.add"), (', "multiply"', ", np.multiply")]
        how = draw(st.sampled_from(kinds[:: 2 if x.dtype is known.bool else 1]))
        return scope.expression(
            f"{n}.scatter({head}{source[0]}{how[0]})",
            f"{body}{source[1]}{how[1]})",
            x.dtype,
            SCATTER,
        )
    names = ["amax", "amin", "prod", *([] if x.dtype is known.bool else ["sum", "mean"])]
    kind, own = draw(st.sampled_from(names)), draw(st.booleans())
    mean = ", mean=True" if kind == "mean" else ""
    return scope.expression(
        f'{n}.scatter_reduce({head}{source[0]}, "{kind}", include_self={own})',
        f"{body}{source[1]}, {COMBINED.get(kind, 'np.add')}, {own}{mean})",
        x.dtype,
        SCATTER,
    )


PADDED = """def padded(rows, size, fill):
    missing = np.full((max(size - len(rows), 0), *rows.shape[1:]), fill, rows.dtype)
    return np.concatenate([rows[:size], missing])"""


def select(draw: Draw, scope: Scope) -> Line | None:
    """Elements where a mask is true, and the places of those that are not 0.

    A count that is not given is read. Only of arguments it is beyond doubt: rounding has not
    changed what is 0 there.
    """
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    size = draw(st.integers(0, 9)) if draw(st.booleans()) else None
    tail = "" if size is None else f", size={size}, fill_value={draw(st.integers(0, 1))}"
    if draw(st.booleans()):
        shape = x.shape[draw(st.integers(0, len(x.shape))) :]
        if math.prod(shape) > MOST:
            return None
        mask = array_text(numbers(draw, shape, 0, 1).astype(np.bool_))
        whole = f"{x.name}[np.broadcast_to({mask}, {x.name}.shape)]"
        made = f"{x.name}.masked_select(Tensor({mask}, device={x.name}.device){tail})"
        return _selected(scope, made, whole, x.dtype, size, tail)
    of = draw(st.sampled_from(scope.inputs)) if size is None else x
    made = f"{of.name}.nonzero({tail.removeprefix(', ')})"
    return _selected(
        scope, made, f"np.argwhere({of.name}).astype(np.int32)", known.int32, size, tail
    )


def _selected(scope: Scope, made: str, whole: str, dtype: Any, size: int | None, tail: str) -> Line:
    if size is None:
        return scope.expression(made, whole, dtype, reads=True)
    fill = tail.rpartition("=")[2]
    return scope.expression(made, f"padded({whole}, {size}, {fill})", dtype, PADDED)
