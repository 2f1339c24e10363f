"""Which loops are split over threads, and into what units.

Before: Loop(i, Loop(j, ...)), both independent. After: units of whole iterations of i (or of i and
blocks of j where i has too few), counted by lo..hi.
"""

from __future__ import annotations

import math
from typing import Any

from tinyfn.codegen.loops import Kernel, Loop, Parallel, loops_in
from tinyfn.codegen.tile import chain_of
from tinyfn.device import Target
from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import INDEX_OPS


WANTED = 8  # units for each thread, so that an uneven split costs little
CACHED = 0.5  # the part of the L2 cache that a block of rows may take


def split_over_threads(kernel: Kernel, target: Target) -> None:
    """Set `parallel` and `order` of the kernel."""
    items = kernel.body.items
    chain = chain_of(items[0]) if len(items) == 1 and isinstance(items[0], Loop) else []
    sizes = {r for loop in chain for r in loop.range.src[0].ranges}
    if not chain or any(loop.range in sizes for loop in chain):
        return
    tile = [l for l in chain if l.lanes or l.copies > 1]
    reduces = any(inner.closings for inner in loops_in(chain[-1].body))
    if reduces and tile and len(chain) > 1:
        _split_tiles(kernel, chain, tile, WANTED * target.threads, target)
    else:
        _split_rows(kernel, chain, WANTED * target.threads)


def _split_rows(kernel: Kernel, chain: list[Loop], wanted: int) -> None:
    """Units are iterations of the first loops, as many loops as it takes."""
    taken: list[Loop] = []
    blocks: list[int] = []
    count = 1
    for loop in chain:
        passes = -(-loop.likely_size // step(loop))
        together = max(1, count * passes // (2 * wanted)) if count * passes > 2 * wanted else 1
        taken.append(loop)
        blocks.append(step(loop) * min(together, passes))
        count *= -(-passes // together)
        if count >= wanted:
            break
    if len(taken) == 1:
        kernel.parallel = Parallel(taken, [1], direct=True)
        kernel.order = chain
        return
    kernel.parallel = Parallel(taken, blocks)
    fixed = [l for l, b in zip(taken, blocks, strict=True) if b == 1]
    kernel.order = [l for l in chain if l not in fixed]


def _split_tiles(
    kernel: Kernel, chain: list[Loop], tile: list[Loop], wanted: int, target: Target
) -> None:
    """Units are blocks of rows of tiles; a block of columns is used by all rows of its unit."""
    outer = [l for l in chain if l not in tile]
    columns = next((l for l in tile if l.lanes), tile[-1])
    rows = next((l for l in tile if l is not columns), None)
    count = math.prod(l.likely_size for l in outer)
    blocks = dict.fromkeys(outer, 1)
    for loop in tile:
        blocks[loop] = step(loop) * -(-loop.likely_size // step(loop))
    if rows is not None:
        depth = math.prod(l.likely_size for l in loops_in(chain[-1].body))
        fitting = int(target.l2_bytes * CACHED / (4 * depth))
        wished = -(-rows.likely_size * count // wanted)
        blocks[rows] = _rounded(rows, min(max(wished, 2 * step(rows)), fitting))
        count *= -(-rows.likely_size // blocks[rows])
    if count < wanted:
        blocks[columns] = _rounded(columns, columns.likely_size * count // wanted)
    taken = [l for l in (*outer, *tile) if blocks[l] < l.likely_size or l in outer]
    kernel.parallel = Parallel(taken, [blocks[l] for l in taken])
    kernel.order = [l for l in tile if l is not rows] + ([rows] if rows is not None else [])


def _rounded(loop: Loop, size: int) -> int:
    """A block of about that size: whole steps, at least one."""
    return max(1, size // step(loop)) * step(loop)


def step(loop: Loop) -> int:
    """How many iterations one pass of a loop is."""
    return (loop.lanes or 1) * loop.copies


def units(kernel: Kernel) -> tuple[Any, int]:
    """How many units there are, and of what lo and hi must be multiples."""
    parallel = kernel.parallel
    if parallel.direct:
        loop = parallel.loops[0]
        size = loop.size
        return (loop.range.src[0] if size is None else size), step(loop)
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
