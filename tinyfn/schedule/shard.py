"""Shard axes become per-slot work. Enters bodies: no (a precompiled body is sharded on its own).

Before: ADD(UNSHARD(a, 0), UNSHARD(b, 0)). After: ADD(a, b), meant once a slot. What needs all parts
(a reduction over the sharded axis, a reshape across it) becomes explicit copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.errors import ScheduleError
from tinyfn.uop import opcodes
from tinyfn.uop.info import pack, unpack
from tinyfn.uop.ops import Ops, UOp, toposort


class Sharding:
    """Each node of the graph as what one slot computes for it."""

    def __init__(self) -> None:
        self.local: dict[UOp, UOp] = {}
        self.gathered: dict[UOp, UOp] = {}

    def run(self, root: UOp) -> UOp:
        """The graph of one slot's work."""
        order = toposort([root], enter_calls=False)
        if not any(n.op in (Ops.UNSHARD, Ops.SHARD) for n in order):
            return root
        for node in order:
            handler = HANDLERS.get(node.op)
            if handler is not None:
                self.local[node] = handler(self, node)
            elif node.op is Ops.CALL:
                src = (node.src[0], *(self.local[s] for s in node.src[1:]))
                self.local[node] = node.with_src(src)
            else:
                self.local[node] = node.with_src(tuple(self.local[s] for s in node.src))
        return self.local[root]

    def whole(self, node: UOp) -> UOp:
        """The value on every slot: all parts copied and joined where it is sharded."""
        if node.axis is None:
            return self.local[node]
        if node not in self.gathered:
            self.gathered[node] = join_parts(self.local[node], node.axis, node.device)
        return self.gathered[node]

    def along(self, node: UOp, axis: int | None) -> UOp:
        """One slot's part along an axis (the whole where axis is None)."""
        if axis is None:
            return self.whole(node)
        if node.axis == axis or not node.shape:
            return self.local[node]
        count = len(self.local[node].device) if isinstance(node.device, tuple) else 1
        return _part_of_whole(self.whole(node), axis, node.shape[axis] // count)


def join_parts(parts: UOp, axis: int, device: Any) -> UOp:
    """Copy every slot's part to `device` and join them along the axis."""
    size, count = parts.shape[axis], len(parts.device)
    joined: UOp | None = None
    position = position_along(parts, axis, size * count)
    for i in range(count):
        part = parts.mselect(i).copy_to_device(device)
        around: list[Any] = [0] * (2 * len(parts.shape))
        around[2 * axis], around[2 * axis + 1] = size * i, size * (count - 1 - i)
        padded = part._move("PAD", around)
        if joined is None:
            joined = padded
        else:
            reached = UOp.const(size * i, dtypes.int32)._alu("CMPLE", position)
            joined = reached._alu("WHERE", padded, joined)
    assert joined is not None
    return joined


def position_along(parts: UOp, axis: int, total: int) -> UOp:
    """The index along one axis, in the shape of the joined value."""
    shape = [1] * len(parts.shape)
    shape[axis] = total
    full = tuple(total if a == axis else s for a, s in enumerate(parts.shape))
    return UOp._iota(total, dtypes.int32)._move("RESHAPE", shape)._move("EXPAND", full)


def _elementwise(state: Sharding, node: UOp) -> UOp:
    count = len(node.device) if isinstance(node.device, tuple) else 1
    if node.axis is None:
        return node.with_src(tuple(state.whole(s) for s in node.src))
    src = []
    for s in node.src:
        if s.axis == node.axis or not s.shape:
            src.append(state.local[s])
        else:
            src.append(_part_of_whole(state.whole(s), node.axis, node.shape[node.axis] // count))
    return node.with_src(tuple(src))


def _part_of_whole(whole: UOp, axis: int, size: int) -> UOp:
    box: list[Any] = []
    for a, s in enumerate(whole.shape):
        box += [UOp(Ops.SLOT, dtypes.weakint) * size, size] if a == axis else [0, s]
    return whole._move("SHRINK", box)


def _movement(state: Sharding, node: UOp) -> UOp:
    source = node.src[0]
    rest = tuple(state.local[s] for s in node.src[1:])
    if source.axis is None:
        return node.with_src((state.local[source], *rest))
    if node.axis is None:
        return node.with_src((state.whole(source), *rest))
    local = state.local[source]
    if node.op in (Ops.PERMUTE, Ops.FLIP, Ops.PAD):
        return node.with_src((local, *rest))
    sizes = list(unpack(node.arg, node.src[1:]))
    place = 2 * node.axis + 1 if node.op is Ops.SHRINK else node.axis
    sizes[place] = sizes[place] // len(node.device)
    packed, symbols = pack(sizes)
    return UOp(node.op, node.dtype, (local, *symbols), packed)


def _reduce(state: Sharding, node: UOp) -> UOp:
    source = node.src[0]
    part = node.with_src((state.local[source],))
    if source.axis is None or source.axis not in node.arg.axes:
        return part
    return part.allreduce(node.arg.op, source.device)


def _copy(state: Sharding, node: UOp) -> UOp:
    source = node.src[0]
    local = state.local[source]
    if not isinstance(source.device, tuple):
        return node.with_src((local,))
    if source.axis is None:
        return local.mselect(0).copy_to_device(node.arg)
    return join_parts(local, source.axis, node.arg)


def _shard(state: Sharding, node: UOp) -> UOp:
    source = node.src[0]
    count = len(node.device)
    if source.axis == node.arg:
        return state.local[source]
    if source.op is Ops.COPY and not isinstance(source.src[0].device, tuple):
        return _copy_parts(state.local[source.src[0]], node.arg, node.device)
    return _part_of_whole(state.whole(source), node.arg, source.shape[node.arg] // count)


def _copy_parts(whole: UOp, axis: int, devices: tuple[str, ...]) -> UOp:
    """Each slot gets a copy of its own part, not of all."""
    size = whole.shape[axis] // len(devices)
    parts = []
    for i in range(len(devices)):
        box: list[Any] = []
        for a, s in enumerate(whole.shape):
            box += [size * i, size] if a == axis else [0, s]
        parts.append(whole._move("SHRINK", box))
    return parts[0].mstack(*parts[1:]).copy_to_device(devices)


def _gather(state: Sharding, node: UOp) -> UOp:
    table, index = node.src
    keep_table = table.axis is not None and table.axis != node.arg
    chosen = state.whole(index) if keep_table else state.local[index]
    return node.with_src((state.local[table] if keep_table else state.whole(table), chosen))


def _scatter(state: Sharding, node: UOp) -> UOp:
    table, index, values = node.src
    count, axis = len(index.shape), node.arg.axis
    split = values.axis
    summed = node.arg.op is Ops.ADD and table.axis is None
    if summed and split is not None and axis <= split < axis + count:
        own = state.along(index, split - axis)
        zeros = UOp.const(0, node.dtype)._move("RESHAPE", (1,) * len(table.shape))
        zeros = zeros._move("EXPAND", table.shape)
        part = zeros._scatter("ADD", own, state.local[values], axis)
        return state.local[table]._alu("ADD", part.allreduce(Ops.ADD, values.device))
    return node.with_src((state.whole(table), state.whole(index), state.whole(values)))


def _scan(state: Sharding, node: UOp) -> UOp:
    return node.with_src(tuple(state.along(s, node.axis) for s in node.src))


def _argsort(state: Sharding, node: UOp) -> UOp:
    keys = node.src[0]
    split = keys.axis == len(keys.shape) - 1
    return node.with_src((state.whole(keys) if split else state.local[keys],))


def _store(state: Sharding, node: UOp) -> UOp:
    view, value = node.src[:2]
    base = view.base
    sharded_memory = any(n.op is Ops.UNSHARD for n in _chain(view))
    if view.axis is None and sharded_memory and isinstance(base.device, tuple):
        raise ScheduleError(
            "a slice along the sharded axis cannot be assigned; gather the tensor with "
            ".to(device) first, or assign along another axis"
        )
    rest = tuple(state.local[s] for s in node.src[2:])
    stored = state.along(value, view.axis) if value.shape else state.local[value]
    return node.with_src((state.local[view], stored, *rest))


def _chain(node: UOp) -> list[UOp]:
    found = []
    while node.op in opcodes.MOVEMENT or node.op in (Ops.UNSHARD, Ops.AFTER, Ops.DETACH):
        found.append(node)
        node = node.src[0]
    return found


HANDLERS: dict[Ops, Callable[[Sharding, UOp], UOp]] = {
    **dict.fromkeys(opcodes.ELEMENTWISE, _elementwise),
    **dict.fromkeys(opcodes.MOVEMENT, _movement),
    Ops.UNSHARD: lambda state, node: state.local[node.src[0]],
    Ops.SHARD: _shard,
    Ops.REDUCE_AXIS: _reduce,
    Ops.COPY: _copy,
    Ops.GATHER: _gather,
    Ops.SCATTER: _scatter,
    Ops.SCAN: _scan,
    Ops.ARGSORT: _argsort,
    Ops.STORE: _store,
}


def resolve_shards(root: UOp) -> UOp:
    """The graph with every sharded value as its per-slot part."""
    return Sharding().run(root)
