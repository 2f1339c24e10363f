"""What stands inside x[...]: one record an entry, checked against the shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinyfn.errors import IndexingError
from tinyfn.helpers import ceildiv
from tinyfn.mixin.core import Shape, Size, is_numpys, plain, same_size, show


@dataclass(frozen=True)
class NewAxis:
    """None: an axis of size 1."""


@dataclass(frozen=True)
class Nothing:
    """An ellipsis that stands for no axis: it still parts the indices beside it."""


@dataclass(frozen=True)
class Whole:
    """An axis as it is (from `:` or an ellipsis)."""

    size: Size


@dataclass(frozen=True)
class Single:
    """An int: one element, the axis goes away."""

    begin: Size


@dataclass(frozen=True)
class Piece:
    """A slice: the axis shrunk to [begin, begin + size), flipped for a negative step, thinned."""

    begin: Size
    size: Size
    step: int

    @property
    def count(self) -> Size:
        """How many elements it takes."""
        return self.size if abs(self.step) == 1 else ceildiv(self.size, abs(self.step))


@dataclass(frozen=True)
class Chosen:
    """A tensor, an array or lists of ints: elements by number."""

    index: Any
    size: Size


@dataclass(frozen=True)
class MaskAxis:
    """What a mask says of one of its axes: the numbers of the True places, and its length."""

    numbers: Any
    size: int


Record = NewAxis | Nothing | Whole | Single | Piece | Chosen


def parse_index(
    shape: Shape, index: Any, symbolic: Callable[[Any], bool], tensor: type
) -> list[Record]:
    """The records of an index into a shape: one an axis, one for every None and an empty ellipsis.

    Raises:
        IndexingError: too many entries, an int out of range, or an entry of an unknown kind.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("expected at most one ellipsis (...) in an index")
    used = sum(1 for e in entries if e is not None and e is not Ellipsis)
    if used > len(shape):
        raise IndexingError(
            f"expected at most {len(shape)} entries to index shape {show(shape)}, got {used}"
        )
    place = dots[0] if dots else len(entries)
    hidden: list[Any] = [slice(None)] * (len(shape) - used)
    entries[place : place + 1] = hidden or [Ellipsis]
    records: list[Record] = []
    axis = 0
    for entry in entries:
        if entry is None or entry is Ellipsis:
            records.append(NewAxis() if entry is None else Nothing())
            continue
        records.append(_record(entry, axis, shape, symbolic, tensor))
        axis += 1
    return records


def _record(
    entry: Any, axis: int, shape: Shape, symbolic: Callable[[Any], bool], tensor: type
) -> Record:
    size = shape[axis]
    if isinstance(entry, slice):
        return _slice(entry, size, symbolic)
    if isinstance(entry, tensor) and not symbolic(entry):
        return Chosen(entry, size)
    if symbolic(entry):
        return Single(entry)
    if isinstance(entry, MaskAxis):
        if isinstance(size, int) and entry.size != size:
            raise IndexingError(
                f"expected a mask of {size} places along axis {axis} of shape {show(shape)}, "
                f"got {entry.size}"
            )
        return Chosen(entry.numbers, size)
    if is_numpys(entry):
        if entry.ndim:
            return Chosen(entry, size)
        entry = entry.item()
    if isinstance(entry, bool):
        raise IndexingError("a bool is no index; use None for a new axis, or an int")
    if isinstance(entry, list | tuple | range):
        return Chosen(list(entry), size)
    if not hasattr(entry, "__index__"):
        raise IndexingError(
            f"expected an int, a slice, None, ..., a list of ints or a tensor of ints as an index, "
            f"got {type(entry).__name__}"
        )
    return Single(_checked(int(entry), axis, shape))


def _checked(number: int, axis: int, shape: Shape) -> Size:
    size = shape[axis]
    if not isinstance(size, int):
        return number if number >= 0 else plain(size + number)
    if not -size <= number < size:
        raise IndexingError(
            f"index {number} is out of range for axis {axis} of shape {show(shape)}: expected "
            f"{-size} <= index < {size}"
        )
    return number % size


def _slice(entry: slice, size: Size, symbolic: Callable[[Any], bool]) -> Record:
    parts = (entry.start, entry.stop, entry.step)
    if entry.step is not None and symbolic(entry.step):
        raise IndexingError("expected an int as the step of a slice, got a symbolic one")
    step = 1 if entry.step is None else _int(entry.step)
    if step == 0:
        raise IndexingError("expected a step that is not 0 in a slice")
    if any(symbolic(p) for p in parts if p is not None) or not isinstance(size, int):
        return _symbolic_slice(entry, size, step, symbolic)
    ints = (None if p is None else _int(p) for p in parts)
    begin, end, step = slice(*ints).indices(size)
    count = max(0, ceildiv(end - begin, step))
    if (begin, end, step) == (0, size, 1):
        return Whole(size)
    if not count:
        return Piece(0, 0, 1)
    last = begin + (count - 1) * step
    low, high = min(begin, last), max(begin, last)
    return Piece(low, high - low + 1, step)


def _symbolic_slice(entry: slice, size: Size, step: int, symbolic: Callable[[Any], bool]) -> Record:
    """A slice with a symbolic bound or size: bounds are trusted to be in range."""
    if step != 1:
        if entry.start is None and entry.stop is None and step == -1:
            return Piece(0, size, -1)
        raise IndexingError(f"expected step 1 in a slice of symbolic bounds or size, got {step}")

    def bound(value: Any, otherwise: Size) -> Size:
        if value is None:
            return otherwise
        if symbolic(value):
            return value
        number = _int(value)
        return plain(size + number) if number < 0 else number

    begin, end = bound(entry.start, 0), bound(entry.stop, size)
    if same_size(begin, 0) and same_size(end, size):
        return Whole(size)
    return Piece(plain(begin), plain(end - begin), 1)


def _int(value: Any) -> int:
    if not hasattr(value, "__index__"):
        raise IndexingError(f"expected ints in a slice, got {type(value).__name__}")
    return int(value.__index__())
