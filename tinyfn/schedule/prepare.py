"""The graph made ready for fusing: markers dropped, long reductions split, hazards removed."""

from __future__ import annotations

from typing import cast

from tinyfn.schedule.cut import value_sources
from tinyfn.schedule.cycle import break_cycles
from tinyfn.schedule.graph import is_whole, strip_reshapes
from tinyfn.schedule.scan import split_scan
from tinyfn.schedule.sort import sort_by_keys
from tinyfn.schedule.split import split_reduction
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, Rules, UOp, rewrite, substitute, toposort

PREPARE = Rules("prepare")


@PREPARE.on(Ops.DETACH, Ops.CONTIGUOUS_BACKWARD)
def marker(node: UOp) -> UOp:
    """Markers for gradients mean nothing from here on."""
    return node.src[0]


@PREPARE.on(Ops.CONTIGUOUS)
def contiguous_already(node: UOp) -> UOp | None:
    """Memory seen whole is stored as it is."""
    return node.src[0] if node.arg is None and is_whole(node.src[0]) else None


@PREPARE.on(Ops.CALL, Ops.COPY, Ops.MSTACK)
def stored_constants(node: UOp) -> UOp | None:
    """A constant that has to be memory is stored: constants themselves are part of kernels."""
    first = 1 if node.op is Ops.CALL else 0
    src = tuple(
        s.contiguous() if i >= first and strip_reshapes(s).op is Ops.CONST else s
        for i, s in enumerate(node.src)
    )
    return None if src == node.src else node.with_src(src)


@PREPARE.on(Ops.BIND)
def unbind(node: UOp) -> UOp:
    """Kernels take variables; their values come with the schedule."""
    return node.src[0]


PREPARE.on(Ops.REDUCE_AXIS)(split_reduction)
PREPARE.on(Ops.SCAN)(split_scan)
PREPARE.on(Ops.ARGSORT)(sort_by_keys)


def prepare(root: UOp) -> UOp:
    """The graph ready for fusing."""
    return break_cycles(keep_old_values(cast(UOp, rewrite(root, PREPARE))))


def keep_old_values(root: UOp) -> UOp:
    """Values that mix memory before and after a store read a copy of what was before.

    Before: ADD(x, AFTER(x, STORE(x, v))). After: ADD(CONTIGUOUS(x), AFTER(x, STORE(x, v))).
    """
    order = toposort([root], enter_calls=False)
    graph = _Users(order)
    table: dict[UOp, UOp] = {}
    for node in order:
        if node.op is Ops.AFTER and any(e.op in (Ops.STORE, Ops.CALL) for e in node.src[1:]):
            for old in graph.read_beside(node):
                table[old] = _copied(old)
    if not table:
        return root
    return _replace_values(root, order, table)


def _copied(node: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, node.dtype, (node,), "copy")


class _Users:
    """A graph the other way round: who computes with the value of each node."""

    def __init__(self, order: list[UOp]) -> None:
        self.places = {node: i for i, node in enumerate(order)}
        self.users: dict[UOp, list[UOp]] = {}
        for node in order:
            for source in value_sources(node):
                self.users.setdefault(source, []).append(node)

    def read_beside(self, after: UOp) -> list[UOp]:
        """Values that read the memory before the effect, used by what runs after it."""
        known = {after: True}
        return [
            value
            for value in self._readers(after)
            if not self._is_later(value, after, known)
            and any(self._is_later(user, after, known) for user in self.users.get(value, ()))
        ]

    def _readers(self, after: UOp) -> dict[UOp, None]:
        """The memory before the effect, and every value computed from it."""
        state = after.src[0]
        while state.op in opcodes.MOVEMENT:
            state = state.src[0]
        found = {state: None}
        stack = [state]
        while stack:
            fresh = [u for u in self.users.get(stack.pop(), ()) if u not in found]
            found.update(dict.fromkeys(fresh))
            stack += fresh
        return found

    def _is_later(self, value: UOp, after: UOp, known: dict[UOp, bool]) -> bool:
        """Whether a value is computed from memory after the effect."""
        # in order, nothing that uses a node stands before it
        first = self.places[after]
        stack = [value]
        while stack:
            node = stack[-1]
            if node in known:
                stack.pop()
            elif self.places[node] < first or node.shape is None:
                known[node] = False
            elif any(known.get(s, False) for s in node.src):
                known[node] = True
            elif missing := [s for s in node.src if s not in known]:
                stack += missing
            else:
                known[node] = False
        return known[value]


def _replace_values(root: UOp, order: list[UOp], table: dict[UOp, UOp]) -> UOp:
    """Put copies in the place of old values wherever they are read, not where memory is written."""
    done: dict[UOp, UOp] = {}
    for node in order:
        values = set(value_sources(node)) if node.op is not Ops.AFTER else set()
        src = []
        for source in node.src:
            new = done.get(source, source)
            if source in table and source in values:
                new = substitute([table[source]], {source: new})[0]
            src.append(new)
        done[node] = node.with_src(tuple(src))
    return done[root]
