"""The code that fills panels, and from where tiles then load (see pack.py for which and why)."""

from __future__ import annotations

import math

from tinyfn.codegen import gate
from tinyfn.codegen.access import Coordinate, Packed
from tinyfn.codegen.hoist import Value
from tinyfn.codegen.loops import Binary, Expression, Kernel, Loop, Sum, named, number
from tinyfn.codegen.ops import register
from tinyfn.codegen.position import Position
from tinyfn.codegen.values import Values
from tinyfn.uop.ops import UOp


class Panels:
    """The panels of one kernel."""

    def __init__(self, kernel: Kernel, values: Values) -> None:
        self.kernel = kernel
        self.values = values
        self.writer = values.writer
        self.arithmetic = values.arithmetic
        self.names: dict[UOp, str] = {}

    def declare(self) -> None:
        """Scratch for the panels."""
        depth = math.prod(loop.size or 1 for loop in self.kernel.panel_loops)
        for node in self.kernel.panels:
            columns = self.kernel.order[0]
            size = number(depth * columns.lanes * columns.copies)
            self.names[node] = self.writer.here("row", f"local_{register(node.dtype)}", size)

    def pack(self, columns: Loop) -> None:
        """Copy the panels of these columns into scratch, from where the tiles load them."""
        strides: dict[UOp, int] = {}
        stride = columns.lanes * columns.copies
        for loop in reversed(self.kernel.panel_loops):
            strides[loop.range] = stride
            stride *= loop.size or 1
        self.values.packed.clear()
        self.values.orders.clear()
        packed = {n: Packed(self.names[n], columns.range, strides) for n in self.kernel.panels}
        for node in self.kernel.panels:
            self.fill(node, packed[node], self.kernel.panel_loops)
        self.values.packed.update(packed)
        self.values.orders.clear()

    def fill(self, node: UOp, packed: Packed, loops: list[Loop]) -> None:
        """The loops that fill one panel."""
        if not loops:
            for pick in self.values.picks(node.ranges):
                value = self.values.value(node, pick)
                place = self.values.access.place_in_panel(packed, pick)
                self.writer.do(f"vstore_{value.type}", packed.name, place, value.name)
            return
        if len(loops) == 1 and loops[0] is self.kernel.transposed.get(node):
            self.fill_transposed(node, packed, loops[0])
            return
        with self.writer.loop(number(0), self.values.size(loops[0]), 1) as counter:
            self.values.coordinates[loops[0].range] = [Coordinate(named(counter))]
            self.fill(node, packed, loops[1:])
        del self.values.coordinates[loops[0].range]

    def fill_transposed(self, node: UOp, packed: Packed, loop: Loop) -> None:
        """Fill from loads along the reduction, which is where the memory is contiguous."""
        columns = self.values.coordinates[packed.columns]
        lanes, size = columns[0].lanes, self.values.size(loop)
        valid: Expression = number(lanes * len(columns))
        if columns[-1].mask is not None:
            left = self.values.size(self.kernel.order[0]).plus(columns[0].base, -1)
            valid = left if not left.terms else Binary("min", self.arithmetic.short(left), valid)
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
