"""What memory was computed from: kept where a gradient may be asked for after the values were.

Reading a value stores what lies on the way, so that it is not computed twice: outputs of
precompiled calls and kernels, contiguous values, tensors that were assigned to. In the graphs of
the tensors that hold them memory stands in their place, and a gradient goes on from it to the node
it came from. Memory that is overwritten, or was computed from such, is a leaf from then on.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tinyfn.uop.ops import Ops, UOp, substitute, toposort


@dataclass(frozen=True)
class History:
    """Where memory comes from; neither of its nodes holds that memory itself.

    `value` is the node that was computed, `seen` the same as a slot's memory holds it.
    """

    value: UOp
    seen: UOp
    reads: tuple[UOp, ...]
    time: int


_clock = itertools.count(1)
_histories: weakref.WeakKeyDictionary[UOp, History] = weakref.WeakKeyDictionary()
_overwritten: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()


def find(memory: UOp) -> History | None:
    """The history of memory, unless what it was computed from is there no more."""
    history = _histories.get(memory) if memory.op is Ops.BUFFER and _histories else None
    if history is None:
        return None
    if any(_overwritten.get(m, 0) > history.time for m in (memory, *history.reads)):
        del _histories[memory]
        return None
    return history


def note_overwritten(memories: Iterable[UOp]) -> None:
    """Memory gets other contents: what was computed from it cannot be computed again."""
    if _histories:
        time = next(_clock)
        for memory in memories:
            _overwritten[memory] = time


def order(roots: Iterable[UOp]) -> list[UOp]:
    """Every node below the roots and what memory among them came from, sources before users."""
    done: dict[UOp, None] = {}
    begun: set[UOp] = set()
    stack = list(roots)
    while stack:
        node = stack[-1]
        if node in begun:
            done[node] = None
            stack.pop()
            continue
        begun.add(node)
        history = find(node)
        stack += (history.seen,) if history else sources_of(node)
    return list(done)


def sources_of(node: UOp) -> tuple[UOp, ...]:
    """The sources of a node; of a call its arguments."""
    return node.src[1:] if node.op is Ops.CALL else node.src


def in_memory(nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """The values that memory among the nodes holds: each with that memory in its shape."""
    found = {}
    for node in nodes:
        history = find(node)
        if history is not None:
            found[history.value] = _as_value(node, history)
    return found


def _as_value(memory: UOp, history: History) -> UOp:
    """The memory in the shape of the value: what makes `seen` of it, undone."""
    steps = []
    step = history.seen
    while step is not history.value:
        steps.append(step)
        step = step.src[0]
    for step in steps:
        reshaped = step.op is Ops.RESHAPE
        memory = (
            memory._move("RESHAPE", step.src[0].shape) if reshaped else memory.unshard(step.arg)
        )
    return memory


class Writes:
    """The memory that a run writes to: what it had before, and its states on the way."""

    def __init__(self, states: Mapping[UOp, UOp]) -> None:
        self.states = states  # those that are overwritten, each with its memory
        self.filled = {m for m in states.values() if m.is_realized}
        self._fresh = dict.fromkeys(m for m in states.values() if m not in self.filled)

    def lose(self, node: UOp) -> bool:
        """Whether the node is a state of memory that is gone, and cannot be computed again."""
        return node in self.states and self.states[node] in self.filled

    def places(self) -> dict[UOp, UOp]:
        """Other memory in the place of that which nothing was in before."""
        return {m: UOp.new_memory(m.arg.device, m.arg.shape, m.dtype, "empty") for m in self._fresh}


def keep(results: Mapping[UOp, UOp], wanted: Iterable[UOp], writes: Writes) -> None:
    """Keep the histories of those of the wanted nodes that can be computed again."""
    places = writes.places()
    final = {n: m for n, m in results.items() if n not in writes.states}
    for value in (n for n in wanted if n in final):
        memory = results[value]
        seen = _steps_to_memory(memory)
        if value.dtype.kind != "float" or memory.base in writes.filled or seen is None:
            continue
        below = _down_to_memory(value, final, memory.base)
        stored = {n: final[n] for n in below if _is_elsewhere(n, final, memory.base)}
        if any(writes.lose(n) for n in below if n not in stored):
            continue
        origin = value.with_src(tuple(substitute(value.src, {**places, **stored})))
        reads = tuple(n for n in toposort([origin], enter_calls=False) if n.op is Ops.BUFFER)
        for read in reads:
            find(read)  # forgets a history that is of no use any more, and what it holds
        _histories[memory.base] = History(origin, _seen(origin, seen), reads, next(_clock))


def _is_elsewhere(node: UOp, final: Mapping[UOp, UOp], memory: UOp) -> bool:
    return node in final and final[node].base is not memory


def _down_to_memory(value: UOp, final: Mapping[UOp, UOp], memory: UOp) -> list[UOp]:
    """The nodes below a value, down to those that other memory holds."""
    return toposort(
        value.src, enter_calls=False, gate=lambda n: not _is_elsewhere(n, final, memory)
    )


def _steps_to_memory(node: UOp) -> list[UOp] | None:
    """What stands between a value and the memory it is in; None where that is not all of it."""
    steps = []
    while node.op in (Ops.RESHAPE, Ops.UNSHARD):
        steps.append(node)
        node = node.src[0]
    return steps if node.op is Ops.BUFFER else None


def _seen(value: UOp, steps: Iterable[UOp]) -> UOp:
    """The value as its memory holds it: a slot's part, in the memory's shape."""
    for step in steps:
        if step.op is Ops.UNSHARD:
            value = UOp(Ops.SHARD, value.dtype, (value,), step.arg)
        else:
            value = value._move("RESHAPE", step.src[0].shape)
    return value
