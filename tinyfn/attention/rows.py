"""Kernels whose units are blocks of rows: they walk over the keys that their rows see.

Before: softmax(q k^T) v. After: for a block of rows, tile after tile of keys: scores into scratch,
the running maximum and sum of each row, the output so far scaled to the new maximum (Milakov and
Gimelshein: Online normalizer calculation for softmax, 2018; Dao et al.: FlashAttention, 2022).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tinyfn.attention.problem import TILE, Problem
from tinyfn.attention.words import LOWEST, Operand, Scratch, Words, below, blocks
from tinyfn.dtype import dtypes
from tinyfn.uop.info import KernelInfo
from tinyfn.uop.ops import Ops, UOp


@dataclass
class RowBlock:
    """A unit: the heads and the block of rows it stands for, and the tile of keys it is at."""

    words: Words
    unit: tuple[UOp, ...]
    key_heads: tuple[Any, ...]
    heads: tuple[Any, ...]
    first: UOp
    tile: UOp
    count: UOp

    @staticmethod
    def of(words: Words) -> RowBlock:
        """The loops of the units, and the loop over tiles of keys up to the last that is seen."""
        problem = words.problem
        size = problem.row_block
        lead = tuple(words.loop(n) for n in problem.lead)
        group = words.loop(problem.groups)
        first = words.loop(blocks(problem.rows, size))
        heads = (*lead[:-1], lead[-1] * problem.groups + group) if lead else ()
        seen: Any = UOp.const(problem.keys, dtypes.weakint)
        if problem.causal:
            seen = (first * size + size).minimum(problem.keys)
        tile = words.serial((seen + (TILE - 1)) // TILE)
        count = (seen - tile * TILE).minimum(TILE)
        return RowBlock(words, (*lead, group, first), lead, heads, first, tile, count)

    def row(self, r: UOp) -> UOp:
        """The place of a row."""
        return self.first * self.words.problem.row_block + r

    def valid(self, r: UOp) -> UOp | None:
        """The condition that a row is one."""
        problem = self.words.problem
        return below(self.row(r), problem.rows, problem.row_block)

    def key(self, c: UOp) -> UOp:
        """The place of a key."""
        return self.tile * TILE + c

    def turned(self, operand: Operand, width: int, scale: float | None = None) -> Scratch:
        """The block's rows of an operand, rows along lanes."""

        def value(d: UOp, r: UOp) -> UOp:
            found = operand.at(*self.heads, self.row(r), d, valid=self.valid(r))
            return found if scale is None else found * scale

        block = self.words.scratch(width, self.words.problem.row_block)
        return self.words.filled(block, width, value, *self.unit)

    def each(self, operand: Operand) -> Scratch:
        """One number for each row of the block."""
        block = self.words.scratch(1, self.words.problem.row_block)
        r = self.words.loop(block.width)
        found = operand.at(*self.heads, self.row(r), valid=self.valid(r))
        return block.after(block.after(*self.unit).at(0, r).store(found).end(r))

    def mask(self, operand: Operand | None) -> Any:
        """Access to the mask's values of this tile.

        Those that differ from row to row are turned in scratch, since memory has a row's keys
        beside one another.
        """
        words, problem = self.words, self.words.problem
        if operand is None or problem.mask is None:
            return lambda c, r: None
        if problem.mask[-2] == 1:
            return lambda c, r: words.mask_value(operand, self.heads, 0, self.key(c))
        block = words.scratch(TILE, problem.row_block)
        c, r = words.loop(self.count), words.loop(block.width)
        row = self.row(r)
        found = words.mask_value(operand, self.heads, row, self.key(c), self.valid(r))
        if found.dtype is dtypes.bool:
            found = found.where(UOp.const(0.0, problem.inner), LOWEST)
        filled = block.after(block.at(c, r).store(found.cast(problem.inner)).end(c, r))
        if operand.memory.dtype is not dtypes.bool:
            return filled.at
        return lambda c, r: filled.at(c, r).ne(LOWEST)

    def product(self, keys: Any, block: Scratch, c: UOp, r: UOp, size: int) -> UOp:
        """The product of a key's numbers and a row's."""
        d = self.words.serial(size)
        found: UOp = (keys(c, d) * block.at(d, r)).reduce(d, arg=Ops.ADD)
        return found

    def tile_of(self, operand: Operand, size: int) -> Any:
        """Access to this tile's rows of keys or values."""

        def place(c: UOp) -> tuple[Any, ...]:
            return (*self.key_heads, self.key(c))

        return self.words.tile(operand, place, self.count, TILE, size)


@functools.lru_cache(maxsize=256)
def forward(problem: Problem) -> UOp:
    """The kernel of (output, log of the sum of e^score a row, queries, keys, values, mask)."""
    words = Words(problem)
    width, inner = problem.row_block, problem.inner
    output = words.operand(0, *problem.heads, problem.rows, problem.width)
    sums = words.operand(1, *problem.heads, problem.rows, dtype=inner)
    q, k, v, mask = operands(words, 2)
    block = RowBlock.of(words)
    unit, tile = block.unit, block.tile
    queries = block.turned(q, problem.size, problem.scale)
    total = words.filled(words.scratch(problem.width, width), problem.width, 0.0, *unit)
    top = words.filled(words.scratch(1, width), 1, LOWEST, *unit)
    weight = words.filled(words.scratch(1, width), 1, 0.0, *unit)
    # scores
    scores, faded = words.scratch(TILE, width), words.scratch(1, width)
    keys, masks = block.tile_of(k, problem.size), block.mask(mask)
    c, r = words.loop(block.count), words.loop(width)
    score = block.product(keys, queries, c, r, problem.size)
    score = words.masked(score, masks(c, r), block.row(r), block.key(c))
    scores = scores.after(scores.at(c, r).store(score).end(c, r))
    # the maximum so far; a row without any has 0, so that nothing is inf - inf
    r, c = words.loop(width), words.serial(block.count)
    old = top.after(tile).at(0, r)
    new = scores.at(c, r).reduce(c, arg=Ops.MAX).maximum(old)
    fade = (old - finite(new)).exp()
    moved = top.at(0, r).store(new).group(faded.at(0, r).store(fade)).end(r)
    # e^(score - maximum), and its sum
    r, c = words.loop(width), words.serial(block.count)
    power = (scores.at(c, r) - finite(top.after(moved).at(0, r))).exp()
    stored = scores.at(c, r).store(power).end(c)
    again = words.serial(block.count)
    more = scores.after(stored).at(again, r).reduce(again, arg=Ops.ADD)
    grown = weight.after(tile).at(0, r) * faded.after(moved).at(0, r) + more
    summed = weight.at(0, r).store(grown).end(r)
    # the output so far
    values = block.tile_of(v, problem.width)
    d, r, c = words.loop(problem.width), words.loop(width), words.serial(block.count)
    more = (values(c, d) * scores.after(summed).at(c, r)).reduce(c, arg=Ops.ADD)
    grown = total.after(tile).at(d, r) * faded.after(moved).at(0, r) + more
    tiles = total.at(d, r).store(grown).end(d, r).group(summed).end(tile)
    # rows that see nothing are 0
    r, d = words.loop(width), words.loop(problem.width)
    share = weight.after(tiles).at(0, r)
    found = share.ne(0).where(total.after(tiles).at(d, r) / share, 0.0)
    place = output.memory.index(*block.heads, block.row(r), d)
    written = store(place, found, block.valid(r)).end(r, d)
    r = words.loop(width)
    share = weight.after(tiles).at(0, r)
    found = share.ne(0).where(top.after(tiles).at(0, r) + share.log(), float("inf"))
    place = sums.memory.index(*block.heads, block.row(r))
    written = written.group(store(place, found, block.valid(r)).end(r))
    return written.end(*unit).sink(arg=KernelInfo("attention"))


@functools.lru_cache(maxsize=256)
def queries_backward(problem: Problem) -> UOp:
    """The kernel of the gradient of the queries.

    Its arguments: that gradient, queries, keys, values, mask, gradient of the output, log of the
    sums, product of each row's output with its gradient.
    """
    words = Words(problem)
    width = problem.row_block
    result = words.operand(0, *problem.heads, problem.rows, problem.size)
    q, k, v, mask = operands(words, 1)
    given, sums, dots = gradient_operands(words, 4 if mask is None else 5)
    block = RowBlock.of(words)
    queries = block.turned(q, problem.size, problem.scale)
    gradients = block.turned(given, problem.width)
    sum_block, dot_block = block.each(sums), block.each(dots)
    total = words.filled(words.scratch(problem.size, width), problem.size, 0.0, *block.unit)
    # the share of each key in the output of a row
    shares, slopes = words.scratch(TILE, width), words.scratch(TILE, width)
    keys, masks = block.tile_of(k, problem.size), block.mask(mask)
    c, r = words.loop(block.count), words.loop(width)
    score = block.product(keys, queries, c, r, problem.size)
    score = words.masked(score, masks(c, r), block.row(r), block.key(c))
    share = (score - sum_block.at(0, r)).exp()
    shares = shares.after(shares.at(c, r).store(share).end(c, r))
    # the gradients of scores
    values = block.tile_of(v, problem.width)
    c, r = words.loop(block.count), words.loop(width)
    slope = block.product(values, gradients, c, r, problem.width) - dot_block.at(0, r)
    done = slopes.at(c, r).store(shares.at(c, r) * slope).end(c, r)
    d, r, c = words.loop(problem.size), words.loop(width), words.serial(block.count)
    more = (keys(c, d) * slopes.after(done).at(c, r)).reduce(c, arg=Ops.ADD)
    tiles = total.at(d, r).store(total.after(block.tile).at(d, r) + more).end(d, r).end(block.tile)
    r, d = words.loop(width), words.loop(problem.size)
    found = total.after(tiles).at(d, r) * problem.scale
    place = result.memory.index(*block.heads, block.row(r), d)
    written = store(place, found, block.valid(r)).end(r, d)
    return written.end(*block.unit).sink(arg=KernelInfo("attention_queries_backward"))


def operands(words: Words, slot: int) -> tuple[Operand, Operand, Operand, Operand | None]:
    """Queries, keys, values and the mask, from a slot on."""
    problem = words.problem
    q = words.operand(slot, *problem.heads, problem.rows, problem.size)
    k = words.operand(slot + 1, *problem.lead, problem.keys, problem.size)
    v = words.operand(slot + 2, *problem.lead, problem.keys, problem.width)
    if problem.mask is None:
        return q, k, v, None
    return q, k, v, words.operand(slot + 3, *problem.mask, dtype=problem.mask_dtype)


def gradient_operands(words: Words, slot: int) -> tuple[Operand, Operand, Operand]:
    """What a gradient needs of the forward pass, from a slot on.

    The gradient of the output, and for each row the log of its sum and the product of its output
    with its gradient.
    """
    problem = words.problem
    given = words.operand(slot, *problem.heads, problem.rows, problem.width)
    each = (*problem.heads, problem.rows)
    sums = words.operand(slot + 1, *each, dtype=problem.inner)
    return given, sums, words.operand(slot + 2, *each, dtype=problem.inner)


def finite(top: UOp) -> UOp:
    """A maximum to subtract: 0 where there is none."""
    return top.ne(LOWEST).where(top, 0.0)


def store(place: UOp, value: UOp, valid: UOp | None) -> UOp:
    """A store where it is valid."""
    return place.store(value.cast(place.dtype), valid)
