"""The short way of a replay: plain inputs, one table of kernels, nothing made but the results.

A tiny kernel runs in less time than Python needs to describe a tensor, so this way compares the
parts of each input with the recorded ones and writes addresses into the table. Whatever is out of
the ordinary goes the long way (`recording`), which says what is wrong.
"""

from __future__ import annotations

from typing import Any

from tinyfn.helpers import NATIVE
from tinyfn.jit.inputs import Inputs
from tinyfn.jit.outputs import Ring
from tinyfn.runtime.pool import failed, native_half
from tinyfn.runtime.replay import Replay, Segment, launch_segment, runs_alone
from tinyfn.tensor import Tensor
from tinyfn.uop.ops import Ops, UOp

BUFFER = Ops.BUFFER
_native = NATIVE.get


class Quick:
    """One table whose inputs and outputs are whole buffers on one slot each."""

    def __init__(self, segment: Segment, inputs: list[UOp], rings: list[Ring]) -> None:
        self._segment, self._words, self._head = segment, segment.table.words, segment.table.head
        self._alone = native_half().alone if runs_alone(segment) else None
        self._inputs = [
            (n.dtype, n.arg.shape, n.arg.device, segment.places.get(id(n.buffer), []))
            for n in inputs
        ]
        self._outputs = [(ring, segment.places.get(id(ring.recorded.buffer), [])) for ring in rings]

    def run(self, args: tuple[Any, ...]) -> list[UOp] | None:
        """Run on these arguments; the nodes of inputs and outputs, None to go the long way."""
        if len(args) != len(self._inputs) or not _native():
            return None
        words, nodes = self._words, []
        for argument, (dtype, shape, device, places) in zip(args, self._inputs):  # noqa: B905 (equally many)
            if type(argument) is not Tensor:
                return None
            node = argument.uop
            info = node.arg
            if node.op is not BUFFER or node.dtype is not dtype or info.shape != shape:
                return None
            if info.device != device or not hasattr(node, "_realized"):
                return None
            memory = node._realized
            address = memory._address or memory.address
            nodes.append(node)
            for place, begin in places:
                words[place] = address + begin
        if len(nodes) > 1 and len(set(nodes)) < len(nodes):
            return None
        for ring, places in self._outputs:
            made, address = ring.take()
            nodes += made
            for place, begin in places:
                words[place] = address + begin
        if self._alone is None:
            launch_segment(self._segment)
        elif outcome := self._alone(self._head):
            raise failed(self._segment.table, outcome)
        return nodes


def quick_way(plan: Replay, inputs: Inputs, rings: list[Ring], bound: list[UOp]) -> Quick | None:
    """The short way of a recording; None where it has none."""
    nodes = [*inputs.nodes, *(r.recorded for r in rings)]
    if not inputs.plain or bound or len(plan.segments) != 1:
        return None
    if any(isinstance(n.arg.device, tuple) for n in nodes):
        return None
    segment = plan.segments[0]
    if not isinstance(segment, Segment) or segment.values or segment.sizes or segment.streams:
        return None
    return Quick(segment, inputs.nodes, rings)
