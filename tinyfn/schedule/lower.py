"""A piece of the tensor graph as a kernel graph: ranges over its elements, loads by offset.

Before: ADD(x, EXPAND(b)) of shape (2, 3). After: STORE(out[r0*3+r1], x[r0*3+r1] + b[r1]).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyfn.dtype import Invalid, dtypes
from tinyfn.helpers import prod
from tinyfn.schedule.graph import Places, is_memory, memory_shape
from tinyfn.schedule.indexing import (
    ZERO,
    Index,
    both,
    flat_index,
    inside,
    same,
    source_index,
)
from tinyfn.uop import opcodes
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import RULES

INVALID = UOp.const(Invalid, dtypes.weakint)
Key = tuple[UOp, Index, UOp | None]
Row = tuple[Index, UOp]  # where a value is kept in scratch, and the loop along the row


class TooLargeError(Exception):
    """A kernel has more parts than it may: the rest of it is not looked at."""


@dataclass
class Visit:
    """One evaluation of a node in a kernel."""

    index: Index
    valid: UOp | None
    value: UOp


@dataclass
class Lowering:
    """The state of building one kernel."""

    cuts: set[UOp]
    places: Places
    staged: dict[UOp, Row] = field(default_factory=dict)
    root: UOp | None = None
    memo: dict[Key, UOp] = field(default_factory=dict)
    visits: dict[UOp, list[Visit]] = field(default_factory=dict)
    slots: dict[UOp, int] = field(default_factory=dict)
    reads: dict[UOp, None] = field(default_factory=dict)
    loads: list[tuple[UOp, UOp]] = field(default_factory=list)
    levels: dict[UOp, int] = field(default_factory=dict)
    reduce_ranges: dict[Any, UOp] = field(default_factory=dict)
    scratch: dict[UOp, UOp] = field(default_factory=dict)
    counter: int = 0
    limit: int | None = None  # how many values it may compute; TooLargeError beyond

    # *** ranges ***

    def loop(self, size: Any, kind: AxisType = AxisType.LOOP) -> UOp:
        """A new loop of this kernel; 0 for a size of 1."""
        if same(size, 1):
            return ZERO
        made = UOp.range(size, self.counter, kind)
        self.counter += 1
        return made

    def reduce_loop(self, node: UOp, axis: int, around: frozenset[UOp]) -> UOp:
        """The loop of a reduced axis: shared by reductions of one level over the same sizes."""
        sizes = tuple(node.src[0].shape[a] for a in node.arg.axes)
        key = (self.level(node), sizes, node.arg.axes.index(axis), around)
        if key not in self.reduce_ranges:
            self.reduce_ranges[key] = self.loop(node.src[0].shape[axis], AxisType.REDUCE)
        return self.reduce_ranges[key]

    def level(self, node: UOp) -> int:
        """How many reductions inside this kernel must be done before the node (itself counted)."""
        if node in self.levels:
            return self.levels[node]
        below = max((self.level(s) for s in node.src if not self.is_leaf(s)), default=0)
        self.levels[node] = below + (1 if node.op is Ops.REDUCE_AXIS else 0)
        return self.levels[node]

    def is_leaf(self, node: UOp) -> bool:
        """Whether the node is in memory when this kernel runs."""
        return node is not self.root and (is_memory(node) or node in self.cuts)

    # *** memory ***

    def parameter(self, place: UOp) -> UOp:
        """The kernel's parameter for a piece of memory."""
        slot = self.slots.setdefault(place, len(self.slots))
        return UOp.placeholder((prod(memory_shape(place)),), place.dtype, slot)

    def element(self, place: UOp, index: Index, valid: UOp | None) -> UOp:
        """INDEX into memory; reads 0 and writes nothing where not valid."""
        offset = flat_index(index, memory_shape(place))
        if valid is not None:
            offset = UOp(Ops.WHERE, dtypes.weakint, (valid, offset, INVALID))
        return UOp(Ops.INDEX, place.dtype, (self.parameter(place), offset))

    def load(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """The element of a node that is in memory."""
        self.reads[node] = None
        found = self.element(self.places.of(node), index, valid)
        self.loads.append((node, found))
        return found

    # *** values ***

    def value(self, node: UOp, index: Index, valid: UOp | None = None) -> UOp:
        """The node's element at an index, as a node of the kernel graph."""
        key = (node, index, valid)
        found = self.memo.get(key)
        if found is None:
            if node in self.staged and self.staged[node][0] != index:
                found = self.from_scratch(node, index)
            else:
                found = self.compute(node, index, valid)
            self.memo[key] = found
            if self.limit is not None and len(self.memo) > self.limit:
                raise TooLargeError
            self.visits.setdefault(node, []).append(Visit(index, valid, found))
        return found

    def compute(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """One step of `value`."""
        if self.is_leaf(node):
            return self.leaf(node, index, valid)
        if node.op in opcodes.MOVEMENT:
            return self.moved(node, index, valid)
        if node.op is Ops.REDUCE_AXIS:
            return self.reduced(node, index, valid)
        if node.op is Ops.GATHER:
            return self.gathered(node, index, valid)
        if node.op is Ops.CONTIGUOUS:
            return self.value(node.src[0], index, valid)
        if node.op is Ops.CONST:
            return node
        if node.op in (Ops.VARIABLE, Ops.SLOT):
            return node
        if node.op is Ops.BIND:
            return node.src[0]
        if node.op is Ops.FULL:
            return node.src[0]
        if node.op is Ops.IOTA:
            return folded(UOp(Ops.CAST, node.dtype, (index[0],)))
        src = tuple(self.value(s, index if s.shape else (), valid) for s in node.src)
        return folded(UOp(node.op, node.dtype, src))

    def leaf(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """Memory: AFTER a view of memory is followed to where the elements are."""
        memory = node
        while memory.op is Ops.AFTER and memory not in self.cuts:
            memory = memory.src[0]
            while memory.op in opcodes.MOVEMENT and memory not in self.cuts:
                index, more = source_index(memory, index)
                valid = both(valid, more)
                memory = memory.src[0]
        return self.load(node, index, valid)

    def moved(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """Movement changes the index; padding is 0 by its condition."""
        inner, more = source_index(node, index)
        value = self.value(node.src[0], inner, both(valid, more))
        if more is None or self.is_zero_outside(node.src[0]) or _is_gated_load(value):
            return value
        return folded(UOp(Ops.WHERE, node.dtype, (more, value, UOp.const(0, node.dtype))))

    def is_zero_outside(self, node: UOp) -> bool:
        """Whether the value is 0 by itself where its loads are not valid."""
        while node.op in opcodes.MOVEMENT or (node.op is Ops.CAST and not self.is_leaf(node)):
            if self.is_leaf(node):
                break
            node = node.src[0]
        return self.is_leaf(node)

    def reduced(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """A reduction: a loop of its own, inside the loops that its index needs."""
        around = frozenset(r for i in index for r in i.ranges)
        axes = node.arg.axes
        loops = {a: self.reduce_loop(node, a, around) for a in axes}
        inner = tuple(loops.get(a, i) for a, i in enumerate(index))
        value = self.value(node.src[0], inner, valid)
        ranges = tuple(r for r in loops.values() if r is not ZERO)
        if not ranges:
            return value
        return UOp(Ops.REDUCE, node.dtype, (value, *ranges), node.arg.op)

    def gathered(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        """An element of the table at a loaded index; out of range it is 0."""
        table, chosen = node.src
        axis, count = node.arg, len(chosen.shape)
        at = self.value(chosen, index[axis : axis + count] if chosen.shape else (), valid)
        at = folded(UOp(Ops.CAST, dtypes.weakint, (at,)))
        within = inside(at, table.shape[axis])
        whole = (*index[:axis], at, *index[axis + count :])
        value = self.value(table, whole, both(valid, within))
        if within is None or self.is_zero_outside(table):
            return value
        return folded(UOp(Ops.WHERE, node.dtype, (within, value, UOp.const(0, node.dtype))))

    # *** scratch rows ***

    def from_scratch(self, node: UOp, index: Index) -> UOp:
        """An element of a row that an earlier loop of the kernel has left in scratch."""
        first, loop = self.staged[node]
        if node not in self.scratch:
            value = self.value(node, first)
            number = 1000 + len(self.scratch)
            row = UOp.placeholder((loop.src[0].arg,), node.dtype, number, AddrSpace.LOCAL)
            store = UOp(Ops.INDEX, node.dtype, (row, loop)).store(value)
            self.scratch[node] = row.after(store.end(loop))
        position = index[first.index(loop)]
        return UOp(Ops.INDEX, node.dtype, (self.scratch[node], position))


def _is_gated_load(value: UOp) -> bool:
    """Whether a value is loaded under a condition, and 0 where that does not hold."""
    while value.op is Ops.CAST:
        value = value.src[0]
    return value.op is Ops.INDEX and value.src[1].op is Ops.WHERE


def folded(node: UOp) -> UOp:
    """The node with what is known at once folded away."""
    found: UOp | None = RULES.apply(node)
    return node if found is None else found
