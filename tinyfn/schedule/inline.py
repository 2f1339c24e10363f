"""Calls that are not precompiled are replaced by their bodies. Enters bodies: yes, by copying.

Before: AFTER(OUTPUT(0), CALL(TUPLE(ADD(PARAM(0), PARAM(1))), a, b)). After: ADD(a, b).
"""

from __future__ import annotations

from typing import cast

from tinyfn import call as calls
from tinyfn.schedule.graph import INLINED
from tinyfn.uop.ops import Ops, Rules, UOp, rewrite

INLINE = Rules("inline calls")


class Inlined:
    """What calls have become, and the next free number of scratch."""

    def __init__(self) -> None:
        self.outputs: dict[UOp, list[UOp]] = {}
        self.number = INLINED


@INLINE.on(Ops.AFTER)
def output_of_call(node: UOp, state: Inlined) -> UOp | None:
    """The output of a call is that value of its body."""
    call = node.src[1]
    if call.op is not Ops.CALL or calls.is_kernel(call.src[0]) or call.arg.precompile:
        return None
    slot = calls.output_slot(node)
    if slot is None:
        return None
    if call not in state.outputs:
        state.outputs[call], state.number = calls.inline(call, state.number)
    return state.outputs[call][slot].after(*node.src[2:])


def inline_calls(root: UOp) -> UOp:
    """The graph without calls, but for kernels and precompiled bodies."""
    return cast(UOp, rewrite(root, INLINE, Inlined()))
