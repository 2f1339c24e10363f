"""How many copies of loop bodies are written out, and in which order the loops run.

For a contraction: a tile of accumulators in registers, MR rows by NV vectors, that lives across the
loops of the reduction. For sums: several accumulators. For elementwise work: a few vectors a pass.
Before: Loop(i, Loop(j lanes, Loop(k))). After: i has 8 copies, j 2; the body of k is 16 updates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tinyfn.codegen.cost import Profile, accumulators
from tinyfn.codegen.loops import Block, Kernel, Loop
from tinyfn.device import Target

LARGEST = 400  # statements in one pass of a tile
COPIES = (1, 2, 3, 4, 5, 6, 7, 8)


def choose_copies(kernel: Kernel, profile: Profile, target: Target) -> None:
    """Set `copies` of the loops of every nest."""
    _plan(kernel.body, profile, target)


def chain_of(loop: Loop) -> list[Loop]:
    """The independent loops that stand directly in one another, from this one on."""
    found: list[Loop] = []
    while loop.independent and not loop.closings:
        found.append(loop)
        items = loop.body.items
        if len(items) != 1 or not isinstance(items[0], Loop):
            break
        loop = items[0]
    return found


def _loops(block: Block) -> list[Loop]:
    return [i for i in block.items if isinstance(i, Loop)]


def _plan(block: Block, profile: Profile, target: Target) -> None:
    for loop in _loops(block):
        chain = chain_of(loop)
        payload = _loops(chain[-1].body) if chain else [loop]
        nest = _reduce_nest(payload[0]) if len(payload) == 1 and payload[0].closings else []
        axis = next((l for l in (*chain, *nest) if l.lanes), None)
        if axis is not None and (nest or not payload):
            _search(loop, axis, chain, nest, profile, target)
        inner = nest[-1] if nest else None
        for rest in [inner] if inner is not None else payload:
            if rest is not None and rest is not loop or inner is loop:
                _plan(rest.body, profile, target)


def _reduce_nest(loop: Loop) -> list[Loop]:
    return max((c.loops for c in loop.closings), key=len)


def _search(
    top: Loop, axis: Loop, chain: list[Loop], nest: list[Loop], profile: Profile, target: Target
) -> None:
    """Take the copies that cost least and fit into the registers."""
    best, least = {axis: 1}, math.inf
    jammed = [l for l in chain if l is not axis and profile.may_be_lanes(l)] if nest else []
    for copies in _candidates(axis, jammed[-3:]):
        if not _fits(top, axis, copies, profile, target):
            continue
        cost = profile.cost(top, axis, axis.lanes, copies)
        if cost < least * 0.999:
            best, least = copies, cost
    for loop, count in best.items():
        loop.copies = count


def _candidates(axis: Loop, jammed: list[Loop]) -> Iterator[dict[Loop, int]]:
    """Copies of the lane axis and of up to two other loops."""
    limit = 1 << 30 if axis.size is None else -(-axis.size // axis.lanes)
    for own in (c for c in (1, 2, 3, 4) if c <= limit):
        yield {axis: own}
        for count in range(1, min(len(jammed), 2) + 1):
            for loops in itertools.combinations(jammed, count):
                for copies in itertools.product(COPIES[1:], repeat=count):
                    if all(c <= l.likely_size for l, c in zip(loops, copies, strict=True)):
                        yield {axis: own, **dict(zip(loops, copies, strict=True))}


def _fits(
    top: Loop, axis: Loop, copies: dict[Loop, int], profile: Profile, target: Target
) -> bool:
    """Whether the values of one pass fit into the registers, and its text is not too long."""
    statements = 0
    for loop in profile.inside(top):
        live, totals = 0, 0
        for group in profile.groups[loop].values():
            times = math.prod(c for l, c in copies.items() if l.range in group.ranges)
            count = len(group.nodes) + len(group.updates) + len(group.stores)
            statements += times * count
            for node in group.updates:
                totals += accumulators(node, profile.path[loop], copies)
            if axis.range in group.ranges and group.ranges != _all(profile.path[loop]):
                live += times
        if totals + live + 2 > target.registers and totals > 1:
            return False
    several = math.prod(copies.values()) > 1
    return not several or statements <= LARGEST


def _all(path: tuple[Loop, ...]) -> frozenset[object]:
    return frozenset(l.range for l in path)
