"""Calls as nodes: number the inputs of a captured body, find what it uses unasked, inline it.

A body holds PARAM(slot) for its arguments, free VARIABLEs for bound ones, and scratch of its own
under negative numbers, so that the same function captured twice gives the same node.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyfn.errors import CaptureError, ImplicitInputError
from tinyfn.helpers import Recent
from tinyfn.uop.info import AddrSpace, pack
from tinyfn.uop.opcodes import MOVEMENT
from tinyfn.uop.ops import CallInfo, Ops, ParamInfo, UOp, substitute, toposort


class _Capturing(threading.local):
    """How many functions are being captured by this thread, and their names."""

    def __init__(self) -> None:
        self.names: list[str] = []


capturing = _Capturing()


def refuse_while_capturing(what: str) -> None:
    """Raise where values are asked for inside a function that is being captured."""
    if capturing.names:
        raise CaptureError(
            f"{what} inside the captured function {capturing.names[-1]}: its tensors have no "
            "values yet; return the tensor and read it outside"
        )


@dataclass(frozen=True)
class Body:
    """A captured body with the arguments it was captured on."""

    outputs: UOp
    arguments: tuple[UOp, ...]


def capture_body(
    outputs: Sequence[UOp], inputs: Sequence[UOp], started: int, name: str, allow_implicit: bool
) -> Body:
    """Replace the inputs by parameters; refuse or take the buffers the body reaches otherwise."""
    arguments = list(dict.fromkeys(inputs))
    explicit = set(arguments)
    order = toposort(
        outputs,
        enter_calls=False,
        gate=lambda n: n not in explicit and not _is_cut(n, started),
    )
    refused: list[str] = []
    read = _memory_read(order)
    for node in order:
        if node in explicit or not (_is_input(node, started) or _is_read_empty(node, read)):
            continue
        if node.op is Ops.BUFFER and not allow_implicit and not _is_free(node, started, order):
            refused.append(_describe(node))
        arguments.append(node)
    if refused:
        raise ImplicitInputError(name, refused)
    arguments += _bound_in_shapes(arguments, order)
    table = _own_leaves(order, set(arguments))
    for argument in arguments:
        if argument.op is Ops.BIND:
            table[argument] = argument.src[0]
    for slot, argument in enumerate(arguments):
        if argument.op is not Ops.BIND:
            table[argument] = parameter(argument, slot)
    replaced = substitute(outputs, table)
    return Body(UOp(Ops.TUPLE, src=tuple(replaced)), tuple(arguments))


def _is_cut(node: UOp, started: int) -> bool:
    """Made outside and stored there: passed as it is, whatever it was computed from."""
    return node.born < started and node.op in (Ops.CONTIGUOUS, Ops.AFTER, Ops.FULL, Ops.BUFFER)


def _is_input(node: UOp, started: int) -> bool:
    if node.op is Ops.BIND:
        return True
    if node.op is Ops.BUFFER:
        return not (node.born >= started and node.arg.kind in ("empty", "scratch"))
    return _is_cut(node, started)


def _is_read_empty(node: UOp, read: set[UOp]) -> bool:
    """Undefined contents that something reads: somebody else must be meant to fill them."""
    return node.op is Ops.BUFFER and node.arg.kind == "empty" and node in read


def _memory_read(order: list[UOp]) -> set[UOp]:
    """The buffers whose contents are read as they were before anything in the body ran."""
    found: set[UOp] = set()
    for node in order:
        sources: Sequence[UOp] = node.src
        if node.op is Ops.AFTER or node.op in MOVEMENT or node.op in (Ops.UNSHARD, Ops.DETACH):
            continue
        if node.op is Ops.STORE:
            sources = node.src[1:]
        elif node.op is Ops.CALL and is_kernel(node.src[0]):
            reads = kernel_access(node.src[0])[0] if node.src[0].op is Ops.SINK else set()
            sources = [s for slot, s in enumerate(node.src[1:]) if slot in reads]
        elif node.op is Ops.CALL:
            sources = node.src[1:]
        found |= {s.base for s in sources if s.base.op is Ops.BUFFER}
    return found


def _is_free(node: UOp, started: int, order: list[UOp]) -> bool:
    """Data made inside and the state of the random generator are inputs that nobody must pass."""
    return node.arg.kind == "state" or (node.born >= started and node.arg.kind == "data")


def _describe(node: UOp) -> str:
    shape, device = tuple(node.arg.shape), node.arg.device
    return f"a tensor of shape {shape}, {node.dtype} on {device}"


def _bound_in_shapes(arguments: list[UOp], order: list[UOp]) -> list[UOp]:
    seen = set(arguments)
    found = [n for a in arguments for n in toposort([a], enter_calls=False) if n.op is Ops.BIND]
    sizes = [s for a in arguments for s in (a.shape or ()) if isinstance(s, UOp)]
    in_sizes = [n for s in sizes for n in toposort([s]) if n.op is Ops.BIND]
    wanted = [n for n in in_sizes if n in found]
    return [n for n in dict.fromkeys(wanted) if n not in seen]


def _own_leaves(order: list[UOp], arguments: set[UOp]) -> dict[UOp, UOp]:
    """Scratch buffers and fills made inside, under numbers that are the same at every capture."""
    table: dict[UOp, UOp] = {}
    for node in order:
        if node.op in (Ops.BUFFER, Ops.FULL) and node not in arguments:
            table[node] = node.replace(arg=replace(node.arg, num=-1 - len(table)))
    return table


def unbound(size: Any) -> Any:
    """A size with its bound variables free again."""
    if not isinstance(size, UOp):
        return size
    table = {n: n.src[0] for n in toposort([size]) if n.op is Ops.BIND}
    return size.substitute(table)


def parameter(argument: UOp, slot: int) -> UOp:
    """The parameter of a body that stands for an argument."""
    packed, symbols = pack(tuple(unbound(s) for s in argument.shard_shape))
    info = ParamInfo(slot, packed, argument.device)
    node = UOp(Ops.PARAM, argument.dtype, symbols, info)
    return node if argument.axis is None else node.unshard(argument.axis)


def output_place(value: UOp, slot: int) -> UOp:
    """The node that stands for output number `slot` of a call."""
    packed, symbols = pack(value.shard_shape)
    node = UOp(Ops.OUTPUT, value.dtype, symbols, ParamInfo(slot, packed, value.device))
    return node if value.axis is None else node.unshard(value.axis)


def build_call(body: Body, values: Sequence[UOp], info: CallInfo) -> list[UOp]:
    """The outputs of a call of the body: AFTER(place of the output, call) each."""
    call = UOp(Ops.CALL, src=(body.outputs, *body.arguments), arg=info)
    return [output_place(value, i).after(call) for i, value in enumerate(values)]


def output_slot(node: UOp) -> int | None:
    """Which output of its call an AFTER is; None where it is no output of a call."""
    place = node.src[0]
    while place.op in (Ops.UNSHARD, Ops.RESHAPE):
        place = place.src[0]
    return place.arg.slot if place.op is Ops.OUTPUT else None


def is_kernel(body: UOp) -> bool:
    """Whether the body of a call is a kernel or program, whose arguments are all memory."""
    return body.op in (Ops.SINK, Ops.PROGRAM)


def parameters(body: UOp) -> dict[int, UOp]:
    """The PARAM nodes of a body by slot (as seen whole: UNSHARD of it where sharded)."""
    found: dict[int, UOp] = {}
    for node in toposort([body], enter_calls=False):
        if node.op is Ops.PARAM and node.arg.addrspace is None:
            found.setdefault(node.arg.slot, node)
        elif node.op is Ops.UNSHARD and node.src[0].op is Ops.PARAM:
            found[node.src[0].arg.slot] = node
    return found


def inline(call: UOp, first_number: int) -> tuple[list[UOp], int]:
    """The outputs of a call with its body in its place, and the next free scratch number.

    Scratch of the body gets numbers from `first_number` down, so that two calls of one body
    do not share it.
    """
    body, arguments = call.src[0], call.src[1:]
    table = {node: arguments[slot] for slot, node in parameters(body).items()}
    bound = {a.src[0]: a for a in arguments if a.op is Ops.BIND}
    for node in toposort([body], enter_calls=False):
        if node.op in (Ops.BUFFER, Ops.FULL) and node.arg.num < 0:
            table[node] = node.replace(arg=replace(node.arg, num=first_number))
            first_number -= 1
    table.update(bound)
    return substitute(body.src, table), first_number


def kernel_access(body: UOp) -> tuple[set[int], set[int]]:
    """The slots that a kernel reads and those it writes; a program may write all its arguments."""
    if body.op is Ops.PROGRAM:
        slots = {n.arg.slot for n in toposort([body.src[0]]) if n.op is Ops.PARAM}
        outs = set(body.arg.outs) or slots
        return set(body.arg.ins) or slots, outs
    reads: set[int] = set()
    writes: set[int] = set()
    targets = set()
    order = toposort([body])
    for node in order:
        if node.op is Ops.STORE:
            writes |= _slots_below(node.src[0])
            targets.add(node.src[0])
    for node in order:
        loads = [node.src[0]] if node.op is Ops.LOAD else []
        if node.op not in (Ops.STORE, Ops.AFTER, Ops.INDEX, Ops.LOAD):
            loads = [s for s in node.src if s.op is Ops.INDEX]
        if node.op is Ops.STORE:
            loads = [s for s in node.src[1:] if s.op is Ops.INDEX]
        if node.op is Ops.INDEX:
            loads = [s for s in node.src[1:] if s.op is Ops.INDEX]
        for load in loads:
            reads |= _slots_below(load)
    return reads, writes


def _slots_below(node: UOp) -> set[int]:
    while node.op is not Ops.PARAM and node.src:
        node = node.src[0]
    is_argument = node.op is Ops.PARAM and node.arg.addrspace is AddrSpace.GLOBAL
    return {node.arg.slot} if is_argument else set()


_effects: Recent[UOp, frozenset[int]] = Recent(1024)


def stored_arguments(body: UOp) -> frozenset[int]:
    """The slots of a function's body into whose memory it stores (nested calls included)."""
    known = _effects.get(body)
    if known is not None:
        return known
    if is_kernel(body):
        return _effects.keep(body, frozenset(kernel_access(body)[1]))
    places = [p for n in toposort([body], enter_calls=False) for p in stored_places(n)]
    slots = frozenset(p.arg.slot for p in places if p.op is Ops.PARAM)
    return _effects.keep(body, slots)


def stored_places(node: UOp) -> list[UOp]:
    """The memory (buffers or parameters) that a STORE or CALL node writes."""
    if node.op is Ops.STORE:
        return [node.src[0].buf_uop]
    if node.op is Ops.CALL:
        return [node.src[1 + slot].buf_uop for slot in sorted(stored_arguments(node.src[0]))]
    return []


def seen_outside(value: UOp, arguments: Sequence[UOp]) -> UOp:
    """A value of a body seen from outside: the variables in its shape bound by the arguments."""
    table = {a.src[0]: a for a in arguments if a.op is Ops.BIND}
    if not table or all(isinstance(s, int) for s in value.shape):
        return value
    shape = tuple(s.substitute(table) if isinstance(s, UOp) else s for s in value.shard_shape)
    packed, symbols = pack(shape)
    info = ParamInfo(0, packed, value.device)
    node = UOp(Ops.PARAM, value.dtype, symbols, info)
    return node if value.axis is None else node.unshard(value.axis)
