"""The tree of loops written out as statements, as its loops are planned.

A loop with `lanes` runs that many iterations as one vector; with `copies` its body is written that
many times, loops inside being shared by the copies (so a tile of accumulators lives across them).
What is left over at the end of such a loop is written once more, with fewer copies and a mask.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from tinyfn.codegen import gate
from tinyfn.codegen.hoist import Value, Writer
from tinyfn.codegen.loops import (
    Binary,
    Block,
    Closing,
    Expression,
    Kernel,
    Let,
    Loop,
    Program,
    Read,
    Sum,
    Update,
    Write,
    named,
    number,
)
from tinyfn.codegen.normalise import gate_of
from tinyfn.codegen.ops import (
    COMBINE_BOOL,
    HORIZONTAL,
    HORIZONTAL_BOOL,
    SMALL,
    identity,
    op_name,
    register,
)
from tinyfn.codegen.position import Position
from tinyfn.codegen.values import Coordinate, Packed, Pick, Values
from tinyfn.uop.ops import Ops, UOp

Limits = tuple[Expression, Expression]


def emit(kernel: Kernel) -> Program:
    """The kernel as statements."""
    return Emitter(kernel).run()


class Emitter:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.writer = Writer()
        self.names: dict[Any, str] = {}
        self.values = Values(self.writer, self.names, kernel.written)
        self.values.streamed = kernel.streamed
        self.arithmetic = self.values.arithmetic
        self.accumulators: dict[Any, Value] = {}
        self.limits: dict[UOp, Limits] = {}
        self.panels: dict[UOp, str] = {}

    def run(self) -> Program:
        """The whole kernel."""
        parameters = self.declare()
        self.declare_panels()
        self.split(self.kernel)
        return Program(self.kernel.name, parameters, self.writer.finished(), self.kernel.about)

    def declare(self) -> list[tuple[str, str]]:
        """Names for parameters and scratch."""
        parameters = []
        for param in self.kernel.globals:
            name = self.writer.name("buf")
            self.names[param.arg.slot] = name
            parameters.append((name, f"{param.dtype.short}ptr"))
        for variable in self.kernel.variables:
            self.names[variable] = self.writer.name("n")
            parameters.append((self.names[variable], "i64"))
        for bound in ("lo", "hi"):
            self.writer.level[bound] = 0
            parameters.append((bound, "i64"))
        for scratch in self.kernel.scratch:
            size = 1
            for length in scratch.shape:
                size *= int(length)
            name = self.writer.here("row", f"local_{scratch.dtype.short}", number(size))
            self.names[scratch.arg.slot] = name
        return parameters

    # *** threads ***

    def split(self, kernel: Kernel) -> None:
        """The loop over the units of lo..hi, and what a unit is."""
        parallel = kernel.parallel
        if parallel.direct:
            loop = parallel.loops[0]
            self.limits[loop.range] = (named("lo"), named("hi"))
            self.arithmetic.multiple["lo"] = (loop.lanes or 1) * loop.copies
            self.nest(kernel, 0)
            return
        with self.writer.loop(named("lo"), named("hi"), 1) as counter:
            rest: Sum = named(counter)
            for position in reversed(range(len(parallel.loops))):
                loop, block = parallel.loops[position], parallel.blocks[position]
                this = rest
                if position:
                    count = self.arithmetic.blocks(self.size(loop), block, up=True)
                    rest, this = self.arithmetic.split(rest, count)
                self.assign_block(loop, block, this)
            self.nest(kernel, 0)

    def assign_block(self, loop: Loop, block: int, unit: Sum) -> None:
        """The iterations of a loop that belong to a unit."""
        if block == 1:
            self.values.coordinates[loop.range] = [Coordinate(unit)]
            return
        start = self.arithmetic.short(unit.times(block))
        for name, _ in start.terms:
            self.arithmetic.multiple[name] = block
        stop: Expression = start.plus(number(block))
        size = self.size(loop)
        if size.terms or size.constant % block:
            stop = Binary("min", start.plus(number(block)), size)
            stop = self.arithmetic.scalar(stop).base
        self.limits[loop.range] = (start, stop)

    def nest(self, kernel: Kernel, position: int) -> None:
        """The loops of the outer nest in their planned order, then what is inside."""
        if not kernel.order and not kernel.parallel.loops:
            self.block(kernel.body)
            return
        if position == len(kernel.order):
            chain = [*kernel.parallel.loops, *kernel.order]
            innermost = next(c for c in chain if not any(i in chain for i in c.body.items))
            self.block(innermost.body)
            return
        if position == 1 and kernel.panels:
            self.pack(kernel)
        self.loop(kernel.order[position], lambda: self.nest(kernel, position + 1))

    def declare_panels(self) -> None:
        """Scratch for the panels."""
        depth = math.prod(loop.size or 1 for loop in self.kernel.panel_loops)
        for node in self.kernel.panels:
            columns = self.kernel.order[0]
            size = number(depth * columns.lanes * columns.copies)
            self.panels[node] = self.writer.here("row", f"local_{register(node.dtype)}", size)

    def pack(self, kernel: Kernel) -> None:
        """Copy the panels of these columns into scratch, from where the tiles load them."""
        columns = kernel.order[0]
        strides: dict[UOp, int] = {}
        stride = columns.lanes * columns.copies
        for loop in reversed(kernel.panel_loops):
            strides[loop.range] = stride
            stride *= loop.size or 1
        self.values.packed.clear()
        self.values.orders.clear()
        packed = {n: Packed(self.panels[n], columns.range, strides) for n in kernel.panels}
        for node in kernel.panels:
            self.fill(node, packed[node], kernel.panel_loops)
        self.values.packed.update(packed)
        self.values.orders.clear()

    def fill(self, node: UOp, packed: Packed, loops: list[Loop]) -> None:
        """The loops that fill one panel."""
        if not loops:
            for pick in self.picks(node.ranges):
                value = self.values.value(node, pick)
                place = self.values.place_in_panel(packed, pick)
                self.writer.do(f"vstore_{value.type}", packed.name, place, value.name)
            return
        if len(loops) == 1 and loops[0] is self.kernel.transposed.get(node):
            self.fill_transposed(node, packed, loops[0])
            return
        with self.writer.loop(number(0), self.size(loops[0]), 1) as counter:
            self.values.coordinates[loops[0].range] = [Coordinate(named(counter))]
            self.fill(node, packed, loops[1:])
        del self.values.coordinates[loops[0].range]

    def fill_transposed(self, node: UOp, packed: Packed, loop: Loop) -> None:
        """Fill from loads along the reduction, which is where the memory is contiguous."""
        columns = self.values.coordinates[packed.columns]
        lanes, size = columns[0].lanes, self.size(loop)
        valid: Expression = number(lanes * len(columns))
        if columns[-1].mask is not None:
            left = self.size(self.kernel.order[0]).plus(columns[0].base, -1)
            valid = left if not left.terms else Binary("min", self.short(left), number(lanes))
        with self.writer.loop(number(0), size, lanes) as counter:
            self.arithmetic.multiple[counter] = lanes
            mask = None
            if size.constant % lanes:
                left = size.plus(named(counter), -1)
                mask = gate.first_lanes(self.arithmetic, left, lanes)
            with self.writer.loop(number(0), valid, 1) as column:
                self.values.coordinates[loop.range] = [Coordinate(named(counter), lanes, mask)]
                at = columns[0].base.plus(named(column))
                self.values.coordinates[packed.columns] = [Coordinate(at)]
                self.scatter_panel(node, packed, loop, named(column), mask)
            self.values.coordinates[packed.columns] = columns
        del self.values.coordinates[loop.range]

    def scatter_panel(
        self, node: UOp, packed: Packed, loop: Loop, column: Sum, mask: Value | None
    ) -> None:
        """One column of a panel, a vector of rows at a time."""
        value = self.values.value(node, {})
        place = column
        for r, stride in packed.strides.items():
            if r is not loop.range:
                place = place.plus(self.values.coordinate(r, {}).base, stride)
        lanes, stride = value.lanes, packed.strides[loop.range]
        place = place.plus(self.values.coordinate(loop.range, {}).base, stride)
        index = self.arithmetic.vector(Position(place, stride, None, lanes), lanes)
        everywhere = mask or self.values.splat(self.values.literal(True, "b1"), lanes)
        op = f"vscatter_{value.type}"
        self.writer.do(op, packed.name, index.name, value.name, everywhere.name)

    # *** blocks and loops ***

    def block(self, block: Block) -> None:
        """Every item in order."""
        for item in block.items:
            if isinstance(item, Loop):
                self.loop(item, lambda body=item.body: self.block(body))  # type: ignore[misc]
            elif isinstance(item, Update):
                for pick in self.picks(
                    {**item.node.src[0].ranges, **dict.fromkeys(item.node.src[1:])}
                ):
                    self.update(item.node, pick)
            elif isinstance(item, Write):
                for pick in self.picks(item.node.ranges):
                    self.values.store(item.node, pick)
            elif isinstance(item, Read):
                for pick in self.picks(item.node.ranges):
                    self.values.value(item.node, pick)

    def picks(self, ranges: Any) -> Iterator[Pick]:
        """Every choice of copies of these loops."""
        several = [r for r, c in self.values.coordinates.items() if len(c) > 1 and r in ranges]
        counts = [range(len(self.values.coordinates[r])) for r in several]
        for choice in itertools.product(*counts):
            yield dict(zip(several, choice, strict=True))

    def size(self, loop: Loop) -> Sum:
        """How often a loop runs."""
        return self.arithmetic.short(self.values.position(loop.range.src[0], {}).base)

    def loop(self, loop: Loop, inside: Callable[[], None]) -> None:
        """A loop with its accumulators."""
        for closing in loop.closings:
            self.begin(closing)
        self.variants(loop, inside)
        self.values.coordinates.pop(loop.range, None)
        for closing in loop.closings:
            self.finish(closing)

    def variants(self, loop: Loop, inside: Callable[[], None]) -> None:
        """The main part of a loop, and what is left over."""
        size = self.size(loop)
        unit = loop.lanes or 1
        step = unit * loop.copies
        limits = self.limits.get(loop.range)
        start, stop = limits or (number(0), size)
        if size.terms:
            self.symbolic(loop, inside, size, start, stop)
            return
        count = size.constant
        if loop.unrolled and not limits:
            for i in range(count):
                self.part(loop, inside, [Coordinate(number(i))])
            return
        main = count // step * step
        if main:
            self.main(loop, inside, start, main if limits is None else stop, main, count)
        if count > main:
            rest = count - main
            first = (
                number(main) if limits is None else Binary("max", self.short(start), number(main))
            )
            self.left_over(loop, inside, first, stop if limits else None, rest)

    def short(self, value: Expression) -> Sum:
        """An expression as one name."""
        return (
            self.arithmetic.short(value)
            if isinstance(value, Sum)
            else self.arithmetic.scalar(value).base
        )

    def main(
        self,
        loop: Loop,
        inside: Callable[[], None],
        start: Expression,
        stop: Any,
        main: int,
        count: int,
    ) -> None:
        """Whole steps."""
        unit = loop.lanes or 1
        step = unit * loop.copies
        offsets = [c * unit for c in range(loop.copies)]
        if isinstance(stop, int):
            if main == step:
                self.part(loop, inside, [Coordinate(number(o), loop.lanes) for o in offsets])
                return
            stop = number(stop)
        elif main != count:
            stop = Binary("min", self.short(stop), number(main))
        self.counted(loop, inside, start, stop, step, [(o, None) for o in offsets])

    def left_over(
        self, loop: Loop, inside: Callable[[], None], first: Expression, stop: Any, rest: int
    ) -> None:
        """The iterations after the whole steps; their number is known."""
        unit = loop.lanes or 1
        copies = -(-rest // unit)
        masks: list[int | None] = [None] * copies
        if rest % unit:
            masks[-1] = rest % unit
        if stop is None:
            assert isinstance(first, Sum)
            at = [
                Coordinate(first.plus(number(c * unit)), loop.lanes, self.lane_limit(loop, mask))
                for c, mask in enumerate(masks)
            ]
            self.part(loop, inside, at)
            return
        step = unit * loop.copies
        self.counted(loop, inside, first, stop, step, [(c * unit, m) for c, m in enumerate(masks)])

    def lane_limit(self, loop: Loop, count: int | None) -> Value | None:
        """The mask of a known number of lanes."""
        if count is None:
            return None
        return gate.first_lanes(self.arithmetic, number(count), loop.lanes)

    def counted(
        self,
        loop: Loop,
        inside: Callable[[], None],
        start: Expression,
        stop: Expression,
        step: int,
        copies: list[tuple[int, int | None]],
    ) -> None:
        """A for loop whose body is written for the given offsets, each with its count of lanes."""
        with self.writer.loop(start, stop, step) as counter:
            self.arithmetic.multiple[counter] = step
            self.values.coordinates[loop.range] = [
                Coordinate(named(counter).plus(number(o)), loop.lanes, self.lane_limit(loop, mask))
                for o, mask in copies
            ]
            inside()

    def symbolic(
        self, loop: Loop, inside: Callable[[], None], size: Sum, start: Expression, stop: Expression
    ) -> None:
        """A loop whose length is known when it runs: whole steps, then single vectors."""
        unit = loop.lanes or 1
        step = unit * loop.copies
        if step == 1:
            self.counted(loop, inside, start, stop, 1, [(0, None)])
            return
        whole = self.arithmetic.blocks(size, step, up=False).times(step)
        whole = named(self.writer.integer(whole)) if whole.terms else whole
        alone = start == number(0) and self.limits.get(loop.range) is None
        end = whole if alone else Binary("min", self.short(stop), whole)
        copies: list[tuple[int, int | None]] = [(c * unit, None) for c in range(loop.copies)]
        self.counted(loop, inside, start, end, step, copies)
        first = whole if alone else Binary("max", self.short(start), whole)
        with self.writer.loop(first, stop, unit) as counter:
            self.arithmetic.multiple[counter] = unit
            mask = None
            if loop.lanes:
                left = size.plus(named(counter), -1)
                mask = gate.first_lanes(self.arithmetic, left, loop.lanes)
            self.values.coordinates[loop.range] = [Coordinate(named(counter), loop.lanes, mask)]
            inside()

    def part(self, loop: Loop, inside: Callable[[], None], at: list[Coordinate]) -> None:
        """Straight-line code for known iterations."""
        with self.writer.section():
            self.values.coordinates[loop.range] = at
            inside()

    # *** accumulators ***

    def inner_picks(self, closing: Closing) -> list[Pick]:
        """The copies of a reduction's own loops, each with its accumulator."""
        loops = [l for l in closing.loops if l.copies > 1 and not l.unrolled]
        counts = [range(l.copies) for l in loops]
        return [
            dict(zip([l.range for l in loops], choice, strict=True))
            for choice in itertools.product(*counts)
        ]

    def key(self, node: UOp, pick: Pick) -> Any:
        """The accumulator of a choice of copies."""
        around = frozenset((r, i) for r, i in pick.items() if r in node.ranges)
        return (node, around, tuple(pick.get(r, 0) for r in node.src[1:]))

    def lanes_of(self, closing: Closing) -> tuple[int, bool]:
        """The lanes of the accumulators, and whether they are combined in the end."""
        own = max((l.lanes for l in closing.loops), default=0)
        if own:
            return own, True
        around = [
            c[0].lanes for r, c in self.values.coordinates.items() if r in closing.node.ranges
        ]
        return max(around, default=0), False

    def begin(self, closing: Closing) -> None:
        """Accumulators at what changes nothing."""
        node = closing.node
        lanes, _ = self.lanes_of(closing)
        kind = register(node.dtype)
        start = identity(node.arg, node.dtype)
        op = f"vconst_{kind}x{lanes}" if lanes else f"const_{kind}"
        inner = self.inner_picks(closing)
        for outer in self.picks(node.ranges):
            for pick in inner:
                name = self.writer.here("acc", op, start)
                self.accumulators[self.key(node, {**outer, **pick})] = Value(name, kind, lanes)

    def update(self, node: UOp, pick: Pick) -> None:
        """accumulator = accumulator op value."""
        total = self.accumulators[self.key(node, pick)]
        source = node.src[0]
        mask = self.values.mask_of(node.src[1:], pick)
        kind = register(node.dtype)
        fused = node.arg is Ops.ADD and source.op is Ops.MUL and kind in ("f32", "f64")
        if fused and source.dtype is node.dtype and source.dtype not in SMALL:
            args = [self.values.value(s, pick) for s in source.src]
            op, safe = "fma", all(self.zero_where_masked(s, node.src[1:]) for s in source.src)
        else:
            args = [self.values.cast_value(self.values.value(source, pick), kind)]
            op = COMBINE_BOOL[node.arg] if kind == "b1" else op_name(node.arg, kind)
            safe = node.arg is Ops.ADD and self.zero_where_masked(source, node.src[1:])
        args.append(total)
        name = f"{op}_{kind}"
        if total.lanes:
            args = [self.values.splat(a, total.lanes) for a in args]
            name = f"v{name}x{total.lanes}"
        names = tuple(a.name for a in args)
        if mask is None or safe:
            self.writer.add(Let(total.name, name, names))
            return
        new = self.writer.here("v", name, *names)
        where = f"vwhere_{kind}x{total.lanes}"
        self.writer.add(Let(total.name, where, (mask.name, new, total.name)))

    def zero_where_masked(self, node: UOp, loops: tuple[UOp, ...]) -> bool:
        """Whether the value is 0 in lanes that do not exist: a masked load along the lane axis."""
        while node.op is Ops.CAST and node.dtype.kind != "bool":
            node = node.src[0]
        lanes = [r for r in loops if (c := self.values.coordinates.get(r)) and c[0].lanes]
        return node.op is Ops.INDEX and all(r in gate_of(node)[1].ranges for r in lanes)

    def finish(self, closing: Closing) -> None:
        """Accumulators combined pairwise, lanes last; the result is the node's value."""
        node = closing.node
        lanes, combined = self.lanes_of(closing)
        kind = register(node.dtype)
        inner = self.inner_picks(closing)
        for outer in self.picks(node.ranges):
            totals = [self.accumulators.pop(self.key(node, {**outer, **pick})) for pick in inner]
            while len(totals) > 1:
                totals = [self.combine(node, totals[i : i + 2]) for i in range(0, len(totals), 2)]
            result = totals[0]
            if combined:
                result = self.horizontal(node, result)
            if node.dtype in SMALL:
                result = self.values.rounded(result, node)
            self.writer.remember(self.values.key(node, outer), result)

    def combine(self, node: UOp, totals: list[Value]) -> Value:
        """Two accumulators as one."""
        if len(totals) == 1:
            return totals[0]
        x, y = totals
        op = COMBINE_BOOL[node.arg] if x.kind == "b1" else op_name(node.arg, x.kind)
        name = f"v{op}_{x.type}" if x.lanes else f"{op}_{x.type}"
        return Value(self.writer.here("v", name, x.name, y.name), x.kind, x.lanes)

    def horizontal(self, node: UOp, total: Value) -> Value:
        """The lanes of an accumulator combined."""
        if total.kind == "b1":
            name = f"{HORIZONTAL_BOOL[node.arg]}_x{total.lanes}"
            return Value(self.writer.here("m", name, total.name), "b1")
        name = f"{HORIZONTAL[node.arg]}_{total.type}"
        return Value(self.writer.here("v", name, total.name), total.kind)
