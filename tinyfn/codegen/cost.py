"""What a plan of the loops would cost: the measure by which vector axes and tiles are chosen.

Nodes are grouped by the loop in which they are computed and the loops they depend on. A node runs
once for every pass of the loops around it, times the copies of those loops it depends on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tinyfn.codegen.loops import Block, Kernel, Loop, Update, Write, outer_chain
from tinyfn.codegen.normalise import gate_of, memory_of
from tinyfn.codegen.ops import SMALL, register_bytes
from tinyfn.device import Target
from tinyfn.dtype import dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import linear_form

SLOW = frozenset(
    Ops[n] for n in "EXP EXP2 EXPM1 LOG LOG2 LOG1P SIN COS TAN TANH SIGMOID ERF".split()
)
MIDDLE = frozenset({Ops.DIV, Ops.SQRT, Ops.RSQRT, Ops.RECIP})
LATENCY = 4  # updates of one accumulator wait for each other this many steps
WORTH_A_PANEL = 32  # passes over a panel from which on strided loads are copied into one
CACHED = 0.5  # the part of the L2 cache that panels, or a block of rows, may take
GATED = 1.2  # what it costs more that a load or store happens under a condition
LINE = 64  # bytes of a line of the cache
PAGE = 4096  # bytes from lane to lane from which on each is on a page of its own
PART_OF_LINE = 8.0  # a lane on a page of its own, of whose line little is used before it is gone
FAR = 1024  # elements from one row to the next from which on rows are far apart
FAR_ROW = 2.0  # what the first access to a far row costs more
DEEP = 2.0  # a vector of a panel: the second cache has it, not the first
FILL = 4.0  # what an element costs more on its way into a panel than beside other work
SHARED = 96  # passes over a panel in one unit of work, at most about
OVERHEAD = 0.5  # a pass of a loop by itself


def is_scratch(memory: UOp) -> bool:
    """Whether memory belongs to one run of a kernel."""
    return memory.arg.addrspace in (AddrSpace.LOCAL, AddrSpace.REG)


def has_parts(node: UOp) -> bool:
    """Whether nodes below belong to the same work: not those that only say where a load is."""
    if node.op is Ops.INDEX:
        return any(n.op is Ops.INDEX for n in toposort(node.src[1:]))
    return node.op not in (Ops.REDUCE, Ops.AFTER)


@dataclass(eq=False)
class Group:
    """Nodes of one loop that depend on the same loops."""

    loop: Loop
    ranges: frozenset[UOp]
    nodes: list[UOp] = field(default_factory=list)
    updates: list[UOp] = field(default_factory=list)
    stores: list[UOp] = field(default_factory=list)


class Profile:
    """The work of every loop of a kernel."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.written = kernel.written
        self.target = target
        self.chain = outer_chain(kernel)
        self.path: dict[Loop, tuple[Loop, ...]] = {}
        self.groups: dict[Loop, dict[frozenset[UOp], Group]] = {}
        self.strides: dict[tuple[UOp, UOp], int | None] = {}
        self.seen: dict[Loop, set[UOp]] = {}
        self.summed: set[UOp] = set()
        self.prices: dict[tuple[Group, UOp | None, int], float] = {}
        self.walk(kernel.body, ())

    # *** gathering ***

    def walk(self, block: Block, path: tuple[Loop, ...]) -> None:
        """Note the work of a block in these loops."""
        for item in block.items:
            if isinstance(item, Loop):
                self.path[item] = (*path, item)
                self.groups[item] = {}
                self.seen[item] = set()
                self.walk(item.body, (*path, item))
                continue
            if not path:
                continue
            computed = self.computed(item.node)
            for node in computed:
                self.note(node, path)
            if isinstance(item, Update):
                self.summed.update(computed)
            ranges = set(item.node.ranges) | set(item.node.src[0].ranges)
            if isinstance(item, Update):
                ranges |= set(item.node.src[1:])
                self.group(path[-1], ranges, path).updates.append(item.node)
            elif isinstance(item, Write):
                self.group(path[-1], ranges, path).stores.append(item.node)

    def computed(self, root: UOp) -> list[UOp]:
        """The data nodes written for an item."""
        below = root.src if root.op is not Ops.STORE else (*root.src[0].src[1:], root.src[1])
        if root.op is Ops.INDEX:
            return [root]
        if root.op is Ops.REDUCE:
            below = root.src[:1]
        order = toposort(below, gate=has_parts)
        return [
            n
            for n in order
            if n.op is Ops.INDEX or (n.op in opcodes.ELEMENTWISE and n.dtype is not dtypes.weakint)
        ]

    def note(self, node: UOp, path: tuple[Loop, ...]) -> None:
        """Put a node into the innermost loop it depends on."""
        for loop in reversed(path):
            if loop.range in node.ranges:
                if node not in self.seen[loop]:
                    self.seen[loop].add(node)
                    self.group(loop, set(node.ranges), self.path[loop]).nodes.append(node)
                return

    def group(self, loop: Loop, ranges: set[UOp], path: tuple[Loop, ...]) -> Group:
        """The group of nodes in a loop that depend on these ranges."""
        key = frozenset(p.range for p in path if p.range in ranges)
        groups = self.groups[loop]
        if key not in groups:
            groups[key] = Group(loop, key)
        return groups[key]

    # *** accesses ***

    def stride(self, index: UOp, loop: UOp) -> int | None:
        """By how much the offset grows with a loop; None where that is not regular."""
        key = (index, loop)
        if key not in self.strides:
            offset = gate_of(index)[1]
            if offset.op is Ops.CAST:
                self.strides[key] = None if loop in offset.ranges else 0
            else:
                terms, _ = linear_form(offset)
                others = any(loop in t.ranges for t in terms if t is not loop)
                self.strides[key] = None if others else terms.get(loop, 0)
        return self.strides[key]

    def far_rows(self, loop: Loop, axis: Loop | None) -> float:
        """What it costs that every pass of a loop reads rows far from the last pass's."""
        total = 0.0
        for group in self.groups[loop].values():
            for node in group.nodes:
                if node.op is not Ops.INDEX or axis is None or axis is loop:
                    continue
                stride = self.stride(node, loop.range)
                if self.panel_passes(node, axis.range, axis.lanes or 1, loop) >= WORTH_A_PANEL:
                    continue
                if self.stride(node, axis.range) == 1 and stride is not None and stride >= FAR:
                    total += FAR_ROW
        return total

    def is_written(self, index: UOp) -> bool:
        """Whether the kernel writes the memory of an access."""
        return memory_of(index).arg.slot in self.written

    def inside(self, loop: Loop) -> list[Loop]:
        """A loop and every loop in it."""
        return [inner for inner, path in self.path.items() if loop in path]

    def may_be_lanes(self, loop: Loop) -> bool:
        """Whether iterations of a loop can be lanes of one pass."""
        return self.may_be_copies(loop) and not self.private_stores(loop)

    def may_be_copies(self, loop: Loop) -> bool:
        """Whether iterations of a loop can run at once, each with scratch of its own."""
        if loop.ordered or loop.size == 1:
            return False
        if any(loop.range in i.range.src[0].ranges for i in self.inside(loop) if i is not loop):
            return False
        return all(is_scratch(memory_of(store.src[0])) for store in self.private_stores(loop))

    def has_neighbours(self, loop: Loop) -> bool:
        """Whether iterations of a loop load neighbours of each other, from one line."""
        return any(
            abs(self.stride(node, loop.range) or LINE) * node.dtype.itemsize < LINE
            for inner in self.inside(loop)
            for group in self.groups[inner].values()
            for node in group.nodes
            if node.op is Ops.INDEX
        )

    def private_stores(self, loop: Loop) -> list[UOp]:
        """The stores that put the same elements in every iteration of a loop."""
        return [
            store
            for inner in self.inside(loop)
            for group in self.groups[inner].values()
            for store in group.stores
            if loop.range not in gate_of(store.src[0])[1].ranges
        ]

    def has_only_vector_types(self, loop: Loop) -> bool:
        """Whether every op in a loop has a vector form (8-bit floats have none)."""
        return not any(
            n.dtype in dtypes.fp8s or any(s.dtype in dtypes.fp8s for s in n.src)
            for inner in self.inside(loop)
            for group in self.groups[inner].values()
            for n in (*group.nodes, *group.updates, *group.stores)
        )

    def lanes(self, loop: Loop, vector_bytes: int) -> int:
        """How many iterations of a loop a vector register holds."""
        widest = 1
        for inner in self.inside(loop):
            for group in self.groups[inner].values():
                if loop.range not in group.ranges:
                    continue
                for node in (*group.nodes, *group.updates):
                    kinds = [node.dtype, *(s.dtype for s in node.src)]
                    if node.op is Ops.INDEX:
                        kinds = [node.dtype]
                    data = [k for k in kinds if k not in (dtypes.weakint, dtypes.void)]
                    widest = max([widest, *(register_bytes(k) for k in data)])
                for store in group.stores:
                    widest = max(widest, register_bytes(store.src[1].dtype))
        lanes = max(vector_bytes // widest, 2)
        if loop.size is not None:
            lanes = min(lanes, 1 << max(loop.size - 1, 1).bit_length())
        return min(lanes, 64)

    # *** prices ***

    def price(self, group: Group, axis: UOp | None, lanes: int) -> float:
        """One run of a group's nodes, as vectors along the axis where they depend on it."""
        key = (group, axis, lanes)
        if key not in self.prices:
            along = axis if axis is not None and axis in group.ranges else None
            total = sum(self.node_price(n, along, lanes, group.loop) for n in group.nodes)
            for store in group.stores:
                price = self.access_price(store.src[0], along, lanes, None)
                total += price if price < 2 else 1.5 * price
            self.prices[key] = total
        return self.prices[key]

    def node_price(self, node: UOp, axis: UOp | None, lanes: int, loop: Loop) -> float:
        """One run of a node."""
        if node.op is Ops.INDEX:
            return self.access_price(node, axis, lanes, loop)
        small = 1.0 if node.dtype in SMALL and node.op is not Ops.CAST else 0.0
        if node.op in SLOW:
            return 8 + small
        if node.op is Ops.POW:
            return 25 + small
        if node.op is Ops.THREEFRY:
            return 60
        if node.op in (Ops.IDIV, Ops.MOD) and node.dtype.kind != "float":
            return 4.0 * (lanes if axis is not None else 1)
        if node.op in MIDDLE:
            return 4 + small
        return 1 + small

    def access_price(self, index: UOp, axis: UOp | None, lanes: int, loop: Loop | None) -> float:
        """A load (in a loop) or store."""
        gated = GATED if gate_of(index)[0] is not None else 0.0
        stride = 0 if axis is None else self.stride(index, axis)
        if gated and stride == 1 and axis is not None and loop is not None:
            gated = min(gated, 4 / max(self.panel_passes(index, axis, lanes, loop), 1))
        if stride in (0, 1):
            if stride == 0 or axis is None or loop is None:
                return 1 + gated
            return self.again_price(index, axis, lanes, loop) + gated
        apart = stride is None or abs(stride) * index.dtype.itemsize >= LINE
        pages = apart and (stride is None or abs(stride) * index.dtype.itemsize >= PAGE)
        lane = (2.0 if pages else 1.2) if apart else 0.8
        if pages and axis is not None and loop is not None and self.parts_of_lines(index, loop):
            lane = PART_OF_LINE
        price = lanes * lane + gated + 1
        if axis is not None and loop is not None:
            passes = self.panel_passes(index, axis, lanes, loop)
            if passes >= WORTH_A_PANEL:
                return DEEP + FILL * price / min(passes, SHARED)
        return price

    def again_price(self, index: UOp, axis: UOp, lanes: int, loop: Loop) -> float:
        """A vector that many passes load again: from a panel, or along rows of which some stay."""
        others = [p for p in self.chain if p.range not in index.ranges]
        if math.prod(p.likely_size for p in others) < WORTH_A_PANEL:
            return 1
        if axis not in [p.range for p in self.chain]:
            return (1 + DEEP) / 2
        return DEEP if self.panel_passes(index, axis, lanes, loop) >= WORTH_A_PANEL else 1

    def parts_of_lines(self, index: UOp, loop: Loop) -> bool:
        """Whether a sum's loops load less than a line's neighbours of what they load."""
        inner = [p for p in self.path[loop] if p not in self.chain]
        strides = {p: self.stride(index, p.range) or 0 for p in inner}
        together = 1
        for p in sorted(inner, key=lambda p: abs(strides[p])):
            if abs(strides[p]) == together:
                together *= p.likely_size
        return bool(inner) and together * index.dtype.itemsize < LINE

    def panel_passes(self, index: UOp, axis: UOp, lanes: int, loop: Loop) -> int:
        """How often a panel filled by this load would be read; 0 where there can be none."""
        inner = [p for p in self.path[loop] if p not in self.chain]
        possible = axis in [p.range for p in self.chain] and inner
        if not possible or any(p.size is None or p.independent for p in inner):
            return 0
        if self.is_written(index) or not any(p.range in index.ranges for p in inner):
            return 0
        depth = math.prod(p.size or 1 for p in inner)
        if depth * lanes * register_bytes(index.dtype) > self.target.l2_bytes * CACHED:
            return 0
        others = [p for p in self.chain if p.range not in index.ranges]
        return math.prod(p.likely_size for p in others)

    def loads_from_panels(self, top: Loop, axis: Loop) -> list[UOp]:
        """The loads in a loop that are priced as if they came from panels."""
        return [
            node
            for loop in self.inside(top)
            for group in self.groups[loop].values()
            for node in group.nodes
            if node.op is Ops.INDEX
            and axis.range in node.ranges
            and (self.stride(node, axis.range) not in (0, 1) or gate_of(node)[0] is not None)
            and self.panel_passes(node, axis.range, axis.lanes, loop) >= WORTH_A_PANEL
        ]

    # *** plans ***

    def cost(self, top: Loop, axis: Loop | None, lanes: int, copies: dict[Loop, int]) -> float:
        """The cost of a loop and all in it under a plan; loops around it are passed once."""
        return Sheet(self, top, axis, lanes).cost(copies)


@dataclass
class Line:
    """The work of one group: for each loop around it how many units it has, and if it depends.

    `own`: its vectors are kept for the updates of several copies.
    """

    loops: list[Loop]
    units: list[int]
    depends: list[bool]
    price: float
    updates: list[frozenset[UOp]]
    own: bool

    def times(self, ranges: frozenset[UOp], copies: dict[Loop, int]) -> int:
        """How many copies there are of what depends on these ranges."""
        return math.prod(copies.get(loop, 1) for loop in self.loops if loop.range in ranges)


class Sheet:
    """What all plans with one vector axis have in common, so that many are compared quickly."""

    def __init__(self, profile: Profile, top: Loop, axis: Loop | None, lanes: int) -> None:
        self.lines: list[Line] = []
        self.passes: list[tuple[list[Loop], list[int], float]] = []
        self.fixed = 0.0
        self.lanes = lanes
        self.sums = axis is not None and not axis.independent
        skip = len(profile.path[top]) - 1
        for loop in profile.inside(top):
            path = list(profile.path[loop][skip:])
            counts = [units(p, axis, lanes) for p in path]
            self.passes.append((path, counts, OVERHEAD + profile.far_rows(loop, axis)))
            for group in profile.groups[loop].values():
                depends = [p.range in group.ranges for p in path]
                price = profile.price(group, axis.range if axis else None, lanes)
                updates = [frozenset({*n.ranges, *n.src[1:]}) for n in group.updates]
                along = axis is not None and axis.range in group.ranges and not all(depends)
                own = along and not profile.summed.isdisjoint(group.nodes)
                self.lines.append(Line(path, counts, depends, price, updates, own))
            for closing in loop.closings:
                if axis in closing.loops:
                    outer = zip(path[:-1], counts, strict=False)
                    done = math.prod(c for p, c in outer if p.range in closing.node.ranges)
                    self.fixed += done * 1.5 * math.log2(lanes)

    def cost(self, copies: dict[Loop, int]) -> float:
        """The cost of a plan."""
        total = self.fixed
        for path, counts, each in self.passes:
            passes = 1
            for loop, count in zip(path, counts, strict=True):
                passes *= -(-count // copies.get(loop, 1))
            total += each * passes
        for line in self.lines:
            runs = 1
            for loop, count, depends in zip(line.loops, line.units, line.depends, strict=True):
                runs *= count if depends else -(-count // copies.get(loop, 1))
            price = line.price
            for own in line.updates:
                totals = line.times(own, copies)
                price += max(1.0, LATENCY / totals)
            total += runs * price
        return total

    def registers(self, copies: dict[Loop, int]) -> tuple[int, int]:
        """Accumulators, and vectors alive beside them in one pass.

        Lanes of a sum multiply two loaded vectors: those of the longer list pass one by one.
        """
        totals, live = 0, [0]
        for line in self.lines:
            for own in line.updates:
                totals += line.times(own, copies)
            if line.own:
                pairs = zip(line.loops, line.depends, strict=True)
                live.append(math.prod(copies.get(loop, 1) for loop, depends in pairs if depends))
        passing = max(live) - 1 if self.sums and len(live) > 2 else 0
        return totals, sum(live) - passing


def units(loop: Loop, axis: Loop | None, lanes: int) -> int:
    """Vectors (or iterations) of a loop."""
    size = loop.likely_size
    return -(-size // lanes) if loop is axis else size
