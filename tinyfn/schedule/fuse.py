"""The graph of one schedule as kernels: each stored value becomes one, with all it can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tinyfn.dtype import Invalid, dtypes
from tinyfn.helpers import prod
from tinyfn.schedule.collapse import collapse
from tinyfn.schedule.cut import choose_cuts, elements, is_contraction, is_repeated
from tinyfn.schedule.graph import Places, is_memory, memory_shape, strip_views
from tinyfn.schedule.indexing import ZERO, both, flat_index, inside, source_index
from tinyfn.schedule.lower import INVALID, Lowering, Row, TooLargeError
from tinyfn.schedule.scan import scan_kernel
from tinyfn.schedule.sort_kernels import sorting_steps
from tinyfn.uop import opcodes
from tinyfn.uop.info import AxisType
from tinyfn.uop.ops import KernelInfo, Ops, UOp

LONGEST_ROW = 16384
LARGEST = 400


@dataclass
class Kernel:
    """A kernel to be: its graph, the memory it takes by slot, and the values it reads."""

    root: UOp
    sink: UOp
    arguments: list[UOp]
    reads: list[UOp]
    loads: list[tuple[UOp, UOp]] = field(default_factory=list)


class Fuser:
    """Builds the kernels that a set of roots needs; cuts more where a kernel comes out badly."""

    def __init__(self, roots: Sequence[UOp], places: Places) -> None:
        self.roots = roots
        self.places = places
        self.cuts = places.cuts = choose_cuts(roots)
        self.kernels: dict[UOp, list[Kernel]] = {}

    def kernel_for(self, node: UOp) -> list[Kernel]:
        """The kernels that store a cut value, a STORE or what has its own (built on first use)."""
        if node not in self.kernels:
            self.kernels[node] = self._build(node)
        return self.kernels[node]

    def _build(self, node: UOp) -> list[Kernel]:
        if node.op is Ops.SCATTER:
            return self._scatter(node)
        if node.op is Ops.ARGSORT:
            return self._in_steps(node, sorting_steps(node, self.places))
        if node.op is Ops.SCAN:
            return self._in_steps(node, [partial(scan_kernel, node)])
        staged: dict[UOp, Row] = {}
        limit: int | None = 3 * LARGEST
        while True:
            lowering = Lowering(
                self.cuts, self.places, staged, None if node.op is Ops.STORE else node
            )
            lowering.limit = limit
            try:
                store, ranges = self._stored(node, lowering)
            except TooLargeError:
                cut = _repeated(lowering, node) or _middle(lowering, node)
                self.cuts |= cut
                limit = limit if cut else None
                continue
            if store is None:
                return []
            more = self._badly_placed(node, lowering, ranges)
            more |= self._read_elsewhere(node, store, lowering)
            if more:
                self.cuts |= more
                continue
            again = _rows_to_stage(lowering, staged)
            if again is None:
                break
            stage, cut = again
            staged.update(stage)
            self.cuts |= cut
        return [self._finish(node, lowering, store, ranges)]

    def _stored(self, node: UOp, lowering: Lowering) -> tuple[UOp | None, list[UOp]]:
        if node.op is Ops.STORE:
            return self._store_into_view(node, lowering)
        place = self.places.temporary(node)
        if 0 in node.max_shape:
            return None, []
        lowering.parameter(place)
        index = tuple(lowering.loop(s) for s in node.shape)
        value = (
            lowering.value(node, index)
            if node.op is not Ops.CONTIGUOUS
            else lowering.value(node.src[0], index)
        )
        target = lowering.element(place, index, None)
        return target.store(value), [r for r in index if r is not ZERO]

    def _store_into_view(self, node: UOp, lowering: Lowering) -> tuple[UOp | None, list[UOp]]:
        view, value = node.src[:2]
        if (value.op is Ops.CONST and value.arg is Invalid) or 0 in view.max_shape:
            return None, []
        index = tuple(lowering.loop(s) for s in view.shape)
        place = self.places.of(strip_views(view))
        lowering.parameter(place)
        target = self._target(view, index, lowering)
        stored = lowering.value(value, index if value.shape else ())
        return target.store(stored), [r for r in index if r is not ZERO]

    def _target(self, view: UOp, index: tuple[UOp, ...], lowering: Lowering) -> UOp:
        node, at, valid = view, index, None
        while True:
            node = self.places.below_states(node)
            if node.op in opcodes.MOVEMENT:
                at, more = source_index(node, at)
                valid = both(valid, more)
            elif node.op is not Ops.DETACH:
                break
            node = node.src[0]
        return lowering.element(self.places.of(node), at, valid)

    # *** what comes out badly ***

    def _read_elsewhere(self, node: UOp, store: UOp, lowering: Lowering) -> set[UOp]:
        """The value of a STORE that reads the memory it writes at other elements: stored first."""
        if node.op is not Ops.STORE or node.src[1] in self.cuts:
            return set()
        place = self.places.of(strip_views(node.src[0]))
        clash = any(
            self.places.of(read) is place and element is not store.src[0]
            for read, element in lowering.loads
        )
        return {node.src[1]} if clash else set()

    def _badly_placed(self, root: UOp, lowering: Lowering, ranges: list[UOp]) -> set[UOp]:
        """Reductions that would be computed more than once an element, or block one another."""
        found: set[UOp] = set()
        families: list[tuple[frozenset[UOp], UOp]] = []
        for node, visits in lowering.visits.items():
            if node.op is not Ops.REDUCE_AXIS or lowering.is_leaf(node) or node is root:
                continue
            around = frozenset(r for v in visits for i in v.index for r in i.ranges)
            runs = sum(prod(_length(r) for r in _ranges_in(v.index)) for v in visits)
            if runs > elements(node) and runs > 1:
                found.add(node)
            else:
                families.append((around & frozenset(ranges), node))
        for own, node in families:
            if any(not (own <= other or other <= own) for other, _ in families):
                found.add(node)
        return {n for n in found if not is_memory(n)}

    # *** the finished kernel ***

    def _finish(self, node: UOp, lowering: Lowering, store: UOp, ranges: list[UOp]) -> Kernel:
        ordered = _outer_first(lowering, ranges)
        kind = _kind(lowering)
        name = "_".join([kind, *(str(_length(r)) for r in ordered)])
        sink = store.end(*ordered).sink(arg=KernelInfo(name=name))
        sink = collapse(sink)
        return Kernel(node, sink, list(lowering.slots), list(lowering.reads), lowering.loads)

    def _scatter(self, node: UOp) -> list[Kernel]:
        """Copy the table, then put in the values in the order of the index."""
        table, chosen, values = node.src
        op, axis = node.arg.op, node.arg.axis
        place = self.places.temporary(node)
        first = Lowering(self.cuts, self.places)
        first.parameter(place)
        index = tuple(first.loop(s) for s in table.shape)
        copied = first.element(place, index, None).store(first.value(table, index))
        init = self._finish(node, first, copied, [r for r in index if r is not ZERO])

        low = Lowering(self.cuts, self.places)
        low.parameter(place)
        count = len(chosen.shape)
        shape = values.shape
        kinds = [
            AxisType.REDUCE if axis <= a < axis + count else AxisType.LOOP
            for a in range(len(shape))
        ]
        every = tuple(low.loop(s, k) for s, k in zip(shape, kinds, strict=True))
        at = low.value(chosen, every[axis : axis + count])
        where = UOp(Ops.CAST, dtypes.weakint, (at,))
        valid = inside(where, table.shape[axis])
        whole = (*every[:axis], where, *every[axis + count :])
        offset = flat_index(whole, memory_shape(place))
        if valid is not None:
            offset = UOp(Ops.WHERE, dtypes.weakint, (valid, offset, INVALID))
        target = UOp(Ops.INDEX, place.dtype, (low.parameter(place), offset))
        total = UOp(op, place.dtype, (target, low.value(values, every)))
        loops = [r for r in every if r is not ZERO]
        inner = [r for r in loops if r.arg[1] is AxisType.LOOP]
        serial = [r for r in loops if r.arg[1] is not AxisType.LOOP]
        outer = [r for r in inner if r in every[:axis]]
        rest = [r for r in inner if r not in outer]
        name = "_".join([f"scatter_{op.name.lower()}", *(str(_length(r)) for r in loops)])
        sink = target.store(total).end(*outer, *serial, *rest).sink(arg=KernelInfo(name=name))
        reads = list(low.reads)
        return [init, Kernel(node, sink, list(low.slots), reads, low.loads)]

    def _in_steps(self, node: UOp, steps: Sequence[Callable[[Lowering], UOp]]) -> list[Kernel]:
        """The kernels that these build; the first computes the sources, where they are cheap."""
        if 0 in node.max_shape:
            return []
        found = []
        for build in steps:
            low = Lowering(self.cuts, self.places)
            sink = build(low)
            if more := self._badly_placed(node, low, list(sink.src[0].src[1:])):
                self.cuts |= more
                return self._in_steps(node, steps)
            found.append(Kernel(node, sink, list(low.slots), list(low.reads), low.loads))
        return found


def _length(loop: UOp) -> int:
    return int(loop.src[0].vmax)


def _ranges_in(index: tuple[UOp, ...]) -> list[UOp]:
    return list(dict.fromkeys(r for i in index for r in i.ranges))


def _outer_first(lowering: Lowering, ranges: list[UOp]) -> list[UOp]:
    """Loops that hoisted reductions stand in come first, the fewest loops first."""
    ordered: list[UOp] = []
    around = []
    for node, visits in lowering.visits.items():
        if node.op is Ops.REDUCE_AXIS and not lowering.is_leaf(node):
            used = {r for v in visits for i in v.index for r in i.ranges}
            around.append([r for r in ranges if r in used])
    for own in sorted(around, key=len):
        ordered += [r for r in own if r not in ordered]
    return ordered + [r for r in ranges if r not in ordered]


def _kind(lowering: Lowering) -> str:
    reductions = [n for n in lowering.visits if n.op is Ops.REDUCE_AXIS and not lowering.is_leaf(n)]
    if any(is_contraction(n) for n in reductions):
        return "contract"
    return {0: "map", 1: "reduce"}.get(len(reductions), "row")


def _repeated(lowering: Lowering, root: UOp) -> set[UOp]:
    """The reductions that a kernel computes in several places, which multiplies what is below."""
    return {
        n
        for n, visits in lowering.visits.items()
        if n.op is Ops.REDUCE_AXIS and n is not root and len(visits) > 1 and not lowering.is_leaf(n)
    }


def _middle(lowering: Lowering, root: UOp) -> set[UOp]:
    """A value about half-way down a kernel that has grown too large."""
    candidates = [
        n
        for n in lowering.visits
        if n.op in opcodes.ELEMENTWISE and n is not root and n.shape and not lowering.is_leaf(n)
    ]
    return {candidates[len(candidates) // 2]} if candidates else set()


def _rows_to_stage(
    lowering: Lowering, staged: dict[UOp, Row]
) -> tuple[dict[UOp, Row], set[UOp]] | None:
    """Costly values that a kernel needs in several loops over a row: kept in scratch, or cut."""
    stage: dict[UOp, Row] = {}
    cut: set[UOp] = set()
    covered: set[UOp] = set()
    for node, visits in reversed(list(lowering.visits.items())):
        if len(visits) < 2 or node in staged or node in covered or lowering.is_leaf(node):
            continue
        if node.op in opcodes.MOVEMENT or not _is_costly(node, lowering):
            continue
        if any(user in stage or user in cut for user in _users_in(lowering, node)):
            covered.add(node)
            continue
        first = _row_visit(visits)
        if first is not None:
            stage[node] = first
        elif node.shape:
            cut.add(node)
    return (stage, cut) if stage or cut else None


def _users_in(lowering: Lowering, node: UOp) -> list[UOp]:
    return [n for n in lowering.visits if node in n.src]


def _is_costly(node: UOp, lowering: Lowering) -> bool:
    """Whether each element takes a costly operation: what many of them share does not count."""
    stack, seen = [node], set()
    while stack:
        top = stack.pop()
        if top in seen or lowering.is_leaf(top) or top.op is Ops.REDUCE_AXIS:
            continue
        seen.add(top)
        if top.op in opcodes.EXPENSIVE and top.dtype.kind != "weakint":
            return True
        stack += () if is_repeated(top) else top.src
    return False


def _row_visit(visits: list[Any]) -> Row | None:
    """The index to keep in scratch and its loop: the others are alike but for that loop."""
    common = set.intersection(*(set(_reduce_loops(v.index)) for v in visits))
    own = [(v.index, [r for r in _reduce_loops(v.index) if r not in common]) for v in visits]
    rows = [(index, loops[0]) for index, loops in own if len(loops) == 1]
    if not rows or any(v.valid is not None for v in visits):
        return None
    first, loop = min(rows, key=lambda row: row[1].arg[0])
    if loop not in first or loop.src[0].op is not Ops.CONST:
        return None
    if loop.src[0].arg > LONGEST_ROW:
        return None
    place = first.index(loop)
    for visit in visits:
        same = all(
            a is b for i, (a, b) in enumerate(zip(visit.index, first, strict=True)) if i != place
        )
        other = visit.index[place]
        if not same or other.op is not Ops.RANGE or other.src[0] is not loop.src[0]:
            return None
    return first, loop


def _reduce_loops(index: tuple[UOp, ...]) -> list[UOp]:
    return [r for r in _ranges_in(index) if r.arg[1] is AxisType.REDUCE]
