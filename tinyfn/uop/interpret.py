"""The meaning of a graph, node by node in numpy: slow, obvious, the measure of every kernel.

Every node gets its value once, sources first. Memory is read as it was at the start of the run;
AFTER is the memory as it is once its effects have run. A tensor that is sharded along an axis is
one whole array; a value that differs from slot to slot is `Parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinyfn.dtype import Invalid
from tinyfn.errors import ArgumentError
from tinyfn.helpers import prod
from tinyfn.uop import opcodes
from tinyfn.uop.arithmetic import from_storage, held_dtype, to_storage
from tinyfn.uop.interpret_kernel import run_kernel
from tinyfn.uop.meaning import MEANING, reduce_values
from tinyfn.uop.node import UOp
from tinyfn.uop.opcodes import Ops
from tinyfn.uop.rewrite import toposort

Values = Any
State = dict[UOp, Any]
ABSENT = object()
VIEWS = opcodes.MOVEMENT | {Ops.DETACH, Ops.UNSHARD, Ops.MSELECT, Ops.AFTER}


class Parts(list[Any]):
    """One value a slot."""


def interpret(
    roots: Sequence[UOp], state: State | None = None, variables: dict[str, int] | None = None
) -> list[Any]:
    """The values of the roots: an array each, or a list with each slot's own on several slots.

    bfloat16 and fp8 values are float32 arrays. Contents of buffers come from `state`, else from
    the memory of the node; stores change `state`, or where there is none, that memory.
    """
    walk = Walk(State() if state is None else state, variables or {})
    values = walk.run(roots)
    walk.keep_stores(write_through=state is None)
    return [parts_of(node, value) for node, value in zip(roots, values, strict=True)]


def parts_of(node: UOp, value: Values) -> Values:
    """The value with each slot's own part where it lives on several slots."""
    if not isinstance(node.device, tuple) or isinstance(value, Parts) or value is None:
        return value
    count = len(node.device)
    if node.axis is None:
        return Parts([value] * count)
    return Parts(np.split(value, count, node.axis))


def per_slot(function: Callable[..., Values], *values: Values) -> Values:
    """The function on every slot's values; once where no value differs between slots."""
    counts = [len(v) for v in values if isinstance(v, Parts)]
    if not counts:
        return function(*values)
    return Parts(
        function(*(v[i] if isinstance(v, Parts) else v for v in values)) for i in range(min(counts))
    )


def join_own(parts: Parts, axis: int) -> Values:
    """A whole out of the slots' wholes: from every slot its own part."""
    count = len(parts)
    return np.concatenate([np.split(whole, count, axis)[i] for i, whole in enumerate(parts)], axis)


# *** devices ***


def _copy(node: UOp, value: Values) -> Values:
    """Part by part to as many slots; else what the first slot has."""
    if not isinstance(value, Parts):
        return value
    kept = isinstance(node.arg, tuple) and len(node.arg) == len(value)
    return value if kept else value[0]


def _unshard(node: UOp, value: Values) -> Values:
    parts = value if isinstance(value, Parts) else [value] * len(node.device)
    return np.concatenate(parts, node.arg)


def _shard(node: UOp, value: Values) -> Values:
    count, axis = len(node.device), node.arg
    wholes = value if isinstance(value, Parts) else [value] * count
    return Parts(np.split(whole, count, axis)[i] for i, whole in enumerate(wholes))


def _mselect(node: UOp, value: Values) -> Values:
    parts = parts_of(node.src[0], value)
    return parts[node.arg] if isinstance(parts, Parts) else parts


def _allreduce(node: UOp, value: Values) -> Values:
    parts = parts_of(node.src[0], value)
    return reduce_values(node.arg[0], node.dtype, np.stack(parts), (0,))[0]


DEVICES: dict[Ops, Callable[..., Values]] = {
    Ops.COPY: _copy,
    Ops.UNSHARD: _unshard,
    Ops.SHARD: _shard,
    Ops.MSELECT: _mselect,
    Ops.MSTACK: lambda node, *values: Parts(values),
    Ops.ALLREDUCE: _allreduce,
}
"""Ops that see the values of all slots at once."""


class Walk:
    """One run over a graph: values of nodes, contents of memory, which elements were written."""

    def __init__(
        self,
        state: State,
        variables: dict[str, int],
        arguments: Sequence[Values] = (),
        slots: int = 1,
        outer: Walk | None = None,
    ) -> None:
        self.state, self.outer, self.arguments, self.slots = state, outer, arguments, slots
        self.variables = dict(variables)
        self.values: dict[UOp, Values] = {}
        self.invalid: dict[UOp, Values] = {}
        self.memory: dict[UOp, Values] = {}
        self.written: dict[UOp, Values] = {}

    def run(self, roots: Sequence[UOp]) -> list[Values]:
        """The values of the roots."""
        order = toposort(roots, enter_calls=False)
        for node in order:
            if node.op is Ops.BIND:
                self.variables.setdefault(node.src[0].arg.name, node.src[1].arg)
            if isinstance(node.device, tuple):
                self.slots = max(self.slots, len(node.device))
        for node in order:
            effect = STATEFUL.get(node.op)
            if effect is not None:
                self.values[node] = effect(self, node)
                continue
            self.values[node] = self.compute(node, [self.values[s] for s in node.src])
            self._track_invalid(node)
        return [self.values[root] for root in roots]

    def compute(self, node: UOp, sources: list[Values]) -> Values:
        """The value of a node whose value follows from those of its sources."""
        if node.op is not Ops.BIND and any(value is ABSENT for value in sources):
            return ABSENT
        if node.op in DEVICES:
            return DEVICES[node.op](node, *sources)
        meaning = MEANING.get(node.op)
        if meaning is None:
            raise ArgumentError(f"{node.op.name} has no value that numpy could compute: {node!r}")
        value = per_slot(partial(meaning, node), *sources)
        whole = isinstance(value, Parts) and node.axis is not None
        return join_own(value, node.axis) if whole else value

    def _track_invalid(self, node: UOp) -> None:
        """Remember where a value is Invalid: a store leaves the memory there as it is."""
        if node.op is Ops.CONST and node.arg is Invalid:
            self.invalid[node] = np.array(True)
        elif any(s in self.invalid for s in node.src):
            masks = [self.invalid.get(s, False) for s in node.src]
            if node.op is Ops.WHERE:
                self.invalid[node] = per_slot(np.where, self.values[node.src[0]], *masks[1:])
            elif node.op in opcodes.ELEMENTWISE:
                self.invalid[node] = per_slot(lambda *m: np.logical_or.reduce(m), *masks)
            elif node.op is not Ops.REDUCE_AXIS:
                rest = [self.values[s] for s in node.src[1:]]
                self.invalid[node] = self.compute(node, [masks[0], *rest])

    # *** memory ***

    def contents(self, base: UOp) -> Values:
        """What memory holds now; a value that is stored into is memory, too."""
        if base in self.memory:
            return self.memory[base]
        return self.values[base] if base.axis is not None else parts_of(base, self.values[base])

    def view(self, chain: Sequence[UOp], value: Values) -> Values:
        """The value (of memory) seen through the nodes of a view."""
        for node in chain:
            if node.op is not Ops.AFTER:
                value = self.compute(node, [value, *(self.values[s] for s in node.src[1:])])
        return value

    def write(self, place: UOp, value: Values, *masks: Values) -> None:
        """Put a value into the elements of memory that a view shows, where all masks hold."""
        base, chain = memory_below(place)
        held = self.contents(base)
        slots = held if isinstance(held, Parts) else [held]
        total = sum(part.size for part in slots)
        flat = np.concatenate([np.ravel(part) for part in slots])
        written = self.written[base].copy() if base in self.written else np.zeros(total, bool)
        where = self.view(chain, _numbered(held))
        if isinstance(value, Parts) and not isinstance(where, Parts):
            value = value[0] if place.axis is None else join_own(value, place.axis)

        def put(numbers: Values, new: Values, *kept: Values) -> None:
            chosen = numbers > 0
            for mask in kept:
                chosen = chosen & mask
            at = numbers[chosen] - 1
            flat[at] = np.broadcast_to(new, numbers.shape)[chosen]
            written[at] = True

        per_slot(put, where, value, *masks)
        pieces = np.split(flat, np.cumsum([part.size for part in slots])[:-1])
        shaped = [p.reshape(part.shape) for p, part in zip(pieces, slots, strict=True)]
        self.memory[base] = Parts(shaped) if isinstance(held, Parts) else shaped[0]
        self.written[base] = written

    def keep_stores(self, write_through: bool = False) -> None:
        """Hand what was stored to the state (or the buffers' own memory)."""
        for base, held in self.memory.items():
            if base.op is not Ops.BUFFER:
                continue
            self.state[base] = list(held) if isinstance(held, Parts) else held
            memory = getattr(base, "_realized", None)
            if write_through and memory is not None:
                buffers = memory if isinstance(memory, tuple) else (memory,)
                slots = held if isinstance(held, Parts) else [held]
                for buffer, part in zip(buffers, slots, strict=True):
                    flat = buffer.array().reshape(-1)
                    flat[: part.size] = to_storage(part, base.dtype).reshape(-1)


def _numbered(held: Values) -> Values:
    """The elements of memory numbered from 1, so that 0 (padding) is nowhere."""
    if not isinstance(held, Parts):
        return np.arange(1, held.size + 1).reshape(held.shape)
    begins = np.cumsum([1, *(part.size for part in held)])
    return Parts(
        np.arange(begin, begin + part.size).reshape(part.shape)
        for begin, part in zip(begins, held, strict=False)
    )


def is_output(node: UOp) -> bool:
    """Whether an AFTER is the output of a call."""
    place = node.src[0]
    while place.op in opcodes.MOVEMENT or place.op is Ops.UNSHARD:
        place = place.src[0]
    return place.op is Ops.OUTPUT


def memory_below(node: UOp) -> tuple[UOp, list[UOp]]:
    """The memory that a node shows, and the view of it, innermost first."""
    chain: list[UOp] = []
    while node.op in VIEWS and not (node.op is Ops.AFTER and is_output(node)):
        chain.append(node)
        node = node.src[0]
    return node, chain[::-1]


# *** nodes that need memory, slots or calls ***


def _buffer(walk: Walk, node: UOp) -> Values:
    if walk.outer is not None and node.arg.num >= 0:
        if node not in walk.outer.values:
            walk.outer.values[node] = _buffer(walk.outer, node)
        return walk.outer.contents(node)
    shape, device = node.arg.shape, node.arg.device
    found = walk.state.get(node)
    if found is None:
        memory = getattr(node, "_realized", None)
        if memory is None:
            return parts_of(node, np.zeros(shape, held_dtype(node.dtype)))
        buffers = memory if isinstance(memory, tuple) else (memory,)
        count = prod(shape)
        raw = [np.array(b.array()).reshape(-1)[:count].reshape(shape) for b in buffers]
        found = [from_storage(part, node.dtype) for part in raw]
        found = found if isinstance(memory, tuple) else found[0]
    if isinstance(device, tuple) and isinstance(found, list | tuple):
        return Parts(found)
    return parts_of(node, np.asarray(found))


def _store(walk: Walk, node: UOp) -> None:
    value = node.src[1]
    masks = [walk.values[gate] for gate in node.src[2:]]
    if value in walk.invalid:
        masks.append(per_slot(lambda m: ~np.asarray(m, bool), walk.invalid[value]))
    walk.write(node.src[0], walk.values[value], *masks)


def _after(walk: Walk, node: UOp) -> Values:
    base, chain = memory_below(node.src[0])
    if base.op is Ops.OUTPUT:
        calls = [effect for effect in node.src[1:] if effect.op is Ops.CALL]
        return walk.view(chain, walk.values[calls[0]][base.arg.slot])
    if base in walk.memory:
        return walk.view(chain, walk.memory[base])
    return walk.values[node.src[0]]


def _call(walk: Walk, node: UOp) -> Any:
    body, arguments = node.src[0], node.src[1:]
    if body.op is Ops.SINK:
        return _call_kernel(walk, node)
    if body.op is Ops.PROGRAM:
        raise ArgumentError(
            f"the call {node.arg.name} runs a compiled program, whose meaning numpy does not know"
        )
    values = [parts_of(a, walk.values[a]) for a in arguments]
    inner = Walk(walk.state, _variables(walk, arguments), values, walk.slots, walk)
    outputs = body.src if body.op is Ops.TUPLE else (body,)
    found = inner.run(outputs)
    for base, held in inner.memory.items():
        if base.op is Ops.PARAM and base.arg.addrspace is None:
            argument = arguments[base.arg.slot]
            _write_back(walk, argument, held, inner.written[base])
        elif base.op is Ops.BUFFER and base.arg.num >= 0:
            _write_back(walk, base, held, inner.written[base])
    return tuple(parts_of(o, v) for o, v in zip(outputs, found, strict=True))


def _variables(walk: Walk, arguments: Sequence[UOp]) -> dict[str, int]:
    """The variables of a body: those of its surroundings, and those that are its arguments."""
    bound = {a.src[0].arg.name: a.src[1].arg for a in arguments if a.op is Ops.BIND}
    return {**walk.variables, **bound}


def _write_back(walk: Walk, place: UOp, held: Values, written: Values) -> None:
    """Put what was stored into the memory of an argument where the argument shows it."""
    slots = held if isinstance(held, Parts) else [held]
    pieces = np.split(written, np.cumsum([part.size for part in slots])[:-1])
    mask: Values = [p.reshape(part.shape) for p, part in zip(pieces, slots, strict=True)]
    if not isinstance(held, Parts):
        walk.write(place, held, mask[0])
    elif place.axis is not None:
        walk.write(place, np.concatenate(held, place.axis), np.concatenate(mask, place.axis))
    else:
        walk.write(place, held, Parts(mask))


def _call_kernel(walk: Walk, node: UOp) -> None:
    """Run a kernel on every slot, over copies of its arguments; then store what it wrote."""
    arguments = node.src[1:]
    variables = _variables(walk, arguments)
    memory = {
        slot: parts_of(a, walk.values[a])
        for slot, a in enumerate(arguments)
        if a.op not in (Ops.BIND, Ops.VARIABLE)
    }
    counts = [len(held) for held in memory.values() if isinstance(held, Parts)]
    results: list[tuple[dict[int, Values], dict[int, Values]]] = []
    for k in range(min(counts, default=1)):
        own = {s: np.array(h[k] if isinstance(h, Parts) else h) for s, h in memory.items()}
        flat = {slot: part.reshape(-1) for slot, part in own.items()}
        results.append((own, run_kernel(node.src[0], flat, variables, k)))
    for slot, held in memory.items():
        if any(slot in masks for _, masks in results):
            none = np.zeros(results[0][0][slot].size, bool)
            written = np.concatenate([masks.get(slot, none) for _, masks in results])
            new = Parts(own[slot] for own, _ in results)
            _write_back(walk, arguments[slot], new if isinstance(held, Parts) else new[0], written)


STATEFUL: dict[Ops, Callable[[Walk, UOp], Any]] = {
    Ops.BUFFER: _buffer,
    Ops.PARAM: lambda walk, node: walk.arguments[node.arg.slot],
    Ops.OUTPUT: lambda walk, node: ABSENT,
    Ops.VARIABLE: lambda walk, node: (
        np.array(walk.variables[node.arg.name]) if node.arg.name in walk.variables else ABSENT
    ),
    Ops.SLOT: lambda walk, node: Parts(np.array(i) for i in range(walk.slots)),
    Ops.STORE: _store,
    Ops.AFTER: _after,
    Ops.CALL: _call,
    Ops.TUPLE: lambda walk, node: tuple(walk.values[s] for s in node.src),
    Ops.GETTUPLE: lambda walk, node: walk.values[node.src[0]][node.arg],
    **dict.fromkeys((Ops.GROUP, Ops.SINK, Ops.END), lambda walk, node: None),
}
"""Ops whose value needs more than the values of their sources."""
