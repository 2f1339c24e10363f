"""Which values are stored between kernels; everything else is computed inside of its consumer.

The rules (see docs/architecture.md): a contraction and its elementwise epilogue are one kernel; a
reduction stays with its only consumer kernel; what two kernels need is stored unless it is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyfn.helpers import prod
from tinyfn.schedule.graph import OWN_KERNELS, is_memory, is_whole, strip_reshapes, strip_views
from tinyfn.schedule.sort_kernels import is_long
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, toposort

SAME_INDEX = opcodes.ELEMENTWISE | {Ops.RESHAPE, Ops.PERMUTE, Ops.CONTIGUOUS, Ops.DETACH}
MANY_LOADS = 3
MANY_TIMES = 8
SMALL_OUTPUT = 16
LARGE_INPUT = 1 << 15
DEEPEST = 60
DEEPEST_WITH_REDUCTIONS = 150


def elements(node: UOp) -> int:
    """How many elements a value has at the most."""
    return int(prod(node.max_shape)) if node.shape else 1


def is_contraction(node: UOp) -> bool:
    """A sum of products whose operands are repeated: its work is more than its data."""
    if node.op is not Ops.REDUCE_AXIS or node.arg.op is not Ops.ADD:
        return False
    product = node.src[0]
    while product.op is Ops.CAST:
        product = product.src[0]
    if product.op is not Ops.MUL:
        return False
    return elements(product) > sum(_data_of(s) for s in product.src)


def _data_of(node: UOp) -> int:
    """Elements below repetition: of the smallest value on the chain of views and casts."""
    smallest = elements(node)
    while node.op in opcodes.MOVEMENT or node.op is Ops.CAST:
        node = node.src[0]
        smallest = min(smallest, elements(node))
    return smallest


def is_repeated(node: UOp) -> bool:
    """Whether every element is seen many times: what it costs is shared by a row."""
    return node.op is Ops.EXPAND and elements(node) >= MANY_TIMES * elements(node.src[0])


def value_sources(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values a node computes with, in the same kernel."""
    if is_memory(node):
        return ()
    if node.op is Ops.STORE:
        return node.src[1:2]
    if node.shape is None:
        return ()
    if node.op in opcodes.MOVEMENT or node.op is Ops.FULL:
        return node.src[:1]
    return node.src


def needed_whole(node: UOp) -> tuple[UOp, ...]:
    """The sources that have to be memory before this node can run."""
    if node.op in (Ops.COPY, Ops.MSELECT, Ops.MSTACK):
        return node.src
    if node.op is Ops.CALL:
        return node.src[1:]
    if node.op is Ops.ARGSORT and is_long(node):
        return node.src
    return ()


def forced_cuts(order: list[UOp], roots: Iterable[UOp]) -> set[UOp]:
    """What is stored whatever it costs: outputs, contiguous values, arguments of calls, tables."""
    cuts = {
        strip_reshapes(r) for r in roots if not is_memory(strip_views(r)) and r.shape is not None
    }
    for node in order:
        if node.op is Ops.CONTIGUOUS:
            cuts.add(node)
        for source in needed_whole(node):
            if source.shape is not None and not is_whole(source) and source.op is not Ops.VARIABLE:
                cuts.add(strip_reshapes(source))
        if node.op is Ops.GATHER:
            base = strip_views(node.src[0])
            if not is_memory(base):
                cuts.add(base)
    return {c for c in cuts if not is_memory(c) and c.op is not Ops.CONST}


class Cutter:
    """One pass from the users down: which kernels would compute each value, and is that fine."""

    def __init__(self, order: list[UOp], roots: Iterable[UOp]) -> None:
        self.order = order
        self.cuts = forced_cuts(order, roots)
        self.leaves: dict[UOp, frozenset[UOp]] = {}
        self.expensive: dict[UOp, bool] = {}
        # how many nodes a value stands on in one kernel: from the last reduction, and in all
        self.depths: tuple[dict[UOp, int], dict[UOp, int]] = ({}, {})
        self.owners: dict[UOp, set[UOp]] = {}
        self.plain: dict[UOp, bool] = {}
        self.users: dict[UOp, list[UOp]] = {}

    def run(self) -> set[UOp]:
        """The values to store."""
        self._look_up()
        for node in self.order:
            for source in dict.fromkeys(value_sources(node)):
                self.users.setdefault(source, []).append(node)
        for node in reversed(self.order):
            self._decide(node)
        return self.cuts

    def _look_up(self) -> None:
        """From the leaves up: what each value would load, and what it costs."""
        for node in self.order:
            sources = value_sources(node)
            stop = is_memory(node) or node in self.cuts or node.op is Ops.REDUCE_AXIS
            below: frozenset[UOp] = frozenset()
            for s in sources:
                below |= self.leaves[s]
                if len(below) > MANY_LOADS:
                    break
            self.leaves[node] = frozenset((node,)) if stop else below
            costly = node.op in opcodes.EXPENSIVE and node.dtype.kind != "weakint"
            costly = costly or any(self.expensive[s] for s in sources)
            self.expensive[node] = costly and not stop and not is_repeated(node)
            depth, whole = (1 + max((d[s] for s in sources), default=0) for d in self.depths)
            data = node.shape or node.dtype.kind != "weakint"  # sizes and indices are no memory
            deep = depth > DEEPEST or whole > DEEPEST_WITH_REDUCTIONS
            if (deep and node.op in opcodes.ELEMENTWISE and data) or (
                whole > DEEPEST_WITH_REDUCTIONS and node.op is Ops.REDUCE_AXIS
            ):
                self.cuts.add(node)
            # what a reduction gives is stored as a rule: what is computed from it starts anew
            cut = is_memory(node) or node in self.cuts
            self.depths[0][node] = 0 if stop or cut else depth
            self.depths[1][node] = 0 if cut else whole

    def _decide(self, node: UOp) -> None:
        if node.op is Ops.STORE or node.op in OWN_KERNELS or node in self.cuts:
            self.owners[node], self.plain[node] = {node}, True
            return
        users = self.users.get(node, [])
        owners: set[UOp] = set()
        plain = True
        for user in users:
            owners |= self.owners.get(user, set())
            plain = plain and self.plain.get(user, True) and user.op in (*SAME_INDEX, Ops.STORE)
        if (
            users
            and not is_memory(node)
            and node.shape is not None
            and self._stored(node, owners, plain)
        ):
            self.cuts.add(node)
            owners, plain = {node}, True
        self.owners[node], self.plain[node] = owners, plain

    def _stored(self, node: UOp, owners: set[UOp], plain: bool) -> bool:
        if node.op in opcodes.MOVEMENT:
            contraction = self._only_contraction_below(node)
            return contraction and (len(owners) > 1 or not plain)
        if node.op in (Ops.CONST, Ops.FULL, Ops.IOTA):
            return False
        if node.op is Ops.REDUCE_AXIS:
            if len(owners) > 1 or (is_contraction(node) and not plain):
                return True
            few = elements(node) < SMALL_OUTPUT and elements(node.src[0]) >= LARGE_INPUT
            return few and not plain
        if len(owners) < 2:
            return False
        return self.expensive[node] or len(self.leaves[node]) >= MANY_LOADS

    def _only_contraction_below(self, node: UOp) -> bool:
        """Whether the node is a contraction in another layout, which nothing else uses.

        It is then stored in the layout of its user.
        """
        while node.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.CAST):
            node = node.src[0]
            if len(self.users.get(node, ())) > 1:
                return False
        return is_contraction(node)


def choose_cuts(roots: Iterable[UOp]) -> set[UOp]:
    """The values that are stored between kernels."""
    listed = list(roots)
    return Cutter(toposort(listed, enter_calls=False), listed).run()


def all_values(order: Iterable[UOp]) -> list[Any]:
    """Nodes of a graph that have a value."""
    return [node for node in order if node.shape is not None]
