"""The kernel whose units are blocks of keys: it walks over the rows that see its keys.

Every unit adds up the gradients of its own keys and values, row after row and head after head, so
that no two units write the same and the order of additions does not depend on threads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tinyfn.attention.problem import TILE, Problem
from tinyfn.attention.rows import gradient_operands, operands, store
from tinyfn.attention.words import Operand, Scratch, Words, below, blocks
from tinyfn.dtype import dtypes
from tinyfn.uop.info import KernelInfo
from tinyfn.uop.ops import Ops, UOp


@dataclass
class KeyBlock:
    """A unit: the heads and the block of keys it stands for, the head and tile of rows it is at."""

    words: Words
    unit: tuple[UOp, ...]
    key_heads: tuple[Any, ...]
    heads: tuple[Any, ...]
    first: UOp
    walk: tuple[UOp, ...]
    begin: Any
    count: UOp

    @staticmethod
    def of(words: Words) -> KeyBlock:
        """The loops of the units, and those over heads and tiles of rows."""
        problem = words.problem
        lead = tuple(words.loop(n) for n in problem.lead)
        first = words.loop(blocks(problem.keys, problem.key_block))
        group = words.serial(problem.groups)
        heads = (*lead[:-1], lead[-1] * problem.groups + group) if lead else ()
        tiles = UOp.const(blocks(problem.rows, TILE), dtypes.weakint)
        before: Any = UOp.const(0, dtypes.weakint)
        if problem.causal:
            before = (first * problem.key_block // TILE).minimum(tiles)
        tile = words.serial(tiles - before)
        begin = (tile + before) * TILE
        count = (UOp.const(problem.rows, dtypes.weakint) - begin).minimum(TILE)
        return KeyBlock(words, (*lead, first), lead, heads, first, (group, tile), begin, count)

    def key(self, c: UOp) -> UOp:
        """The place of a key."""
        return self.first * self.words.problem.key_block + c

    def valid(self, c: UOp) -> UOp | None:
        """The condition that a key is one."""
        problem = self.words.problem
        return below(self.key(c), problem.keys, problem.key_block)

    def turned(self, operand: Operand, width: int, scale: float | None = None) -> Scratch:
        """The block's rows of an operand, keys along lanes."""

        def value(d: UOp, c: UOp) -> UOp:
            found = operand.at(*self.key_heads, self.key(c), d, valid=self.valid(c))
            return found if scale is None else found * scale

        block = self.words.scratch(width, self.words.problem.key_block)
        return self.words.filled(block, width, value, *self.unit)

    def tile_of(self, operand: Operand, size: int) -> Any:
        """Access to this tile's rows of queries or gradients."""

        def place(r: UOp) -> tuple[Any, ...]:
            return (*self.heads, self.begin + r)

        return self.words.tile(operand, place, self.count, TILE, size)

    def mask(self, operand: Operand | None, r: UOp, c: UOp) -> UOp | None:
        """The mask's value for a pair."""
        if operand is None:
            return None
        row = self.begin + r
        return self.words.mask_value(operand, self.heads, row, self.key(c), self.valid(c))

    def grown(self, total: Scratch, rows: Any, shares: Scratch, size: int) -> UOp:
        """The total with the tile's rows added, each times its share."""
        words = self.words
        d, c, r = words.loop(size), words.loop(total.width), words.serial(self.count)
        more = (rows(r, d) * shares.at(r, c)).reduce(r, arg=Ops.ADD)
        return total.at(d, c).store(total.after(*self.walk).at(d, c) + more).end(d, c)

    def written(
        self, result: Operand, total: Scratch, first: int, size: int, scale: float | None = None
    ) -> UOp:
        """The total stored where it belongs, from a column on."""
        c, d = self.words.loop(total.width), self.words.loop(size)
        found = total.at(d, c) if scale is None else total.at(d, c) * scale
        place = result.memory.index(*self.key_heads, self.key(c), d + first)
        return store(place, found, self.valid(c)).end(c, d)


@functools.lru_cache(maxsize=256)
def keys_backward(problem: Problem) -> UOp:
    """The kernel of the gradients of keys and values.

    Its arguments: gradients of the keys beside those of the values, queries, keys, values, mask,
    gradient of the output, log of the sums, product of each row's output with its gradient.
    """
    words = Words(problem)
    width = problem.key_block
    result = words.operand(0, *problem.lead, problem.keys, problem.size + problem.width)
    q, k, v, mask = operands(words, 1)
    given, sums, dots = gradient_operands(words, 4 if mask is None else 5)
    block = KeyBlock.of(words)
    keys = block.turned(k, problem.size, problem.scale)
    values = block.turned(v, problem.width)
    of_keys = words.filled(words.scratch(problem.size, width), problem.size, 0.0, *block.unit)
    of_values = words.filled(words.scratch(problem.width, width), problem.width, 0.0, *block.unit)
    queries, gradients = block.tile_of(q, problem.size), block.tile_of(given, problem.width)
    # the share of each key in the output of a row
    shares, slopes = words.scratch(TILE, width), words.scratch(TILE, width)
    r, c, d = words.loop(block.count), words.loop(width), words.serial(problem.size)
    score = (queries(r, d) * keys.at(d, c)).reduce(d, arg=Ops.ADD)
    score = words.masked(score, block.mask(mask, r, c), block.begin + r, block.key(c))
    share = (score - sums.at(*block.heads, block.begin + r)).exp()
    shares = shares.after(shares.at(r, c).store(share).end(r, c))
    # the gradients of scores
    r, c, d = words.loop(block.count), words.loop(width), words.serial(problem.width)
    slope = (gradients(r, d) * values.at(d, c)).reduce(d, arg=Ops.ADD)
    slope = slope - dots.at(*block.heads, block.begin + r)
    slopes = slopes.after(slopes.at(r, c).store(shares.at(r, c) * slope).end(r, c))
    first = block.grown(of_values, gradients, shares, problem.width)
    second = block.grown(of_keys, queries, slopes, problem.size)
    group, tile = block.walk
    walked = first.group(second).end(tile).end(group)
    written = block.written(result, of_keys.after(walked), 0, problem.size, problem.scale)
    width = problem.width
    other = block.written(result, of_values.after(walked), problem.size, width)
    return written.group(other).end(*block.unit).sink(arg=KernelInfo("attention_keys_backward"))
