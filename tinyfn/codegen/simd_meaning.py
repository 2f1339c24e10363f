"""What each op of the generated language does, on numpy scalars and arrays: a function a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tinyfn.codegen.ops import HORIZONTAL, NAMES
from tinyfn.codegen.simd_word import BY_SHORT, Word, register_type
from tinyfn.dtype import DType, dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.arithmetic import bitcast, cast, elementwise, from_storage, held_dtype, to_storage
from tinyfn.uop.opcodes import Ops

ALU: Final[dict[str, Ops]] = {name: op for op, name in NAMES.items()}
COMBINES: Final[dict[str, Ops]] = {name: op for op, name in HORIZONTAL.items()}


def _held(short: str) -> Any:
    return held_dtype(BY_SHORT[register_type(short)])


def _places(word: Word, i: Any) -> Any:
    return i + np.arange(word.lanes) if word.lanes > 1 else i


def _read(word: Word, buffer: Any, places: Any) -> Any:
    values = from_storage(buffer[places], BY_SHORT[word.kind])
    return np.asarray(values).astype(_held(word.kind))[()]


def _write(word: Word, buffer: Any, places: Any, values: Any) -> None:
    dtype = BY_SHORT[word.kind]
    with np.errstate(all="ignore"):
        buffer[places] = to_storage(np.asarray(values).astype(held_dtype(dtype)), dtype)


def load(word: Word) -> Callable[..., Any]:
    """The elements from i on."""
    return lambda buffer, i: _read(word, buffer, _places(word, i))


def store(word: Word) -> Callable[..., Any]:
    """Write the elements from i on."""
    return lambda buffer, i, value: _write(word, buffer, _places(word, i), value)


def _read_where(word: Word, buffer: Any, places: Any, mask: Any) -> Any:
    if word.lanes == 1:
        return _read(word, buffer, places) if mask else _held(word.kind).type(0)
    found = np.zeros(word.lanes, _held(word.kind))
    found[mask] = _read(word, buffer, places[mask])
    return found


def load_masked(word: Word) -> Callable[..., Any]:
    """The elements from i on where the mask holds, 0 elsewhere."""
    return lambda buffer, i, mask: _read_where(word, buffer, _places(word, i), mask)


def store_masked(word: Word) -> Callable[..., Any]:
    """Write the elements from i on where the mask holds."""

    def run(buffer: Any, i: Any, value: Any, mask: Any) -> None:
        if word.lanes > 1:
            _write(word, buffer, _places(word, i)[mask], value[mask])
        elif mask:
            _write(word, buffer, i, value)

    return run


def gather(word: Word) -> Callable[..., Any]:
    """The elements at places where the mask holds, 0 elsewhere."""
    return lambda buffer, places, mask: _read_where(word, buffer, places, mask)


def scatter(word: Word) -> Callable[..., Any]:
    """Write the elements at places where the mask holds, in the order of the lanes."""

    def run(buffer: Any, places: Any, value: Any, mask: Any) -> None:
        for lane in range(word.lanes):
            if mask[lane]:
                _write(word, buffer, places[lane], value[lane])

    return run


def strided(word: Word) -> Callable[..., Any]:
    """Every stride-th element from i on."""
    return lambda buffer, i, stride: _read(word, buffer, i + stride * np.arange(word.lanes))


def strided_masked(word: Word) -> Callable[..., Any]:
    """Every stride-th element from i on where the mask holds, 0 elsewhere."""

    def run(buffer: Any, i: Any, stride: Any, mask: Any) -> Any:
        return _read_where(word, buffer, i + stride * np.arange(word.lanes), mask)

    return run


def local(word: Word) -> Callable[..., Any]:
    """Scratch memory."""
    dtype = BY_SHORT[word.kind]
    return lambda n: to_storage(np.zeros(n, held_dtype(dtype)), dtype)


def const(word: Word) -> Callable[..., Any]:
    """A literal in every lane."""
    kind = _held(word.kind)

    def make(value: Any) -> Any:
        if kind.kind in "iu":
            value = dtypes.as_const(value, BY_SHORT[word.kind])
        with np.errstate(all="ignore"):
            scalar = np.array(value, kind)
        return np.full(word.lanes, scalar) if word.lanes > 1 else scalar[()]

    return make


def quant(word: Word) -> Callable[..., Any]:
    """The nearest value that a small float can store, as float32."""
    dtype = BY_SHORT[word.kind]

    def round_to(value: Any) -> Any:
        with np.errstate(all="ignore"):
            stored = to_storage(np.asarray(value).astype(held_dtype(dtype)), dtype)
            return np.asarray(from_storage(stored, dtype)).astype(np.float32)[()]

    return round_to


def horizontal(word: Word) -> Callable[..., Any]:
    """Combine the upper half with the lower until one lane is left."""
    op, dtype = COMBINES[word.op], BY_SHORT[word.kind]

    def combine(vector: Any) -> Any:
        while len(vector) > 1:
            half = len(vector) // 2
            vector = elementwise(op, dtype, vector[:half], vector[half:])
        return vector[0]

    return combine


def elementwise_op(word: Word) -> Callable[..., Any]:
    """An op of the graph on values in registers."""
    op, dtype, source = ALU[word.op], BY_SHORT[word.kind], BY_SHORT[word.source]
    if op is Ops.CAST:
        return lambda x: np.asarray(cast(np.asarray(x), source, dtype))[()]
    if op is Ops.BITCAST:
        return lambda x: _bitcast(x, source, dtype)
    result = dtypes.bool if op in opcodes.COMPARE else dtype
    return lambda *values: elementwise(op, result, *values)[()]


def _bitcast(value: Any, source: DType, target: DType) -> Any:
    """Small floats stand in f32 registers on either side."""
    held = np.asarray(value).astype(held_dtype(source))
    found = np.asarray(bitcast(held, source, target))
    return found.astype(_held(target.short))[()]


def splat(word: Word) -> Callable[..., Any]:
    """A scalar in every lane."""
    return lambda scalar: np.full(word.lanes, scalar, _held(word.kind))


def iota(word: Word) -> Callable[..., Any]:
    """0, 1, ... of the lanes."""
    return lambda: np.arange(word.lanes).astype(_held(word.kind))


def index(word: Word) -> Callable[..., Any]:
    """An index as a number."""
    return lambda i: np.asarray(i).astype(_held(word.kind))[()]


def extract(word: Word) -> Callable[..., Any]:
    """The value of one lane."""
    return lambda vector, lane: vector[lane]


def first(word: Word) -> Callable[..., Any]:
    """The lanes below k."""
    return lambda k: np.arange(word.lanes) < k


def any_lane(word: Word) -> Callable[..., Any]:
    """Whether the mask holds in some lane."""
    return lambda mask: np.bool_(mask.any())


def all_lanes(word: Word) -> Callable[..., Any]:
    """Whether the mask holds in every lane."""
    return lambda mask: np.bool_(mask.all())
