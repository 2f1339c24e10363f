"""A loop whose counter is only ever split into quotient and remainder becomes two loops.

Before: x[r // 64 * 128 + r % 64] in a loop r < 640. After: x[r0 * 128 + r1] in loops r0 < 10,
r1 < 64, in which every offset is regular.
"""

from __future__ import annotations

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import INDEX_OPS, RULES, is_const

SMALLEST = 8  # inner loops shorter than this do not fill vectors: better one irregular loop
ROUNDS = 8


def divide_loops(sink: UOp) -> UOp:
    """The kernel with its loops divided where that makes offsets regular."""
    for _ in range(ROUNDS):
        nodes = toposort([sink])
        chosen = _divisible(nodes)
        if chosen is None:
            return sink
        number = 1 + max(int(n.arg[0]) for n in nodes if n.op is Ops.RANGE)
        sink = _divided(nodes, *chosen, number)
    return sink


def _divisible(nodes: list[UOp]) -> tuple[UOp, int] | None:
    """A loop and the size of the inner one of the two it should become; largest size first."""
    found: list[tuple[UOp, int]] = []
    for node in nodes:
        if node.op not in (Ops.IDIV, Ops.MOD) or node.dtype is not dtypes.weakint:
            continue
        loop, size = node.src
        if loop.op is not Ops.RANGE or not is_const(size) or not is_const(loop.src[0]):
            continue
        if SMALLEST <= size.arg < loop.src[0].arg and loop.src[0].arg % size.arg == 0:
            found.append((loop, size.arg))
    return max(found, key=lambda pair: pair[1], default=None)


def _divided(nodes: list[UOp], loop: UOp, size: int, number: int) -> UOp:
    outer = UOp.range(loop.src[0].arg // size, loop.arg[0], *loop.arg[1:])
    inner = UOp.range(size, number, *loop.arg[1:])
    factor = UOp.const(size, dtypes.weakint)
    done: dict[UOp, UOp] = {}
    for node in nodes:
        if node is loop:
            done[node] = INDEX_OPS[Ops.ADD](INDEX_OPS[Ops.MUL](outer, factor), inner)
            continue
        if node.op in (Ops.END, Ops.REDUCE) and loop in node.src:
            ranges = [
                s for r in node.src[1:] for s in ((outer, inner) if r is loop else (done[r],))
            ]
            done[node] = UOp(node.op, node.dtype, (done[node.src[0]], *ranges), node.arg)
            continue
        new = node.with_src(tuple(done[s] for s in node.src))
        found = RULES.apply(new) if new is not node else None
        done[node] = new if found is None else found
    return done[nodes[-1]]
