"""Reductions with few results become two: fixed pieces that threads share, then what they come to.

The pieces do not depend on the number of threads, so neither do results.
"""

from __future__ import annotations

from tinyfn.dtype import dtypes
from tinyfn.helpers import prod
from tinyfn.schedule.cut import elements, is_contraction
from tinyfn.schedule.graph import is_memory
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp

FEW = 16  # results that do not give every thread something to do
CHUNK = 16384  # elements of a piece, about
PIECES = 16  # of a matrix whose columns are reduced
NARROW = 1024  # columns up to which a long matrix is cut into pieces
LONG = 4096  # rows of such a matrix, at least
LARGE = 1 << 18  # and elements
WIDE = 256  # columns that a row is made of, by taking rows together
DEEP = 4096  # products of a sum from which on it is taken in parts
DEPTH = 2048  # products of a part, at most about
SHALLOW = 256  # and at least: fewer would cost more to store than to add up at once
MOST = 1 << 23  # results of all parts
DEEPEST = 200  # nodes that are looked through


def split_reduction(node: UOp) -> UOp | None:
    """Few results of many elements as two reductions; None where one is as well."""
    source = node.src[0]
    if not all(isinstance(s, int) for s in source.shape):
        return None
    if is_contraction(node):
        return _in_depths(node)
    total = prod(source.shape[a] for a in node.arg.axes)
    work = _work_below(source)
    wide = [a for a in node.arg.axes if source.shape[a] > 1]
    if elements(node) > FEW or not work:
        pieces = _in_pieces(node, total)
        if pieces is not None or elements(node) > FEW:
            return pieces
    if work and len(wide) > 1:
        return _rows_first(node, wide)
    if total * max(work, 1) >= 2 * CHUNK:
        return _in_chunks(node, total, max(1, CHUNK // max(work, 1)))
    return None


def _work_below(source: UOp) -> int:
    """How many elements the reductions below a value take for each of its elements."""
    found = 0
    stack = [source]
    seen: set[UOp] = set()
    while stack and len(seen) < DEEPEST:
        node = stack.pop()
        if node in seen or is_memory(node) or node.op is Ops.CONTIGUOUS:
            continue
        seen.add(node)
        if node.op is Ops.REDUCE_AXIS:
            if elements(node) > FEW:
                found = max(found, elements(node.src[0]) // elements(source))
        elif node.op in opcodes.ELEMENTWISE:
            stack += node.src
        elif node.op in opcodes.MOVEMENT:
            stack.append(node.src[0])
    return found


def _rows_first(node: UOp, wide: list[int]) -> UOp:
    """A sum over rows whose elements need sums of the row: the row's own sum, then all rows'.

    Before: sum(f(x, max(x, 1))) of shape (n, m). After: sum(sum(f(...), 1), 0).
    """
    inner = node.src[0]._reduce(node.arg.op.name, (wide[-1],))
    reduced: UOp = inner._reduce(node.arg.op.name, tuple(wide[:-1]))
    return reduced._move("RESHAPE", node.shape)


def _in_depths(node: UOp) -> UOp | None:
    """A long sum of products as sums of parts whose panels fit into the caches, and their sum.

    Before: sum(g * x, (0, 1, 2)) of shape (64, 20, 20, ...), a filter's gradient. After:
    sum(CONTIGUOUS(sum(g * x as (16, 4, 20, 20, ...), (1, 2, 3))), 0).
    """
    source, axes = node.src[0], node.arg.axes
    total = prod(source.shape[a] for a in axes)
    first = next((a for a in sorted(axes) if source.shape[a] > 1), None)
    if first is None or total <= DEEP:
        return None
    size = source.shape[first]
    inner = total // size
    fitting = [n for n in range(1, min(size, DEPTH // inner + 1)) if size % n == 0]
    together = max(fitting, default=1)
    pieces = size // together
    if pieces < 2 or inner * together < SHALLOW or pieces * elements(node) > MOST:
        return None
    shape = (*source.shape[:first], pieces, together, *source.shape[first + 1 :])
    order = (first, *(a for a in range(len(shape)) if a != first))
    own = tuple(a + 1 for a in axes)  # the axis in parts has become two, the first of them in front
    parts = _moved(source, shape, order)._reduce(node.arg.op.name, own)
    return parts.contiguous()._reduce(node.arg.op.name, (0,))._move("RESHAPE", node.shape)


def _moved(product: UOp, shape: tuple[int, ...], order: tuple[int, ...]) -> UOp:
    """A product whose factors are reshaped and permuted, so that it still is seen as one."""
    if product.op is Ops.CAST or product.op is Ops.MUL:
        return product.replace(src=tuple(_moved(s, shape, order) for s in product.src))
    return product._move("RESHAPE", shape)._move("PERMUTE", order)


def _in_chunks(node: UOp, total: int, about: int) -> UOp:
    """Before: sum(x) of shape (n,). After: sum(CONTIGUOUS(sum(x as (n / c, c), 1)), 0)."""
    source, axes = node.src[0], node.arg.axes
    order = (*(a for a in range(len(source.shape)) if a not in axes), *axes)
    kept = tuple(source.shape[a] for a in order[: len(order) - len(axes)])
    flat = source._move("PERMUTE", order)._move("RESHAPE", (*kept, total))
    chunk = _chunk(total, about)
    padded = -(-total // chunk) * chunk
    if padded != total:
        flat = _padded(flat, node.arg.op, padded)
    parts = flat._move("RESHAPE", (*kept, padded // chunk, chunk))
    first = parts._reduce(node.arg.op.name, (len(kept) + 1,)).contiguous()
    return first._reduce(node.arg.op.name, (len(kept),))._move("RESHAPE", node.shape)


def _in_pieces(node: UOp, rows: int) -> UOp | None:
    """Columns of a long matrix: some rows as one wider row, pieces of them, and what is left over.

    Before: sum(x, 0) of shape (n, 3). After:
    sum(CONTIGUOUS(sum(x as (16, n / 16 / 85, 85 * 3), 1)) as (16 * 85, 3), 0).
    """
    source, axes = node.src[0], node.arg.axes
    kept = [a for a, s in enumerate(source.shape) if a not in axes and s != 1]
    columns = prod(source.shape[a] for a in kept)
    if not kept or max(axes) > min(kept) or columns > NARROW:
        return None
    if rows < LONG or rows * columns < LARGE:
        return None
    together = max(1, WIDE // columns)
    unit = PIECES * together
    name = node.arg.op.name
    flat = source._move("RESHAPE", (rows, columns))
    whole = rows // unit * unit
    head = flat if whole == rows else flat._move("SHRINK", (0, whole, 0, columns))
    parts = head._move("RESHAPE", (PIECES, whole // unit, together * columns))
    first = parts._reduce(name, (1,)).contiguous()
    result = first._move("RESHAPE", (unit, columns))._reduce(name, (0,))
    if whole != rows:
        rest = flat._move("SHRINK", (whole, rows - whole, 0, columns))._reduce(name, (0,))
        result = result._alu(name, rest)
    return result._move("RESHAPE", node.shape)


def _chunk(total: int, about: int) -> int:
    """A divisor of the length near a size, else the size; less than what is split again."""
    for size in range(2 * about - 1, about // 4, -1):
        if total % size == 0:
            return size
    return about


def _padded(flat: UOp, op: Ops, size: int) -> UOp:
    """The last axis filled up with what changes nothing."""
    length = flat.shape[-1]
    around = [0] * (2 * len(flat.shape) - 1) + [size - length]
    padded = flat._move("PAD", around)
    if op is Ops.ADD:
        return padded
    low, high = flat.dtype.min, flat.dtype.max
    identity = {Ops.MUL: 1, Ops.MAX: low, Ops.MIN: high}[op]
    shape = [1] * (len(flat.shape) - 1) + [size]
    position = UOp._iota(size, dtypes.int32)._move("RESHAPE", shape)
    inside = position._move("EXPAND", padded.shape)._alu("CMPLT", UOp.const(length, dtypes.int32))
    return inside._alu("WHERE", padded, UOp.const(identity, flat.dtype))
