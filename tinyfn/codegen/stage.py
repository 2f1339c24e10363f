"""Costly parts of a sum that inner loops would compute again and again: once, into a row.

Before: for every j the sum over k of (exp(x[i, k] - m[i]) / s[i]) * v[k, j]. After: a loop of its
own, which then runs in vectors, fills row[k] = exp(...) / s; the sum is of row[k] * v[k, j].
"""

from __future__ import annotations

import itertools
import math

from tinyfn.codegen.cost import MIDDLE, SLOW
from tinyfn.dtype import dtypes
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import Ops, UOp, substitute, toposort
from tinyfn.uop.simplify import add_many, is_const

COSTLY = SLOW | MIDDLE | {Ops.POW, Ops.THREEFRY}
LONGEST = 16384  # elements of a row
FIRST_SLOT = 100000  # scratch of this pass, away from the slots of the kernel
RANKS = 16  # loop numbers for each of its rows


def stage_rows(sink: UOp) -> UOp:
    """The kernel with such parts in scratch."""
    nodes = toposort([sink])
    order = _nesting(nodes)
    costly: set[UOp] = set()
    for node in nodes:
        if node.op in (Ops.REDUCE, Ops.AFTER):
            continue
        if node.op in COSTLY or any(s in costly for s in node.src):
            costly.add(node)
    table: dict[UOp, UOp] = {}
    slots = itertools.count(FIRST_SLOT)
    for node in nodes:
        if node.op is not Ops.REDUCE or not all(is_const(r.src[0]) for r in node.src[1:]):
            continue
        for part in _parts(node, costly, order):
            rows = _row(part, node.src[1:], next(slots))
            table[node] = substitute([table.get(node, node)], {part: rows})[0]
    return substitute([sink], _nested(table))[0] if table else sink


def _nested(table: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """The table, with what it replaces replaced inside of what replaces it."""
    done: dict[UOp, UOp] = {}
    for node, new in table.items():
        inner = {old: made for old, made in done.items() if old is not node}
        done[node] = substitute([new], inner)[0] if inner else new
    return done


def _nesting(nodes: list[UOp]) -> dict[UOp, int]:
    """The place of every loop of an END, from the outside in."""
    found: dict[UOp, int] = {}
    for node in nodes:
        if node.op is Ops.END:
            for position, loop in enumerate(node.src[1:]):
                found[loop] = max(found.get(loop, 0), position)
    return found


def _parts(reduce: UOp, costly: set[UOp], order: dict[UOp, int]) -> list[UOp]:
    """The largest costly parts of a sum that an inner loop of it does not change."""
    found: list[UOp] = []
    own = reduce.src[1:]
    stack, seen = [reduce.src[0]], set()
    while stack:
        node = stack.pop()
        if node in seen or node not in costly:
            continue
        seen.add(node)
        outer = [r for r in node.ranges if r not in own]
        depth = max((order.get(r, -1) for r in outer), default=-1)
        again = [r for r in reduce.ranges if r not in node.ranges and order.get(r, -1) > depth]
        varying = [r for r in own if r in node.ranges]
        length = math.prod(int(r.src[0].arg) for r in varying)
        kept = node.dtype.kind == "float" and varying and length <= LONGEST
        if again and kept and math.prod(int(r.vmax) + 1 for r in again) > 1:
            found.append(node)
        else:
            stack += node.src
    return found


def _row(part: UOp, loops: tuple[UOp, ...], slot: int) -> UOp:
    """The element of a row that holds a part of a sum."""
    varying = [r for r in loops if r in part.ranges]
    again = {
        r: UOp.range(r.src[0], slot * RANKS + i, AxisType.REDUCE) for i, r in enumerate(varying)
    }
    length = math.prod(int(r.src[0].arg) for r in varying)
    row = UOp.placeholder((length,), part.dtype, slot, AddrSpace.LOCAL)
    value = part.substitute(again)
    place = UOp(Ops.INDEX, part.dtype, (row, _position(list(again.values()))))
    filled = place.store(value).end(*again.values())
    return UOp(Ops.INDEX, part.dtype, (row.after(filled), _position(varying)))


def _position(loops: list[UOp]) -> UOp:
    """The row-major offset of loop counters."""
    parts: list[tuple[UOp, int]] = []
    stride = 1
    for loop in reversed(loops):
        parts.append((loop, stride))
        stride *= int(loop.src[0].arg)
    found: UOp = add_many(UOp.const(0, dtypes.weakint), parts)
    return found
