"""Operands of a contraction copied into panels: contiguous scratch that every row of tiles reads.

Before: in the loops of a tile, b[j * K + k] for 32 lanes of j (a strided load each time). After:
once for every block of columns, panel[k * 32 + lane] = b[...]; the tile loads from the panel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tinyfn.codegen.cost import CACHED, FAR, WORTH_A_PANEL, Profile
from tinyfn.codegen.loops import Loop
from tinyfn.codegen.normalise import gate_of
from tinyfn.codegen.ops import register_bytes
from tinyfn.device import Target
from tinyfn.uop.ops import Ops, UOp, toposort


@dataclass
class Packing:
    """The panels of a kernel.

    `nodes` are kept in them; they are filled in `loops`; loads of the `transposed` ones are
    contiguous along one of these.
    """

    nodes: list[UOp] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    transposed: dict[UOp, Loop] = field(default_factory=dict)


def choose_panels(
    chain: list[Loop], nest: list[Loop], profile: Profile, target: Target
) -> Packing | None:
    """The panels that pay, for the loops of one contraction."""
    columns = next((loop for loop in chain if loop.lanes), None)
    if (
        columns is None
        or any(loop.size is None for loop in nest)
        or any(loop.lanes for loop in nest)
    ):
        return None
    found: dict[UOp, None] = {}
    for closing in nest[0].closings:
        for node in _operands(closing.node.src[0], columns, nest, chain):
            if worth_packing(node, columns, nest, profile):
                found[node] = None
    depth = math.prod(loop.size or 1 for loop in nest)
    width = columns.lanes * columns.copies
    size = sum(register_bytes(n.dtype) for n in found) * depth * width
    if not found or size > target.l2_bytes * CACHED:
        return None
    turned = {n: nest[-1] for n in found if _is_transposed(n, columns, nest[-1], profile)}
    return Packing(list(found), nest, turned)


def _is_transposed(node: UOp, columns: Loop, last: Loop, profile: Profile) -> bool:
    """Whether loads are contiguous along the reduction, and far apart along the columns."""
    if last.likely_size < columns.lanes:
        return False
    below = toposort([node], gate=lambda n: n.op not in (Ops.REDUCE, Ops.AFTER))
    accesses = [n for n in below if n.op is Ops.INDEX and columns.range in n.ranges]
    return bool(accesses) and all(
        profile.stride(n, last.range) == 1 and profile.stride(n, columns.range) not in (0, 1)
        for n in accesses
    )


def _operands(value: UOp, columns: Loop, nest: list[Loop], chain: list[Loop]) -> list[UOp]:
    """The largest parts of a value that rows of tiles have in common."""
    found: list[UOp] = []
    stack, seen = [value], set()
    while stack:
        node = stack.pop()
        if node in seen or node.op in (Ops.REDUCE, Ops.AFTER) or columns.range not in node.ranges:
            continue
        seen.add(node)
        kept = node.dtype.kind in ("float", "int", "uint")
        if kept and reuse(node, chain) >= WORTH_A_PANEL and is_shared(node, nest, chain):
            found.append(node)
        else:
            stack += node.src
    return found


def is_shared(node: UOp, nest: list[Loop], chain: list[Loop]) -> bool:
    """Whether a node varies along the reduction, and is the same for all copies of tile rows."""
    several = [loop for loop in chain if loop.copies > 1 and not loop.lanes]
    varies = any(loop.range in node.ranges for loop in nest)
    return varies and not any(loop.range in node.ranges for loop in several)


def reuse(node: UOp, chain: list[Loop]) -> int:
    """How many iterations use the same value of a node."""
    others = [loop for loop in chain if loop.range not in node.ranges and not loop.lanes]
    return math.prod(loop.likely_size for loop in others)


def worth_packing(node: UOp, columns: Loop, nest: list[Loop], profile: Profile) -> bool:
    """Whether loads from a panel are cheaper than the node itself."""
    below = toposort([node], gate=lambda n: n.op not in (Ops.REDUCE, Ops.AFTER))
    accesses = [n for n in below if n.op is Ops.INDEX]
    if not accesses or any(profile.is_written(n) for n in accesses):
        return False
    for access in accesses:
        if profile.stride(access, columns.range) not in (0, 1):
            return True
        rows = [profile.stride(access, loop.range) for loop in nest]
        far = any(r is None or abs(r) >= FAR for r in rows)
        if gate_of(access)[0] is not None or (far and nest[-1].likely_size >= 128):
            return True
    return len(below) - len(accesses) > 4
