"""Hypothesis strategies for what functions of tensors take: shapes, dtypes, values, indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyfn.dtype import DType, to_dtype
from tinyfn.dtype import dtypes as known
from tinyfn.helpers import optional
from tinyfn.tensor import Tensor
from tinyfn.testing.error_rules import UNIT

st = optional("hypothesis.strategies", "testing")

Draw = Any
SIZES = (1, 2, 3, 4, 5, 7, 8, 17)
DEFAULT_DTYPES = (
    *(known.float32, known.float16, known.bfloat16, known.float64, known.bool),
    *(known.int32, known.int8, known.uint8, known.int16, known.uint16),
    *(known.uint32, known.int64, known.uint64),
)


def shapes(min_dims: int = 0, max_dims: int = 3, sizes: Sequence[int] = SIZES) -> Any:
    """Shapes as tuples; sizes beside the widths of vectors, smaller first when shrinking."""
    return st.lists(st.sampled_from(tuple(sizes)), min_size=min_dims, max_size=max_dims).map(tuple)


def _broadcastable(draw: Draw, count: int, max_dims: int) -> tuple[tuple[int, ...], ...]:
    whole = draw(shapes(0, max_dims))
    found = []
    for _ in range(count):
        kept = draw(st.integers(0, len(whole)))
        found.append(
            tuple(1 if draw(st.booleans()) else size for size in whole[len(whole) - kept :])
        )
    return tuple(found)


def broadcastable_shapes(n: int, max_dims: int = 3) -> Any:
    """Tuples of n shapes that broadcast together."""
    return st.composite(_broadcastable)(n, max_dims)


def dtypes(kinds: Sequence[str] = ("float", "int", "uint", "bool")) -> Any:
    """Data types of these kinds, float32 first when shrinking."""
    return st.sampled_from([d for d in DEFAULT_DTYPES if d.kind in kinds])


def hurting_values(dtype: DType | str) -> list[Any]:
    """The values of a dtype where kernels go wrong: the simplest first."""
    kind = to_dtype(dtype)
    if kind.kind == "bool":
        return [False, True]
    if kind.kind != "float":
        low, high = kind.min, kind.max
        return sorted({0, 1, 2, low, low + 1, high, high - 1, max(low, -1)}, key=abs)
    unit, smallest, largest = UNIT[kind]
    normal = {known.float16: 2.0**-14, known.float64: 2.0**-1022}.get(kind, 2.0**-126)
    found = [0.0, 1.0, -1.0, 0.5, -0.0, math.inf, -math.inf, math.nan, 1.0 + 2 * unit]
    return [*found, smallest, -smallest, normal, largest, -largest, 2.5, 1e-3]


def elements(dtype: DType | str, hurting: bool = True) -> Any:
    """Values of a dtype as Python numbers: small ones with ties, or those that hurt, too."""
    kind = to_dtype(dtype)
    if kind.kind == "bool":
        return st.booleans()
    low = 0 if kind.kind == "uint" else -9
    small = st.integers(low, 9)
    if kind.kind == "float":
        small = small.map(lambda number: number / 4)
    return st.one_of(small, st.sampled_from(hurting_values(kind))) if hurting else small


def drawn_values(draw: Draw, shape: Any, dtype: Any, each: Any) -> Any:
    """The dtype, the shape and the values of a tensor, as Python numbers."""
    shape = draw(shape) if hasattr(shape, "example") else tuple(shape)
    kind = to_dtype(draw(dtype) if hasattr(dtype, "example") else dtype)
    count = math.prod(shape)
    if count <= 8 or each is not None:
        each = elements(kind) if each is None else each
        numbers = draw(st.lists(each, min_size=count, max_size=count))
    else:  # one draw for many values: a seed shrinks to 0, single values of large arrays do not
        table = [draw(elements(kind)) for _ in range(4)]
        random = np.random.default_rng(draw(st.integers(0, 255)))
        low = 0 if kind.kind in ("uint", "bool") else -9
        rest = random.integers(low, 10, count)
        numbers = [(int(n) / 4 if kind.kind == "float" else int(n)) for n in rest]
        for value, place in zip(table, random.integers(0, count, len(table)), strict=True):
            numbers[place] = value
    return kind, shape, [bool(n) for n in numbers] if kind.kind == "bool" else numbers


def as_array(numbers: Sequence[Any], shape: Sequence[int], dtype: DType) -> Any:
    """Python numbers as a numpy array; floats in double precision, rounded to the dtype first."""
    if dtype.kind != "float":
        return np.array(numbers, np.dtype(dtype.name)).reshape(shape)
    held = [known.as_const(float(n), dtype) for n in numbers]
    return np.array(held, np.float64).reshape(shape)


def _tensor(draw: Draw, shape: Any, dtype: Any, each: Any) -> Tensor:
    kind, size, numbers = drawn_values(draw, shape, dtype, each)
    return Tensor(as_array(numbers, size, kind), dtype=kind)


def tensors(shape: Any = None, dtype: Any = None, elements: Any = None) -> Any:
    """Tensors whose values hurt: 0, -0.0, inf, NaN, denormals, the ends of the range, ties.

    Args:
        shape: a shape or a strategy of shapes; any where None.
        dtype: a dtype or a strategy of dtypes; any where None.
        elements: a strategy of the values.
    """
    shape = shapes() if shape is None else shape
    return st.composite(_tensor)(shape, dtypes() if dtype is None else dtype, elements)


def _basic_index(draw: Draw, size: int) -> Any:
    kind = draw(st.sampled_from(["slice", "int", "step"]))
    ends = st.one_of(st.none(), st.integers(-size - 1, size + 1))
    if size == 0 or kind == "slice":
        return slice(draw(ends), draw(ends))
    if kind == "int":
        return draw(st.integers(-size, size - 1))
    return slice(draw(ends), draw(ends), draw(st.sampled_from([-1, 2, -2, 3])))


def _numbers(draw: Draw, size: int, common: tuple[int, ...]) -> Any:
    """Index numbers (an array, a list or a numpy int) that broadcast to the common shape."""
    shape = common[draw(st.integers(0, len(common))) :]
    shape = tuple(n if draw(st.booleans()) else 1 for n in shape) if 0 not in shape else shape
    count = math.prod(shape)
    kind = np.dtype(draw(st.sampled_from(["int64", "int32", "uint8", "int8"])))
    low = 0 if kind.kind == "u" else -size
    numbers = draw(st.lists(st.integers(low, size - 1), min_size=count, max_size=count))
    array = np.array(numbers, kind).reshape(shape)
    form = draw(st.sampled_from(["array", "list", "number"]))
    if form == "number" and not shape:
        return array[()]
    return array.tolist() if form == "list" and shape else array


def _mask(draw: Draw, shape: Sequence[int], common: tuple[int, ...]) -> Any:
    """A mask with as many True places as the common shape has elements, or one."""
    places = math.prod(shape)
    count = common[0] if len(common) == 1 and common[0] <= places else min(1, places)
    order = draw(st.permutations(range(places)))
    mask = np.zeros(places, np.bool_)
    mask[list(order[:count])] = True
    return mask.reshape(tuple(shape))


def _indices(draw: Draw, shape: tuple[int, ...]) -> Any:
    count = draw(st.integers(0, len(shape)))
    tail = draw(st.booleans()) and count < len(shape)  # an ellipsis before the last ones
    axis, end = (len(shape) - count, len(shape)) if tail else (0, count)
    common = draw(st.sampled_from([(2,), (), (1,), (3,), (2, 2), (0,)]))
    found: list[Any] = []
    while axis < end:
        kind = draw(st.sampled_from(["basic", "basic", "numbers", "mask", "wide mask"]))
        wide = 2 if kind == "wide mask" and axis + 1 < end else 1
        if kind == "basic" or 0 in shape[axis : axis + wide]:
            found.append(_basic_index(draw, shape[axis]))
            wide = 1
        elif kind == "numbers":
            found.append(_numbers(draw, shape[axis], common))
        else:
            found.append(_mask(draw, shape[axis : axis + wide], common))
        axis += wide
    if draw(st.integers(0, 3)) == 3:
        found.insert(draw(st.integers(0, len(found))), None)
    return (Ellipsis, *found) if tail else tuple(found)


def indices(shape: Sequence[int]) -> Any:
    """Indices of numpy for a shape, tuples of what it takes.

    Ints, slices with steps, None, an ellipsis; arrays and lists of ints that broadcast together,
    masks over one axis or two.
    """
    return st.composite(_indices)(tuple(shape))


def shardings(shape: Sequence[int], slots: Sequence[int] = (1, 2, 3, 4)) -> Any:
    """Ways to spread a tensor of this shape: (devices, axis), an axis of None is a copy on each."""
    found = [
        (tuple(f"CPU:{i}" for i in range(count)), axis)
        for count in slots
        for axis in (None, *range(len(shape)))
        if axis is None or (shape[axis] and shape[axis] % count == 0)
    ]
    return st.sampled_from(found)
