"""What follows from a node: shape, device, sharded axis, ranges, bounds. One rule table each.

Rules look at sources whose values are known already; `derived` walks the graph without recursion,
so that chains of any length work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from tinyfn.dtype import Invalid, dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.info import unpack
from tinyfn.uop.opcodes import Ops

Rule = Callable[[Any], Any]


def derived(slot: str, rule: Rule) -> property:
    """A property computed once a node by `rule`, sources first, kept in the attribute `slot`."""

    def get(node: Any) -> Any:
        try:
            return getattr(node, slot)
        except AttributeError:
            pass
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [s for s in top.src if not hasattr(s, slot)]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if not hasattr(top, slot):
                object.__setattr__(top, slot, rule(top))
        return getattr(node, slot)

    return property(get)


# *** shape ***


def _shape_first(node: Any) -> Any:
    return node.src[0].shape


def _shape_none(_node: Any) -> Any:
    return None


def _shape_scalar(_node: Any) -> Any:
    return ()


def _shape_elementwise(node: Any) -> Any:
    for source in node.src:
        if source.shape:
            return source.shape
    return node.src[0].shape


def _shape_index(node: Any) -> Any:
    shape = node.src[0].shape
    return shape[len(node.src) - 1 :] if shape is not None else ()


def _shape_reduce_axis(node: Any) -> Any:
    return tuple(1 if i in node.arg.axes else s for i, s in enumerate(node.src[0].shape))


def _shape_pad(node: Any) -> Any:
    sizes = unpack(node.arg, node.src[1:])
    return tuple(
        s if isinstance(before, int) and before == after == 0 else _known(s + before + after)
        for s, before, after in zip(node.src[0].shape, sizes[::2], sizes[1::2], strict=True)
    )


def _known(size: Any) -> Any:
    """A size as an int where its variables have cancelled."""
    return size if isinstance(size, int) or size.op is not Ops.CONST else int(size.arg)


def _shape_flip(node: Any) -> Any:
    return node.src[0].shape


def _shape_unshard(node: Any) -> Any:
    count = len(node.src[0].device)
    return tuple(s * count if i == node.arg else s for i, s in enumerate(node.src[0].shape))


def _shape_shard(node: Any) -> Any:
    count = len(node.src[0].device)
    return tuple(s // count if i == node.arg else s for i, s in enumerate(node.src[0].shape))


def _shape_gather(node: Any) -> Any:
    shape, index = node.src[0].shape, node.src[1].shape
    return (*shape[: node.arg], *index, *shape[node.arg + 1 :])


def _shape_argsort(node: Any) -> Any:
    *lead, size = node.src[0].shape
    return (*lead, size if node.arg.count is None else node.arg.count)


def _shape_info(node: Any) -> Any:
    return unpack(node.arg.shape, node.src)


SHAPE: dict[Ops, Rule] = {
    Ops.CONST: _shape_scalar,
    Ops.VARIABLE: _shape_scalar,
    Ops.BIND: _shape_scalar,
    Ops.RANGE: _shape_scalar,
    Ops.SLOT: _shape_scalar,
    Ops.BUFFER: lambda node: node.arg.shape,
    Ops.FULL: lambda node: unpack(node.arg.shape, node.src[1:]),
    Ops.IOTA: lambda node: unpack(node.arg, node.src),
    Ops.PARAM: _shape_info,
    Ops.OUTPUT: _shape_info,
    Ops.RESHAPE: lambda node: unpack(node.arg, node.src[1:]),
    Ops.EXPAND: lambda node: unpack(node.arg, node.src[1:]),
    Ops.PERMUTE: lambda node: tuple(node.src[0].shape[i] for i in node.arg),
    Ops.PAD: _shape_pad,
    Ops.SHRINK: lambda node: unpack(node.arg, node.src[1:])[1::2],
    Ops.FLIP: _shape_flip,
    Ops.REDUCE_AXIS: _shape_reduce_axis,
    Ops.GATHER: _shape_gather,
    Ops.ARGSORT: _shape_argsort,
    Ops.INDEX: _shape_index,
    Ops.UNSHARD: _shape_unshard,
    Ops.SHARD: _shape_shard,
    Ops.GETTUPLE: lambda node: node.src[0].src[node.arg].shape,
    **dict.fromkeys(opcodes.ELEMENTWISE, _shape_elementwise),
    **dict.fromkeys(
        (
            *(Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.COPY, Ops.AFTER),
            *(Ops.SCATTER, Ops.SCAN, Ops.MSELECT, Ops.MSTACK, Ops.ALLREDUCE, Ops.LOAD),
            Ops.REDUCE,
        ),
        _shape_first,
    ),
    **dict.fromkeys(
        (
            *(Ops.STORE, Ops.CALL, Ops.TUPLE, Ops.END, Ops.GROUP, Ops.SINK, Ops.LINEAR),
            *(Ops.PROGRAM, Ops.SOURCE, Ops.BINARY),
        ),
        _shape_none,
    ),
}

# *** device ***


def _device_common(node: Any) -> Any:
    for source in node.src:
        if source.device is not None:
            return source.device
    return None


def _device_info(node: Any) -> Any:
    return node.arg.device


DEVICE: dict[Ops, Rule] = {
    **dict.fromkeys(Ops, _device_common),
    **dict.fromkeys((Ops.BUFFER, Ops.FULL, Ops.PARAM, Ops.OUTPUT), _device_info),
    Ops.COPY: lambda node: node.arg,
    Ops.ALLREDUCE: lambda node: node.arg[1],
    Ops.AFTER: lambda node: node.src[0].device,
    Ops.MSELECT: lambda node: node.src[0].device[node.arg],
    Ops.MSTACK: lambda node: tuple(source.device for source in node.src),
    Ops.GETTUPLE: lambda node: node.src[0].src[node.arg].device,
}

# *** axis along which a tensor is sharded over its slots ***


def _axis_common(node: Any) -> Any:
    """The first operand's; those sharded in another way are gathered and cut again."""
    for source in node.src:
        if source.axis is not None:
            return source.axis
    return None


def _axis_first(node: Any) -> Any:
    return node.src[0].axis


def _axis_none(_node: Any) -> Any:
    return None


def _axis_reshape(node: Any) -> Any:
    axis = node.src[0].axis
    return None if axis is None else reshaped_axis(node.src[0].shape, node.shape, axis, node.device)


def reshaped_axis(before: Any, after: Any, axis: int, device: Any) -> int | None:
    """The axis of `after` that begins where `axis` of `before` begins; None where none fits."""
    count = len(device)
    done = _product(before[:axis])
    running: Any = 1
    for i, size in enumerate(after):
        if running is done or running == done:
            if isinstance(size, int) and size % count == 0 and size > 1:
                return i
            if size != 1:
                return None
        running = running * size
    return None


def _product(sizes: Any) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


def _axis_permute(node: Any) -> Any:
    axis = node.src[0].axis
    return None if axis is None else node.arg.index(axis)


def _axis_reduce(node: Any) -> Any:
    axis = node.src[0].axis
    return None if axis in node.arg.axes else axis


def _axis_box(node: Any) -> Any:
    """Cutting or padding along the sharded axis gathers the parts first."""
    axis = node.src[0].axis
    return axis if axis is not None and node.shape[axis] is node.src[0].shape[axis] else None


def _axis_flip(node: Any) -> Any:
    axis = node.src[0].axis
    return None if axis in node.arg else axis


def _axis_gather(node: Any) -> Any:
    table, index = node.src[0].axis, node.src[1].axis
    if table is None or table == node.arg:
        return None if index is None else index + node.arg
    return table if table < node.arg else table + len(node.src[1].shape) - 1


def _axis_scan(node: Any) -> Any:
    """Lines stay where they are; what several slots share is gathered."""
    axes = [s.axis for s in node.src if s.axis is not None]
    return axes[0] if axes and axes[0] != node.arg.axis else None


def _axis_argsort(node: Any) -> Any:
    """Rows stay where they are; one that several slots share is gathered."""
    axis = node.src[0].axis
    return None if axis == len(node.shape) - 1 else axis


AXIS: dict[Ops, Rule] = {
    **dict.fromkeys(Ops, _axis_none),
    **dict.fromkeys(opcodes.ELEMENTWISE, _axis_common),
    **dict.fromkeys(
        (Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD, Ops.AFTER, Ops.EXPAND),
        _axis_first,
    ),
    Ops.UNSHARD: lambda node: node.arg,
    Ops.RESHAPE: _axis_reshape,
    Ops.PERMUTE: _axis_permute,
    Ops.REDUCE_AXIS: _axis_reduce,
    Ops.SHRINK: _axis_box,
    Ops.PAD: _axis_box,
    Ops.FLIP: _axis_flip,
    Ops.GATHER: _axis_gather,
    Ops.SCATTER: _axis_none,
    Ops.SCAN: _axis_scan,
    Ops.ARGSORT: _axis_argsort,
    Ops.GETTUPLE: lambda node: node.src[0].src[node.arg].axis,
}

# *** ranges a kernel node depends on, in the order of their numbers ***

_NO_RANGES: dict[Any, None] = {}


def ranges_of(node: Any) -> dict[Any, None]:
    """The loops inside which the node stands (a dict used as an ordered set)."""
    if node.op is Ops.RANGE:
        inner = dict(node.src[0].ranges) if node.src else {}
        return {**inner, node: None}
    if not node.src or node.op in (Ops.CALL, Ops.SINK):
        return _NO_RANGES
    found: dict[Any, None] = {}
    for source in node.src:
        if source.ranges:
            found = {**found, **source.ranges} if found else source.ranges
    if node.op in (Ops.REDUCE, Ops.END):
        closed = set(node.src[1:])
        found = {r: None for r in found if r not in closed}
    elif node.op is Ops.AFTER:
        found = {**node.src[0].ranges, **{r: None for s in node.src[1:] for r in s.ranges}}
    return found


# *** bounds of integers ***


def bounds_of(node: Any) -> tuple[Any, Any]:
    """Lowest and highest value the node can have (the dtype's own where nothing is known)."""
    rule = BOUNDS.get(node.op)
    if rule is not None and node.dtype.kind in ("weakint", "bool", "int", "uint"):
        found: tuple[Any, Any] | None = rule(node)
        if found is not None and _fits(node, found):
            return found
    if node.op is Ops.CONST and node.arg is not Invalid:
        return node.arg, node.arg
    if node.dtype is dtypes.void:
        return 0, 0
    return node.dtype.min, node.dtype.max


def _fits(node: Any, found: tuple[Any, Any]) -> bool:
    return bool(node.dtype.min <= found[0] and found[1] <= node.dtype.max)


def _corners(node: Any, combine: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    found = [combine(x, y) for x in (a, b) for y in (c, d)]
    return min(found), max(found)


def _bounds_idiv(node: Any) -> Any:
    low, high = node.src[1].bounds
    return _corners(node, lambda x, y: x // y) if low > 0 and low == high else None


def _bounds_mod(node: Any) -> Any:
    low, high = node.src[1].bounds
    if low <= 0 or low != high:
        return None
    first, last = node.src[0].bounds
    return (first % low, last % low) if first // low == last // low else (0, low - 1)


def _bounds_compare(node: Any) -> Any:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    if node.src[0].dtype.kind == "float":
        return None
    if node.op is Ops.CMPLT:
        return (b < c, a < d)
    if node.op is Ops.CMPLE:
        return (b <= c, a <= d)
    apart, same = (b < c or d < a), (a == b == c == d)
    return (same, not apart) if node.op is Ops.CMPEQ else (apart, not same)


def _bounds_where(node: Any) -> Any:
    choices = [s for s in node.src[1:] if not (s.op is Ops.CONST and s.arg is Invalid)]
    if not choices:
        return None
    return min(s.bounds[0] for s in choices), max(s.bounds[1] for s in choices)


BOUNDS: dict[Ops, Rule] = {
    Ops.RANGE: lambda node: (0, max(node.src[0].bounds[1] - 1, 0)),
    Ops.VARIABLE: lambda node: (node.arg.low, node.arg.high),
    Ops.BIND: lambda node: node.src[0].bounds,
    Ops.SLOT: lambda node: (0, 63),
    Ops.ADD: lambda node: tuple(
        x + y for x, y in zip(node.src[0].bounds, node.src[1].bounds, strict=True)
    ),
    Ops.SUB: lambda node: (
        node.src[0].bounds[0] - node.src[1].bounds[1],
        node.src[0].bounds[1] - node.src[1].bounds[0],
    ),
    Ops.MUL: lambda node: _corners(node, lambda x, y: x * y),
    Ops.NEG: lambda node: (-node.src[0].bounds[1], -node.src[0].bounds[0]),
    Ops.MAX: lambda node: _corners(node, max),
    Ops.MIN: lambda node: _corners(node, min),
    Ops.IDIV: _bounds_idiv,
    Ops.MOD: _bounds_mod,
    Ops.CMPLT: _bounds_compare,
    Ops.CMPLE: _bounds_compare,
    Ops.CMPEQ: _bounds_compare,
    Ops.CMPNE: _bounds_compare,
    Ops.WHERE: _bounds_where,
    Ops.CAST: lambda node: node.src[0].bounds if node.src[0].dtype.kind != "float" else None,
}

# *** what a graph is, whoever built it ***


def structural_key(node: Any) -> bytes:
    """A digest of the graph below the node; sources have theirs already."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{node.op.name} {node.dtype.name} {node.arg!r}".encode())
    for source in node.src:
        digest.update(source.key)
    return digest.digest()
