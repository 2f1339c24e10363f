"""ARGSORT of any values becomes ARGSORT of keys: unsigned ints of up to 32 bits, smallest first.

Before: ARGSORT(x, descending). After: ARGSORT(NOT(bits of x made monotone)). Keys of 64 bits are
sorted by half after half; the first few of many are searched in groups.
"""

from __future__ import annotations

import math

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import SortInfo, UOp

UINTS = {dtype.itemsize: dtype for dtype in dtypes.uints}
MANY = 1024  # elements from which on a few are not sorted for, but searched
FEW = 16  # elements for each one that is wanted, at least


def sort_by_keys(node: UOp) -> UOp | None:
    """An ARGSORT of values as one of keys; None where it is one."""
    source = node.src[0]
    if node.arg == SortInfo() and source.dtype in dtypes.uints and source.dtype.itemsize < 8:
        return None
    keys = _keys(source, node.arg.descending)
    count, size = node.arg.count, keys.shape[-1]
    if count is None:
        return _order(keys)
    if isinstance(size, int) and size >= max(MANY, FEW * count) and count:
        return _first_few(keys, count)
    return _order(keys)._narrow(keys.ndim - 1, 0, count)


def _keys(x: UOp, descending: bool) -> UOp:
    """Unsigned ints of the elements' width that are in order as the elements are.

    A float is its magnitude above or below that of 0, so that 0.0 and -0.0 are equal; any NaN is
    the largest.
    """
    unsigned = UINTS[x.dtype.itemsize]
    middle = 1 << (8 * unsigned.itemsize - 1)
    keys = x
    if x.dtype.kind == "bool":
        keys = x.cast(unsigned)
    elif x.dtype.kind == "int":
        keys = x.bitcast(unsigned).bitwise_xor(middle)
    elif x.dtype.kind == "float":
        bits = x.bitcast(unsigned)
        size = bits.bitwise_and(middle - 1)
        keys = (bits < middle).where(size + middle, size.sub(middle, reverse=True))
        keys = x.isnan().where(unsigned.max, keys)
    return keys.bitwise_not() if descending else keys


def _order(keys: UOp, count: int | None = None) -> UOp:
    """The numbers of keys in order; of 64 bits by the lower half first, then by the upper one."""
    if count is not None or keys.dtype.itemsize < 8:
        return keys._argsort(count=count)
    first = keys.cast(dtypes.uint32)._argsort()
    upper = keys.rshift(32).cast(dtypes.uint32).gather(-1, first)
    return first.gather(-1, upper._argsort())


def _first_few(keys: UOp, count: int) -> UOp:
    """The numbers of the first `count` keys: they are in the `count` groups with the first ones.

    A key in another group has that many groups before its own, each with a key that stands before
    it. Groups are as long as makes their number that of the keys that are left in the end.
    """
    axis, size = keys.ndim - 1, keys.shape[-1]
    width = math.isqrt(size // count)
    groups = -(-size // width)
    pairs = [(0, 0)] * axis + [(0, groups * width - size)]
    padded = keys._pad_constant(pairs, keys.dtype.max)  # the last of equal ones
    first = padded._reshaped((*keys.shape[:-1], groups, width))._reduced("MIN", (axis + 1,), False)
    chosen = _order(first, count)
    chosen = chosen.gather(-1, chosen.cast(dtypes.uint32)._argsort())
    within = chosen._iota_along(axis + 1, axis + 2, width)
    places = (
        chosen.unsqueeze(-1).mul(width).add(within)._reshaped((*keys.shape[:-1], count * width))
    )
    return places.gather(-1, _order(padded.gather(-1, places), count))
