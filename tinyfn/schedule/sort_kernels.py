"""ARGSORT as kernels: the numbers of the elements of every row in order.

An element is held as a word of 64 bits, its key above its number, so that no two are equal.

    up to SHORT elements    as many words as are smaller stand before a word: one kernel
    up to LONG              a stable pass over the words for each digit of the keys, in scratch
    longer rows             the same passes over pieces of a row, each in three kernels: count the
                            digits of every piece, add the counts up, move the words of every piece

The order does not depend on the number of threads. The time depends on the keys only where all of a
row have the same digit, as small ints do: there, nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tinyfn.dtype import DType, dtypes
from tinyfn.schedule.graph import Places
from tinyfn.schedule.indexing import Index, number
from tinyfn.schedule.lower import Lowering
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import KernelInfo, Ops, UOp

SHORT = 128  # elements up to which comparing all pairs takes less time than counting digits
LONG = 32768  # elements whose words fit into scratch; those of a piece of a longer row
WIDE = 1024  # elements from which on three digits of 11 bits take less time than four of 8
APART = 16  # counts between those of pieces, or all would meet in the same lines of the cache
FIRST_SLOT = 1000  # scratch, away from the slots of parameters
Step = Callable[[Lowering], UOp]


def is_long(node: UOp) -> bool:
    """Whether an ARGSORT works on pieces of rows, and reads its keys more than once."""
    return bool(node.max_shape[-1] > LONG)


def sorting_steps(node: UOp, places: Places) -> list[Step]:
    """The builders of an ARGSORT's kernels, in the order in which these run."""
    if is_long(node):
        return _by_pieces(node, places)
    return [partial(_by_comparing if node.max_shape[-1] <= SHORT else _by_digits, node)]


def _digits(node: UOp) -> list[tuple[int, int]]:
    """The first bit and the width of every digit of a word's key, the lowest first."""
    width = node.src[0].dtype.itemsize * 8
    bits = 11 if width > 16 and node.max_shape[-1] >= WIDE else 8
    return [(32 + bit, bits) for bit in range(0, width, bits)]


@dataclass
class Rows:
    """A kernel in the making: its loops over rows (and pieces of them), and its scratch."""

    node: UOp
    low: Lowering
    index: Index = ()
    unit: tuple[UOp, ...] = ()
    scratches: int = field(default=0)

    def __post_init__(self) -> None:
        self.index = tuple(self.low.loop(size) for size in self.node.shape[:-1])
        self.unit = tuple(i for i in self.index if i.op is Ops.RANGE)

    def each(self, size: Any, kind: AxisType = AxisType.LOOP) -> UOp:
        """A loop whose iterations are independent."""
        made = UOp.range(size, self.low.counter, kind)
        self.low.counter += 1
        return made

    def serial(self, size: Any) -> UOp:
        """A loop whose iterations follow one another."""
        return self.each(size, AxisType.REDUCE)

    def scratch(self, size: int, dtype: DType) -> UOp:
        """Memory of the kernel's own, of undefined contents in every unit."""
        slot = FIRST_SLOT + self.scratches
        self.scratches += 1
        return UOp.placeholder((size,), dtype, slot, AddrSpace.LOCAL).after(*self.unit)

    def counts(self, digits: Sequence[Any]) -> list[UOp]:
        """A count of 0 for every value of every digit."""
        found = [self.scratch(1 << bits, dtypes.int32) for _, bits in digits]
        value = self.each(1 << digits[0][1])
        cleared = _together([c.index(value).store(0) for c in found]).end(value)
        return [c.after(cleared) for c in found]

    def word(self, i: UOp) -> UOp:
        """An element as a word: its key, its number."""
        key = self.low.value(self.node.src[0], (*self.index, i))
        return (key.cast(dtypes.uint64) << 32) | i.cast(dtypes.uint64)

    def place(self, memory: UOp, *index: UOp) -> UOp:
        """An element of a row of memory."""
        return self.low.element(memory, (*self.index, *index), None)

    def kernel(self, effect: UOp, name: str) -> UOp:
        """The finished kernel."""
        sizes = (str(size) for size in self.node.max_shape)
        name = "_".join([name, *sizes])
        return effect.end(*self.unit).sink(arg=KernelInfo(name=name))


def _together(effects: Sequence[UOp]) -> UOp:
    return effects[0].group(*effects[1:]) if len(effects) > 1 else effects[0]


def _value(word: UOp, digit: tuple[int, int]) -> UOp:
    """The value of a digit of a word, as an index."""
    first, bits = digit
    return ((word >> first) & ((1 << bits) - 1)).cast(dtypes.weakint)


def _number(word: UOp) -> UOp:
    """The number of the element that a word stands for."""
    return (word & 0xFFFFFFFF).cast(dtypes.int32)


def _increased(place: UOp) -> UOp:
    return place.store(place + 1)


# *** one kernel ***


def _by_comparing(node: UOp, low: Lowering) -> UOp:
    """As many words as are smaller stand before a word."""
    result = low.places.temporary(node)
    low.parameter(result)
    rows, size = Rows(node, low), node.shape[-1]
    words = rows.scratch(node.max_shape[-1], dtypes.uint64)
    i = rows.each(size)
    words = words.after(words.index(i).store(rows.word(i)).end(i))
    i, j = rows.each(size), rows.serial(size)
    smaller = (words.index(j) < words.index(i)).cast(dtypes.int64).reduce(j, arg=Ops.ADD)
    ranks = rows.scratch(node.max_shape[-1], dtypes.int32)
    ranks = ranks.after(ranks.index(i).store(smaller.cast(dtypes.int32)).end(i))
    i = rows.serial(size)
    place = rows.place(result, ranks.index(i).cast(dtypes.weakint))
    return rows.kernel(place.store(i.cast(dtypes.int32)).end(i), "argsort")


def _by_digits(node: UOp, low: Lowering) -> UOp:
    """A pass for every digit moves words from one row of scratch into the other.

    Where a digit is the same in all words they are copied as they stand.
    """
    result = low.places.temporary(node)
    low.parameter(result)
    rows, size = Rows(node, low), node.shape[-1]
    digits = _digits(node)
    source, target = (rows.scratch(node.max_shape[-1], dtypes.uint64) for _ in range(2))
    i = rows.each(size)
    source = source.after(source.index(i).store(rows.word(i)).end(i))
    places, moved = _first_places(rows, source, digits)
    effect = source
    for k, (digit, first) in enumerate(zip(digits, places, strict=True)):

        def written(at: UOp, word: UOp, digit: Any = digit, target: UOp = target) -> UOp:
            if digit is digits[-1]:
                return rows.place(result, at).store(_number(word))
            return target.index(at).store(word)

        moving = moved.index(k).cast(dtypes.weakint)
        i = rows.serial(moving * size)
        word = source.index(i)
        place = first.index(_value(word, digit))
        moves = written(place.cast(dtypes.weakint), word).group(_increased(place)).end(i)
        i = rows.each((1 - moving) * size)
        effect = moves.group(written(i, source.index(i)).end(i))
        source, target = target.after(effect), source.after(effect)
    return rows.kernel(effect, "argsort")


def _first_places(
    rows: Rows, words: UOp, digits: Sequence[tuple[int, int]]
) -> tuple[list[UOp], UOp]:
    """For every digit and value of it, how many words have a smaller one.

    And for every digit whether words differ in it, so that they have to move.
    """
    size = rows.node.shape[-1]
    counts = rows.counts(digits)
    i = rows.serial(size)
    values = [c.index(_value(words.index(i), d)) for c, d in zip(counts, digits, strict=True)]
    counted = _together([_increased(v) for v in values]).end(i)
    counts = [c.after(counted) for c in counts]
    moved, sums = (rows.scratch(len(digits), dtype) for dtype in (dtypes.bool, dtypes.int32))
    total = number(size).cast(dtypes.int32)
    effects = []
    for k, (count, digit) in enumerate(zip(counts, digits, strict=True)):
        differ = count.index(_value(words.index(0), digit)).ne(total)
        effects += [sums.index(k).store(0), moved.index(k).store(differ)]
    begun = _together(effects)
    moved, sums = moved.after(begun), sums.after(begun)
    value = rows.serial(1 << digits[0][1])
    effects = []
    for k, count in enumerate(counts):
        effects += _added(count.after(begun).index(value), sums.index(k))
    summed = _together(effects).end(value)
    return [c.after(summed) for c in counts], moved


def _added(count: UOp, total: UOp) -> list[UOp]:
    """The count becomes the total so far, which grows by it."""
    return [count.store(total), total.store(total + count)]


# *** in pieces ***


@dataclass(frozen=True)
class Pass:
    """One digit of long rows: the words come from `source` (None: from the keys)."""

    digit: tuple[int, int]
    source: UOp | None
    target: UOp
    counts: UOp


def _by_pieces(node: UOp, places: Places) -> list[Step]:
    """For every digit: count in pieces, add up, move in pieces."""
    digits = _digits(node)
    *lead, size = node.max_shape
    shape = (*lead, -(-size // LONG), (1 << digits[0][1]) + APART)
    counts = places.fresh(node, shape, dtypes.int32)
    words = [places.fresh(node, node.max_shape, dtypes.uint64) for _ in digits[1:3]]
    found: list[Step] = []
    source = None
    for k, digit in enumerate(digits):
        last = digit is digits[-1]
        target = places.temporary(node) if last else words[k % 2]
        step = Pass(digit, source, target, counts)
        found += [partial(f, node, step) for f in (_count_pieces, _add_counts, _move_pieces)]
        source = target
    return found


def _piece(rows: Rows, step: Pass) -> tuple[UOp, UOp, UOp]:
    """A piece of a row, the loop over it (empty where the row ends before), and the word there."""
    piece = rows.each(step.counts.shape[-2])
    rows.unit = (*rows.unit, piece)
    begin = piece * LONG
    i = rows.serial((number(rows.node.shape[-1]) - begin).minimum(LONG))
    at = begin + i
    word = rows.word(at) if step.source is None else rows.place(step.source, at)
    return piece, i, word


def _count_pieces(node: UOp, step: Pass, low: Lowering) -> UOp:
    """How often every value of a digit stands in every piece."""
    low.parameter(step.counts)
    rows = Rows(node, low)
    piece, i, word = _piece(rows, step)
    (counts,) = rows.counts([step.digit])
    counts = counts.after(_increased(counts.index(_value(word, step.digit))).end(i))
    value = rows.each(1 << step.digit[1])
    stored = rows.place(step.counts, piece, value).store(counts.index(value)).end(value)
    return rows.kernel(stored, "argsort_count")


def _add_counts(node: UOp, step: Pass, low: Lowering) -> UOp:
    """Counts become places: what has a smaller digit stands before, then the pieces before."""
    low.parameter(step.counts)
    rows = Rows(node, low)
    total = rows.scratch(1, dtypes.int32)
    i = rows.each(1)
    total = total.after(total.index(i).store(0).end(i)).index(0)
    value, piece = rows.serial(1 << step.digit[1]), rows.serial(step.counts.shape[-2])
    effects = _added(rows.place(step.counts, piece, value), total)
    return rows.kernel(_together(effects).end(value, piece), "argsort_add")


def _move_pieces(node: UOp, step: Pass, low: Lowering) -> UOp:
    """The words of every piece to their places, in order."""
    low.parameter(step.target)
    rows = Rows(node, low)
    piece, i, word = _piece(rows, step)
    places = rows.scratch(1 << step.digit[1], dtypes.int32)
    value = rows.each(1 << step.digit[1])
    first = rows.place(step.counts, piece, value)
    places = places.after(places.index(value).store(first).end(value))
    place = places.index(_value(word, step.digit))
    stored = word if step.target.dtype is dtypes.uint64 else _number(word)
    target = rows.place(step.target, place.cast(dtypes.weakint)).store(stored)
    return rows.kernel(target.group(_increased(place)).end(i), "argsort_move")
