"""Sums of what a contraction gives, over windows that overlap, become sums of the contraction.

The gradient of a convolution is a product for every place of every window, moved to where the
window was and summed. Before: sum over k of MOVED(sum over c of g[c, p] * w[c, k]). After: one sum
over k and c of MOVED(g[c, p]) * MOVED(w[c, k]): no value of the size of all windows is stored.
"""

from __future__ import annotations

from tinyfn.schedule.cut import elements, is_contraction
from tinyfn.schedule.indexing import same
from tinyfn.uop import opcodes
from tinyfn.uop.info import unpack
from tinyfn.uop.ops import Ops, UOp, toposort

MOST = 8  # how many times more products than before are still cheaper than storing them


def join_overlapping_sums(root: UOp) -> UOp:
    """The graph with such sums joined, from the innermost on."""
    order = toposort([root], enter_calls=False)
    uses: dict[UOp, int] = {}
    for node in order:
        for source in node.src:
            uses[source] = uses.get(source, 0) + 1
    done: dict[UOp, UOp] = {}
    single: set[UOp] = set()  # rewritten nodes with one user
    joined: set[UOp] = set()
    for node in order:
        new = node.with_src(tuple(done.get(s, s) for s in node.src))
        if new.op is Ops.REDUCE_AXIS or (new.op is Ops.SHRINK and joined):
            found = _joined(new, single, joined)
            if found is not None:
                new = found
        if uses.get(node) == 1:
            single.add(new)
        done[node] = new
    return done[root]


def _joined(node: UOp, single: set[UOp], joined: set[UOp]) -> UOp | None:
    """A sum (or a part) of a moved contraction as a contraction of what was moved."""
    chain: list[UOp] = [] if node.op is Ops.REDUCE_AXIS else [node]
    below = node.src[0]
    while below.op in opcodes.MOVEMENT or (below.op is Ops.CAST and _is_float(below)):
        if below not in single or below.op is Ops.EXPAND:
            return None
        chain.append(below)
        below = below.src[0]
    if below not in single or not is_contraction(below):
        return None
    if node.op is Ops.SHRINK:
        grown = elements(node) > elements(below)
        if below not in joined or grown or any(n.op is Ops.CAST for n in chain):
            return None
        axes: tuple[int, ...] = ()
        shape = node.shape
    else:
        overlapping = below in joined or any(n.op is Ops.PAD for n in chain)
        if node.arg.op is not Ops.ADD or not overlapping:
            return None
        axes, shape = node.arg.axes, node.src[0].shape
        if elements(node.src[0]) > MOST * elements(below):
            return None
    summed = below.arg.axes
    product, casts = below.src[0], []
    while product.op is Ops.CAST:
        casts.append(product.dtype)
        product = product.src[0]
    factors = _moved([_open(s, summed) for s in product.src], chain[::-1], len(summed))
    # the older sums outside: what they run over is farther apart in memory than a window
    count, more = len(shape), len(summed)
    order = (*range(count, count + more), *range(count))
    value = factors[0]._move("PERMUTE", order)._alu("MUL", factors[1]._move("PERMUTE", order))
    for dtype in reversed(casts):
        value = value.cast(dtype)
    found = value._reduce("ADD", (*range(more), *(a + more for a in axes)))
    joined.add(found)
    single.add(found)
    result = found._move("RESHAPE", node.shape)
    return result if result.dtype is node.dtype else result.cast(node.dtype)


def _is_float(node: UOp) -> bool:
    return bool(node.dtype.kind == "float" == node.src[0].dtype.kind)


def _open(value: UOp, summed: tuple[int, ...]) -> UOp:
    """The summed axes behind the others, whose places are of size 1."""
    shape = value.shape
    order = (*(a for a in range(len(shape)) if a not in summed), *summed)
    kept = tuple(1 if a in summed else s for a, s in enumerate(shape))
    moved = value._move("PERMUTE", order)
    return moved._move("RESHAPE", (*kept, *(shape[a] for a in summed)))


def _moved(factors: list[UOp], chain: list[UOp], more: int) -> list[UOp]:
    """The factors after the movements of a chain, which leave the last axes alone."""
    for node in chain:
        if node.op is Ops.CAST:
            continue
        if node.op is Ops.PAD:
            factors = _padded(factors, unpack(node.arg, node.src[1:]), more)
            continue
        tails = [f.shape[len(f.shape) - more :] for f in factors]
        factors = [_step(f, node, tail) for f, tail in zip(factors, tails, strict=True)]
    return factors


def _step(factor: UOp, node: UOp, tail: tuple[object, ...]) -> UOp:
    count = len(node.src[0].shape)
    if node.op is Ops.RESHAPE:
        return factor._move("RESHAPE", (*node.shape, *tail))
    if node.op is Ops.PERMUTE:
        return factor._move("PERMUTE", (*node.arg, *range(count, count + len(tail))))
    if node.op is Ops.FLIP:
        return factor._move("FLIP", node.arg)
    box = unpack(node.arg, node.src[1:])
    return factor._move("SHRINK", (*box, *(v for s in tail for v in (0, s))))


def _padded(factors: list[UOp], around: tuple[object, ...], more: int) -> list[UOp]:
    """Padding makes one factor 0; the other one is repeated, where it is the same all along."""
    for axis in range(len(around) // 2):
        before, after = around[2 * axis : 2 * axis + 2]
        if same(before, 0) and same(after, 0):
            continue
        size = factors[0].shape[axis] + before + after
        longer = [_repeated(f, axis, size) for f in factors]
        one: list[object] = [0] * (2 * len(factors[0].shape))
        one[2 * axis : 2 * axis + 2] = [before, after]
        zeros = [f._move("PAD", one) for f in factors]
        if longer[1] is not None:
            factors = [zeros[0], longer[1]]
        elif longer[0] is not None:
            factors = [longer[0], zeros[1]]
        else:
            factors = zeros
    return factors


def _repeated(value: UOp, axis: int, size: object) -> UOp | None:
    """A value with a longer axis, along which it is the same everywhere; None where it is not."""
    if same(value.shape[axis], 1):
        return value._move("EXPAND", _with(value.shape, axis, size))
    if value.op not in opcodes.MOVEMENT:
        return None
    source = value.src[0]
    if value.op is Ops.EXPAND:
        if same(source.shape[axis], 1):
            return source._move("EXPAND", _with(value.shape, axis, size))
        longer = _repeated(source, axis, size)
        return None if longer is None else longer._move("EXPAND", _with(value.shape, axis, size))
    if value.op is Ops.PERMUTE:
        longer = _repeated(source, value.arg[axis], size)
        return None if longer is None else longer._move("PERMUTE", value.arg)
    if value.op is Ops.RESHAPE:
        place = _same_axis(value.shape, axis, source.shape)
        longer = None if place is None else _repeated(source, place, size)
        return None if longer is None else longer._move("RESHAPE", _with(value.shape, axis, size))
    if value.op is Ops.FLIP:
        longer = _repeated(source, axis, size)
        return None if longer is None else longer._move("FLIP", value.arg)
    flat = list(unpack(value.arg, value.src[1:]))
    longer = _repeated(source, axis, size)
    whole = [0, size] if value.op is Ops.SHRINK else [0, 0]
    untouched = value.op is Ops.SHRINK or (same(flat[2 * axis], 0) and same(flat[2 * axis + 1], 0))
    if longer is None or not untouched:
        return None
    flat[2 * axis : 2 * axis + 2] = whole
    return longer._move(value.op.name, tuple(flat))


def _with(shape: tuple[object, ...], axis: int, size: object) -> tuple[object, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _same_axis(shape: tuple[object, ...], axis: int, before: tuple[object, ...]) -> int | None:
    """Where an axis stood before a reshape that left it alone."""
    tail = _product(shape[axis + 1 :])
    for place, size in enumerate(before):
        if same(size, shape[axis]) and same(_product(before[place + 1 :]), tail):
            return place
    return None


def _product(sizes: tuple[object, ...]) -> object:
    total: object = 1
    for size in sizes:
        total = size if total == 1 else total * size  # type: ignore[operator]
    return total
