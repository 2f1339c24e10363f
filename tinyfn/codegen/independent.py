"""Whether the iterations of a loop may run in any order, proven from what they store and load.

A loop is independent where different iterations store to different elements and nothing that is
stored is loaded in another iteration. Loops of type LOOP are independent by promise.
"""

from __future__ import annotations

from tinyfn.codegen.normalise import gate_of, memory_of
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import linear_form


def is_independent(
    loop: UOp,
    stores: list[UOp],
    loads: list[UOp],
    open_ranges: dict[UOp, frozenset[UOp]],
    around: frozenset[UOp],
) -> bool:
    """Proof for one loop: `stores` and `loads` stand in it, `around` are the loops around it."""
    if not stores:
        return False
    targets: dict[int, UOp] = {}
    for store in stores:
        offset = gate_of(store.src[0])[1]
        slot = memory_of(store.src[0]).arg.slot
        if targets.setdefault(slot, offset) is not offset:
            return False
        inner = open_ranges[store] - around - {loop}
        if not is_injective(offset, loop, inner):
            return False
    return all(
        gate_of(load)[1] is targets.get(memory_of(load).arg.slot, gate_of(load)[1])
        for load in loads
    )


def is_injective(offset: UOp, loop: UOp, inner: frozenset[UOp]) -> bool:
    """Whether the offsets of different iterations of `loop` differ, whatever the inner loops do."""
    terms, _ = linear_form(offset)
    varying = {t: f for t, f in terms.items() if t is loop or t in inner}
    others = [t for t in terms if t not in varying]
    if loop not in varying or any(r is loop or r in inner for t in others for r in t.ranges):
        return False
    if any(t.op is not Ops.RANGE or t.src[0].op is not Ops.CONST for t in varying):
        return len(varying) == 1 and not [t for t in others if t.ranges.keys() & (inner | {loop})]
    reach = 0
    for term, factor in sorted(varying.items(), key=lambda pair: abs(pair[1])):
        if abs(factor) <= reach:
            return False
        reach += abs(factor) * (term.src[0].arg - 1)
    return True
