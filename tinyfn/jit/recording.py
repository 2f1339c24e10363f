"""A recorded run: what it launched, and how its results depend on inputs and on memory it made."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tinyfn.device import Buffer
from tinyfn.errors import JitError
from tinyfn.helpers import Counters, GlobalCounters
from tinyfn.jit.inputs import Inputs, named_values, text_of
from tinyfn.jit.outputs import Ring
from tinyfn.jit.overwritten import Overwritten
from tinyfn.jit.quick import quick_way
from tinyfn.runtime import execute
from tinyfn.runtime.execute import Step
from tinyfn.runtime.machine import after_fork
from tinyfn.runtime.replay import Replay
from tinyfn.schedule.memory import MemoryPlan
from tinyfn.tensor import Tensor
from tinyfn.uop.node import now
from tinyfn.uop.ops import Ops, UOp, substitute, toposort

_recordings: weakref.WeakSet[Recording] = weakref.WeakSet()


def _reset_all() -> None:
    """Another thread of the parent may have held a lock at the fork, and is not there to let go."""
    for recording in list(_recordings):
        recording._lock = threading.Lock()


after_fork(_reset_all)


class Recording:
    """What one run launched, and how its results depend on inputs and on memory it made."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.lists: list[tuple[UOp, dict[str, int], MemoryPlan]] = []
        self.started = now()
        # the table of kernels and the temporaries belong to one replay at a time
        self._lock = threading.Lock()
        _recordings.add(self)

    def add(self, linear: UOp, variables: dict[str, int], plan: MemoryPlan) -> None:
        """Keep one list of calls (the executor's hook)."""
        self.lists.append((linear, variables, plan))

    def finish(self, result: Any) -> None:
        """Pack what was recorded; `result` is what the recorded call returned."""
        if not any(linear.src for linear, _, _ in self.lists):
            raise JitError(
                "the function computed nothing that can be replayed; its tensors have to be "
                "realised inside of it or returned"
            )
        self.result = result
        variables: dict[str, int] = {}
        steps: list[Step] = []
        made: dict[UOp, None] = {}
        for linear, values, _plan in self.lists:
            variables.update(values)
            steps += execute.prepare(linear.src)
            for call in linear.src:
                made.update(dict.fromkeys(n for n in toposort(call.src[1:]) if n.op is Ops.BUFFER))
        outputs = [t.uop.base for _, t in named_values(result, Tensor)]
        returned = [t.uop for _, t in named_values(result, Tensor)]
        self.bound = [n for n in toposort(returned) if n.op is Ops.BIND]
        own_inputs = set(self.inputs.nodes)
        fresh = [
            n
            for n in dict.fromkeys(outputs)
            if n in made and n not in own_inputs and n.born > self.started
        ]
        movable = {id(b): b for n in fresh for b in execute.memory_of(n)}
        movable.update({id(b): b for b in self.inputs.buffers})
        self.rings = [Ring(n, returned) for n in fresh]
        self.made = list(made)
        self.plan = Replay(steps, variables, movable)
        self.variables = variables
        kernels = sum(s.count for s in steps if s.program is not None)
        self._overwritten = Overwritten(self.inputs.nodes, self.started)
        for linear, _, _ in self.lists:
            self._overwritten.note(linear)
        self._overwrites = self._overwritten.outside
        way = quick_way(self.plan, self.inputs, self.rings, self.bound)
        self._quick = None if self._overwritten.inputs else way
        self._replaced = [*self.inputs.nodes, *(n for ring in self.rings for n in ring.nodes)]
        self._plain = _plain_result(result, self._replaced)
        self.work = (*(sum(w) for w in zip(*self.plan.work, strict=True)), kernels)

    def replay(self, args: Any, kwargs: Any) -> Any:
        """Run the recording on new inputs; returns results like the recorded one."""
        if self._overwrites:
            self._overwritten.realize_readers()
        with self._lock:
            nodes = self._quick.run(args) if self._quick and not kwargs else None
            if nodes is None:
                return self._replay_described(args, kwargs)
        self._count()
        if self._plain is not None:
            kind, numbers = self._plain
            if kind is Tensor:
                return Tensor._of(nodes[numbers[0]])
            return kind([Tensor._of(nodes[i]) for i in numbers])
        return _rebuilt(self.result, dict(zip(self._replaced, nodes, strict=True)))

    def _replay_described(self, args: Any, kwargs: Any) -> Any:
        if self._quick:
            self._quick.forget()
        given = Inputs(args, kwargs)
        self._check(given)
        self._overwritten.realize_readers(given.nodes)
        variables = self.variables
        if given.variables != self.inputs.variables:
            variables = {**variables, **given.variables}
        table = dict(zip(self.inputs.nodes, given.nodes, strict=True))
        replaced: dict[int, Buffer] = {}
        for old, new in table.items():
            _replace_memory(replaced, old, new)
        for ring in self.rings:
            made, _address = ring.take()
            table.update(zip(ring.nodes, made, strict=True))
            _replace_memory(replaced, ring.recorded, made[0])
        for bound in self.bound:
            table[bound] = bound.src[0].bind(variables[bound.src[0].arg.name])
        self.plan.run(replaced, variables)
        self._count()
        return _rebuilt(self.result, table)

    def _count(self, counters: Counters = GlobalCounters) -> None:
        operations, moved, kernels = self.work
        counters.global_ops += operations
        counters.global_mem += moved
        counters.kernel_count += kernels

    def _check(self, given: Inputs) -> None:
        if given.names != self.inputs.names:
            raise JitError(
                f"expected the inputs {self.inputs.names} that were recorded, got {given.names}"
            )
        for name, old, new in zip(given.names, self.inputs.described, given.described, strict=True):
            if old != new:
                raise JitError(
                    f"input {name} was recorded as {text_of(old)}, got {text_of(new)}; call "
                    "reset() or use another TinyJit for it"
                )
        missing = sorted(set(self.inputs.variables) ^ set(given.variables))
        if missing:
            raise JitError(f"expected the variables of the recorded call, these differ: {missing}")


def _replace_memory(replaced: dict[int, Buffer], old: UOp, new: UOp) -> None:
    """Note for every part of a recorded buffer what to use now."""
    parts, others = old.buffer, new.buffer
    if isinstance(parts, tuple) and isinstance(others, tuple):
        replaced.update({id(p): o for p, o in zip(parts, others, strict=True)})
    elif not isinstance(parts, tuple) and not isinstance(others, tuple):
        replaced[id(parts)] = others


def _plain_result(result: Any, replaced: list[UOp]) -> tuple[type, list[int]] | None:
    """A tensor, or a tuple or list of tensors, by the numbers of their nodes; None for others."""
    parts = [result] if isinstance(result, Tensor) else result
    if not (isinstance(result, Tensor) or type(result) in (tuple, list)):
        return None
    if not all(isinstance(p, Tensor) and p.uop in replaced for p in parts):
        return None
    kind = Tensor if isinstance(result, Tensor) else type(result)
    return kind, [replaced.index(p.uop) for p in parts]


def _rebuilt(result: Any, table: dict[UOp, UOp]) -> Any:
    """The result of the recorded call with its memory replaced."""
    if isinstance(result, Tensor):
        known = table.get(result.uop)
        if known is None:
            known = substitute([result.uop], table)[0]
        return Tensor._of(known)
    if isinstance(result, list | tuple):
        parts = [_rebuilt(r, table) for r in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return type(result)(parts)
    if isinstance(result, dict):
        return {k: _rebuilt(v, table) for k, v in result.items()}
    return result
