"""Reductions over slots become copies and additions. Enters bodies: no.

Before: ALLREDUCE(x, ADD). After: ADD(COPY(MSELECT(x, 0)), COPY(MSELECT(x, 1))) on every slot, in
the order of the slots, so that each slot gets the same bits.
"""

from __future__ import annotations

from typing import cast

from tinyfn.uop.ops import Ops, Rules, UOp, rewrite

COLLECTIVE = Rules("collectives")


@COLLECTIVE.on(Ops.ALLREDUCE)
def allreduce(node: UOp) -> UOp:
    """Every slot copies all parts and combines them in order."""
    op, device = node.arg
    parts = node.src[0]
    total: UOp | None = None
    for i in range(len(parts.device)):
        part = parts.mselect(i).copy_to_device(device)
        total = part if total is None else total._alu(op.name, part)
    return cast(UOp, total)


def expand_collectives(root: UOp) -> UOp:
    """The graph with explicit copies in the place of collectives."""
    return cast(UOp, rewrite(root, COLLECTIVE))
