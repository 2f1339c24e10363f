"""The tree of loops written out as statements, as its loops are planned.

A loop with `lanes` runs that many iterations as one vector; with `copies` its body is written that
many times, loops inside being shared by the copies (so a tile of accumulators lives across them).
What is left over at the end of such a loop is written once more, with fewer copies and a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinyfn.codegen import gate
from tinyfn.codegen.access import Coordinate, Turned
from tinyfn.codegen.accumulate import Accumulators
from tinyfn.codegen.hoist import Value, Writer
from tinyfn.codegen.loops import (
    Binary,
    Block,
    Expression,
    Kernel,
    Loop,
    Program,
    Read,
    Sum,
    Update,
    Write,
    leaves_in,
    named,
    number,
)
from tinyfn.codegen.normalise import gate_of, memory_of
from tinyfn.codegen.ops import register
from tinyfn.codegen.panels import Panels
from tinyfn.codegen.values import Values
from tinyfn.uop.ops import UOp

Limits = tuple[Expression, Expression]


def emit(kernel: Kernel) -> Program:
    """The kernel as statements."""
    return Emitter(kernel).run()


def private_loops(block: Block, slot: int) -> list[Loop]:
    """The loops with several copies, each of which needs scratch of its own."""
    found: list[Loop] = []
    for item in block.items:
        if isinstance(item, Loop):
            found += private_loops(item.body, slot)
            stores = [i for i in leaves_in(item.body) if isinstance(i, Write)]
            own = [s.node for s in stores if memory_of(s.node.src[0]).arg.slot == slot]
            same = any(
                item.range in store.ranges and item.range not in gate_of(store.src[0])[1].ranges
                for store in own
            )
            if item.copies > 1 and not item.lanes and not item.unrolled and same:
                found.append(item)
    return list(dict.fromkeys(found))


def note(loop: Loop, copies: int, step: int) -> str:
    """What a loop of the source says about itself."""
    size = "" if loop.size is None else f" < {loop.size}"
    rest = ", the rest" if copies * (loop.lanes or 1) < step else ""
    lanes = f", {copies} x {loop.lanes} lanes" if loop.lanes else ""
    several = f", {copies} at once" if copies > 1 and not loop.lanes else ""
    return f"r{loop.range.arg[0]}{size}{lanes}{several}{rest}"


class Emitter:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.writer = Writer()
        self.names: dict[Any, str] = {}
        self.values = Values(self.writer, self.names, kernel.written)
        self.values.access.streamed = kernel.streamed
        self.arithmetic = self.values.arithmetic
        self.accumulators = Accumulators(self.values)
        self.limits: dict[UOp, Limits] = {}
        self.panels = Panels(kernel, self.values)

    def run(self) -> Program:
        """The whole kernel."""
        parameters = self.declare()
        self.panels.declare()
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
            slot = scratch.arg.slot
            size = math.prod(int(length) for length in scratch.shape)
            strides: dict[UOp, int] = {}
            for loop in private_loops(self.kernel.body, slot):
                strides[loop.range] = size
                size *= loop.copies
            self.values.access.private[slot] = strides
            op = f"local_{scratch.dtype.short}"
            self.names[slot] = self.writer.here("row", op, number(size))
        for node, loop in self.kernel.turned.items():
            square = number(loop.copies**2)
            name = self.writer.here("row", f"local_{register(node.dtype)}", square)
            self.values.access.turned[node] = Turned(name, loop.range)
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
        with self.writer.loop(named("lo"), named("hi"), 1, "units") as counter:
            rest: Sum = named(counter)
            for position in reversed(range(len(parallel.loops))):
                loop, block = parallel.loops[position], parallel.blocks[position]
                this = rest
                if position:
                    count = self.arithmetic.blocks(self.values.size(loop), block, up=True)
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
        size = self.values.size(loop)
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
            self.panels.pack(kernel.order[0])
        self.loop(kernel.order[position], lambda: self.nest(kernel, position + 1))

    # *** blocks and loops ***

    def block(self, block: Block) -> None:
        """Every item in order."""
        for item in block.items:
            if isinstance(item, Loop):
                self.loop(item, lambda body=item.body: self.block(body))  # type: ignore[misc]
            elif isinstance(item, Update):
                for pick in self.values.picks(
                    {**item.node.src[0].ranges, **dict.fromkeys(item.node.src[1:])}
                ):
                    self.accumulators.update(item.node, pick)
            elif isinstance(item, Write):
                for pick in self.values.picks(item.node.ranges):
                    self.values.access.store(item.node, pick)
            elif isinstance(item, Read):
                for pick in self.values.picks(item.node.ranges):
                    self.values.value(item.node, pick)

    def loop(self, loop: Loop, inside: Callable[[], None]) -> None:
        """A loop with its accumulators."""
        for closing in loop.closings:
            self.accumulators.begin(closing)
        self.variants(loop, inside)
        self.values.coordinates.pop(loop.range, None)
        for closing in loop.closings:
            self.accumulators.finish(closing)

    def variants(self, loop: Loop, inside: Callable[[], None]) -> None:
        """The main part of a loop, and what is left over."""
        size = self.values.size(loop)
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
        if loop.masked and count:
            self.vectors(loop, inside, size, start, stop)
            return
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
        with self.writer.loop(start, stop, step, note(loop, len(copies), step)) as counter:
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
        self.vectors(loop, inside, size, first, stop, ", the rest")

    def vectors(
        self,
        loop: Loop,
        inside: Callable[[], None],
        size: Sum,
        first: Expression,
        stop: Expression,
        what: str = "",
    ) -> None:
        """A loop of one vector a pass, each masked by what is left."""
        unit = loop.lanes or 1
        with self.writer.loop(first, stop, unit, note(loop, 1, unit) + what) as counter:
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
