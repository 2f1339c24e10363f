"""Kernels, copies and calls in an order that gives every value its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tinyfn import call as calls
from tinyfn.errors import ScheduleError
from tinyfn.schedule.cycle import effects_of, states_before
from tinyfn.schedule.fuse import Fuser, Kernel
from tinyfn.schedule.graph import OWN_KERNELS, Places, strip_views
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, substitute


@dataclass
class Item:
    """One step of the list: a call of a kernel, copy or precompiled body."""

    root: UOp
    calls: list[UOp]
    needs: list[Item] = field(default_factory=list)
    reads: list[UOp] = field(default_factory=list)
    writes: list[UOp] = field(default_factory=list)
    number: int = 0


class Orderer:
    """Collects the items that a set of roots needs, with what each must wait for."""

    def __init__(self, roots: Sequence[UOp], places: Places) -> None:
        self.fuser = Fuser(roots, places)
        self.places = places
        self.items: dict[UOp, list[Item]] = {}
        self.order: list[Item] = []

    def run(self) -> list[Item]:
        """The items in order."""
        stack: list[tuple[UOp, bool]] = [(r, False) for r in reversed(self.fuser.roots)]
        while stack:
            node, ready = stack.pop()
            if node in self.items:
                continue
            needed = [n for n in self._needed(node) if n not in self.items]
            if needed and not ready:
                stack.append((node, True))
                stack += [(n, False) for n in reversed(needed)]
            elif needed:
                raise ScheduleError(f"{node!r} waits for itself")
            else:
                self.items[node] = self._make(node)
        return self._sorted()

    def _base(self, node: UOp) -> UOp:
        return strip_views(node, self.fuser.cuts)

    def _needed(self, node: UOp) -> list[UOp]:
        """The stored values that must have items before this one."""
        if node.op in (Ops.BUFFER, Ops.PARAM, Ops.BIND, Ops.VARIABLE, Ops.CONST, Ops.OUTPUT):
            return []
        if node in self.fuser.cuts or node.op in OWN_KERNELS:
            found = [self._base(r) for k in self.fuser.kernel_for(node) for r in k.reads]
            return [n for n in found if n is not node]
        if node.op in opcodes.MOVEMENT:
            return [self._base(node.src[0])]
        if node.op is Ops.AFTER:
            return [self._base(n) for n in effects_of(node)]
        if node.op is Ops.CALL:
            return [self._base(s) for s in node.src[1:]]
        if node.op in (Ops.COPY, Ops.MSELECT, Ops.MSTACK):
            return [self._base(s) for s in node.src]
        if node.op is Ops.STORE:
            kernels = self.fuser.kernel_for(node)
            before = [self._base(node.src[0])]
            return before + [self._base(r) for k in kernels for r in k.reads]
        raise ScheduleError(f"{node!r} is neither memory nor computed by a kernel")

    def _make(self, node: UOp) -> list[Item]:
        needs = [item for n in self._needed(node) for item in self.items.get(n, [])]
        if node.op is Ops.STORE or node in self.fuser.cuts or node.op in OWN_KERNELS:
            made: list[Item] = []
            for kernel in self.fuser.kernel_for(node):
                made.append(self._kernel_item(kernel, [*needs, *made]))
            return made or needs  # what writes no element still comes after what it would change
        if node.op is Ops.COPY:
            return [self._copy_item(node, needs)]
        if node.op is Ops.CALL:
            return [self._call_item(node, needs)]
        return needs

    def _add(self, item: Item) -> Item:
        item.number = len(self.order)
        self.order.append(item)
        return item

    def _kernel_item(self, kernel: Kernel, needs: list[Item]) -> Item:
        call = UOp(Ops.CALL, src=(kernel.sink, *kernel.arguments))
        reads = [self._base(r) for r in kernel.reads]
        return self._add(Item(kernel.root, [call], needs, reads, [kernel.arguments[0]]))

    def _copy_item(self, node: UOp, needs: list[Item]) -> Item:
        source, target = self.places.of(node.src[0]), self.places.of(node)
        body = UOp(
            Ops.COPY, node.dtype, (UOp.placeholder(source.max_shape, node.dtype, 1),), node.arg
        )
        call = UOp(Ops.CALL, src=(body, target, source))
        return self._add(Item(node, [call], needs, [self._base(node.src[0])], [target]))

    def _call_item(self, node: UOp, needs: list[Item]) -> Item:
        body, arguments = node.src[0], node.src[1:]
        written = sorted(calls.stored_arguments(body))
        places = [a if a.op is Ops.VARIABLE else self.places.of(a) for a in arguments]
        reads = [self._base(s) for s in arguments]
        if calls.is_kernel(body):
            seen = calls.kernel_access(body)[0]
            reads = [self._base(s) for slot, s in enumerate(arguments) if slot in seen]
            made = [node.with_src((body, *places))]
        else:
            template, renamed = self.places.instance(node)
            made = [
                c.with_src((c.src[0], *(substitute(c.src[1:], renamed))))
                for c in template.linear.src
            ]
        return self._add(Item(node, made, needs, reads, [places[slot] for slot in written]))

    def _sorted(self) -> list[Item]:
        """Items after what they need, and writers after the readers of what they overwrite."""
        needs = {item.number: {n.number for n in item.needs} for item in self.order}
        waits = {number: set(needed) for number, needed in needs.items()}
        readers: dict[UOp, list[Item]] = {}
        for item in self.order:
            for state in dict.fromkeys(item.reads):
                readers.setdefault(state, []).append(item)
        for writer in self.order:
            overwritten = dict.fromkeys(self._base(s) for s in states_before(writer.root))
            for reader in (r for state in overwritten for r in readers.get(state, ())):
                if reader is not writer and not self._follows(reader, writer, needs):
                    waits[writer.number].add(reader.number)
        return _topological(self.order, waits)

    @staticmethod
    def _follows(item: Item, other: Item, needs: dict[int, set[int]]) -> bool:
        """Whether the item needs the other, directly or not."""
        stack, seen = [item.number], set()
        while stack:
            top = stack.pop()
            if top == other.number:
                return True
            if top not in seen:
                seen.add(top)
                stack += needs[top]
        return False


def _topological(items: list[Item], waits: dict[int, set[int]]) -> list[Item]:
    """Kahn's algorithm, in rounds; within a round the earliest made first."""
    followers: dict[int, list[Item]] = {}
    for item in items:
        for number in waits[item.number]:
            followers.setdefault(number, []).append(item)
    missing = {item.number: len(waits[item.number]) for item in items}
    ordered: list[Item] = []
    ready = [item for item in items if not missing[item.number]]
    while ready:
        ordered += ready
        found = []
        for follower in (f for item in ready for f in followers.get(item.number, ())):
            missing[follower.number] -= 1
            if not missing[follower.number]:
                found.append(follower)
        ready = sorted(found, key=lambda item: item.number)
    if len(ordered) < len(items):
        raise ScheduleError(
            "stores wait for one another: a value reads memory both before and after it is "
            "overwritten; call .contiguous() on the value that should keep the old contents"
        )
    return ordered


def stored_at(node: UOp, places: Places) -> UOp:
    """The memory, seen in the node's shape, where a finished root is."""
    views = []
    while True:
        node = places.below_states(node)
        if node.op not in opcodes.MOVEMENT or node in places.cuts:
            break
        views.append(node)
        node = node.src[0]
    seen = places.of(node)
    for view in reversed(views):
        seen = view.with_src((seen, *view.src[1:]))
    return seen
