"""Stores that read what each other overwrites compute their values before any of them writes.

Before: STORE(a, b), STORE(b, a). After: STORE(a, CONTIGUOUS(b)), STORE(b, CONTIGUOUS(a)).
"""

from __future__ import annotations

from tinyfn import call as calls
from tinyfn.schedule.cut import value_sources
from tinyfn.schedule.graph import OWN_KERNELS, strip_views
from tinyfn.uop.ops import Ops, UOp, toposort

STEPS = OWN_KERNELS | {Ops.STORE, Ops.CALL, Ops.CONTIGUOUS, Ops.COPY}


def break_cycles(root: UOp) -> UOp:
    """The graph without stores that would have to wait for one another."""
    order = toposort([root], enter_calls=False)
    overwriting: dict[UOp, set[UOp]] = {}
    for node in order:
        for state in states_before(node):
            overwriting.setdefault(strip_views(state), set()).add(node)
    if len(overwriting) < 2:
        return root
    reads = _states_read(order, overwriting)
    waiting = _in_cycles(_steps_before(order, reads, overwriting))
    early = {
        step
        for step in waiting
        if step.op is Ops.STORE and any(overwriting[s] & waiting - {step} for s in reads[step])
    }
    return _with_values_stored(root, order, early) if early else root


def states_before(effect: UOp) -> list[UOp]:
    """The states of memory that running this effect overwrites."""
    if effect.op is Ops.STORE:
        return [effect.src[0]]
    if effect.op is Ops.CALL:
        return [effect.src[1 + s] for s in calls.stored_arguments(effect.src[0])]
    return []


def effects_of(after: UOp) -> tuple[UOp, ...]:
    """What memory waits for: effects, and its earlier state where none of them waits for that."""
    memory, *effects = after.src
    base = strip_views(memory)
    ordered = any(strip_views(s) is base for e in effects for s in states_before(e))
    return tuple(effects) if ordered else after.src


def _states_read(order: list[UOp], overwriting: dict[UOp, set[UOp]]) -> dict[UOp, frozenset[UOp]]:
    """The states, of those that something overwrites, that each step reads while it runs."""
    seen: dict[UOp, frozenset[UOp]] = {}
    found: dict[UOp, frozenset[UOp]] = {}
    none: frozenset[UOp] = frozenset()
    for node in order:
        sources = node.src[1:] if node.op is Ops.CALL else value_sources(node)
        if node.op is Ops.COPY or node.op in OWN_KERNELS:
            sources = node.src
        below = none.union(*{seen[s] for s in sources})
        if node in overwriting:
            below |= {node}
        if node.op in STEPS:
            found[node] = below
        seen[node] = none if node.op in STEPS else below
    return found


def _steps_before(
    order: list[UOp], reads: dict[UOp, frozenset[UOp]], overwriting: dict[UOp, set[UOp]]
) -> dict[UOp, set[UOp]]:
    """What each step waits for: the steps it uses, and the readers of what it overwrites."""
    below: dict[UOp, frozenset[UOp]] = {}
    waits: dict[UOp, set[UOp]] = {}
    none: frozenset[UOp] = frozenset()
    for node in order:
        sources = node.src[1:] if node.op is Ops.CALL else node.src
        sources = effects_of(node) if node.op is Ops.AFTER else sources
        needed = none.union(*{below[s] for s in sources})
        if node.op in STEPS:
            waits[node] = set(needed)
        below[node] = frozenset((node,)) if node.op in STEPS else needed
    for reader, states in reads.items():
        for state in states:
            for writer in overwriting[state] - {reader}:
                waits[writer].add(reader)
    return waits


def _in_cycles(waits: dict[UOp, set[UOp]]) -> set[UOp]:
    """The steps that wait for themselves or stand between such, by peeling from both ends."""
    followers: dict[UOp, set[UOp]] = {step: set() for step in waits}
    for step, needed in waits.items():
        for before in needed:
            followers[before].add(step)
    left = set(waits)
    for ahead, behind in ((waits, followers), (followers, waits)):
        missing = {step: len(ahead[step] & left) for step in left}
        ready = [step for step in left if not missing[step]]
        while ready:
            step = ready.pop()
            left.discard(step)
            for other in behind[step] & left:
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
    return left


def _with_values_stored(root: UOp, order: list[UOp], early: set[UOp]) -> UOp:
    """The graph with the values of these stores computed into memory of their own."""
    done: dict[UOp, UOp] = {}
    for node in order:
        src = [done.get(s, s) for s in node.src]
        if node in early:
            src[1] = UOp(Ops.CONTIGUOUS, src[1].dtype, (src[1],), "copy")
        done[node] = node.with_src(tuple(src))
    return done[root]
