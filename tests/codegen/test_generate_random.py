"""Random kernel graphs: scalar code, vector code and the oracle agree."""

from __future__ import annotations

from typing import Any

from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import LOOP, REDUCE, at, check, f32, kernel, memory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp

SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 20])
BINARY = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN]


class Maker:
    """Draws one kernel."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.slots = 0
        self.dtype = draw(st.sampled_from([f32, f32, dtypes.int32, dtypes.int8]))

    def offset(self, ranges: list[UOp], sizes: list[int]) -> tuple[UOp, int, UOp | None]:
        """Some loops in some order, perhaps reversed, split, or shifted past the edge."""
        total: UOp = UOp.const(0, dtypes.weakint)
        count, valid = 1, None
        pairs = [p for p in zip(ranges, sizes, strict=True) if self.draw(st.booleans())]
        for loop, size in self.draw(st.permutations(pairs)):
            position, length = loop, size
            kind = self.draw(
                st.sampled_from(["plain", "plain", "flip", "shift", "quotient", "remainder"])
            )
            if kind == "flip":
                position = size - 1 - loop
            elif kind == "shift":
                by = self.draw(st.integers(1, 4))
                position = loop - by
                inside = UOp.const(-1, dtypes.weakint) < position
                valid = inside if valid is None else valid & inside
            elif kind == "quotient":
                position, length = loop // 3, (size + 2) // 3
            elif kind == "remainder":
                position, length = loop % 4, min(size, 4)
            total = total + position * count
            count *= length
        return total, count, valid

    def load(self, ranges: list[UOp], sizes: list[int]) -> UOp:
        """A load from memory of its own."""
        offset, count, valid = self.offset(ranges, sizes)
        self.slots += 1
        return at(memory(self.slots, count, self.dtype), offset, valid)

    def value(self, ranges: list[UOp], sizes: list[int], depth: int) -> UOp:
        """An expression over the loops, with reductions in it."""
        choice = self.draw(st.sampled_from(["load", "load", "binary", "binary", "reduce", "where"]))
        if depth == 0 or choice == "load":
            return self.load(ranges, sizes)
        if choice == "binary":
            op = self.draw(st.sampled_from(BINARY))
            sources = tuple(self.value(ranges, sizes, depth - 1) for _ in range(2))
            return UOp(op, self.dtype, sources)
        if choice == "where":
            x, y, z = (self.value(ranges, sizes, depth - 1) for _ in range(3))
            return UOp(Ops.WHERE, self.dtype, (UOp(Ops.CMPLT, dtypes.bool, (x, y)), y, z))
        size = self.draw(SIZES)
        self.loops += 1
        loop = UOp.range(size, self.loops, REDUCE)
        inner = self.value([*ranges, loop], [*sizes, size], depth - 1)
        op = self.draw(st.sampled_from([Ops.ADD, Ops.MAX, Ops.MIN]))
        return inner.reduce(loop, arg=op)

    def kernel(self) -> UOp:
        """A store over two loops."""
        sizes = [self.draw(SIZES) for _ in range(self.draw(st.integers(1, 2)))]
        self.loops = len(sizes)
        ranges = [UOp.range(size, i, LOOP) for i, size in enumerate(sizes)]
        value = self.value(ranges, sizes, 3)
        place: UOp = UOp.const(0, dtypes.weakint)
        count = 1
        for loop, size in self.draw(st.permutations(list(zip(ranges, sizes, strict=True)))):
            place, count = place + loop * count, count * size
        return kernel(at(memory(0, count, self.dtype), place).store(value).end(*ranges))


@st.composite
def kernels(draw: Any) -> UOp:
    """Kernels of loads, arithmetic and reductions."""
    return Maker(draw).kernel()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.integers(0, 1000))
def test_random_kernels(sink: UOp, seed: int) -> None:
    check(sink, seed=seed, targets=("scalar", "avx512", "avx2"), chunks=(1, 4))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_random_products(m: int, n: int, depth: int, flip_a: bool, flip_b: bool) -> None:
    sink = graphs.matmul(m, n, depth, dtypes.int32, 1, flip_a, flip_b)
    check(sink, targets=("avx512", "neon"))
