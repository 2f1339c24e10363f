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
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for source in node.src:
            users.setdefault(source, []).append(node)
    table: dict[UOp, UOp] = {}
    for node in order:
        if node.op is Ops.AFTER and any(e.op in (Ops.STORE, Ops.CALL) for e in node.src[1:]):
            for old in _read_beside(node, users):
                table[old] = _copied(old)
    if not table:
        return root
    return _replace_values(root, order, table)


def _copied(node: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, node.dtype, (node,), "copy")


def _read_beside(after: UOp, users: dict[UOp, list[UOp]]) -> set[UOp]:
    """Values that read the memory before the effect, used by what runs after it."""
    state = after.src[0]
    while state.op in opcodes.MOVEMENT:
        state = state.src[0]
    later: dict[UOp, None] = {}
    stack = [after]
    while stack:
        node = stack.pop()
        for user in users.get(node, ()):
            if user not in later and user.shape is not None:
                later[user] = None
                stack.append(user)
    found: set[UOp] = set()
    for node in later:
        if node.op is Ops.AFTER:
            continue
        for source in value_sources(node):
            if source is not after and source not in later and _reads(source, state, after):
                found.add(source)
    return found


def _reads(node: UOp, state: UOp, stop: UOp) -> bool:
    stack, seen = [node], set()
    while stack:
        top = stack.pop()
        if top is state:
            return True
        if top in seen or top is stop:
            continue
        seen.add(top)
        stack += value_sources(top)
    return False


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
