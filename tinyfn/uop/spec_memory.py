"""Rules of nodes about memory, devices, calls and the loops of kernels."""

from __future__ import annotations

from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.info import AddrSpace, AxisType, unpack
from tinyfn.uop.opcodes import Ops
from tinyfn.uop.rewrite import toposort
from tinyfn.uop.spec_values import REDUCERS, Rule, first, rule, same_sizes

Node = Any
INTEGERS = ("int", "uint", "weakint")
STORED_INTO = (Ops.BUFFER, Ops.PARAM, Ops.OUTPUT, Ops.INDEX, Ops.CONTIGUOUS, Ops.COPY, Ops.MSTACK)
EFFECTS = (Ops.STORE, Ops.CALL, Ops.END, Ops.GROUP)

# *** memory ***


@rule(Ops.BUFFER)
def buffer_is_plain(node: Node) -> str | None:
    """A buffer has whole sizes that are known, and a dtype that memory can hold."""
    if node.dtype in (dtypes.void, dtypes.weakint):
        return f"got {node.dtype}"
    return first(
        f"got size {s!r}"
        for s in node.arg.shape
        if not isinstance(s, int) or isinstance(s, bool) or s < 0
    )


@rule(Ops.STORE)
def store_has_place(node: Node) -> str | None:
    """A store writes memory: a buffer or parameter, seen through movement."""
    place = node.src[0]
    while place.op in opcodes.MOVEMENT or place.op in (
        *(Ops.AFTER, Ops.DETACH, Ops.UNSHARD, Ops.MSELECT),
    ):
        place = place.src[0]
    return None if place.op in STORED_INTO else f"got {place.op.name}"


@rule(Ops.STORE)
def store_fits(node: Node) -> str | None:
    """A stored value has the dtype of its place, and its shape or none; a gate is bool."""
    if len(node.src) not in (2, 3):
        return f"expected a place, a value and at most a gate, got {len(node.src)} sources"
    place, value = node.src[:2]
    if value.dtype is not place.dtype:
        return f"got {value.dtype} for a place of {place.dtype}"
    if value.shape is None or (value.shape and not same_sizes(value.shape, place.shape)):
        return f"got shape {value.shape} for a place of shape {place.shape}"
    return first(f"got a gate of {g.dtype}" for g in node.src[2:] if g.dtype is not dtypes.bool)


@rule(Ops.AFTER)
def after_waits(node: Node) -> str | None:
    """AFTER is a value, and what it waits for are effects: stores, calls, ended loops."""
    if node.src[0].shape is None:
        return f"got {node.src[0].op.name} as its value"
    if len(node.src) < 2:
        return "it waits for nothing"
    allowed = (*EFFECTS, Ops.AFTER, Ops.RANGE)
    return first(f"got {s.op.name}" for s in node.src[1:] if s.op not in allowed)


@rule(Ops.AFTER)
def output_has_call(node: Node) -> str | None:
    """An output waits for the one call that gives it, and is among that call's outputs."""
    place = node.src[0]
    while place.op in opcodes.MOVEMENT or place.op is Ops.UNSHARD:
        place = place.src[0]
    if place.op is not Ops.OUTPUT:
        return None
    calls = [s for s in node.src[1:] if s.op is Ops.CALL]
    if len(calls) != 1:
        return f"got {len(calls)} calls"
    body = calls[0].src[0]
    count = len(body.src) if body.op is Ops.TUPLE else 1
    return None if 0 <= place.arg.slot < count else f"got output {place.arg.slot} of {count}"


# *** devices ***


@rule(*opcodes.ELEMENTWISE, Ops.GATHER, Ops.SCATTER, Ops.STORE)
def one_device(node: Node) -> str | None:
    """What a node combines lives in one place."""
    devices = dict.fromkeys(s.device for s in node.src if s.device is not None)
    return f"got {' and '.join(map(str, devices))}" if len(devices) > 1 else None


@rule(Ops.UNSHARD, Ops.SHARD, Ops.MSELECT, Ops.ALLREDUCE)
def slots_have_parts(node: Node) -> str | None:
    """What combines or chooses parts takes a value on several slots that has no sharded axis."""
    source = node.src[0]
    if not isinstance(source.device, tuple):
        return f"got device {source.device}"
    if node.op is not Ops.SHARD and source.axis is not None:
        return f"got a value sharded along axis {source.axis}"
    count = len(source.device)
    if node.op is Ops.MSELECT and not 0 <= node.arg < count:
        return f"got slot {node.arg} of {count}"
    if node.op is Ops.ALLREDUCE and node.arg[0] not in REDUCERS:
        return f"got the op {node.arg[0]}"
    return None


@rule(Ops.UNSHARD, Ops.SHARD)
def axis_is_there(node: Node) -> str | None:
    """A value is sharded along an axis that it has, in parts of equal size."""
    shape, count = node.src[0].shape, len(node.src[0].device)
    if not 0 <= node.arg < len(shape):
        return f"got axis {node.arg} of shape {shape}"
    size = shape[node.arg]
    divides = node.op is Ops.UNSHARD or (isinstance(size, int) and size % count == 0)
    return None if divides else f"{count} slots do not divide a size of {size}"


@rule(Ops.MSTACK)
def stacked_alike(node: Node) -> str | None:
    """The parts that are stacked live on one slot each, with one shape and dtype."""
    several = first(f"got device {s.device}" for s in node.src if isinstance(s.device, tuple))
    shape = node.src[0].shape
    return several or first(
        f"got {s.dtype} of shape {s.shape} beside {node.dtype} of shape {shape}"
        for s in node.src
        if s.dtype is not node.dtype or not same_sizes(s.shape, shape)
    )


# *** calls and variables ***


@rule(Ops.CALL)
def call_has_arguments(node: Node) -> str | None:
    """A call has a body, and an argument of the right dtype and size for each parameter in it."""
    if not node.src or node.src[0].op not in (Ops.TUPLE, Ops.SINK, Ops.PROGRAM):
        return "it has no body (a TUPLE of values, a SINK of stores, or a PROGRAM)"
    body, arguments = node.src[0], node.src[1:]
    if body.op is Ops.PROGRAM:
        return None
    scratch = (AddrSpace.LOCAL, AddrSpace.REG)
    for param in toposort([body], enter_calls=False):
        if param.op is not Ops.PARAM or param.arg.addrspace in scratch:
            continue
        slot = param.arg.slot
        if slot >= len(arguments):
            return f"got {len(arguments)} arguments for parameter {slot}"
        given = arguments[slot]
        if given.dtype is not param.dtype:
            return f"got {given.dtype} for parameter {slot} of {param.dtype}"
        known = all(isinstance(s, int) for s in (*given.shard_shape, *param.shape))
        if body.op is Ops.TUPLE and known and given.shard_shape != param.shape:
            return f"got shape {given.shard_shape} for parameter {slot} of shape {param.shape}"
    return None


@rule(Ops.BIND)
def bound_in_range(node: Node) -> str | None:
    """A bound variable has a value between its bounds."""
    variable, value = node.src
    if variable.op is not Ops.VARIABLE or value.op is not Ops.CONST:
        return f"got {variable.op.name} bound to {value.op.name}"
    low, high = variable.arg.low, variable.arg.high
    return None if low <= value.arg <= high else f"got {value.arg} outside of {low} to {high}"


@rule(Ops.GETTUPLE)
def tuple_has_value(node: Node) -> str | None:
    """A value is taken out of a tuple that has it."""
    source = node.src[0]
    if source.op is not Ops.TUPLE or not 0 <= node.arg < len(source.src):
        return f"got number {node.arg} of a {source.op.name} of {len(source.src)}"
    return None if source.src[node.arg].dtype is node.dtype else f"got {node.dtype}"


# *** kernels ***


@rule(Ops.PARAM)
def param_is_memory(node: Node) -> str | None:
    """A parameter of a kernel is memory; scratch has a size that is known."""
    if node.arg.addrspace is None:
        return "it has no address space"
    scratch = node.arg.addrspace is not AddrSpace.GLOBAL
    return (
        f"got scratch of shape {unpack(node.arg.shape, node.src)}" if scratch and node.src else None
    )


@rule(Ops.INDEX)
def index_fits(node: Node) -> str | None:
    """An index takes memory and at most one whole number for each of its axes."""
    memory = node.src[0]
    while memory.op in opcodes.MOVEMENT or memory.op is Ops.AFTER:
        memory = memory.src[0]
    if memory.op not in (Ops.PARAM, Ops.INDEX):
        return f"got {memory.op.name} as memory"
    rank = len(node.src[0].shape)
    if not 1 <= len(node.src) - 1 <= rank:
        return f"got {len(node.src) - 1} numbers for shape {node.src[0].shape}"
    return first(
        f"got an index of {s.dtype} and shape {s.shape}"
        for s in node.src[1:]
        if s.dtype.kind not in INTEGERS or s.shape != ()
    )


@rule(Ops.LOAD)
def load_has_place(node: Node) -> str | None:
    """A load reads memory; what replaces a gated load has its dtype."""
    if len(node.src) not in (1, 2) or node.src[0].dtype is not node.dtype:
        return f"got {[s.op.name for s in node.src]}"
    return first(f"got {s.dtype} instead" for s in node.src[1:] if s.dtype is not node.dtype)


@rule(Ops.RANGE)
def range_counts(node: Node) -> str | None:
    """A range has a whole number as its end, and a number and an axis type of its own."""
    if not node.src or node.src[0].dtype.kind not in INTEGERS or node.src[0].shape != ():
        return "it has no whole number as its end"
    arg = node.arg
    fits = isinstance(arg, tuple) and len(arg) >= 2 and isinstance(arg[1], AxisType)
    return None if fits and isinstance(arg[0], int) else f"got {arg!r}"


@rule(Ops.REDUCE, Ops.END)
def loops_are_ranges(node: Node) -> str | None:
    """What a reduction or an END closes are ranges, each once."""
    closed = node.src[1:]
    wrong = first(f"got {s.op.name}" for s in closed if s.op is not Ops.RANGE)
    return wrong or (None if len(set(closed)) == len(closed) else "a range is listed twice")


@rule(Ops.REDUCE)
def kernel_reduce_fits(node: Node) -> str | None:
    """A reduction of a kernel is a sum, product, max or min in the dtype of its value."""
    if node.arg not in REDUCERS:
        return f"got the op {node.arg}"
    return None if node.src[0].dtype is node.dtype else f"got {node.src[0].dtype} to {node.dtype}"


@rule(Ops.END, Ops.GROUP, Ops.SINK)
def holds_effects(node: Node) -> str | None:
    """Kernels, groups and loops hold effects: stores, groups and loops."""
    allowed = (Ops.STORE, Ops.END, Ops.GROUP, Ops.AFTER)
    held = node.src[:1] if node.op is Ops.END else node.src
    return first(f"got {s.op.name}" for s in held if s.op not in allowed)


@rule(Ops.SINK)
def loops_are_closed(node: Node) -> str | None:
    """Every loop of a kernel is closed by an END or a reduction."""
    return first(f"r{r.arg[0]} stays open" for s in node.src for r in s.ranges)


MEMORY: tuple[Rule, ...] = (
    buffer_is_plain,
    store_has_place,
    store_fits,
    after_waits,
    output_has_call,
    one_device,
    slots_have_parts,
    axis_is_there,
    stacked_alike,
    call_has_arguments,
    bound_in_range,
    tuple_has_value,
)
LOOPS: tuple[Rule, ...] = (
    param_is_memory,
    store_has_place,
    store_fits,
    after_waits,
    bound_in_range,
    index_fits,
    load_has_place,
    range_counts,
    loops_are_ranges,
    kernel_reduce_fits,
    holds_effects,
    loops_are_closed,
)
