"""TinyJit: run a function twice, keep what the second run launched, replay it from the third on."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from tinyfn.call import refuse_while_capturing
from tinyfn.device import Buffer
from tinyfn.errors import JitError
from tinyfn.helpers import JIT, GlobalCounters
from tinyfn.runtime import execute
from tinyfn.runtime.execute import Step
from tinyfn.runtime.replay import Replay
from tinyfn.schedule.memory import MemoryPlan
from tinyfn.tensor import Tensor
from tinyfn.uop.node import now
from tinyfn.uop.ops import Ops, UOp, substitute, toposort

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["JitError", "TinyJit"]

REMEMBERED = 3  # outputs of earlier replays whose memory may be used again


class TinyJit(Generic[P, R]):
    """Make a function of tensors fast to call again and again.

    The first call runs as it is. The second is recorded: everything it computes must be realised
    inside of it (its results are). From the third call on the recording is replayed on the new
    inputs: Python inside the function does not run again.

    Inputs are tensors and bound variables among the arguments, by position and name, also inside
    of lists, tuples and dicts; shapes, dtypes and devices have to stay the same. Other arguments
    are part of the recording.

    Raises:
        JitError: inputs differ from the recorded ones, a tensor is passed twice, or nothing ran.
    """

    def __init__(
        self,
        fxn: Callable[P, R] | None,
        captured: Recording | None = None,
        prune: bool = False,
        optimize: bool = False,
    ) -> None:
        if fxn is None and captured is None:
            raise JitError("TinyJit needs a function, or a recording of one")
        self.fxn = fxn
        self.captured = captured
        self.cnt = 2 if captured is not None else 0
        # a method has a recording for each instance
        self._bound: dict[int, tuple[weakref.ref[Any], TinyJit[Any, Any]]] = {}
        if fxn is not None:
            functools.update_wrapper(self, fxn)

    def reset(self) -> None:
        """Forget the recording: the next two calls run the function again."""
        self.captured, self.cnt = None, 0

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        known = self._bound.get(id(instance))
        if known is None or known[0]() is not instance:
            assert self.fxn is not None
            method: TinyJit[Any, Any] = TinyJit(functools.partial(self.fxn, instance))
            forget = functools.partial(self._forget, id(instance))
            known = self._bound[id(instance)] = (weakref.ref(instance, forget), method)
        return known[1]

    def _forget(self, identity: int, _reference: Any) -> None:
        self._bound.pop(identity, None)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_while_capturing("calling a TinyJit")
        assert self.fxn is not None or self.captured is not None
        if not JIT:
            return self._run(args, kwargs)
        if self.cnt == 0:
            result = self._run(args, kwargs)
        elif self.captured is None:
            result = self._record(args, kwargs)
        else:
            return cast(R, self.captured.replay(args, kwargs))
        self.cnt += 1
        return result

    def _run(self, args: Any, kwargs: Any) -> R:
        assert self.fxn is not None
        result = self.fxn(*args, **kwargs)
        _realize(result)
        return result

    def _record(self, args: Any, kwargs: Any) -> R:
        if execute.recorders.active:
            raise JitError(
                "a TinyJit is called while another one records; jit the outer function only"
            )
        inputs = Inputs(args, kwargs)
        recording = Recording(inputs)
        execute.recorders.active.append(recording.add)
        try:
            result = self._run(args, kwargs)
        finally:
            execute.recorders.active.remove(recording.add)
        recording.finish(result)
        self.captured = recording
        return result


def _realize(result: Any) -> None:
    tensors = [t for _, t in named_values(result, Tensor)]
    if tensors:
        Tensor.realize(*tensors)


def named_values(value: Any, kind: type, name: str = "") -> list[tuple[str, Any]]:
    """The values of a kind in nested lists, tuples and dicts, with the way to each."""
    if isinstance(value, kind):
        return [(name or "result", value)]
    if isinstance(value, list | tuple):
        parts: Any = enumerate(value)
    elif isinstance(value, dict):
        parts = value.items()
    else:
        return []
    found = []
    for key, part in parts:
        found += named_values(part, kind, f"{name}.{key}" if name else str(key))
    return found


class Inputs:
    """The tensors and variables among the arguments of one call, stored and described."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        named = named_values(args, Tensor) + named_values(kwargs, Tensor)
        unstored = [t for _, t in named if not _is_whole_buffer(t.uop)]
        if unstored:
            for tensor in unstored:
                tensor.uop = tensor.uop.contiguous()
            Tensor.realize(*unstored)
        self.names = [name for name, _ in named]
        self.nodes = [t.uop.base for _, t in named]
        self.described = [(t.shape, t.dtype, t.device, t.uop.axis) for _, t in named]
        if len(set(self.nodes)) != len(self.nodes):
            twice = [n for i, n in enumerate(self.names) if self.nodes[i] in self.nodes[:i]]
            raise JitError(
                f"the same tensor is passed twice (argument {twice[0]}); pass a .clone() of it"
            )
        bound = named_values(args, UOp) + named_values(kwargs, UOp)
        self.variables: dict[str, int] = {}
        for _, node in [*bound, *((n, t.uop) for n, t in named)]:
            self._bind(node)
        self.described = [(_unbound_shape(s), d, w, a) for s, d, w, a in self.described]
        whole = all(t.uop.op is Ops.BUFFER for _, t in named)
        self.plain = whole and not bound and not kwargs and len(named) == len(args)

    def _bind(self, node: UOp) -> None:
        sizes = [s for s in (node.shape or ()) if isinstance(s, UOp)]
        for found in toposort([*sizes, node] if node.op is Ops.BIND else sizes):
            if found.op is Ops.BIND:
                variable, value = found.unbind()
                self.variables[variable.arg.name] = value

    @property
    def buffers(self) -> list[Buffer]:
        """The memory of the inputs, slot by slot."""
        return [b for n in self.nodes for b in execute.memory_of(n)]


def _unbound_shape(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    table = {
        n: n.src[0] for s in shape if isinstance(s, UOp) for n in toposort([s]) if n.op is Ops.BIND
    }
    return tuple(s.substitute(table) if isinstance(s, UOp) else s for s in shape)


def _is_whole_buffer(node: UOp) -> bool:
    while node.op in (Ops.RESHAPE, Ops.UNSHARD, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.BUFFER


class Recording:
    """What one run launched, and how its results depend on inputs and on memory it made."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.lists: list[tuple[UOp, dict[str, int], MemoryPlan]] = []
        self.fresh: list[UOp] = []
        self.started = now()

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
        self.plain = self.inputs.plain
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
        self.fresh = [
            n
            for n in dict.fromkeys(outputs)
            if n in made and n not in own_inputs and n.born > self.started
        ]
        movable = {id(b): b for n in self.fresh for b in execute.memory_of(n)}
        movable.update({id(b): b for b in self.inputs.buffers})
        self.earlier: dict[UOp, list[UOp]] = {n: [] for n in self.fresh}
        self.made = list(made)
        self.plan = Replay(steps, variables, movable)
        self.variables = variables
        kernels = sum(s.count for s in steps if s.program is not None)
        self.work = (*(sum(w) for w in zip(*self.plan.work, strict=True)), kernels)

    def replay(self, args: Any, kwargs: Any) -> Any:
        """Run the recording on new inputs; returns results like the recorded one."""
        nodes = None if kwargs else self._plain_inputs(args)
        variables = self.variables
        if nodes is None:
            given = Inputs(args, kwargs)
            self._check(given)
            nodes = given.nodes
            if given.variables != self.inputs.variables:
                variables = {**variables, **given.variables}
        table = dict(zip(self.inputs.nodes, nodes, strict=True))
        replaced: dict[int, Buffer] = {}
        for old, new in table.items():
            _replace_memory(replaced, old, new)
        for node in self.fresh:
            table[node] = own = self._memory_for(node)
            _replace_memory(replaced, node, own)
        for bound in self.bound:
            table[bound] = bound.src[0].bind(variables[bound.src[0].arg.name])
        self.plan.run(replaced, variables)
        GlobalCounters.global_ops += self.work[0]
        GlobalCounters.global_mem += self.work[1]
        GlobalCounters.kernel_count += self.work[2]
        return _rebuilt(self.result, table)

    def _plain_inputs(self, args: tuple[Any, ...]) -> list[UOp] | None:
        """The nodes of inputs that need no description: whole buffers like the recorded ones.

        None where anything is out of the ordinary; the long way then says what.
        """
        recorded = self.inputs.nodes
        if not self.plain or len(args) != len(recorded):
            return None
        nodes = []
        for argument, old in zip(args, recorded, strict=True):
            if type(argument) is not Tensor:
                return None
            node = argument.uop
            if node.op is not Ops.BUFFER or node.dtype is not old.dtype:
                return None
            if node.arg.shape != old.arg.shape or node.arg.device != old.arg.device:
                return None
            nodes.append(node)
        return nodes if len(set(nodes)) == len(nodes) else None

    def _memory_for(self, node: UOp) -> UOp:
        """The memory of an output: of an earlier replay where nobody holds it any more."""
        earlier = self.earlier[node]
        for position in range(len(earlier)):
            # the references: the list, and the argument of getrefcount
            if sys.getrefcount(earlier[position]) <= 2:
                memory: UOp = earlier[position]
                if not any(buffer.is_seen for buffer in execute.memory_of(memory)):
                    return memory
        info = node.arg
        made: UOp = UOp.new_memory(info.device, info.shape, node.dtype, kind=info.kind)
        earlier.append(made)
        del earlier[:-REMEMBERED]
        return made

    def _check(self, given: Inputs) -> None:
        if given.names != self.inputs.names:
            raise JitError(
                f"expected the inputs {self.inputs.names} that were recorded, got {given.names}"
            )
        for name, old, new in zip(given.names, self.inputs.described, given.described, strict=True):
            if old != new:
                raise JitError(
                    f"input {name} was recorded as {_text(old)}, got {_text(new)}; call reset() "
                    "or use another TinyJit for it"
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


def _text(described: tuple[Any, ...]) -> str:
    shape, dtype, device, axis = described
    sizes = tuple(s if isinstance(s, int) else s.render() for s in shape)
    place = f"{device}" if axis is None else f"{device} along axis {axis}"
    return f"a tensor of shape {sizes}, {dtype} on {place}"


def _rebuilt(result: Any, table: dict[UOp, UOp]) -> Any:
    """The result of the recorded call with its memory replaced."""
    if isinstance(result, Tensor):
        known = table.get(result.uop)
        return Tensor._of(substitute([result.uop], table)[0] if known is None else known)
    if isinstance(result, list | tuple):
        parts = [_rebuilt(r, table) for r in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return type(result)(parts)
    if isinstance(result, dict):
        return {k: _rebuilt(v, table) for k, v in result.items()}
    return result
