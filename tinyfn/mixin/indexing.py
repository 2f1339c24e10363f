"""x[...] as numpy has it: a view by movement, then elements by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tinyfn.dtype import dtypes
from tinyfn.errors import DTypeError, IndexingError
from tinyfn.mixin.core import Size, broadcast_shape, count, is_numpys, max_size, show
from tinyfn.mixin.index import (
    Chosen,
    MaskAxis,
    NewAxis,
    Nothing,
    Piece,
    Record,
    Single,
    parse_index,
)
from tinyfn.mixin.linalg import LinalgMixin


class IndexingMixin(LinalgMixin):
    """Reading by index. Ints, slices and None are views; tensors of ints gather."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        """The elements that an index names, by numpy's rules.

        Ints (also symbolic), slices with any step, None and `...` make a view; lists, arrays and
        tensors of ints take elements by number: negative ones count from the end, and one out of
        range in a tensor reads 0. A mask (lists or an array of bools, or a bool tensor that is
        realised) takes the elements where it is True.

        Raises:
            IndexingError: an int out of range, too many entries, a mask that is not known.

        >>> Tensor([[1, 2], [3, 4]])[:, 0].tolist()
        [1, 3]
        """
        records = self._records(index)
        if not any(isinstance(r, Chosen) for r in records):
            return self._view(records)
        return self._choose(records)

    def view_of(self, index: Any) -> Self:
        """The view that an index of ints, slices, None and `...` names.

        Raises:
            IndexingError: the index has a list or tensor, which names no view.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).view_of((..., slice(None, None, -2))).tolist()
        [[3, 1], [6, 4]]
        """
        records = self._records(index)
        if any(isinstance(r, Chosen) for r in records):
            raise IndexingError("an index with a list or tensor names no view of the memory")
        return self._view(records)

    def _is_basic_index(self, index: Any) -> bool:
        """Whether the index names a view."""
        return not any(isinstance(r, Chosen) for r in self._records(index))

    def _records(self, index: Any) -> list[Record]:
        if isinstance(index, list):
            index = (index,)
        entries = index if isinstance(index, tuple) else (index,)
        spread: list[Any] = []
        for entry in entries:
            spread += self._mask_as_indices(entry)
        return parse_index(self.shape, tuple(spread), self._is_symbol, type(self))

    def _is_symbol(self, x: Any) -> bool:
        """Whether x is a symbolic integer; a node of the graph with axes is a tensor of numbers."""
        return self._symbolic(x) and not x.shape

    def _mask_as_indices(self, entry: Any) -> Sequence[Any]:
        """A mask as the numbers of its True places, one entry an axis of it."""
        mask = self._known_mask(entry)
        if mask is None:
            return [entry]
        if not mask.ndim:
            raise IndexingError("a bool is no index; use None for a new axis, or an int")
        places = zip(mask.nonzero(), mask.shape, strict=True)
        return [MaskAxis(numbers, size) for numbers, size in places]

    def _known_mask(self, entry: Any) -> Any:
        """The array of bools that an entry is; None for what is no mask.

        Raises:
            IndexingError: a bool tensor whose values are not known.
        """
        if isinstance(entry, type(self)) and not self._is_symbol(entry):
            if entry.dtype is not dtypes.bool:
                return None
            values = entry._known_values()
            if values is None:
                raise IndexingError(
                    f"a bool tensor of shape {show(entry.shape)} as an index selects a number of "
                    "elements that is not known before it is computed; realize() it first (not in "
                    "a captured function or a TinyJit, where each call may have another), or use "
                    "x.masked_select(mask, size=n), or mask.where(x, 0)"
                )
            return values
        if is_numpys(entry):
            return entry if entry.ndim and entry.dtype == np.bool_ else None
        return np.array(entry) if isinstance(entry, list) and _all_bools(entry) else None

    # *** the view ***

    def _view(self, records: Sequence[Record]) -> Self:
        """The movements of the records; an advanced one leaves its axis whole."""
        records = [r for r in records if not isinstance(r, Nothing)]
        axes = [r for r in records if not isinstance(r, NewAxis)]
        x = self._boxed(axes)
        flipped = tuple(i for i, r in enumerate(axes) if isinstance(r, Piece) and r.step < 0)
        if flipped:
            x = x.flip(flipped)
        for i, r in enumerate(axes):
            if isinstance(r, Piece) and abs(r.step) > 1:
                x = x._every(i, abs(r.step))
        sizes = iter(x.shape)
        shape: list[Size] = []
        for record in records:
            size = 1 if isinstance(record, NewAxis) else next(sizes)
            if not isinstance(record, Single):
                shape.append(size)
        return x._reshaped(tuple(shape))

    def _boxed(self, axes: Sequence[Record]) -> Self:
        flat: list[Size] = []
        for r, size in zip(axes, self.shape, strict=True):
            if isinstance(r, Single):
                flat += [r.begin, 1]
            elif isinstance(r, Piece):
                flat += [r.begin, r.size]
            else:
                flat += [0, size]
        return self._shrunk(flat)

    # *** elements by number ***

    def _choose(self, records: Sequence[Record]) -> Self:
        kept = [r for r in records if not isinstance(r, Single | Nothing)]
        places = [i for i, r in enumerate(kept) if isinstance(r, Chosen)]
        chosen = [r for r in kept if isinstance(r, Chosen)]
        x = self._view(records)
        indices = [x._index_tensor(r) for r in chosen]
        place = places[0] if _adjacent(records) else 0
        x = x._move_axes(places, place)
        sizes = x.shape[place : place + len(places)]
        shape = broadcast_shape(*(i.shape for i in indices))
        number = _combined([i._broadcast_to(shape) for i in indices], sizes)
        joined = x._reshaped((*x.shape[:place], count(sizes), *x.shape[place + len(places) :]))
        return joined._gather(number, place)

    def _index_tensor(self, record: Chosen) -> Self:
        """The numbers as a tensor of ints, none counting from the end."""
        index = record.index
        if not isinstance(index, type(self)):
            index = self._listed(index, record.size)
        if not dtypes.is_int(index.dtype):
            raise DTypeError(f"expected a tensor of ints as an index, got {index.dtype}")
        return self._beside(index)._wrapped(record.size)

    def _listed(self, values: Any, size: Size) -> Self:
        """Lists or an array of ints as a tensor.

        Raises:
            IndexingError: other values, or an int out of range.
        """
        numbers = _as_numbers(values)
        if isinstance(size, int):
            wrong = numbers[(numbers < -size) | (numbers >= size)]
            if wrong.size:
                raise IndexingError(
                    f"index {wrong[0]} is out of range for an axis of size {size}: expected "
                    f"{-size} <= index < {size}"
                )
            numbers = np.where(numbers < 0, numbers + size, numbers)
        return self._from_list(numbers.reshape(-1))._reshaped(numbers.shape)

    def _wrapped(self, size: Size) -> Self:
        """Negative numbers count from the end."""
        index = self.cast(dtypes.int64) if self.dtype.itemsize == 8 else self
        if self.dtype.kind == "uint" or self.dtype.kind == "weakint":
            return index
        index = index if index.dtype.itemsize >= 4 else index.cast(dtypes.int32)
        zero, whole = index._constant(0, index.dtype), index._constant(size, index.dtype)
        return index._alu("CMPLT", zero)._alu("WHERE", index._alu("ADD", whole), index)


def _combined(indices: Sequence[Any], sizes: Sequence[Size]) -> Any:
    """One number into the flattened axes; -1 where any is out of range."""
    if len(indices) == 1:
        return indices[0]
    wide = max_size(count(sizes)) > 2**31 - 1
    kind = dtypes.int64 if wide else dtypes.int32
    total, inside = None, None
    for given, size in zip(indices, sizes, strict=True):
        index = given.cast(kind) if given.dtype.itemsize < 8 else given.cast(dtypes.int64)
        fits = (index >= 0) & (index < size)
        inside = fits if inside is None else inside & fits
        index = index.cast(kind)
        total = index if total is None else total * size + index
    assert inside is not None
    return inside.where(total, -1)


def _adjacent(records: Sequence[Record]) -> bool:
    """Whether tensors (and ints beside them) stand together: then their axes stay in place."""
    advanced = [i for i, r in enumerate(records) if isinstance(r, Chosen | Single)]
    return advanced == list(range(advanced[0], advanced[-1] + 1))


def _all_bools(values: Any) -> bool:
    if isinstance(values, list):
        return bool(values) and all(map(_all_bools, values))
    return isinstance(values, bool)


def _as_numbers(values: Any) -> Any:
    """Lists or an array of ints as an array of int64."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise IndexingError(
            f"expected nested lists of equal lengths as an index, got {values}"
        ) from None
    if array.size and array.dtype.kind not in "iu":
        raise IndexingError(f"expected ints in a list or array that indexes, got {values}")
    if array.dtype == np.uint64:  # what int64 does not hold is out of every range, not negative
        array = np.minimum(array, np.uint64(2**63 - 1))
    return array.astype(np.int64)
