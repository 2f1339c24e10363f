"""Index arithmetic in a loop: an integer that is a scalar, or differs from lane to lane.

A `Position` is base + lane * stride (+ a vector of integers, where it is not that regular).
Before: r0 * 64 + r1 // 2, r1 the vector axis. After: base `i0 * 64`, vector `i1 // 2 + lane // 2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyfn.codegen.hoist import Value, Writer
from tinyfn.codegen.loops import Binary, Sum, named, number


@dataclass(frozen=True)
class Position:
    """An integer in every lane: base + lane * stride + vector."""

    base: Sum
    stride: int = 0
    vector: Value | None = None
    lanes: int = 0

    @property
    def uniform(self) -> bool:
        """Whether every lane has the same integer."""
        return not self.stride and self.vector is None

    @property
    def linear(self) -> bool:
        """Whether it is base + lane * stride."""
        return self.vector is None


ZERO = Position(Sum())


class Arithmetic:
    """Operations on positions; what they need is written by the writer."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.multiple: dict[str, int] = {}  # loop counters that are multiples of a step
        self.full: set[str] = set()  # masks of all lanes
        self.empty: set[str] = set()  # and of none

    def add(self, x: Position, y: Position, factor: int = 1) -> Position:
        """x + factor * y."""
        if y.vector is None:
            vector = x.vector
        else:
            scaled = self._times(y.vector, factor)
            vector = scaled if x.vector is None else self._op("add", x.vector, scaled)
        lanes = x.lanes or y.lanes
        return Position(x.base.plus(y.base, factor), x.stride + y.stride * factor, vector, lanes)

    def times(self, x: Position, y: Position) -> Position:
        """x * y."""
        for one, other in ((x, y), (y, x)):
            if one.uniform and not one.base.terms:
                return self.add(ZERO, other, one.base.constant)
        if x.uniform and y.uniform:
            return self.scalar(Binary("*", self.short(x.base), self.short(y.base)))
        lanes = x.lanes or y.lanes
        product = self._op("mul", self.vector(x, lanes), self.vector(y, lanes))
        return Position(Sum(), 0, product, lanes)

    def divide(self, x: Position, size: int) -> Position:
        """floor(x / size) for a positive constant."""
        if x.uniform:
            return self.scalar(Binary("//", self.short(x.base), number(size)))
        if self._one_block(x, size):
            return self.divide(Position(x.base), size)
        if self.is_multiple(x.base, size):
            whole = self.divide(Position(x.base), size)
            lane = self._op("idiv", self._lane_part(x), self.constant(size, x.lanes))
            return Position(whole.base, 0, lane, x.lanes)
        vector = self._op("idiv", self.vector(x, x.lanes), self.constant(size, x.lanes))
        return Position(Sum(), 0, vector, x.lanes)

    def remainder(self, x: Position, size: int) -> Position:
        """x - floor(x / size) * size for a positive constant."""
        if x.uniform:
            return self.scalar(Binary("%", self.short(x.base), number(size)))
        if self._one_block(x, size):
            rest = self.remainder(Position(x.base), size)
            return Position(rest.base, x.stride, None, x.lanes)
        if self.is_multiple(x.base, size):
            lane = self._op("mod", self._lane_part(x), self.constant(size, x.lanes))
            return Position(Sum(), 0, lane, x.lanes)
        vector = self._op("mod", self.vector(x, x.lanes), self.constant(size, x.lanes))
        return Position(Sum(), 0, vector, x.lanes)

    def blocks(self, size: Sum, block: int, up: bool) -> Sum:
        """How many blocks there are in a size, the last broken one counted where `up`."""
        if block == 1:
            return size
        more = size.plus(number(block - 1 if up else 0))
        return self.scalar(Binary("//", self.short(more), number(block))).base

    def split(self, x: Sum, size: Sum) -> tuple[Sum, Sum]:
        """x // size and x % size."""
        found = [self.scalar(Binary(op, self.short(x), size)).base for op in ("//", "%")]
        return found[0], found[1]

    def scalar(self, value: Any) -> Position:
        """An integer expression under a name (a constant where both sides are known)."""
        known = fold(value) if isinstance(value, Binary) else None
        if known is not None:
            return Position(number(known))
        return Position(named(self.writer.integer(value)))

    def short(self, base: Sum) -> Sum:
        """A sum as one name and a constant."""
        return self.writer.offset(base)

    # *** lanes ***

    def _one_block(self, x: Position, size: int) -> bool:
        """Whether all lanes are in one block of `size`: aligned, consecutive, and it fits."""
        regular = x.stride == 1 and x.vector is None
        return regular and size % x.lanes == 0 and self.is_multiple(x.base, x.lanes)

    def is_multiple(self, base: Sum, size: int) -> bool:
        """Whether a sum is known to be a multiple of a size."""
        return base.constant % size == 0 and all(
            factor * self.multiple.get(name, 1) % size == 0 for name, factor in base.terms
        )

    def _lane_part(self, x: Position) -> Value:
        return self.vector(Position(Sum(), x.stride, x.vector, x.lanes), x.lanes)

    def _op(self, op: str, x: Value, y: Value) -> Value:
        name = self.writer.let("v", f"v{op}_i64x{x.lanes}", x.name, y.name)
        return Value(name, "i64", x.lanes)

    def _times(self, x: Value, factor: int) -> Value:
        return x if factor == 1 else self._op("mul", x, self.constant(factor, x.lanes))

    def constant(self, value: int, lanes: int) -> Value:
        """The same integer in every lane."""
        return Value(self.writer.let("v", f"vconst_i64x{lanes}", value), "i64", lanes)

    def value(self, base: Sum, kind: str = "i64") -> Value:
        """A uniform integer as a scalar register."""
        if not base.terms and kind == "i64":
            return Value(self.writer.let("v", "const_i64", base.constant), "i64")
        return Value(self.writer.let("v", f"index_{kind}", self.short(base)), kind)

    def vector(self, x: Position, lanes: int) -> Value:
        """The integers of all lanes as a vector."""
        found = x.vector
        if x.stride:
            iota = Value(self.writer.let("v", f"viota_i64x{lanes}"), "i64", lanes)
            steps = self._times(iota, x.stride)
            found = steps if found is None else self._op("add", found, steps)
        if found is None and not x.base.terms:
            return self.constant(x.base.constant, lanes)
        if x.base.terms or x.base.constant:
            scalar = self.value(x.base)
            name = self.writer.let("v", f"vsplat_i64x{lanes}", scalar.name)
            splat = Value(name, "i64", lanes)
            found = splat if found is None else self._op("add", found, splat)
        assert found is not None
        return found


def fold(value: Binary) -> int | None:
    """The integer that an expression of constants is; None where it has names."""
    if not isinstance(value.left, Sum) or not isinstance(value.right, Sum):
        return None
    if value.left.terms or value.right.terms:
        return None
    x, y = value.left.constant, value.right.constant
    table = {"*": x * y, "min": min(x, y), "max": max(x, y)}
    if value.op in table:
        return table[value.op]
    return (x // y if value.op == "//" else x % y) if y else 0
