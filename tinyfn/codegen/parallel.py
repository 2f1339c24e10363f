"""Which loops are split over threads, and into what units.

Before: Loop(i, Loop(j, ...)), both independent. After: units of whole iterations of i (or of i and
blocks of j where i has too few), counted by lo..hi.
"""

from __future__ import annotations

import math
from typing import Any

from tinyfn.codegen.cost import CACHED, Profile
from tinyfn.codegen.loops import Kernel, Loop, Parallel, outer_chain, reduce_nest
from tinyfn.codegen.pack import choose_panels
from tinyfn.device import Target
from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import INDEX_OPS

LEAST = 64  # rows that share a block of columns
DEPTH = 32  # of a sum from which on panels cost more than rows of the result far from each other
FEWER = 4  # by which units are divided where each of them fills panels of its own
MANY = 1024  # rows from which on filling a panel costs nothing beside using it


def split_over_threads(kernel: Kernel, profile: Profile, target: Target) -> None:
    """Set `parallel` and `order` of the kernel."""
    chain = outer_chain(kernel)
    if not chain:
        return
    wanted = kernel.choice.units * target.threads
    nest = reduce_nest(chain[-1].body)
    tile = [loop for loop in chain if loop.lanes or loop.copies > 1]
    if not nest or not tile or len(chain) == 1:
        _split_rows(kernel, chain, wanted)
        return
    packing = choose_panels(chain, nest, profile, target)
    if packing is not None:
        kernel.panels, kernel.panel_loops = packing.nodes, packing.loops
        kernel.transposed = packing.transposed
    _split_tiles(kernel, chain, tile, wanted, target)


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
    fixed = [loop for loop, b in zip(taken, blocks, strict=True) if b == 1]
    kernel.order = [loop for loop in chain if loop not in fixed]


def _split_tiles(
    kernel: Kernel, chain: list[Loop], tile: list[Loop], wanted: int, target: Target
) -> None:
    """Units are blocks of rows of tiles; a block of columns is used by all rows of its unit."""
    columns = next((loop for loop in tile if loop.lanes), tile[-1])
    shared = [n for n in kernel.panels if columns.range in n.ranges]
    if shared:
        batch = [loop for loop in chain if any(loop.range in n.ranges for n in shared)]
        batch.remove(columns)
    else:
        batch = [loop for loop in chain if loop not in tile]
    rows = [loop for loop in chain if loop is not columns and loop not in batch]
    rows.sort(key=lambda loop: loop in tile)
    blocks = dict.fromkeys(batch, 1)
    count = math.prod(loop.likely_size for loop in batch)
    blocks[columns] = _whole(columns)
    depth = math.prod(loop.likely_size for loop in kernel.panel_loops)
    if shared and count < wanted and depth >= DEPTH:
        blocks[columns], panels = _panels(columns, -(-wanted // count))
        count *= panels
        wanted = -(-wanted // FEWER)
    count *= _block_rows(kernel, rows, blocks, -(-wanted // count), target)
    if not shared and count < wanted:
        few = max(columns.likely_size * count // wanted, 2 * step(columns))
        blocks[columns] = _rounded(columns, few)
    partly = [loop for loop in (*rows, columns) if blocks[loop] < loop.likely_size]
    taken = [*batch, *partly]
    kernel.parallel = Parallel(taken, [blocks[loop] for loop in taken])
    kernel.order = [columns, *(loop for loop in rows if blocks[loop] > 1 or loop not in taken)]


def _panels(columns: Loop, wanted: int) -> tuple[int, int]:
    """Blocks of columns, and how many: filling a panel costs as much as several rows of tiles.

    So units share rows before they share columns: 1024 x 64 of a product rather than 64 x 1024,
    whose panels every unit would fill again (measured: 330 and 227 GFLOP/s).
    """
    passes = -(-columns.likely_size // step(columns))
    together = max(1, passes // wanted)
    return step(columns) * together, -(-passes // together)


def _block_rows(
    kernel: Kernel, rows: list[Loop], blocks: dict[Loop, int], wanted: int, target: Target
) -> int:
    """Blocks of the loops over rows: whole inner ones, as many outer iterations as a unit needs."""
    total = math.prod(loop.likely_size for loop in rows)
    depth = math.prod(loop.likely_size for loop in kernel.panel_loops) or 1
    fitting = int(target.l2_bytes * CACHED / (4 * depth))
    least = _rounded(rows[-1], LEAST) if rows else 1
    most = max(fitting, least, MANY if kernel.panels else 0)
    left = min(max(total // wanted, least), most)
    count = 1
    for loop in reversed(rows):
        blocks[loop] = _whole(loop) if loop.likely_size <= left else _evenly(loop, left)
        left = max(1, left // loop.likely_size)
        count *= -(-loop.likely_size // blocks[loop])
    return count


def _whole(loop: Loop) -> int:
    """A block that is the whole loop."""
    return -(-loop.likely_size // step(loop)) * step(loop)


def _rounded(loop: Loop, size: int) -> int:
    """A block of about that size: whole steps, at least one."""
    return max(1, size // step(loop)) * step(loop)


def _evenly(loop: Loop, about: int) -> int:
    """Blocks of about that size, whole steps, which leave no short one at the end."""
    blocks = -(-loop.likely_size // (about + step(loop) - 1))
    each = -(-loop.likely_size // blocks)
    return -(-each // step(loop)) * step(loop)


def step(loop: Loop) -> int:
    """How many iterations one pass of a loop is."""
    return (loop.lanes or 1) * loop.copies


def about(kernel: Kernel) -> str:
    """What a unit is, in words."""
    parallel = kernel.parallel
    if parallel.direct:
        return f"lo..hi of {_loop_name(parallel.loops[0])}"
    if not parallel.loops:
        return "one unit"
    parts = zip(parallel.loops, parallel.blocks, strict=True)
    return "a unit: " + ", ".join(f"{block} of {_loop_name(loop)}" for loop, block in parts)


def _loop_name(loop: Loop) -> str:
    return f"r{loop.range.arg[0]}" + ("" if loop.size is None else f" < {loop.size}")


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
