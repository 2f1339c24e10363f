"""SCAN as a kernel: one pass along an axis, which holds what is running in scratch.

    lines side by side      the columns of a block are lanes, their running values a row of scratch
    lines one by one        a few rows at once, so that their additions do not wait for each other

Few long lines become pieces first: the pieces' own running values, a running value of the pieces,
and both combined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyfn.dtype import DType
from tinyfn.helpers import ceildiv, prod
from tinyfn.schedule.indexing import Index
from tinyfn.schedule.lower import Lowering
from tinyfn.uop.info import AddrSpace, AxisType, KernelInfo
from tinyfn.uop.ops import Ops, UOp

FIRST_SLOT = 1000  # scratch, away from the slots of parameters
COLUMNS = 256  # lines side by side of a unit of work
ROWS = 4  # lines one after the other of a unit of work
FEW = 16  # units that do not give every thread something to do
PIECE = 1024  # elements of a piece of a line, about
LONG = 1 << 15  # elements from which on few lines become pieces


def neutral(op: Ops, dtype: DType) -> Any:
    """What changes nothing: -0.0 of a sum, for 0.0 would make it of another -0.0."""
    if op in (Ops.ADD, Ops.FMA):
        return -0.0 if dtype.kind == "float" else 0
    return {Ops.MUL: 1, Ops.MAX: dtype.min, Ops.MIN: dtype.max}[op]


# *** pieces ***


def split_scan(node: UOp) -> UOp | None:
    """A SCAN of few long lines as one of pieces; None where it has work for all threads."""
    info, shape = node.arg, node.shape
    if info.op is Ops.FMA or not all(isinstance(s, int) for s in shape) or prod(shape) < LONG:
        return None
    size = shape[info.axis]
    if _units(node) >= FEW or size < 4 * PIECE:
        return None
    piece = next((p for p in range(2 * PIECE, PIECE // 2, -1) if size % p == 0), PIECE)
    pieces = ceildiv(size, piece)
    before, behind = shape[: info.axis], shape[info.axis + 1 :]
    value = neutral(info.op, node.dtype)
    around = _along(node, (0, pieces * piece - size))
    parts = node.src[0]._pad_constant(around, value)
    parts = parts._reshaped((*before, pieces, piece, *behind))
    name, axis = info.op.name, info.axis
    inner = parts._scan(name, axis + 1, info.reverse)
    ends = inner._narrow(axis + 1, 0 if info.reverse else piece - 1, 1)
    totals = ends._reshaped((*before, pieces, *behind))._scan(name, axis, info.reverse)
    earlier = totals._pad_constant(_along(node, (-1, 1) if info.reverse else (1, -1)), value)
    earlier = earlier._reshaped((*before, pieces, 1, *behind))._move("EXPAND", inner.shape)
    whole = earlier._alu(name, inner)._reshaped((*before, pieces * piece, *behind))
    found: UOp = whole._narrow(axis, 0, size)
    return found


def _along(node: UOp, pair: tuple[int, int]) -> list[tuple[int, int]]:
    return [pair if a == node.arg.axis else (0, 0) for a in range(len(node.shape))]


def _units(node: UOp) -> int:
    axis = node.arg.axis
    if prod(node.shape[axis + 1 :]) == 1:
        return int(prod(node.shape[:axis])) // ROWS
    *middle, last = node.shape[axis + 1 :]
    return int(prod(node.shape[:axis]) * prod(middle) * ceildiv(last, COLUMNS))


# *** the kernel ***


@dataclass
class _Lines:
    """The lines of a unit: where each is, and the loop over them (None: they are written out)."""

    before: Index
    behind: Index
    loop: UOp | None = None
    valid: UOp | None = None


def scan_kernel(node: UOp, low: Lowering) -> UOp:
    """The kernel that stores a SCAN."""
    result = low.places.temporary(node)
    low.parameter(result)
    info, size = node.arg, node.shape[node.arg.axis]
    outer = [low.loop(s) for s in node.shape[: info.axis]]
    if all(s == 1 for s in node.shape[info.axis + 1 :]):
        lines = _rows(node, low, outer)
    else:
        lines = [_columns(node, low, outer)]
    unit = [r for line in lines for i in (*line.before, *line.behind) for r in i.ranges]
    loop = lines[0].loop
    unit = [r for r in dict.fromkeys(unit) if r is not loop]
    width = 1 if loop is None else int(loop.src[0].arg)
    totals = [_started(node, low, FIRST_SLOT + i, width, unit) for i in range(len(lines))]
    step = _loop(low, size, AxisType.REDUCE)
    place = size - 1 - step if info.reverse else step
    effects: list[UOp] = []
    for total, line in zip(totals, lines, strict=True):
        running = total.index(0 if loop is None else loop)
        index = (*line.before, place, *line.behind)
        sources = [low.value(s, index, line.valid) for s in node.src]
        value = _combined(info.op, running, *sources)
        effects += [running.store(value), low.element(result, index, line.valid).store(value)]
    effect = effects[0].group(*effects[1:])
    effect = effect if loop is None else effect.end(loop)
    name = "_".join(["scan", *(str(s) for s in node.max_shape)])
    return effect.end(step).end(*unit).sink(arg=KernelInfo(name=name))


def _started(node: UOp, low: Lowering, slot: int, width: int, unit: list[UOp]) -> UOp:
    """Scratch for running values, at the start of every unit of work."""
    made = UOp.placeholder((width,), node.dtype, slot, AddrSpace.LOCAL).after(*unit)
    i = _loop(low, width)
    return made.after(made.index(i).store(neutral(node.arg.op, node.dtype)).end(i))


def _combined(op: Ops, running: UOp, element: UOp, factor: UOp | None = None) -> UOp:
    if factor is not None:
        return running._alu("MUL", factor)._alu("ADD", element)
    return running._alu(op.name, element)


def _rows(node: UOp, low: Lowering, outer: list[UOp]) -> list[_Lines]:
    """As many lines as are written out, next to each other along the last axis before."""
    behind = tuple(low.loop(1) for _ in node.shape[node.arg.axis + 1 :])
    count = node.shape[node.arg.axis - 1] if outer else 1
    several = ROWS
    while several > 1 and not (isinstance(count, int) and count % several == 0):
        several //= 2
    if several == 1:
        return [_Lines(tuple(outer), behind)]
    block = low.loop(count // several)
    return [_Lines((*outer[:-1], block * several + i), behind) for i in range(several)]


def _columns(node: UOp, low: Lowering, outer: list[UOp]) -> _Lines:
    """A block of lines side by side along the last axis."""
    *middle, last = node.shape[node.arg.axis + 1 :]
    behind = tuple(low.loop(s) for s in middle)
    if isinstance(last, int) and last <= COLUMNS:
        lane = _loop(low, last)
        return _Lines(tuple(outer), (*behind, lane), lane)
    block, lane = low.loop(_blocks(last)), _loop(low, COLUMNS)
    column = block * COLUMNS + lane
    whole = isinstance(last, int) and last % COLUMNS == 0
    return _Lines(tuple(outer), (*behind, column), lane, None if whole else column < last)


def _blocks(size: Any) -> Any:
    return ceildiv(size, COLUMNS) if isinstance(size, int) else (size + (COLUMNS - 1)) // COLUMNS


def _loop(low: Lowering, size: Any, kind: AxisType = AxisType.LOOP) -> UOp:
    made = UOp.range(size, low.counter, kind)
    low.counter += 1
    return made
