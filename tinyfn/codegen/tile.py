"""How many copies of loop bodies are written out, and in which order the loops run.

For a contraction: a tile of accumulators in registers, MR rows by NV vectors, that lives across the
loops of the reduction. For sums: several accumulators. For elementwise work: a few vectors a pass.
Before: Loop(i, Loop(j lanes, Loop(k))). After: i has 8 copies, j 2; the body of k is 16 updates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tinyfn.codegen.cost import CACHED, Profile, Sheet
from tinyfn.codegen.loops import Block, Kernel, Loop, chain_of, reduce_nest
from tinyfn.device import Target
from tinyfn.uop.ops import Ops, UOp

Text = tuple[list[Loop], int]  # statements that depend on these loops

LARGEST = 400  # statements in one pass of a tile
LONG = 120  # statements of a body from which on it is not written again for what is left over
SHORT = 4  # iterations of loops that are written out completely
OWN = (1, 2, 3, 4)  # copies of the lane axis
WIDE = (1, 2, 3, 4, 6, 8, 12, 16)  # where rows are read one after the other, each far from the last
ROWS = (6, 5, 4, 3, 2)  # rows of a row kernel that share loads
COPIES = (1, 2, 3, 4, 5, 6, 7, 8)
WIDTH = 0.004  # what a copy more costs in text, so that copies that gain nothing are not made
APART = 0.01  # what twice the copies of a loop cost more that load from lines far apart
LEFT_OVER = 0.03  # what the code after a loop whose size copies do not divide costs


def choose_copies(kernel: Kernel, profile: Profile, target: Target) -> None:
    """Set `copies` of the loops of every nest."""
    _plan(kernel.body, profile, target, kernel)


def _loops(block: Block) -> list[Loop]:
    return [i for i in block.items if isinstance(i, Loop)]


def _plan(block: Block, profile: Profile, target: Target, kernel: Kernel) -> None:
    for loop in _loops(block):
        chain = chain_of(loop)
        payload = _loops(chain[-1].body) if chain else [loop]
        nest = reduce_nest(Block([*payload]))
        axis = next((loop for loop in (*chain, *nest) if loop.lanes), None)
        if axis is not None and (nest or not payload):
            _search(loop, axis, chain if nest else [], profile, target, kernel)
        if axis is not None and not nest and not payload:
            _whole_lines(loop, axis, chain, profile, kernel)
        if axis is not None and axis.size is not None and axis.size % axis.lanes:
            axis.masked = axis.copies == 1 and _statements(_sizes(loop, profile), {}) > LONG
        innermost = nest or chain or [loop]
        _plan(innermost[-1].body, profile, target, kernel)
        if chain and len(payload) > 1 and axis is None:
            _jam_rows(chain[-1], profile, target)


def _jam_rows(rows: Loop, profile: Profile, target: Target) -> None:
    """Where loops inside of rows load the same for all rows, let several rows share the loads."""
    inner = [loop for loop in profile.inside(rows) if loop is not rows]
    sharing = {
        axis
        for loop in inner
        for axis in profile.path[loop]
        if axis.lanes and axis is not rows and _same_for(rows, loop, profile)
    }
    if not sharing or not profile.may_be_copies(rows):
        return
    copies = {loop: loop.copies if loop in sharing else 1 for loop in inner}
    sizes = _sizes(rows, profile)
    counts = [c for c in ROWS if rows.likely_size % c == 0] or [c for c in ROWS if c <= 4]
    for count in counts:
        fits = _statements(sizes, {**copies, rows: count}) <= LARGEST // 2
        for axis in (loop for loop in inner if loop.lanes):
            totals, live = Sheet(profile, axis, axis, axis.lanes).registers(copies)
            fits = fits and totals * count + live + 2 <= target.registers
        if fits and count <= rows.likely_size:
            rows.copies = count
            for loop, own in copies.items():
                loop.copies = own
            return


def _same_for(rows: Loop, loop: Loop, profile: Profile) -> bool:
    """Whether a loop adds up products with loads that are the same for all rows."""
    groups = profile.groups[loop].values()
    loads = any(
        rows.range not in group.ranges and any(n.op is Ops.INDEX for n in group.nodes)
        for group in groups
    )
    return loads and any(group.updates for group in groups)


def _whole_lines(
    top: Loop, axis: Loop, chain: list[Loop], profile: Profile, kernel: Kernel
) -> None:
    """Where lanes are far apart in memory, take as many of their neighbours as there are lanes."""
    for group in profile.groups[chain[-1]].values():
        accesses = [n for n in group.nodes if n.op is Ops.INDEX]
        for index in (*accesses, *(s.src[0] for s in group.stores)):
            loop = _neighbours(index, axis, chain, profile)
            if loop is None or (loop.copies == 1 and kernel.turned):
                continue
            if loop.copies == 1:
                axis.copies = 1
                wanted = min(axis.lanes, loop.likely_size)
                loop.copies = _at_most(top, loop, wanted, profile)
            turns = loop.copies == axis.lanes and index.dtype.kind in ("float", "int", "uint")
            if turns and index in accesses and not profile.is_written(index):
                kernel.turned[index] = loop


def _neighbours(index: UOp, axis: Loop, chain: list[Loop], profile: Profile) -> Loop | None:
    """The loop along which an access with lanes far apart is contiguous."""
    if profile.stride(index, axis.range) in (None, 0, 1):
        return None
    return next((u for u in chain if u is not axis and profile.stride(index, u.range) == 1), None)


def _at_most(top: Loop, loop: Loop, wanted: int, profile: Profile) -> int:
    """As many copies as are wanted, or fewer where the text would become too long."""
    sizes = _sizes(top, profile)
    while wanted > 1 and _statements(sizes, {loop: wanted}) > LARGEST:
        wanted //= 2
    return wanted


def _sizes(top: Loop, profile: Profile) -> list[Text]:
    """How many statements depend on which loops."""
    return [
        (
            [p for p in profile.path[loop] if p.range in group.ranges],
            len(group.nodes) + len(group.updates) + len(group.stores),
        )
        for loop in profile.inside(top)
        for group in profile.groups[loop].values()
    ]


def _search(
    top: Loop, axis: Loop, chain: list[Loop], profile: Profile, target: Target, kernel: Kernel
) -> None:
    """Take the copies that cost least and fit into the registers, or those that were chosen."""
    sheet = Sheet(profile, top, axis, axis.lanes)
    sizes = _sizes(top, profile)
    priced: list[tuple[float, dict[Loop, int]]] = []
    packed = profile.loads_from_panels(top, axis)
    jammed = [
        loop
        for loop in chain
        if loop is not axis
        and _shares(loop, axis, profile)
        and not any(loop.range in node.ranges for node in packed)
    ]
    wide: tuple[int, ...] = OWN if jammed or not (chain and axis in chain) else WIDE
    if jammed and axis in chain:
        fitting = _fitting_panel(top, axis, profile, target)
        wide = tuple(own for own in wide if own <= fitting) if fitting >= 2 else wide
    jammed = _most_useful(jammed)
    far = {loop for loop in jammed if not profile.has_neighbours(loop)}
    for copies in _candidates(axis, wide, jammed, target.registers):
        several = math.prod(copies.values())
        if several > 1:
            totals, live = sheet.registers(copies)
            if totals > 1 and totals + live + 2 > target.registers:
                continue
            if _statements(sizes, copies) > LARGEST:
                continue
        left_over = sum(_vectors(loop) % count > 0 for loop, count in copies.items())
        apart = sum(math.log2(count) for loop, count in copies.items() if loop in far)
        more = WIDTH * several + LEFT_OVER * left_over + APART * apart
        cost = sheet.cost(copies) * (1 + more)
        priced.append((cost, copies))
    priced.sort(key=lambda pair: pair[0])
    place = min(kernel.choice.tile(len(kernel.offers)), len(priced) - 1)
    kernel.offers.append(len(priced))
    best = priced[place][1] if priced else {axis: 1}
    for loop, count in best.items():
        loop.copies = count
    _unroll(top, sizes, best, profile)


def _fitting_panel(top: Loop, axis: Loop, profile: Profile, target: Target) -> int:
    """How many vectors of columns, as deep as the sum is, fit into the cache as a panel."""
    inner = [loop for loop in profile.inside(top) if not loop.independent]
    depth = math.prod(loop.likely_size for loop in inner)
    return int(target.l2_bytes * CACHED / (4 * depth * axis.lanes))


def _unroll(top: Loop, sizes: list[Text], copies: dict[Loop, int], profile: Profile) -> None:
    """Write short innermost loops out: what depends on their counters becomes constant."""
    for loop in profile.inside(top):
        short = loop.size is not None and loop.size <= SHORT and not loop.lanes
        if not short or loop.independent or _loops(loop.body) or loop is top:
            continue
        if _statements(sizes, {**copies, loop: loop.size or 1}) <= LARGEST:
            loop.unrolled = True


def _shares(loop: Loop, axis: Loop, profile: Profile) -> bool:
    """Whether copies of a loop share loads, or are needed because the inner loops are short."""
    if not profile.may_be_lanes(loop):
        return False
    if not axis.independent and axis.likely_size < 8 * axis.lanes:
        return True
    return any(
        loop.range not in group.ranges and any(n.op is Ops.INDEX for n in group.nodes)
        for inner in profile.inside(loop)
        if inner is not loop
        for group in profile.groups[inner].values()
    )


def _vectors(loop: Loop) -> int:
    """How many vectors (or iterations) a loop has."""
    return -(-loop.likely_size // (loop.lanes or 1))


def _most_useful(loops: list[Loop]) -> list[Loop]:
    """The three loops to copy: the longest, and the innermost short one, a window's."""
    found = sorted(loops, key=lambda loop: -loop.likely_size)
    short = [loop for loop in loops if loop.likely_size <= SHORT]
    return [*found[:2], short[-1]] if short and short[-1] in found[2:] else found[:3]


def _candidates(
    axis: Loop, wide: tuple[int, ...], jammed: list[Loop], registers: int
) -> Iterator[dict[Loop, int]]:
    """Copies of the lane axis and of up to two other loops; of a third one if it is short."""
    limit = 1 << 30 if axis.size is None else _vectors(axis)
    whole = [loop for loop in jammed[2:] if loop.likely_size <= SHORT]
    for own in (c for c in wide if c <= limit):
        yield {axis: own}
        for count in range(1, min(len(jammed), 2) + 1):
            for loops in itertools.combinations(jammed, count):
                for copies in itertools.product(COPIES[1:], repeat=count):
                    fits = all(c <= loop.likely_size for loop, c in zip(loops, copies, strict=True))
                    if not fits or own * math.prod(copies) > registers:
                        continue
                    chosen = {axis: own, **dict(zip(loops, copies, strict=True))}
                    yield chosen
                    if count == 2 and whole and whole[0] not in chosen:
                        yield {**chosen, whole[0]: whole[0].likely_size}


def _statements(sizes: list[Text], copies: dict[Loop, int]) -> int:
    """How many statements one pass has."""
    return sum(count * math.prod(copies.get(loop, 1) for loop in loops) for loops, count in sizes)
