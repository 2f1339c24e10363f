"""The tensors that are alive: what must be computed together, and what each becomes after that."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tinyfn import call as calls
from tinyfn import schedule
from tinyfn.gradient import history
from tinyfn.runtime import execute
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, substitute, toposort

_live: dict[weakref.ref[Any], None] = {}
_clock = itertools.count(1)


def register(
    tensor: Any,
    reference: type = weakref.ref,
    forget: Any = _live.pop,
    tick: Any = _clock.__next__,
) -> None:
    """Remember a tensor for as long as it lives."""
    # no Python runs when a tensor goes: the dictionary takes the reference out by itself
    _live[reference(tensor, forget)] = None
    tick()


def tensors() -> Iterator[Any]:
    """The tensors that are alive."""
    for reference in list(_live):
        tensor = reference()
        if tensor is not None:
            yield tensor


def pending() -> list[Any]:
    """Live tensors whose values are not in memory yet."""
    return [t for t in tensors() if not is_stored(t.uop)]


class _Changes:
    """What has happened to tensors since they were made."""

    writes = False  # memory was assigned since `realize_writes` ran
    rebound = 0  # when a tensor last came to stand for another value


class _Watchers(threading.local):
    def __init__(self) -> None:
        self.active: list[list[weakref.ref[Any]]] = []


changes = _Changes()
_watchers = _Watchers()


@contextlib.contextmanager
def watch_rebound() -> Iterator[list[weakref.ref[Any]]]:
    """The tensors without memory that are assigned to while the block runs."""
    found: list[weakref.ref[Any]] = []
    _watchers.active.append(found)
    try:
        yield found
    finally:
        _watchers.active.pop()


def rebind(tensor: Any, node: UOp) -> None:
    """A tensor stands for another value from now on; no memory is written."""
    tensor.uop = node
    changes.rebound = next(_clock)
    for found in _watchers.active:
        found.append(weakref.ref(tensor))


def pending_writes() -> list[UOp]:
    """What live tensors hold of memory that is to be overwritten first."""
    return [t.uop for t in pending() if t.uop.base.op is Ops.AFTER]


def realize_writes() -> None:
    """Do all assignments that wait to be done."""
    changes.writes = False
    realize(pending_writes())


def realize_new_readers(memories: set[UOp], since: int) -> int:
    """Compute what reads memory that a replay overwrites; returns the time for the next look.

    Tensors from before `since` were looked at then, and cannot have come to read that memory.
    """
    history.note_overwritten(memories)
    time = next(_clock)
    known = 0 if since <= changes.rebound else since
    # a key each, and no other allocation: nothing is collected, and so forgotten, on the way
    newest = list(itertools.islice(reversed(_live), time - known))
    alive = [t for t in (reference() for reference in newest) if t is not None]
    waiting = [t.uop for t in alive if not is_stored(t.uop)]
    realize([n for n in waiting if any(m in memories for m in toposort([n]))])
    return time


def is_stored(node: UOp) -> bool:
    """Whether the node is a view of memory that has its contents."""
    return node.base.op in (Ops.BUFFER, Ops.CONST, Ops.PARAM, Ops.VARIABLE)


def replace_nodes(table: dict[UOp, UOp], among: Iterable[Any]) -> None:
    """Put new nodes in the place of old ones, in the graphs of these tensors."""
    holders = [t for t in among if not (t.uop.op is Ops.BUFFER and t.uop not in table)]
    for tensor, node in zip(holders, substitute([t.uop for t in holders], table), strict=True):
        tensor.uop = node


def rebase(old: UOp, new: UOp) -> None:
    """Memory was assigned: every live view of it sees the new state."""
    changes.writes = True
    views = [t for t in tensors() if _is_view_of(t.uop, old)]
    replace_nodes({old: new}, views)


def _is_view_of(node: UOp, memory: UOp) -> bool:
    while node is not memory:
        if node.op not in opcodes.MOVEMENT and node.op not in (Ops.DETACH, Ops.UNSHARD):
            return False
        node = node.src[0]
    return True


@dataclass(frozen=True)
class Wanted:
    """What must run, what reads the memory that it overwrites, and what nobody can then compute.

    `states` are the states of memory that are overwritten, each with its memory.
    """

    roots: list[UOp]
    readers: list[UOp]
    states: dict[UOp, UOp]
    stale: list[Any]


@dataclass(frozen=True)
class Plan:
    """A schedule, and the gradients that nobody can compute any more once it has run."""

    schedule: schedule.Schedule
    writes: history.Writes
    stale: list[Any]


def plan(targets: Iterable[UOp]) -> Plan:
    """The schedule that computes the targets and what must run along with them."""
    wanted = _wanted(targets)
    roots = dict.fromkeys([*wanted.roots, *map(_root, wanted.readers)])
    writes = history.Writes(wanted.states)
    return Plan(schedule.create(list(roots)), writes, wanted.stale)


def _wanted(targets: Iterable[UOp]) -> Wanted:
    roots = list(dict.fromkeys(_root(node) for node in targets if not is_stored(node)))
    lonely = _gradients_held_by_their_tensor_only()
    others = [t.uop for t in pending()]
    roots += _effects_held(roots, others)
    readers: list[UOp] = []
    stale: list[Any] = []
    states: dict[UOp, UOp] = {}
    found = roots
    while found:  # a reader may write, too: what reads that memory comes before it
        every = list(dict.fromkeys([*roots, *map(_root, readers)]))
        states = _overwritten(toposort(every, enter_calls=False))
        found = _readers_of(states, every, others)
        lost = _lost_gradients(lonely, states, found, _readers_of(_drawn(states), every, others))
        stale += lost
        dropped = {holder.grad.uop for holder in lost}
        others = [o for o in others if o not in dropped]
        found = [r for r in found if r not in dropped]
        found += _effects_held([_root(r) for r in found], others)
        readers += found
    return Wanted(roots, readers, states, stale)


def _lost_gradients(
    lonely: list[tuple[Any, UOp]], states: dict[UOp, UOp], readers: list[UOp], random: list[UOp]
) -> list[Any]:
    """The tensors whose gradients nobody computes before what they read is overwritten."""
    return [
        holder
        for holder, gradient in lonely
        if gradient in readers and gradient not in random and not _is_of(holder, states)
    ]


def _drawn(states: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """The states of the random generator: no secret input, so what drew from it stays readable."""
    return {s: m for s, m in states.items() if m.op is Ops.BUFFER and m.arg.kind == "state"}


def realize_readers(targets: Iterable[UOp]) -> None:
    """Compute, each on its own, what reads the memory that the targets are about to overwrite."""
    readers = set(_wanted(targets).readers)
    for tensor in [t for t in pending() if t.uop in readers]:
        realize([tensor.uop])


def realize(targets: Iterable[UOp], count: bool = True, keep_history: bool = False) -> None:
    """Compute the targets; every live tensor that holds them holds memory afterwards.

    What the targets were computed from is released, unless `keep_history`; that of values on the
    way, which are stored along with them, is kept for gradients.
    """
    wanted = list(targets)
    if all(is_stored(node) for node in wanted):
        return
    planned = plan(wanted)
    made = planned.schedule
    execute.run(made.linear, made.variables, made.plan, count=count)
    for holder in planned.stale:
        holder.drop_gradient()
    replace_nodes(made.results, pending())
    history.note_overwritten(planned.writes.filled)
    if not execute.recorders.active:
        released = () if keep_history else {_root(node) for node in wanted}
        kept = [n for n in made.results if _is_kept(n) and n not in released]
        history.keep(made.results, kept, planned.writes)


def _gradients_held_by_their_tensor_only() -> list[tuple[Any, UOp]]:
    """Pending gradients that can be seen through `.grad` only, each with its tensor."""
    found = []
    for tensor in tensors():
        gradient = tensor._grad
        # the references: the attribute, the name here, and the argument of getrefcount
        if gradient is not None and sys.getrefcount(gradient) <= 3 and not is_stored(gradient.uop):
            found.append((tensor, gradient.uop))
    return found


def _is_of(tensor: Any, states: dict[UOp, UOp]) -> bool:
    """Whether the tensor's own memory is about to be overwritten, as a parameter's is by a step."""
    return tensor.uop.base.op in (Ops.BUFFER, Ops.AFTER) and tensor.uop.buf_uop in states.values()


def _root(node: UOp) -> UOp:
    """What has to be computed for a tensor: the memory below its views, else the value itself."""
    base = node.base
    return base if base.op is Ops.AFTER else node


def _has_effect(node: UOp) -> bool:
    """Whether running the node twice would be wrong, or costs a compiled body."""
    if node.op is not Ops.AFTER:
        return False
    effect = node.src[1]
    if effect.op is not Ops.CALL:
        return True
    return effect.arg.precompile or bool(calls.stored_arguments(effect.src[0]))


def _effects_held(roots: list[UOp], others: list[UOp]) -> list[UOp]:
    """Effects that run on the way and are held by other live tensors: they become outputs."""
    order = toposort(roots, enter_calls=False)
    below = [n for n in order if _is_kept(n)]
    if not below:
        return []
    held = set(toposort(others, enter_calls=False))
    # what reads a state of memory that is overwritten on the way runs before that, too
    on_the_way = _overwritten(order)
    return [n for n in below if n in held and n not in on_the_way]


def _is_kept(node: UOp) -> bool:
    return node.op is Ops.CONTIGUOUS or _has_effect(node)


def _overwritten(order: list[UOp]) -> dict[UOp, UOp]:
    """States of memory that some of the nodes overwrite, each with the memory it is a state of."""
    found: dict[UOp, UOp] = {}
    for node in order:
        if node.op not in (Ops.STORE, Ops.CALL):
            continue
        for place in _stored_states(node):
            found[place] = place.buf_uop
    return found


def _stored_states(node: UOp) -> list[UOp]:
    if node.op is Ops.STORE:
        return [node.src[0].base]
    if node.op is Ops.CALL:
        slots = calls.stored_arguments(node.src[0])
        return [node.src[1 + s].base for s in slots]
    return []


def _readers_of(states: dict[UOp, UOp], roots: list[UOp], others: list[UOp]) -> list[UOp]:
    """Pending values that read memory which is about to be overwritten; writers wait instead."""
    if not states:
        return []
    known = set(toposort(roots, enter_calls=False))
    memories = set(states.values())
    stored = set(roots)
    readers = []
    for other in dict.fromkeys(others):
        if _root(other) in stored:
            continue
        graph = toposort([other], enter_calls=False)
        writes = any(
            place in memories for n in graph if n not in known for place in calls.stored_places(n)
        )
        if not writes and _reads(other, states, known):
            readers.append(other)
    return readers


def _reads(value: UOp, states: dict[UOp, UOp], known: set[UOp]) -> bool:
    """Whether the value, or an effect below it that is not known, reads one of the states.

    The memory that a store writes to is not read by it.
    """
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        sources = node.src[1:] if node.op in (Ops.STORE, Ops.CALL) else node.src
        if node.op is Ops.AFTER:
            sources = (node.src[0], *(e for e in node.src[1:] if e not in known))
        elif any(s in states for s in sources):
            return True
        stack += [s for s in sources if s not in seen]
        seen.update(sources)
    return False
