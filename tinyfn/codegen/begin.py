"""Where in its memory a kernel begins is a matter of its arguments, not of its code.

Before: STORE(INDEX(A, r0 + 136), v) on the memory A of float32. After: STORE(INDEX(A, r0 + 8), v)
on A from byte 512 on. Slices at different places of one memory then run the same kernel. It begins
at whole cache lines, so that what is known of alignment stays true.
"""

from __future__ import annotations

from tinyfn.dtype import dtypes
from tinyfn.helpers import Recent
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.ops import Ops, UOp, substitute, toposort

LINE = 64
KEPT = 2048
_known: Recent[UOp, tuple[UOp, dict[int, int]]] = Recent(KEPT)


def begin_at_arguments(sink: UOp) -> tuple[UOp, dict[int, int]]:
    """The kernel for memory that begins later, and by slot how many bytes later."""
    found = _known.get(sink)
    return _known.keep(sink, _moved(sink)) if found is None else found


def _moved(sink: UOp) -> tuple[UOp, dict[int, int]]:
    table: dict[UOp, UOp] = {}
    begins: dict[int, int] = {}
    for memory, places in _accesses(sink).items():
        line = LINE // memory.dtype.itemsize
        first = min((_lowest(p) for p in places), default=0) // line * line
        if first > 0:
            begins[memory.arg.slot] = first * memory.dtype.itemsize
            table.update({p: p.with_src((memory, _earlier(p.src[1], first))) for p in places})
    return (substitute([sink], table)[0] if table else sink), begins


def _accesses(sink: UOp) -> dict[UOp, list[UOp]]:
    """Every place in each memory that a kernel uses; memory used in another way is left out."""
    found: dict[UOp, list[UOp]] = {}
    other: set[UOp] = set()
    for node in toposort([sink]):
        if node.op is Ops.PARAM and node.arg.addrspace is AddrSpace.GLOBAL:
            found[node] = []
        elif node.op is Ops.INDEX and node.src[0] in found and _is_flat(node):
            found[node.src[0]].append(node)
        else:
            other.update(s for s in node.src if s in found)
    return {m: places for m, places in found.items() if m not in other}


def _is_flat(place: UOp) -> bool:
    return (
        len(place.src) == 2
        and place.src[1].dtype is dtypes.weakint
        and len(place.src[0].shape) == 1
    )


def _lowest(place: UOp) -> int:
    offset = place.src[1]
    return int((offset.src[1] if offset.op is Ops.WHERE else offset).vmin)


def _earlier(offset: UOp, first: int) -> UOp:
    if offset.op is Ops.WHERE:  # a gate: where it is closed the offset is Invalid
        return offset.with_src((offset.src[0], _earlier(offset.src[1], first), offset.src[2]))
    simpler: UOp = (offset - first).simplify()
    return simpler
