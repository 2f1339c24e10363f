"""Accumulators of reductions: where they begin, what is added, how they are combined in the end.

Before: REDUCE(x, k) with k in 4 copies of 16 lanes. After: four vectors that begin at 0, one vadd
each in the loop, and after it `vadd(vadd(acc0, acc1), vadd(acc2, acc3))`, then `hadd`.
"""

from __future__ import annotations

import itertools
from typing import Any

from tinyfn.codegen.access import Pick
from tinyfn.codegen.hoist import Value
from tinyfn.codegen.loops import Closing, Let
from tinyfn.codegen.normalise import gate_of
from tinyfn.codegen.ops import (
    COMBINE_BOOL,
    HORIZONTAL,
    HORIZONTAL_BOOL,
    SMALL,
    identity,
    op_name,
    register,
)
from tinyfn.codegen.values import Values
from tinyfn.uop.ops import Ops, UOp


class Accumulators:
    """The accumulators of the reductions that are open."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.writer = values.writer
        self.totals: dict[Any, Value] = {}

    def inner_picks(self, closing: Closing) -> list[Pick]:
        """The copies of a reduction's own loops, each with its accumulator."""
        loops = [loop for loop in closing.loops if loop.copies > 1 and not loop.unrolled]
        counts = [range(loop.copies) for loop in loops]
        return [
            dict(zip([loop.range for loop in loops], choice, strict=True))
            for choice in itertools.product(*counts)
        ]

    def key(self, node: UOp, pick: Pick) -> Any:
        """The accumulator of a choice of copies."""
        around = frozenset((r, i) for r, i in pick.items() if r in node.ranges)
        return (node, around, tuple(pick.get(r, 0) for r in node.src[1:]))

    def lanes_of(self, closing: Closing) -> tuple[int, bool]:
        """The lanes of the accumulators, and whether they are combined in the end."""
        own = max((loop.lanes for loop in closing.loops), default=0)
        if own:
            return own, True
        around = [
            c[0].lanes for r, c in self.values.coordinates.items() if r in closing.node.ranges
        ]
        return max(around, default=0), False

    def begin(self, closing: Closing) -> None:
        """Accumulators at what changes nothing."""
        node = closing.node
        lanes, _ = self.lanes_of(closing)
        kind = register(node.dtype)
        start = identity(node.arg, node.dtype)
        op = f"vconst_{kind}x{lanes}" if lanes else f"const_{kind}"
        inner = self.inner_picks(closing)
        for outer in self.values.picks(node.ranges):
            for pick in inner:
                name = self.writer.here("acc", op, start)
                self.totals[self.key(node, {**outer, **pick})] = Value(name, kind, lanes)

    def update(self, node: UOp, pick: Pick) -> None:
        """accumulator = accumulator op value."""
        total = self.totals[self.key(node, pick)]
        source = node.src[0]
        mask = self.values.mask_of(node.src[1:], pick)
        kind = register(node.dtype)
        fused = node.arg is Ops.ADD and source.op is Ops.MUL and kind in ("f32", "f64")
        if fused and source.dtype is node.dtype and source.dtype not in SMALL:
            args = [self.values.value(s, pick) for s in source.src]
            op, safe = "fma", all(self.zero_where_masked(s, node.src[1:]) for s in source.src)
        else:
            args = [self.values.cast_value(self.values.value(source, pick), kind)]
            op = COMBINE_BOOL[node.arg] if kind == "b1" else op_name(node.arg, kind)
            safe = node.arg is Ops.ADD and self.zero_where_masked(source, node.src[1:])
        args.append(total)
        name = f"{op}_{kind}"
        if total.lanes:
            args = [self.values.splat(a, total.lanes) for a in args]
            name = f"v{name}x{total.lanes}"
        names = tuple(a.name for a in args)
        if mask is None or safe:
            self.writer.add(Let(total.name, name, names))
            return
        new = self.writer.here("v", name, *names)
        where = f"vwhere_{kind}x{total.lanes}"
        self.writer.add(Let(total.name, where, (mask.name, new, total.name)))

    def zero_where_masked(self, node: UOp, loops: tuple[UOp, ...]) -> bool:
        """Whether the value is 0 in lanes that do not exist: a masked load along the lane axis."""
        while node.op is Ops.CAST and node.dtype.kind != "bool":
            node = node.src[0]
        lanes = [r for r in loops if (c := self.values.coordinates.get(r)) and c[0].lanes]
        return node.op is Ops.INDEX and all(r in gate_of(node)[1].ranges for r in lanes)

    def finish(self, closing: Closing) -> None:
        """Accumulators combined pairwise, lanes last; the result is the node's value."""
        node = closing.node
        _, combined = self.lanes_of(closing)
        inner = self.inner_picks(closing)
        for outer in self.values.picks(node.ranges):
            totals = [self.totals.pop(self.key(node, {**outer, **pick})) for pick in inner]
            while len(totals) > 1:
                totals = [self.combine(node, totals[i : i + 2]) for i in range(0, len(totals), 2)]
            result = totals[0]
            if combined:
                result = self.horizontal(node, result)
            if node.dtype in SMALL:
                result = self.values.rounded(result, node)
            self.writer.remember(self.values.key(node, outer), result)

    def combine(self, node: UOp, totals: list[Value]) -> Value:
        """Two accumulators as one."""
        if len(totals) == 1:
            return totals[0]
        x, y = totals
        op = COMBINE_BOOL[node.arg] if x.kind == "b1" else op_name(node.arg, x.kind)
        name = f"v{op}_{x.type}" if x.lanes else f"{op}_{x.type}"
        return Value(self.writer.here("v", name, x.name, y.name), x.kind, x.lanes)

    def horizontal(self, node: UOp, total: Value) -> Value:
        """The lanes of an accumulator combined."""
        if total.kind == "b1":
            name = f"{HORIZONTAL_BOOL[node.arg]}_x{total.lanes}"
            return Value(self.writer.here("m", name, total.name), "b1")
        name = f"{HORIZONTAL[node.arg]}_{total.type}"
        return Value(self.writer.here("v", name, total.name), total.kind)
