"""TinyJit: run a function twice, keep what the second run launched, replay it from the third on."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from tinyfn import live
from tinyfn.call import capturing, refuse_while_capturing
from tinyfn.errors import JitError
from tinyfn.helpers import JIT
from tinyfn.jit.inputs import Inputs, named_values
from tinyfn.jit.overwritten import Overwritten
from tinyfn.jit.recording import Recording
from tinyfn.runtime import execute
from tinyfn.tensor import Tensor
from tinyfn.uop.node import now
from tinyfn.uop.ops import Ops, UOp

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["JitError", "TinyJit"]

_wanted, _changes = JIT.get, live.changes


class TinyJit(Generic[P, R]):
    """Make a function of tensors fast to call again and again.

    The first call runs as it is. The second is recorded: everything it computes must be realised
    inside of it (its results and what it assigns to are). From the third call on the recording is
    replayed on the new inputs: Python inside the function does not run again.

    Inputs are tensors and bound variables among the arguments, by position and name, also inside
    of lists, tuples and dicts; shapes, dtypes and devices have to stay the same. Other arguments
    are part of the recording.

    Raises:
        JitError: inputs differ from the recorded ones, a tensor is passed twice, or nothing ran.

    >>> total = Tensor([0]).realize()
    >>> @TinyJit
    ... def add(x):
    ...     return total.assign(total + x).realize()
    >>> [add(Tensor([i]).realize()).item() for i in (1, 2, 3, 4)]
    [1, 3, 6, 10]
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
        if capturing.names:
            refuse_while_capturing("calling a TinyJit")
        captured = self.captured
        if not _wanted():
            return self._run(args, kwargs)
        if _changes.writes:
            # what was assigned before the call is there for a replay, and no part of a recording
            live.realize_writes()
        if captured is not None and self.cnt:
            return cast(R, captured.replay(args, kwargs))
        result = self._record(args, kwargs) if self.cnt else self._watch(args, kwargs)
        self.cnt += 1
        return result

    def _watch(self, args: Any, kwargs: Any) -> R:
        """The first call: it shows what the second will overwrite."""
        self._overwritten = seen = Overwritten(_memory_of(args, kwargs), now())
        execute.recorders.watching.append(seen.note)
        try:
            return self._run(args, kwargs)
        finally:
            execute.recorders.watching.remove(seen.note)

    def _run(self, args: Any, kwargs: Any) -> R:
        assert self.fxn is not None
        with live.watch_rebound() as rebound:
            result = self.fxn(*args, **kwargs)
        _realize(result, [t for t in (reference() for reference in rebound) if t is not None])
        return result

    def _record(self, args: Any, kwargs: Any) -> R:
        if execute.recorders.active:
            raise JitError(
                "a TinyJit is called while another one records; jit the outer function only"
            )
        inputs = Inputs(args, kwargs)
        self._overwritten.realize_readers(inputs.nodes)
        recording = Recording(inputs)
        execute.recorders.active.append(recording.add)
        try:
            result = self._run(args, kwargs)
        finally:
            execute.recorders.active.remove(recording.add)
        recording.finish(result)
        self.captured = recording
        return result


def _memory_of(args: Any, kwargs: Any) -> list[UOp]:
    tensors = [t for _, t in [*named_values(args, Tensor), *named_values(kwargs, Tensor)]]
    return [t.uop.buf_uop for t in tensors]


def _realize(result: Any, rebound: Iterable[Tensor]) -> None:
    """Compute the results, and what is left to do for the tensors that were assigned to.

    Those that had no memory get some, so that the next call writes there and a replay does too.
    """
    for tensor in rebound:
        if tensor.uop.base.op not in (Ops.BUFFER, Ops.AFTER):
            tensor.give_memory()
    live.realize([*(t.uop for _, t in named_values(result, Tensor)), *live.pending_writes()])
