"""Neighbouring loops that every access walks through as one become one loop.

Before: x[r0*3+r1] in loops r0 < 2, r1 < 3. After: x[r0] in one loop r0 < 6.
"""

from __future__ import annotations

import itertools
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp, substitute, toposort
from tinyfn.uop.simplify import from_linear, linear_form

Offset = tuple[UOp, UOp]


def collapse(sink: UOp) -> UOp:
    """The kernel with as few loops as its accesses allow."""
    while True:
        order = toposort([sink])
        pair = next((p for p in _neighbours(order) if _fits(order, *p)), None)
        if pair is None:
            return sink
        sink = _join(sink, order, *pair)


def _neighbours(order: list[UOp]) -> list[tuple[UOp, UOp]]:
    """Pairs of loops closed together, the outer one first, that no other closing separates."""
    groups = [n.src[1:] for n in order if n.op in (Ops.END, Ops.REDUCE)]
    pairs = []
    for group in groups:
        for outer, inner in itertools.pairwise(group):
            together = all((outer in g) == (inner in g) for g in groups)
            next_to = all(
                g.index(inner) == g.index(outer) + 1 for g in groups if outer in g and inner in g
            )
            plain = outer.op is Ops.RANGE and inner.op is Ops.RANGE
            fixed = plain and outer.src[0].op is Ops.CONST and inner.src[0].op is Ops.CONST
            if fixed and together and next_to and outer.arg[1] is inner.arg[1]:
                pairs.append((outer, inner))
    return pairs


def _offset(index: UOp) -> UOp | None:
    offset = index.src[1] if len(index.src) == 2 else None
    if offset is not None and offset.op is Ops.WHERE:
        return offset.src[1]
    return offset


def _fits(order: list[UOp], outer: UOp, inner: UOp) -> bool:
    """Whether outer and inner occur only as outer * size + inner, in offsets."""
    size = inner.src[0].arg
    offsets = set()
    for node in order:
        if node.op is Ops.INDEX:
            offset = _offset(node)
            if offset is None:
                return False
            if outer in offset.ranges or inner in offset.ranges:
                offsets.add(offset)
    allowed = {outer, inner}
    for offset in offsets:
        terms, _ = linear_form(offset)
        if terms.get(outer, 0) != terms.get(inner, 0) * size or inner not in terms:
            return False
        nested = [t for t in terms if t not in allowed]
        if any(outer in t.ranges or inner in t.ranges for t in nested):
            return False
        allowed |= _arithmetic_of(offset)
    return all(
        node in allowed
        or node.op in (Ops.END, Ops.REDUCE)
        or not any(s in allowed and (outer in s.ranges or inner in s.ranges) for s in node.src)
        or (node.op is Ops.INDEX and _offset(node) in offsets)
        or (
            node.op is Ops.WHERE
            and node.dtype is dtypes.weakint
            and node.src[1] in offsets
            and not any(r in node.src[0].ranges for r in (outer, inner))
        )
        for node in order
    )


def _arithmetic_of(offset: UOp) -> set[UOp]:
    """The nodes of a sum of multiples."""
    found: set[UOp] = set()
    stack = [offset]
    while stack:
        node = stack.pop()
        found.add(node)
        if node.op in (Ops.ADD, Ops.MUL, Ops.SUB, Ops.NEG):
            stack += node.src
    return found


def _join(sink: UOp, order: list[UOp], outer: UOp, inner: UOp) -> UOp:
    size = inner.src[0].arg
    joined = UOp.range(outer.src[0].arg * size, *outer.arg)
    table: dict[UOp, UOp] = {}
    for node in order:
        offset = _offset(node) if node.op is Ops.INDEX else None
        if offset is not None and inner in offset.ranges:
            terms, constant = linear_form(offset)
            stride = terms.pop(inner)
            terms.pop(outer)
            table[offset] = from_linear(offset, {joined: stride, **terms}, constant)
    replaced: Any = substitute([sink], table)[0]
    ends: dict[UOp, UOp] = {}
    for node in toposort([replaced]):
        src = tuple(ends.get(s, s) for s in node.src)
        if node.op in (Ops.END, Ops.REDUCE) and inner in src[1:]:
            src = (src[0], *(joined if r is outer else r for r in src[1:] if r is not inner))
        ends[node] = node.with_src(src)
    return ends[replaced]
