"""Kernels over the same loops that share memory become one: an optimizer's update is one pass.

Before: m[r0] = f(m[r0], g[r0]); then p[r0] = h(p[r0], m[r0]). After: one loop that stores both,
with the value just computed in the place of the load of m. Reductions of the same rows, like the
largest value and the sum, are one pass over these rows. What is computed from the result of a row
stands in the loop over rows: `m[r0] = max(x[r0, r1])`, `y[r0, r1] = f(x, m[r0])` in one loop r0.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyfn import call as calls
from tinyfn.helpers import prod
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.ops import KernelInfo, Ops, UOp, substitute, toposort

REACH = 24
FEWEST_ROWS = 64  # that a loop over rows has to have, if loops inside of it are to be joined
MOST_ARGUMENTS = 16
MOST_NODES = 300
JOINED = ("map", "reduce", "row")


@dataclass
class Step:
    """A call of the list with the memory it reads and writes."""

    call: UOp
    reads: set[UOp]
    writes: set[UOp]
    loops: tuple[UOp, ...] | None


def merge_kernels(listed: list[UOp], kept: set[UOp]) -> list[UOp]:
    """The list with mergeable kernels joined; values that nobody reads are not stored."""
    merged: list[Step] = []
    for call in listed:
        step = _step(call)
        place = _partner(merged, step)
        if place is None:
            merged.append(step)
        else:
            merged[place] = _step(_join(merged[place].call, call))
    return _without_unread([s.call for s in merged], kept)


def _step(call: UOp) -> Step:
    body, arguments = call.src[0], call.src[1:]
    if body.op is Ops.COPY:
        return Step(call, set(_memory(arguments[1])), set(_memory(arguments[0])), None)
    reads, writes = calls.kernel_access(body)
    return Step(
        call,
        {m for slot in reads for m in _memory(arguments[slot])},
        {m for slot in writes for m in _memory(arguments[slot])},
        _loops(body),
    )


def _memory(argument: UOp) -> list[UOp]:
    return [n for n in toposort([argument]) if n.op in (Ops.BUFFER, Ops.PARAM)]


def _loops(body: UOp) -> tuple[UOp, ...] | None:
    """The loops of a kernel that maps elements or reduces rows; None for any other."""
    if body.op is not Ops.SINK or len(body.src) != 1 or body.src[0].op is not Ops.END:
        return None
    if not isinstance(body.arg, KernelInfo) or not body.arg.name.startswith(JOINED):
        return None
    order = toposort([body])
    if len(order) > MOST_NODES or any(n.op in (Ops.AFTER, Ops.SLOT) for n in order):
        return None
    if any(n.op is Ops.PARAM and n.arg.addrspace is not AddrSpace.GLOBAL for n in order):
        return None
    return body.src[0].src[1:]


def _rows(step: Step) -> set[tuple[UOp, ...]]:
    """The loops over which a kernel reduces."""
    return {n.src[1:] for n in toposort([step.call.src[0]]) if n.op is Ops.REDUCE}


def _same_rows(first: Step, second: Step) -> bool:
    """Whether reductions of two kernels walk through the same memory in the same loops."""
    own, other = _rows(first), _rows(second)
    if not own or not other:
        return True
    along = {r for loops in own & other for r in loops}
    own_elements, other_elements = _elements(first), _elements(second)
    shared = any(
        not along.isdisjoint(offset.ranges)
        for memory in first.reads & second.reads
        for offset in own_elements[memory] & other_elements[memory]
    )
    return shared and (own <= other or other <= own)


def _partner(merged: list[Step], step: Step) -> int | None:
    """The step that this one can join, with nothing between them in the way."""
    if not step.loops:
        return None
    for place in range(len(merged) - 1, max(-1, len(merged) - 1 - REACH), -1):
        other = merged[place]
        if _may_join(other, step):
            return place
        if other.writes & (step.reads | step.writes) or other.reads & step.writes:
            return None
    return None


def _may_join(first: Step, second: Step) -> bool:
    if not first.loops or not second.loops or first.call.device != second.call.device:
        return False
    if first.writes & second.writes:
        return False
    shared = (first.reads | first.writes) & (second.reads | second.writes)
    arguments = set(first.call.src[1:]) | set(second.call.src[1:])
    if not shared or len(arguments) > MOST_ARGUMENTS:
        return False
    if first.loops == second.loops:
        return _same_elements(first, second) and _same_rows(first, second)
    if not _stands_in(second, first) or not first.writes & second.reads:
        return False
    return _same_elements(first, second)


def _stands_in(inner: Step, outer: Step) -> bool:
    """Whether the loops of a kernel begin with those of another, over rows that are many."""
    own, around = inner.loops or (), outer.loops or ()
    sizes = [r.src[0].arg for r in around if r.src[0].op is Ops.CONST]
    many = len(sizes) == len(around) and prod(sizes) >= FEWEST_ROWS
    return many and len(own) > len(around) and own[: len(around)] == around


def _elements(step: Step) -> dict[UOp, set[UOp]]:
    """The offsets at which a kernel touches each piece of memory."""
    found: dict[UOp, set[UOp]] = {}
    arguments = step.call.src[1:]
    for node in toposort([step.call.src[0]]):
        if node.op is Ops.INDEX:
            for memory in _memory(arguments[node.src[0].arg.slot]):
                found.setdefault(memory, set()).add(node.src[1])
    return found


def _same_elements(first: Step, second: Step) -> bool:
    """Whether memory that one of them writes is touched by the other at the same element only."""
    own, other = _elements(first), _elements(second)
    for memory in (first.writes | second.writes) & set(own) & set(other):
        if len(own[memory] | other[memory]) != 1:
            return False
        if any(o.op is Ops.WHERE for o in own[memory]):
            return False
    return True


def _join(first: UOp, second: UOp) -> UOp:
    """One kernel that does the first and then the second."""
    slots = {argument: slot for slot, argument in enumerate(first.src[1:])}
    table: dict[UOp, UOp] = {}
    for slot, argument in enumerate(second.src[1:]):
        slots.setdefault(argument, len(slots))
        for node in toposort([second.src[0]]):
            if node.op is Ops.PARAM and node.arg.slot == slot:
                table[node] = UOp.placeholder(node.shape, node.dtype, slots[argument])
    body: UOp = substitute([second.src[0]], table)[0]
    end, other = first.src[0].src[0], body.src[0]
    values = {s.src[0]: s.src[1] for s in _stores(end)}
    new = {s: _forwarded(s, values) for s in _stores(other)}
    inner: list[UOp] = substitute(_contents(other), new)
    if further := other.src[len(end.src) :]:
        inner = [_grouped(inner).end(*further)]
    sink = _grouped([*_contents(end), *inner]).end(*end.src[1:]).sink(arg=first.src[0].arg)
    return UOp(Ops.CALL, src=(sink, *slots), arg=first.arg)


def _grouped(items: list[UOp]) -> UOp:
    return items[0].group(*items[1:]) if len(items) > 1 else items[0]


def _contents(end: UOp) -> list[UOp]:
    """The stores and loops that stand in a loop."""
    inner = end.src[0]
    return list(inner.src) if inner.op is Ops.GROUP else [inner]


def _stores(end: UOp) -> list[UOp]:
    """All stores of a loop and of the loops in it."""
    found = []
    for node in _contents(end):
        found += _stores(node) if node.op is Ops.END else [node]
    return found


def _forwarded(store: UOp, values: dict[UOp, UOp]) -> UOp:
    """A store that takes what has just been computed instead of loading it again."""
    stored: UOp = substitute([store.src[1]], values)[0]
    return store.with_src((store.src[0], stored, *store.src[2:]))


def _without_unread(listed: list[UOp], kept: set[UOp]) -> list[UOp]:
    """Stores into temporaries that no call reads are dropped."""
    steps = [_step(c) for c in listed]
    read = {m for s in steps for m in s.reads}
    result = []
    for step in steps:
        body = step.call.src[0]
        if not step.loops or len(_stores(body.src[0])) < 2:
            result.append(step.call)
            continue
        stores = _stores(body.src[0])
        arguments = step.call.src[1:]
        needed = [
            s for s in stores if not _is_unread(arguments[s.src[0].src[0].arg.slot], read, kept)
        ]
        if len(needed) == len(stores):
            result.append(step.call)
        elif needed:
            result.append(_only(step.call, needed))
    return result


def _is_unread(memory: UOp, read: set[UOp], kept: set[UOp]) -> bool:
    internal = memory.op is Ops.BUFFER and memory.arg.kind == "temporary"
    return internal and memory not in read and memory not in kept


def _only(call: UOp, stores: list[UOp]) -> UOp:
    """The kernel with some of its stores, its arguments numbered anew."""
    end = _with(call.src[0].src[0], set(stores))
    assert end is not None
    order = toposort([end])
    used = sorted({n.arg.slot for n in order if n.op is Ops.PARAM})
    table = {}
    for node in order:
        if node.op is Ops.PARAM:
            table[node] = UOp.placeholder(node.shape, node.dtype, used.index(node.arg.slot))
    kept: UOp = substitute([end], table)[0]
    sink = kept.sink(arg=call.src[0].arg)
    return UOp(Ops.CALL, src=(sink, *(call.src[1 + s] for s in used)), arg=call.arg)


def _with(end: UOp, stores: set[UOp]) -> UOp | None:
    """A loop with some of its stores; None without any."""
    kept = [_with(n, stores) if n.op is Ops.END else n for n in _contents(end)]
    items = [n for n in kept if n is not None and (n.op is Ops.END or n in stores)]
    return _grouped(items).end(*end.src[1:]) if items else None
