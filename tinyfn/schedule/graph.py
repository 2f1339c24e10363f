"""Questions that several passes ask of the per-slot tensor graph: what is memory, and where."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from tinyfn import call as calls
from tinyfn.device import Device
from tinyfn.dtype import DType
from tinyfn.uop import opcodes
from tinyfn.uop.info import BufferInfo
from tinyfn.uop.ops import Ops, UOp

# they are stored by kernels built for them
OWN_KERNELS = frozenset((Ops.SCATTER, Ops.SCAN, Ops.ARGSORT))
MEMORY = OWN_KERNELS | {Ops.BUFFER, Ops.PARAM, Ops.AFTER, Ops.COPY, Ops.MSELECT, Ops.MSTACK}
EXTERNAL = -1_000_000_000
INLINED = -2_000_000_000
TEMPORARY = -3_000_000_000


class Places:
    """Where the values that a schedule stores are kept."""

    def __init__(self, template_of: Callable[[UOp], Any]) -> None:
        self.template_of = template_of
        self.table: dict[UOp, UOp] = {}
        self._below: dict[UOp, UOp] = {}
        self.instances: dict[UOp, tuple[Any, dict[UOp, UOp]]] = {}
        self.count = 0
        self.cuts: set[UOp] = set()

    def temporary(self, node: UOp) -> UOp:
        """Memory of its own for a node."""
        if node not in self.table:
            self.table[node] = self.fresh(node)
        return self.table[node]

    def fresh(
        self, like: UOp, shape: tuple[int, ...] | None = None, dtype: DType | None = None
    ) -> UOp:
        """New memory where a node is: for its elements, or of another shape and dtype."""
        device = Device.DEFAULT if like.device is None else like.device
        shape = like.max_shape if shape is None else shape
        info = BufferInfo(TEMPORARY - self.count, device, shape, "temporary")
        self.count += 1
        return UOp(Ops.BUFFER, dtype or like.dtype, (), info)

    def of(self, node: UOp) -> UOp:
        """The buffer that holds a node's elements."""
        node = self.below_states(node)
        while self._is_view(node):
            node = self.below_states(node.src[0])
        if node in self.table:
            return self.table[node]
        if node.op in (Ops.BUFFER, Ops.PARAM):
            return node
        if node in self.cuts:
            return self.temporary(node)
        if node.op is Ops.AFTER and (slot := calls.output_slot(node)) is not None:
            template, renamed = self.instance(node.src[1])
            found: UOp = template.results[slot].substitute(renamed)
            return found
        if node.op is Ops.MSELECT:
            return self.of(node.src[0]).mselect(node.arg)
        if node.op is Ops.MSTACK:
            return UOp(Ops.MSTACK, node.dtype, tuple(self.of(s) for s in node.src))
        return self.temporary(node)

    def _is_view(self, node: UOp) -> bool:
        """Whether the node is the memory of its source, seen in another way."""
        if node in self.table or node in self.cuts:
            return False
        return node.op in opcodes.MOVEMENT or node.op is Ops.DETACH

    def below_states(self, node: UOp) -> UOp:
        """The node below effects one after the other, which leave it the same memory."""
        states = []
        while node.op is Ops.AFTER:
            if node in self._below:
                node = self._below[node]
                break
            if calls.output_slot(node) is not None:
                break
            states.append(node)
            node = node.src[0]
        self._below.update(dict.fromkeys(states, node))
        return node

    def instance(self, call: UOp) -> tuple[Any, dict[UOp, UOp]]:
        """A precompiled body for this call: its schedule, and its memory by other names."""
        if call not in self.instances:
            template = self.template_of(call.src[0])
            renamed = {p: self.of(call.src[1 + p.arg.slot]) for p in template.parameters}
            for memory in template.temporaries:
                renamed[memory] = self.fresh(memory)
            self.instances[call] = (template, renamed)
        return self.instances[call]


def is_memory(node: UOp) -> bool:
    """Whether the node stands for memory that other kernels or the caller fill."""
    return node.op in MEMORY


def memory_shape(place: UOp) -> tuple[int, ...]:
    """The shape of one slot's part of a buffer."""
    return tuple(place.max_shape)


def strip_views(node: UOp, cuts: Container[UOp] = ()) -> UOp:
    """The node below all movement, or the first on the way that is stored itself."""
    while (node.op in opcodes.MOVEMENT or node.op is Ops.DETACH) and node not in cuts:
        node = node.src[0]
    return node


def strip_reshapes(node: UOp) -> UOp:
    """The node with the same elements in the same order."""
    while node.op in (Ops.RESHAPE, Ops.DETACH):
        node = node.src[0]
    return node


def is_whole(node: UOp) -> bool:
    """Whether the node is memory seen whole and in order."""
    memory = strip_reshapes(node)
    # the first few in order become a part of a whole order, or a search (`sort.sort_by_keys`)
    few = memory.op is Ops.ARGSORT and memory.arg.count is not None
    return is_memory(memory) and not few


def device_of(node: UOp, default: str) -> Any:
    """The node's device, or the default for what lives nowhere."""
    return default if node.device is None else node.device
