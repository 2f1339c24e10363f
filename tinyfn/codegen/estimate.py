"""How much a kernel computes and moves: counted on its graph, whatever the code looks like.

A fused multiply-add is two operations. Each buffer counts once for loads and once for stores, by
the elements touched, at most all of it.
"""

from __future__ import annotations

from typing import Any

from tinyfn.codegen.normalise import memory_of
from tinyfn.dtype import dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import INDEX_OPS

COUNTED = opcodes.UNARY | opcodes.BINARY | opcodes.TERNARY


def _times(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return INDEX_OPS[Ops.MUL](_node(x), _node(y))


def _plus(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    return INDEX_OPS[Ops.ADD](_node(x), _node(y))


def _node(x: Any) -> UOp:
    return x if isinstance(x, UOp) else UOp.const(x, dtypes.weakint)


def runs(ranges: Any) -> Any:
    """How often something in these loops happens."""
    total: Any = 1
    for loop in ranges:
        end = loop.src[0]
        size = end if end.op is Ops.CONST else _mean_size(end)
        total = _times(total, size.arg if size.op is Ops.CONST else size)
    return total


def _mean_size(end: UOp) -> UOp:
    """The size of a loop that depends on loops around it or on values: in the middle, rounded."""
    if any(n.op is Ops.INDEX for n in toposort([end])):
        return _node(end.vmax // 2)
    middle = {r: _node(r.src[0].vmax // 2) for r in end.ranges}
    return end.substitute(middle).simplify()


def operations(sink: UOp) -> Any:
    """Arithmetic operations of one run of the kernel; an int, or a node of symbolic sizes."""
    total: Any = 0
    for node in toposort([sink]):
        if node.op is Ops.REDUCE:
            total = _plus(total, runs({**node.ranges, **dict.fromkeys(node.src[1:])}))
        elif node.op in COUNTED and node.dtype is not dtypes.weakint:
            if any(s.dtype is dtypes.weakint for s in node.src):
                continue
            total = _plus(total, runs(node.ranges))
    return total


def moved_bytes(sink: UOp) -> Any:
    """Bytes that one run of the kernel loads and stores."""
    nodes = toposort([sink])
    targets = {n.src[0] for n in nodes if n.op is Ops.STORE}
    loaded = {s for n in nodes for s in n.src if s.op is Ops.INDEX and n.op is not Ops.STORE}
    loaded |= {n.src[1] for n in nodes if n.op is Ops.STORE and n.src[1].op is Ops.INDEX}
    total: Any = 0
    for accesses in (loaded, targets):
        touched: dict[int, Any] = {}
        whole: dict[int, tuple[Any, int]] = {}
        for index in nodes:
            memory = memory_of(index) if index.op is Ops.INDEX and index in accesses else None
            if memory is None or memory.arg.addrspace not in (AddrSpace.GLOBAL, None):
                continue
            slot = memory.arg.slot
            count = runs(index.ranges)
            touched[slot] = _plus(touched.get(slot, 0), count)
            size: Any = 1
            for length in memory.shape:
                size = _times(size, length)
            whole[slot] = (size, memory.dtype.itemsize)
        for slot, count in touched.items():
            size, width = whole[slot]
            both_known = isinstance(count, int) and isinstance(size, int)
            total = _plus(total, _times(min(count, size) if both_known else size, width))
    return total
