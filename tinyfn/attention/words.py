"""Words for attention's kernels: numbered loops, scratch of two axes, operands, tiles of scores.

A unit of work has a block of rows (or of keys) as its lanes: what is one number for each of them,
the maximum and the sum of a softmax, is a vector, and nothing is reduced across lanes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tinyfn.attention.problem import Problem
from tinyfn.dtype import DType, Invalid, dtypes
from tinyfn.uop.info import AddrSpace, AxisType
from tinyfn.uop.ops import Ops, UOp

FIRST_SLOT = 1000  # scratch, away from the slots of operands
INVALID = UOp.const(Invalid, dtypes.weakint)
LOWEST = float("-inf")


@dataclass(frozen=True)
class Scratch:
    """A matrix on the stack of a kernel."""

    memory: UOp
    width: int

    def at(self, row: Any, column: Any) -> UOp:
        """One element."""
        return self.memory.index(row * self.width + column)

    def after(self, *effects: UOp) -> Scratch:
        """The matrix once something has run."""
        return Scratch(self.memory.after(*effects), self.width)


@dataclass(frozen=True)
class Operand:
    """A parameter of a kernel: (*lead, rows, columns), or (*lead, rows)."""

    memory: UOp
    inner: DType

    def at(self, *place: Any, valid: UOp | None = None) -> UOp:
        """One element in the dtype to compute in; 0 where it is not valid."""
        if valid is not None:
            *lead, last = place
            gated = UOp(Ops.WHERE, dtypes.weakint, (valid, last, INVALID))
            place = (*lead, gated)
        return self.memory.index(*place).cast(self.inner)


@dataclass
class Words:
    """The numbers that loops and scratch of one kernel have got so far."""

    problem: Problem
    numbers: Any = field(default_factory=itertools.count)
    slots: Any = field(default_factory=lambda: itertools.count(FIRST_SLOT))

    def loop(self, size: Any) -> UOp:
        """A loop whose iterations are independent."""
        return UOp.range(size, next(self.numbers), AxisType.LOOP)

    def serial(self, size: Any) -> UOp:
        """A loop of a sum, or one whose iterations follow one another."""
        return UOp.range(size, next(self.numbers), AxisType.REDUCE)

    def scratch(self, height: int, width: int) -> Scratch:
        """A matrix of contents that are undefined at first."""
        slot, dtype = next(self.slots), self.problem.inner
        memory = UOp.placeholder((height * width,), dtype, slot, AddrSpace.LOCAL)
        return Scratch(memory, width)

    def operand(self, slot: int, *shape: int, dtype: DType | None = None) -> Operand:
        """A parameter of the kernel."""
        memory = UOp.placeholder(shape, dtype or self.problem.dtype, slot)
        return Operand(memory, self.problem.inner)

    def filled(self, scratch: Scratch, height: int, value: Any, *unit: UOp) -> Scratch:
        """The scratch with value(row, column) everywhere, anew in every iteration of `unit`."""
        i, j = self.loop(height), self.loop(scratch.width)
        found = value(i, j) if callable(value) else value
        return scratch.after(scratch.after(*unit).at(i, j).store(found).end(i, j))

    def tile(self, operand: Operand, place: Any, count: UOp, height: int, size: int) -> Any:
        """Access to rows of an operand that all lanes read: place(i) is where row i is.

        Small floats are converted once, into scratch; others are read from where they are.
        """
        if operand.memory.dtype is self.problem.inner:
            return lambda i, d: operand.at(*place(i), d)
        copied = self.scratch(height, size)
        i, d = self.loop(count), self.loop(size)
        done = copied.at(i, d).store(operand.at(*place(i), d)).end(i, d)
        return copied.after(done).at

    def mask_value(self, mask: Operand, heads: Any, row: Any, key: Any, valid: Any = None) -> UOp:
        """What the mask has for a pair: added to the score, or whether the score counts."""
        assert self.problem.mask is not None
        pairs = zip((*heads, row, key), self.problem.mask, strict=True)
        *lead, last = (0 if size == 1 else index for index, size in pairs)
        if valid is not None:
            last = UOp(Ops.WHERE, dtypes.weakint, (valid, self.index(last), INVALID))
        return mask.memory.index(*lead, last)

    @staticmethod
    def index(value: Any) -> UOp:
        """A node for an index."""
        return value if isinstance(value, UOp) else UOp.const(value, dtypes.weakint)

    def masked(self, score: UOp, mask: UOp | None, row: UOp, key: UOp) -> UOp:
        """A score with causality and the mask's value applied; `row` and `key` are its place."""
        if self.problem.causal:
            score = (key <= row).where(score, LOWEST)
        if mask is None:
            return score
        if mask.dtype is dtypes.bool:
            return mask.where(score, LOWEST)
        return score + mask.cast(self.problem.inner)


def blocks(count: int, size: int) -> int:
    """How many blocks hold that many."""
    return -(-count // size)


def below(index: UOp, limit: int, size: int) -> UOp | None:
    """The condition that an index in blocks of a size is below a limit; None where all are."""
    return index < limit if limit % size else None
