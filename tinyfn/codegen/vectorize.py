"""Which loop runs as lanes of vectors: one in every nest, the one that costs least.

Before: Loop(i, Loop(k)), loads a[i*n+k]. After: k has 16 lanes (stride 1). Loops that cannot be
lanes, because iterations depend on one another or meet in scratch, stay scalar.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tinyfn.codegen.cost import Profile, Sheet, units
from tinyfn.codegen.loops import Block, Kernel, Loop, chain_of, reduce_nest
from tinyfn.device import Target

TILES = ((1, 1), (1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 6))  # vectors by rows that are tried


def choose_lanes(kernel: Kernel, profile: Profile, target: Target) -> None:
    """Set `lanes` of the loops that become vectors."""
    for loop in _loops(kernel.body):
        chosen = _of_contraction(loop, profile, target)
        if chosen is None:
            _cost, chosen = _best(loop, profile, target)
        for axis, lanes in chosen:
            axis.lanes = lanes


def _loops(block: Block) -> list[Loop]:
    return [i for i in block.items if isinstance(i, Loop)]


def _of_contraction(top: Loop, profile: Profile, target: Target) -> list[tuple[Loop, int]] | None:
    """The axis of a sum of products in two loops or more: by what its tiles would cost.

    Without tiles one load an update would hide what the tiles leave over: lanes without an element.
    """
    chain = chain_of(top)
    nest = reduce_nest(chain[-1].body) if len(chain) > 1 else []
    if not nest or not profile.has_only_vector_types(top):
        return None
    priced: list[tuple[float, int, Loop, int]] = []
    for place, axis in enumerate((*chain, *nest)):
        if profile.may_be_lanes(axis):
            lanes = profile.lanes(axis, target.vector_bytes)
            sheet = Sheet(profile, top, axis, lanes)
            tiles = _tiles(axis, chain, sheet, target)
            priced.append((min(map(sheet.cost, tiles)), place, axis, lanes))
    return [min(priced)[2:]] if priced else None


def _tiles(
    axis: Loop, chain: list[Loop], sheet: Sheet, target: Target
) -> Iterator[dict[Loop, int]]:
    """Tiles of an axis and one of the two longest other loops that fit into the registers."""
    others = sorted(
        (loop for loop in chain if loop is not axis), key=lambda loop: -loop.likely_size
    )
    # lanes of a sum leave the tile to two other loops
    pairs = [(axis, other) for other in others[:2]] if axis in chain else [tuple(others[:2])]
    yield {axis: 1}
    for (first, second), (own, rows) in itertools.product(pairs, TILES):
        if own <= units(first, axis, sheet.lanes) and rows <= units(second, axis, sheet.lanes):
            totals, live = sheet.registers({first: own, second: rows})
            if totals + live + 2 <= target.registers:
                yield {first: own, second: rows}


def _best(loop: Loop, profile: Profile, target: Target) -> tuple[float, list[tuple[Loop, int]]]:
    """The least cost of a loop (for one pass of those around it) and the axes to choose for it."""
    outside = profile.cost(loop, None, 1, {})
    chosen: list[tuple[Loop, int]] = []
    size = loop.likely_size
    for inner in _loops(loop.body):
        cost, axes = _best(inner, profile, target)
        outside += size * (cost - profile.cost(inner, None, 1, {}))
        chosen += axes
    if not profile.may_be_lanes(loop) or not profile.has_only_vector_types(loop):
        return outside, chosen
    lanes = profile.lanes(loop, target.vector_bytes)
    cost = profile.cost(loop, loop, lanes, {})
    if cost < outside:
        return cost, [(loop, lanes)]
    return outside, chosen
