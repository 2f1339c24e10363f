"""Reductions down the columns of a matrix: row after row into scratch, instead of column by column.

Before: for every j the sum over k of x[k * n + j]: every pass of k is in another page of memory.
After: for every block of columns loops k, then j inside, of `total[j] = total[j] + x[k * n + j]`;
memory is read as it lies, and what a column has of its own is an element of scratch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyfn.codegen.normalise import gate_of, memory_of
from tinyfn.codegen.ops import SMALL, identity, register_bytes
from tinyfn.device import Target
from tinyfn.dtype import dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import INDEX_OPS, RULES, is_const, linear_form

FIRST_SLOT = 200000  # scratch of this pass, away from that of other passes
FEWEST = 16  # rows from which on the columns are long enough
HELD = 16  # vectors of columns that registers hold through a whole pass
NARROW = 64  # columns of a block, at least
WIDE = 4096  # and at most
FITS = 0.5  # the part of the L2 cache that a block is made to fit into where it is read again
SCRATCH = 1 << 20  # bytes of scratch, at most
TOGETHER = 8  # rows read at once: their sum goes into scratch
LONGEST = 12  # operations in a value from which on rows are read one after the other


@dataclass(frozen=True)
class Plan:
    """The loop over columns, the columns of a block, and the loops over rows by their closings."""

    column: UOp
    width: int
    rows: frozenset[UOp]
    kept: frozenset[UOp]


def turn_columns(sink: UOp, target: Target) -> UOp:
    """The kernel with reductions down columns turned; others as they are."""
    order = toposort([sink])
    plan = _plan(sink, order, target)
    return sink if plan is None else Turner(order, plan).run()


# *** whether ***


def _plan(sink: UOp, order: list[UOp], target: Target) -> Plan | None:
    reduces = [n for n in order if n.op is Ops.REDUCE]
    end = sink.src[0]
    if not reduces or len(sink.src) != 1 or end.op is not Ops.END or not target.vector_bytes:
        return None
    loops = end.src[1:]
    inner = [n for n in order if n.op is Ops.END and n is not end]
    ranges = [n for n in order if n.op is Ops.RANGE]
    rows = frozenset(r for n in (*reduces, *inner) for r in n.src[1:])
    if not all(is_const(r.src[0]) for r in ranges) or rows & set(loops):
        return None
    if any(not _is_plain(n, rows) for n in reduces) or any(not _fills_a_row(n) for n in inner):
        return None
    around = [r for r in loops if any(r in n.ranges for n in reduces)]
    column = next((r for r in reversed(around) if _is_column(r, around, order, rows)), None)
    if column is None or any(column not in n.ranges for n in reduces):
        return None
    width = _width(column, around, order, rows, target)
    kept = frozenset(r for n in inner for r in n.src[1:])
    return None if width is None else Plan(column, width, rows, kept)


def _is_plain(reduce: UOp, rows: frozenset[UOp]) -> bool:
    """Whether a reduction can be added up in scratch, and stands in no other one."""
    rounds = reduce.dtype in SMALL and reduce.arg in (Ops.ADD, Ops.MUL)
    return not rounds and reduce.dtype not in dtypes.fp8s and not rows & set(reduce.ranges)


def _fills_a_row(end: UOp) -> bool:
    """Whether loops keep values of one row in scratch."""
    store = end.src[0]
    if store.op is not Ops.STORE or memory_of(store.src[0]).arg.addrspace is not AddrSpace.LOCAL:
        return False
    return gate_of(store.src[0])[0] is None


def _loads(order: list[UOp], rows: frozenset[UOp]) -> list[UOp]:
    """What reductions read of memory, other than scratch."""
    return [
        n
        for n in order
        if n.op is Ops.INDEX
        and memory_of(n).arg.addrspace is not AddrSpace.LOCAL
        and not rows.isdisjoint(n.ranges)
    ]


def _is_column(loop: UOp, around: list[UOp], order: list[UOp], rows: frozenset[UOp]) -> bool:
    """Whether all that is read lies along a loop, in rows that do not overlap and no one shares."""
    wide = 0
    for load in _loads(order, rows):
        terms, _ = linear_form(gate_of(load)[1])
        if any(loop in t.ranges for t in terms if t is not loop):
            return False
        if loop not in terms:
            continue
        far = all(abs(f) >= loop.src[0].arg for t, f in terms.items() if t in rows)
        odd = any(r in t.ranges for t in terms if t.op is not Ops.RANGE for r in rows)
        if terms[loop] != 1 or not far or odd or any(r not in load.ranges for r in around):
            return False
        wide += 1
    return wide > 0


def _width(
    column: UOp, around: list[UOp], order: list[UOp], rows: frozenset[UOp], target: Target
) -> int | None:
    """The columns of a block; None where registers do as well."""
    size = int(column.src[0].arg)
    passes = {n.src[1:] for n in order if n.op is Ops.REDUCE}
    height = max(math.prod(int(r.src[0].arg) for r in p) for p in passes)
    kept = any(n.op is Ops.END and n.src[0].op is Ops.STORE and n.src[1:] in passes for n in order)
    bytes_of = max(register_bytes(n.dtype) for n in _loads(order, rows))
    lanes = target.vector_bytes // bytes_of
    last = next(n for n in order if n.op is Ops.END and column in n.src[1:])
    again = kept or len(passes) > 1 or len(last.src[1:]) > len(around)
    if height < FEWEST or size < NARROW or (not again and size <= HELD * lanes):
        return None
    if again and not kept and size * height * bytes_of <= target.l1_bytes:
        return None
    fitting = int(target.l2_bytes * FITS) // (height * bytes_of) // NARROW * NARROW
    width = min(fitting, WIDE) if again and fitting else WIDE
    if kept and min(width, size) * height * bytes_of > SCRATCH:
        return None
    blocks = math.prod(int(r.src[0].arg) for r in around if r is not column)
    wanted = -(-target.threads // blocks)
    width = min(width, max(NARROW, size // wanted // NARROW * NARROW), size)
    return next((w for w in range(width, width // 2, -lanes) if size % w == 0), width)


# *** how ***


class Turner:
    """Rebuilds a kernel, sources first."""

    def __init__(self, order: list[UOp], plan: Plan) -> None:
        self.order = order
        self.plan = plan
        self.number = 1 + max(int(n.arg[0]) for n in order if n.op is Ops.RANGE)
        self.scratch = FIRST_SLOT
        size, width = int(plan.column.src[0].arg), UOp.const(plan.width, dtypes.weakint)
        self.block = self.loop(-(-size // plan.width), AxisType.LOOP)
        first = INDEX_OPS[Ops.MUL](self.block, width)
        left = INDEX_OPS[Ops.SUB](UOp.const(size, dtypes.weakint), first)
        within = width if size % plan.width == 0 else INDEX_OPS[Ops.MIN](width, left)
        self.inner = self.loop(within, AxisType.LOOP)
        self.fewer: dict[UOp, UOp] = {}
        self.done: dict[UOp, UOp] = {plan.column: INDEX_OPS[Ops.ADD](first, self.inner)}

    def loop(self, size: UOp | int, kind: AxisType) -> UOp:
        """A new loop."""
        self.number += 1
        return UOp.range(size, self.number - 1, kind)

    def run(self) -> UOp:
        """The kernel."""
        for node in self.order:
            if node not in self.done:
                self.done[node] = self.turned(node)
        return self.done[self.order[-1]]

    def turned(self, node: UOp) -> UOp:
        """A node on its new sources."""
        src = tuple(self.done[s] for s in node.src)
        if node.op is Ops.REDUCE:
            return self.total(node, src[0])
        if node.op is Ops.END:
            around = tuple(self.block if r is self.plan.column else r for r in node.src[1:])
            return src[0].end(*around, self.inner)
        if node.op is Ops.PARAM and node.arg.addrspace is AddrSpace.LOCAL:
            size = math.prod(node.shape) * self.plan.width
            return UOp.placeholder((size,), node.dtype, node.arg.slot, AddrSpace.LOCAL)
        if node.op is Ops.INDEX and memory_of(node).arg.addrspace is AddrSpace.LOCAL:
            width = UOp.const(self.plan.width, dtypes.weakint)
            row = INDEX_OPS[Ops.MUL](src[1], width)
            return UOp(Ops.INDEX, node.dtype, (src[0], INDEX_OPS[Ops.ADD](row, self.inner)))
        new = node.with_src(src)
        found: UOp | None = RULES.apply(new) if node.op in opcodes.ELEMENTWISE else None
        return new if found is None else found

    def total(self, reduce: UOp, value: UOp) -> UOp:
        """The element of scratch with the result of a reduction."""
        memory = UOp.placeholder((self.plan.width,), reduce.dtype, self.scratch, AddrSpace.LOCAL)
        self.scratch += 1
        *outer, row = reduce.src[1:]
        start: UOp = UOp.const(identity(reduce.arg, reduce.dtype), reduce.dtype)
        around = [r for r in value.ranges if r not in reduce.src[1:] and r is not self.inner]
        count = int(row.src[0].arg)
        alone = row in self.plan.kept or _operations(value) > LONGEST
        at_once = 1 if alone else math.gcd(count, TOGETHER) if outer else TOGETHER
        if at_once > 1:
            if count % at_once:
                start = _rows(reduce, value, row, 0, count % at_once)
            value, row = self.together(reduce, value, row, at_once)
        begun = self.element(memory.after(*around)).store(start).end(self.inner)
        place = self.element(memory.after(begun))
        more = UOp(reduce.arg, reduce.dtype, (place, value))
        return self.element(memory.after(place.store(more).end(*outer, row, self.inner)))

    def together(self, reduce: UOp, value: UOp, row: UOp, count: int) -> tuple[UOp, UOp]:
        """What some rows come to, and the loop over as many rows; the first ones are left out."""
        size = int(row.src[0].arg)
        if row not in self.fewer:
            self.fewer[row] = self.loop(size // count, row.arg[1])
        first = INDEX_OPS[Ops.MUL](self.fewer[row], UOp.const(count, dtypes.weakint))
        return _rows(reduce, value, row, size % count, count, first), self.fewer[row]

    def element(self, memory: UOp) -> UOp:
        """The place of a column in scratch."""
        return UOp(Ops.INDEX, memory.dtype, (memory, self.inner))


def _operations(value: UOp) -> int:
    """The operations on data in the value of one row."""
    order = toposort([value], gate=lambda n: n.op is not Ops.AFTER)
    return sum(n.op in opcodes.ELEMENTWISE and n.dtype is not dtypes.weakint for n in order)


def _rows(
    reduce: UOp, value: UOp, row: UOp, first: int, count: int, start: UOp | None = None
) -> UOp:
    """What some neighbouring rows come to, pairwise."""
    parts = []
    for number in range(first, first + count):
        place = UOp.const(number, dtypes.weakint)
        place = place if start is None else INDEX_OPS[Ops.ADD](start, place)
        parts.append(_at(value, row, place))
    while len(parts) > 1:
        pairs = [tuple(parts[i : i + 2]) for i in range(0, len(parts), 2)]
        parts = [UOp(reduce.arg, reduce.dtype, p) if len(p) == 2 else p[0] for p in pairs]
    return parts[0]


def _at(value: UOp, row: UOp, place: UOp) -> UOp:
    """The value in another row."""
    done: dict[UOp, UOp] = {row: place}
    for node in toposort([value], gate=lambda n: row in n.ranges):
        if node in done or row not in node.ranges:
            continue
        new = node.with_src(tuple(done.get(s, s) for s in node.src))
        found: UOp | None = RULES.apply(new) if node.op in opcodes.ELEMENTWISE else None
        done[node] = new if found is None else found
    return done.get(value, value)
