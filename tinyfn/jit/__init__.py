"""TinyJit: run a function twice, keep what the second run launched, replay it from the third on."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from tinyfn.call import capturing, refuse_while_capturing
from tinyfn.errors import JitError
from tinyfn.helpers import JIT
from tinyfn.jit.inputs import Inputs, named_values
from tinyfn.jit.recording import Recording
from tinyfn.runtime import execute
from tinyfn.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["JitError", "TinyJit"]

_wanted = JIT.get


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
        if capturing.names:
            refuse_while_capturing("calling a TinyJit")
        captured = self.captured
        if not _wanted():
            return self._run(args, kwargs)
        if captured is not None and self.cnt:
            return cast(R, captured.replay(args, kwargs))
        result = self._record(args, kwargs) if self.cnt else self._run(args, kwargs)
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
