"""Loads and stores: of one element, of neighbours, of elements a stride apart, or anywhere.

Before: INDEX(p1, WHERE(j < 10, i * 64 + j, Invalid)), j in 16 lanes. After:
`m0 = vfirst_x16(10 - i1)`, `v0 = vloadm_f32x16(buf1, i0 * 64 + i1, m0)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyfn.codegen import gate
from tinyfn.codegen.hoist import Value
from tinyfn.codegen.loops import Sum
from tinyfn.codegen.normalise import gate_of, memory_of
from tinyfn.codegen.ops import SMALL, register
from tinyfn.codegen.position import Position
from tinyfn.uop import opcodes
from tinyfn.uop.ops import UOp

Pick = dict[UOp, int]
LINE = 64  # bytes


@dataclass(frozen=True)
class Coordinate:
    """Where a copy of a loop's body is: base + lane; `mask` are the lanes that exist."""

    base: Sum
    lanes: int = 0
    mask: Value | None = None


@dataclass(frozen=True)
class Packed:
    """A node that is in a panel of scratch: the lane axis, and the stride of each other loop."""

    name: str
    columns: UOp
    strides: dict[UOp, int]


@dataclass(frozen=True)
class Turned:
    """Loads whose lanes are far apart, and which are neighbours along another loop."""

    name: str
    loop: UOp


class Access:
    """Writes the loads and stores of a kernel; addresses and masks come from its values."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.writer = values.writer
        self.arithmetic = values.arithmetic
        self.streamed: frozenset[int] = frozenset()
        self.private: dict[int, dict[UOp, int]] = {}
        self.turned: dict[UOp, Turned] = {}

    def load(self, node: UOp, pick: Pick) -> Value:
        """INDEX as a value."""
        condition, offset = gate_of(node)
        memory = memory_of(node)
        at = self.own_copy(memory, self.values.position(offset, pick), pick)
        allowed = self.values.condition(condition, pick)
        lanes = at.lanes or (allowed.lanes if allowed is not None else 0)
        if not lanes or (at.uniform and allowed is None):
            return self.load_scalar(memory, at, allowed)
        mask = self.lane_mask(node, allowed, lanes, pick)
        if mask is None and node in self.turned and self.is_square(node, lanes):
            return self.load_turned(node, memory, at, pick)
        return self.load_lanes(memory, at, mask, lanes)

    def is_square(self, node: UOp, lanes: int) -> bool:
        """Whether as many copies as lanes of a node are open, so that they can change places."""
        copies = self.values.coordinates[self.turned[node].loop]
        return len(copies) == lanes and not copies[0].lanes

    def load_turned(self, node: UOp, memory: UOp, at: Position, pick: Pick) -> Value:
        """A square of elements: loaded along the copies, turned in scratch to lie along lanes."""
        turned, lanes = self.turned[node], at.lanes
        kind = register(memory.dtype)
        own = pick.get(turned.loop, 0)
        corner = at.base.plus(Sum((), -own))
        for lane in range(lanes):
            place = self.writer.offset(corner.plus(Sum((), lane * at.stride)))
            row = self.read(memory, lanes, f"vload_{memory.dtype.short}x{lanes}", place)
            self.writer.do(f"vstore_{kind}x{lanes}", turned.name, Sum((), lane * lanes), row.name)
        found: dict[int, Value] = {}
        for copy in range(lanes):
            op = f"vstrided_{kind}x{lanes}"
            name = self.writer.here("v", op, turned.name, Sum((), copy), Sum((), lanes))
            found[copy] = Value(name, kind, lanes)
            self.writer.remember(self.values.key(node, {**pick, turned.loop: copy}), found[copy])
        return found[own]

    def lane_mask(self, node: UOp, allowed: Value | None, lanes: int, pick: Pick) -> Value | None:
        """The lanes of an access: those that exist and whose gate holds."""
        mask = gate.both_masks(self.arithmetic, self.values.mask_of(node.ranges, pick), allowed)
        if mask is None or mask.name in self.arithmetic.full:
            return None
        return gate.splat_mask(self.arithmetic, mask, lanes)

    def own_copy(self, memory: UOp, at: Position, pick: Pick) -> Position:
        """The place in the scratch of this copy, where copies of a loop have one each."""
        strides = self.private.get(memory.arg.slot)
        if not strides:
            return at
        shift = sum(pick.get(loop, 0) * stride for loop, stride in strides.items())
        result: Position = self.arithmetic.add(at, Position(Sum((), shift)))
        return result

    def read(self, memory: UOp, lanes: int, op: str, *args: Any) -> Value:
        """A load op: free to move where nothing writes the memory."""
        kind = register(memory.dtype)
        prefix = "m" if kind == "b1" else "v"
        fixed = memory.arg.slot in self.values.written
        write = self.writer.here if fixed else self.writer.let
        return Value(write(prefix, op, self.values.names[memory.arg.slot], *args), kind, lanes)

    def load_scalar(self, memory: UOp, at: Position, allowed: Value | None) -> Value:
        """One element."""
        short, offset = memory.dtype.short, self.writer.offset(at.base)
        if allowed is None:
            return self.read(memory, 0, f"load_{short}", offset)
        return self.read(memory, 0, f"loadm_{short}", offset, allowed.name)

    def load_lanes(self, memory: UOp, at: Position, mask: Value | None, lanes: int) -> Value:
        """An element for every lane."""
        kind = f"{memory.dtype.short}x{lanes}"
        if at.vector is None and at.stride:
            offset = self.writer.offset(at.base)
            extra = () if at.stride == 1 else (at.stride,)
            name = "vload" if at.stride == 1 else "vstrided"
            if mask is None:
                return self.read(memory, lanes, f"{name}_{kind}", offset, *extra)
            return self.read(memory, lanes, f"{name}m_{kind}", offset, *extra, mask.name)
        index = self.arithmetic.vector(at, lanes)
        everywhere = mask or self.values.splat(self.values.literal(True, "b1"), lanes)
        return self.read(memory, lanes, f"vgather_{kind}", index.name, everywhere.name)

    def place_in_panel(self, packed: Packed, pick: Pick) -> Sum:
        """Where a panel has a node's value for the picked copies."""
        place = Sum()
        for loop, stride in packed.strides.items():
            place = place.plus(self.values.coordinate(loop, pick).base, stride)
        lanes = self.values.coordinate(packed.columns, pick).lanes
        result: Sum = self.writer.offset(place.plus(Sum((), pick.get(packed.columns, 0) * lanes)))
        return result

    def load_packed(self, node: UOp, pick: Pick) -> Value:
        """The value of a node from its panel."""
        packed = self.values.packed[node]
        kind = register(node.dtype)
        lanes = self.values.coordinate(packed.columns, pick).lanes
        place = self.place_in_panel(packed, pick)
        name = self.writer.here("v", f"vload_{kind}x{lanes}", packed.name, place)
        return Value(name, kind, lanes)

    def store(self, node: UOp, pick: Pick) -> None:
        """STORE."""
        target, source = node.src[0], node.src[1]
        condition, offset = gate_of(target)
        memory = memory_of(target)
        value = self.stored_value(source, memory, pick)
        at = self.own_copy(memory, self.values.position(offset, pick), pick)
        allowed = self.values.condition(condition, pick)
        lanes = max(at.lanes, value.lanes, allowed.lanes if allowed is not None else 0)
        short, buffer = memory.dtype.short, self.values.names[memory.arg.slot]
        if not lanes:
            place = self.writer.offset(at.base)
            extra = () if allowed is None else (allowed.name,)
            name = f"store_{short}" if allowed is None else f"storem_{short}"
            self.writer.do(name, buffer, place, value.name, *extra)
            return
        value = self.values.splat(value, lanes)
        mask = self.lane_mask(node, allowed, lanes, pick)
        if at.stride == 1 and at.linear:
            place = self.writer.offset(at.base)
            extra = () if mask is None else (mask.name,)
            name = "vstore" if mask is None else "vstorem"
            if mask is None and self.streams(memory, at.base, lanes):
                name = "vstream"
            self.writer.do(f"{name}_{short}x{lanes}", buffer, place, value.name, *extra)
            return
        everywhere = mask or self.values.splat(self.values.literal(True, "b1"), lanes)
        index = self.arithmetic.vector(at, lanes).name
        name = f"vscatter_{short}x{lanes}"
        self.writer.do(name, buffer, index, value.name, everywhere.name)

    def streams(self, memory: UOp, base: Sum, lanes: int) -> bool:
        """Whether a store may go past the cache: into much memory, on whole aligned lines."""
        width = memory.dtype.itemsize
        aligned = lanes * width % LINE == 0 and self.arithmetic.is_multiple(base, LINE // width)
        return memory.arg.slot in self.streamed and aligned

    def stored_value(self, source: UOp, memory: UOp, pick: Pick) -> Value:
        """What a STORE stores; storing rounds, so a small float need not be rounded before."""
        small = source.dtype in SMALL and source.dtype is memory.dtype
        key = self.values.key(source, pick)
        if small and source.op in opcodes.ELEMENTWISE and self.writer.recall(key) is None:
            for inner in self.values.order(source)[:-1]:
                self.values.known(inner, pick)
            found = self.values.compute(source, pick, rounded=False)
        else:
            found = self.values.value(source, pick)
        result: Value = self.values.cast_value(found, register(memory.dtype))
        return result
