"""Which loop runs as lanes of vectors: one in every nest, the one that costs least.

Before: Loop(i, Loop(k)), loads a[i*n+k]. After: k has 16 lanes (stride 1). Loops that cannot be
lanes, because iterations depend on one another or meet in scratch, stay scalar.
"""

from __future__ import annotations

from tinyfn.codegen.cost import Profile
from tinyfn.codegen.loops import Block, Kernel, Loop
from tinyfn.device import Target


def choose_lanes(kernel: Kernel, profile: Profile, target: Target) -> None:
    """Set `lanes` of the loops that become vectors."""
    for loop in _loops(kernel.body):
        _cost, chosen = _best(loop, profile, target)
        for axis, lanes in chosen:
            axis.lanes = lanes


def _loops(block: Block) -> list[Loop]:
    return [i for i in block.items if isinstance(i, Loop)]


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
