"""A kernel graph as a tree of loops: what stands in which loop, and in which order.

Before: END(STORE(INDEX(p0, i), DIV(x[i], REDUCE(x[k], k))), i).
After: Loop(k: Update(REDUCE)), Loop(i: Write(STORE)).

A REDUCE, a store or a load of written memory stands in the outermost place where all its loops are
open. Loops over the same range that do not wait for one another become one. Pure values have no
place: they are written where their operands are known (see hoist.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyfn.codegen.independent import is_independent
from tinyfn.codegen.loops import Block, Closing, Item, Kernel, Loop, Read, Update, Write
from tinyfn.codegen.normalise import memory_of
from tinyfn.errors import CompileError
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import Ops, UOp, listing, toposort


@dataclass(eq=False)
class Effect:
    """Something that happens: a node, and the loops that must still be opened around it."""

    node: UOp
    left: tuple[UOp, ...]
    depth: int = 0
    needs: dict[Effect, None] = field(default_factory=dict)
    stores: set[int] = field(default_factory=set)
    loads: set[int] = field(default_factory=set)


def contents(node: UOp) -> list[UOp]:
    """The stores and loops in a group."""
    if node.op in (Ops.GROUP, Ops.SINK):
        return [inner for s in node.src for inner in contents(s)]
    return [node] if node.op in (Ops.STORE, Ops.END) else []


def sources(node: UOp) -> tuple[UOp, ...]:
    """What must be known before the node; the place of a STORE is not loaded."""
    return (*node.src[0].src, *node.src[1:]) if node.op is Ops.STORE else node.src


def lower(sink: UOp, name: str) -> Kernel:
    """The kernel as a tree of loops."""
    return Lowering(sink).run(name)


class Lowering:
    """Facts about the nodes of one kernel, and the building of its blocks."""

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.order = toposort([sink])
        self.ranges = [n for n in self.order if n.op is Ops.RANGE]
        self.bit = {r: 1 << i for i, r in enumerate(self.ranges)}
        self.stores = [n for n in self.order if n.op is Ops.STORE]
        self.written = frozenset(memory_of(s.src[0]).arg.slot for s in self.stores)
        self.forced: dict[UOp, int] = {}
        self.force_contents()
        self.open = self.open_ranges()
        self.ordered = self.ordered_ends()
        if any(self.ordered.values()):
            self.force_loads()
            self.open = self.open_ranges()
        self.busy = self.nodes_above_effects()

    def run(self, name: str) -> Kernel:
        """The tree."""
        effects = [Effect(n, n.src[1:] if n.op is Ops.END else ()) for n in contents(self.sink)]
        for effect in effects:
            if self.open[effect.node]:
                raise CompileError(
                    "a kernel stores in loops that nothing closes: add .end(range) for the loops "
                    f"{[r.arg[0] for r in self.opened(effect.node)]}\n"
                    f"{listing(self.sink, effect.node)}"
                )
        body = self.block(effects, 0, frozenset())
        params = [n for n in self.order if n.op is Ops.PARAM]
        shared = [p for p in params if p.arg.addrspace in (AddrSpace.GLOBAL, None)]
        scratch = [p for p in params if p not in shared]
        shared = sorted({p.arg.slot: p for p in shared}.values(), key=lambda p: int(p.arg.slot))
        named = [n for n in self.order if n.op is Ops.VARIABLE]
        variables = sorted(dict.fromkeys(named), key=lambda v: str(v.arg.name))
        variables += [n for n in self.order if n.op is Ops.SLOT]
        return Kernel(name, body, shared, scratch, variables, self.written)

    # *** facts ***

    def force_contents(self) -> None:
        """What stands in an END stands in its loops, whether it uses them or not."""
        for node in reversed(self.order):
            if node.op is Ops.END:
                mask = self.forced.get(node, 0) | self.mask(node.src[1:])
                for inner in contents(node.src[0]):
                    self.forced[inner] = self.forced.get(inner, 0) | mask

    def mask(self, ranges: tuple[UOp, ...]) -> int:
        """A set of ranges as bits."""
        found = 0
        for r in ranges:
            found |= self.bit[r]
        return found

    def opened(self, node: UOp) -> frozenset[UOp]:
        """The loops that a node stands in."""
        mask = self.open[node]
        return frozenset(r for r in self.ranges if mask & self.bit[r])

    def open_ranges(self) -> dict[UOp, int]:
        """The loops that every node stands in, as bits."""
        found: dict[UOp, int] = {}
        for node in self.order:
            mask = 0
            for source in node.src:
                mask |= found[source]
            if node.op is Ops.RANGE:
                mask |= self.bit[node]
            mask |= self.forced.get(node, 0)
            if node.op in (Ops.END, Ops.REDUCE):
                mask &= ~self.mask(node.src[1:]) | self.forced.get(node, 0)
            found[node] = 0 if node.op is Ops.SINK else mask
        return found

    def ordered_ends(self) -> dict[tuple[UOp, UOp], bool]:
        """For each loop of each END whether the order of its iterations matters."""
        found: dict[tuple[UOp, UOp], bool] = {}
        for end in self.order:
            if end.op is not Ops.END:
                continue
            inside = None
            for position, r in enumerate(end.src[1:]):
                if r.arg[1] is AxisType.LOOP:
                    found[end, r] = False
                    continue
                inside = toposort([end]) if inside is None else inside
                around = self.opened(end) | frozenset(end.src[1 : 1 + position])
                found[end, r] = not self.proven(r, inside, around)
        return found

    def proven(self, loop: UOp, inside: list[UOp], around: frozenset[UOp]) -> bool:
        """Whether the iterations of a loop are independent."""
        bit = self.bit[loop]
        stores = [n for n in inside if n.op is Ops.STORE and self.open[n] & bit]
        loads = self.loads_of(inside)
        loads = [n for n in loads if self.open[n] & bit or memory_of(n).arg.slot in self.written]
        ranges = {s: self.opened(s) for s in stores}
        return is_independent(loop, stores, loads, ranges, around)

    def loads_of(self, nodes: list[UOp]) -> list[UOp]:
        """The INDEX nodes whose value something uses."""
        found = {s for n in nodes for s in sources(n) if s.op is Ops.INDEX}
        return [n for n in nodes if n in found]

    def force_loads(self) -> None:
        """Where the order matters, a load of what is stored there happens in every iteration."""
        for (end, r), matters in self.ordered.items():
            if not matters:
                continue
            for store in contents(end.src[0]):
                if store.op is not Ops.STORE:
                    continue
                slot = memory_of(store.src[0]).arg.slot
                below = toposort(sources(store), gate=lambda n: n.op not in (Ops.AFTER, Ops.END))
                for load in self.loads_of([*below, store]):
                    if memory_of(load).arg.slot == slot:
                        self.forced[load] = self.forced.get(load, 0) | self.bit[r]

    def is_effect(self, node: UOp) -> bool:
        """Whether the node has a place in the tree."""
        if node.op in (Ops.REDUCE, Ops.STORE, Ops.END):
            return True
        return node.op is Ops.INDEX and memory_of(node).arg.slot in self.written

    def nodes_above_effects(self) -> set[UOp]:
        """The nodes that have an effect below them or are one."""
        found: set[UOp] = set()
        for node in self.order:
            if self.is_effect(node) or any(s in found for s in node.src):
                found.add(node)
        return found

    # *** blocks ***

    def block(self, effects: list[Effect], path: int, done: frozenset[UOp]) -> Block:
        """The items of a block: the given effects and what they need that belongs here."""
        here = self.gather(effects, path, done)
        order = self.arrange(list(here.values()))
        done = done | here.keys()
        block = Block()
        groups: dict[tuple[UOp, int], list[Effect]] = {}
        for effect in order:
            if not effect.left:
                block.items.append(self.leaf(effect.node))
                continue
            key = (effect.left[0], effect.depth)
            if key not in groups:
                groups[key] = [e for e in order if e.left and (e.left[0], e.depth) == key]
                block.items.append(self.loop(key[0], groups[key], path, done))
        return block

    def leaf(self, node: UOp) -> Item:
        """An effect without loops."""
        if node.op is Ops.STORE:
            return Write(node)
        return Update(node) if node.op is Ops.REDUCE else Read(node)

    def loop(self, r: UOp, group: list[Effect], path: int, done: frozenset[UOp]) -> Loop:
        """One loop for effects over the same range."""
        inner: list[Effect] = []
        for effect in group:
            if effect.node.op is Ops.END and len(effect.left) == 1:
                inner += self.opened_end(effect.node)
            else:
                inner.append(Effect(effect.node, effect.left[1:]))
        reduces = [e for e in group if e.node.op is Ops.REDUCE]
        ends = [e for e in group if e.node.op is Ops.END]
        ordered = any(self.ordered[e.node, r] for e in ends)
        result = Loop(r, Block(), [], bool(ends) and not reduces and not ordered, ordered)
        result.body = self.block(inner, path | self.bit[r], done)
        for effect in reduces:
            if effect.left == effect.node.src[1:]:
                result.closings.append(Closing(effect.node, chain(result, effect)))
        return result

    def opened_end(self, end: UOp) -> list[Effect]:
        """What stands in an END, once its loops are open."""
        return [Effect(n, n.src[1:] if n.op is Ops.END else ()) for n in contents(end.src[0])]

    def gather(self, effects: list[Effect], path: int, done: frozenset[UOp]) -> dict[UOp, Effect]:
        """The effects and every effect they need that belongs into this block."""
        here = {e.node: e for e in effects}
        work = list(here.values())
        while work:
            effect = work.pop()
            for node in self.needed(effect, path, done, here):
                if node not in here:
                    left = node.src[1:] if node.op in (Ops.REDUCE, Ops.END) else ()
                    here[node] = Effect(node, left)
                    work.append(here[node])
                effect.needs[here[node]] = None
        return here

    def needed(
        self, effect: Effect, path: int, done: frozenset[UOp], here: dict[UOp, Effect]
    ) -> list[UOp]:
        """The effects of this block that one needs; notes what memory it touches on the way."""
        found: list[UOp] = []
        self.touch(effect, effect.node)
        stack = [s for s in reversed(sources(effect.node)) if s in self.busy]
        seen: set[UOp] = set()
        while stack:
            node = stack.pop()
            if node in seen or node in done:
                continue
            seen.add(node)
            if node in here or (self.is_effect(node) and not self.open[node] & ~path):
                if node is not effect.node:
                    found.append(node)
                continue
            self.touch(effect, node)
            stack += [s for s in reversed(sources(node)) if s in self.busy and s not in seen]
        return found

    def touch(self, effect: Effect, node: UOp) -> None:
        """Note the memory that a node loads or stores."""
        if node.op is Ops.STORE:
            effect.stores.add(memory_of(node.src[0]).arg.slot)
        elif node.op is Ops.INDEX:
            effect.loads.add(memory_of(node).arg.slot)

    def arrange(self, effects: list[Effect]) -> list[Effect]:
        """The effects in an order that gives every one what it needs; sets their depth."""
        position = {n: i for i, n in enumerate(self.order)}
        effects.sort(key=lambda e: position[e.node])
        self.protect(effects)
        state: dict[Effect, int] = {}
        for root in effects:
            stack = [root]
            while stack:
                top = stack[-1]
                missing = [n for n in top.needs if state.get(n) != 2]
                if not missing:
                    top.depth = max((n.depth + 1 for n in top.needs), default=0)
                    state[top] = 2
                    stack.pop()
                elif state.get(top) == 1 or any(state.get(n) == 1 for n in missing):
                    raise CompileError(
                        "the stores of a kernel wait for one another\n"
                        + listing(self.sink, top.node)
                    )
                else:
                    state[top] = 1
                    stack += missing
        return sorted(effects, key=lambda e: e.depth)

    def protect(self, effects: list[Effect]) -> None:
        """Old contents are loaded before they are overwritten; stores keep their order."""
        for late, writer in enumerate(effects):
            for early, other in enumerate(effects):
                if other is writer or not writer.stores:
                    continue
                loaded_before = bool(other.loads & writer.stores)
                stored_before = bool(other.stores & writer.stores) and early < late
                both_ways = bool(writer.loads & other.stores) and early > late
                after = (loaded_before and not both_ways) or stored_before
                if after and not waits_for(other, writer) and not waits_for(writer, other):
                    writer.needs[other] = None


def waits_for(effect: Effect, other: Effect) -> bool:
    """Whether the effect needs the other one, directly or not."""
    stack, seen = [effect], set()
    while stack:
        top = stack.pop()
        if top is other:
            return True
        if top not in seen:
            seen.add(top)
            stack += top.needs
    return False


def chain(outer: Loop, effect: Effect) -> list[Loop]:
    """The loops of a REDUCE, outermost first."""
    found = [outer]
    for r in effect.left[1:]:
        inner = [i for i in found[-1].body.items if isinstance(i, Loop) and i.range is r]
        found.append(next(i for i in inner if has_update(i.body, effect.node)))
    return found


def has_update(block: Block, node: UOp) -> bool:
    """Whether the value is accumulated in this block or a loop of it."""
    return any(
        (isinstance(i, Update) and i.node is node)
        or (isinstance(i, Loop) and has_update(i.body, node))
        for i in block.items
    )
