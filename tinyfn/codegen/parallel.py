"""Which loops are split over threads, and into what units.

Before: Loop(i, Loop(j, ...)), both independent. After: units of whole iterations of i (or of i and
blocks of j where i has too few), counted by lo..hi.
"""

from __future__ import annotations

from typing import Any

from tinyfn.codegen.loops import Block, Kernel, Loop, Parallel
from tinyfn.device import Target
from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import INDEX_OPS


def nest(block: Block) -> list[Loop]:
    """The independent loops around everything, outermost first."""
    found: list[Loop] = []
    while len(block.items) == 1 and isinstance(block.items[0], Loop):
        loop = block.items[0]
        if not loop.independent or loop.closings:
            break
        if any(r in loop.range.src[0].ranges for r in (f.range for f in found)):
            break
        found.append(loop)
        block = loop.body
    return found


def split_over_threads(kernel: Kernel, target: Target) -> None:
    """Set `parallel` and `order` of the kernel."""
    chain = nest(kernel.body)
    if not chain:
        return
    wanted = 8 * target.threads
    taken, count = [chain[0]], chain[0].likely_size
    for loop in chain[1:]:
        if count >= wanted:
            break
        taken.append(loop)
        count *= loop.likely_size
    if len(taken) == 1:
        kernel.parallel = Parallel(taken, [1], direct=True)
        kernel.order = chain
    else:
        kernel.parallel = Parallel(taken, [1] * len(taken))
        kernel.order = chain[len(taken) :]


def units(kernel: Kernel) -> tuple[Any, int]:
    """How many units there are, and of what lo and hi must be multiples."""
    parallel = kernel.parallel
    if parallel.direct:
        loop = parallel.loops[0]
        size = loop.size
        return (loop.range.src[0] if size is None else size), (loop.lanes or 1) * loop.copies
    extent: Any = 1
    for loop, block in zip(parallel.loops, parallel.blocks, strict=True):
        extent = _times(extent, _blocks(loop, block))
    return extent, 1


def _blocks(loop: Loop, block: int) -> Any:
    if loop.size is not None:
        return -(-loop.size // block)
    size = loop.range.src[0]
    if block == 1:
        return size
    more = INDEX_OPS[Ops.ADD](size, UOp.const(block - 1, dtypes.weakint))
    return INDEX_OPS[Ops.IDIV](more, UOp.const(block, dtypes.weakint))


def _times(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    nodes = [v if isinstance(v, UOp) else UOp.const(v, dtypes.weakint) for v in (x, y)]
    return INDEX_OPS[Ops.MUL](*nodes)
