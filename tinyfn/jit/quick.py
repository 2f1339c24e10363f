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


class Place:
    """Where in the table an input's address stands, and which node's address that is."""

    __slots__ = ("born", "device", "dtype", "shape", "words")

    def __init__(self, node: UOp, words: list[tuple[int, int]]) -> None:
        self.dtype, self.shape, self.device = node.dtype, node.arg.shape, node.arg.device
        self.words = words
        self.born = -1  # no two nodes are born at once, so this tells them apart and holds none

    def put(self, node: UOp, table: Any) -> bool:
        """Write the address of the node's memory, if that is like the recorded one."""
        if node.op is not BUFFER or node.dtype is not self.dtype or node.arg.shape != self.shape:
            return False
        if node.arg.device != self.device or not hasattr(node, "_realized"):
            return False
        address = node._realized.address
        for word, begin in self.words:
            table[word] = address + begin
        self.born = node._born
        return True


class Quick:
    """One table whose inputs and outputs are whole buffers on one slot each."""

    def __init__(self, segment: Segment, inputs: list[UOp], rings: list[Ring]) -> None:
        self._segment, self._words, self._head = segment, segment.table.words, segment.table.head
        self._alone = native_half().alone if runs_alone(segment) else None
        self._inputs = [Place(n, segment.places.get(id(n.buffer), [])) for n in inputs]
        self._outputs = [(ring, segment.places.get(id(ring.recorded.buffer), [])) for ring in rings]

    def forget(self) -> None:
        """Take nothing for written in the table: the long way writes there, too."""
        for place in self._inputs:
            place.born = -1

    def run(self, args: tuple[Any, ...]) -> list[UOp] | None:
        """Run on these arguments; the nodes of inputs and outputs, None to go the long way."""
        if len(args) != len(self._inputs) or not _native():
            return None
        words, nodes, same = self._words, [], True
        for argument, place in zip(args, self._inputs):  # noqa: B905 (equally many)
            if type(argument) is not Tensor:
                return None
            node = argument.uop
            nodes.append(node)
            if node._born != place.born:
                same = False
                if not place.put(node, words):
                    return None
        if not same and len(set(nodes)) < len(nodes):
            return None
        for ring, places in self._outputs:
            made, address = ring.take()
            nodes += made
            for word, begin in places:
                words[word] = address + begin
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
