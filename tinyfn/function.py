"""`@function`: run a function once on the caller's tensors and keep what it did as a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar, overload

from tinyfn import tree
from tinyfn.call import build_call, capture_body, capturing
from tinyfn.errors import FunctionResultError
from tinyfn.tensor import Tensor
from tinyfn.uop.node import fence, now
from tinyfn.uop.ops import CallInfo, Ops, UOp

P = ParamSpec("P")
R = TypeVar("R")


class _Depth(type):
    """Gives the class `_function` the property `depth`, read from the flag of this thread."""

    @property
    def depth(cls) -> int:
        """How many functions are being captured at this moment."""
        return len(capturing.names)


class _function(Generic[P, R], metaclass=_Depth):  # noqa: N801 (the name users know)
    """A captured function: call it with tensors, get tensors whose graph is one call node."""

    def __init__(
        self,
        fxn: Callable[P, R],
        *,
        precompile: bool = False,
        precompile_backward: bool = False,
        allow_implicit: bool = False,
        grad_fxn: Callable[..., Any] | None = None,
    ) -> None:
        self.fxn = fxn
        self.allow_implicit = allow_implicit
        named = fxn if hasattr(fxn, "__qualname__") else type(fxn)
        self.name = named.__qualname__
        self.info = CallInfo(self.name, grad_fxn, precompile, precompile_backward)
        if hasattr(fxn, "__qualname__"):
            functools.update_wrapper(self, fxn)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        inputs = [t.uop for t in tree.find((args, kwargs), Tensor)]
        inputs += [u for u in tree.find((args, kwargs), UOp) if u.op is Ops.BIND]
        started = now()
        with _capture(self.name, started):
            result: Any = self.fxn(*args, **kwargs)
        values = [t.uop for t in self._outputs(result)]
        body = capture_body(values, inputs, started, self.name, self.allow_implicit)
        outputs = tuple(Tensor(u) for u in build_call(body, values, self.info))
        return outputs if isinstance(result, tuple) else outputs[0]  # type: ignore[return-value]

    def _outputs(self, result: Any) -> tuple[Tensor, ...]:
        values = result if isinstance(result, tuple) else (result,)
        wrong = [type(v).__name__ for v in values if not isinstance(v, Tensor)]
        if wrong or not values:
            raise FunctionResultError(self.name, ", ".join(wrong) or "an empty tuple")
        return values


@contextmanager
def _capture(name: str, started: int) -> Generator[None]:
    """Mark that a function is being captured, whatever happens inside."""
    capturing.names.append(name)
    outer, fence.since = fence.since, started
    try:
        yield
    except Exception as error:
        error.add_note(f"raised inside the captured function {name}")
        raise
    finally:
        capturing.names.pop()
        fence.since = outer


@overload
def function(
    fxn: Callable[P, R],
    *,
    precompile: bool = ...,
    precompile_backward: bool = ...,
    allow_implicit: bool = ...,
    grad_fxn: Callable[..., Any] | None = ...,
) -> _function[P, R]: ...


@overload
def function(
    fxn: None = None,
    *,
    precompile: bool = ...,
    precompile_backward: bool = ...,
    allow_implicit: bool = ...,
    grad_fxn: Callable[..., Any] | None = ...,
) -> Callable[[Callable[P, R]], _function[P, R]]: ...


def function(
    fxn: Any = None,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    allow_implicit: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
) -> Any:
    """Capture a function of tensors: every call becomes one node of the graph.

    Tensors are found in positional and keyword arguments, in lists, dicts and objects (`self` of
    a method). The result is a Tensor or a tuple of Tensors.

    Args:
        fxn: the function, method or callable object.
        precompile: schedule and compile the body once per structure, not with its surroundings.
        precompile_backward: the same for the gradient of the call.
        allow_implicit: take buffers that the body reaches in other ways as arguments, too.
        grad_fxn: called as `grad_fxn(*output_gradients, call=call)`; returns one gradient (or
            None) for each argument of the call.

    Raises:
        ImplicitInputError: a buffer is read that was not passed, and `allow_implicit` is False.
        FunctionResultError: the result is neither a Tensor nor a tuple of Tensors.

    >>> @function
    ... def scaled(x, factor):
    ...     return x * factor
    >>> scaled(Tensor([1, 2]), Tensor(10)).tolist()
    [10, 20]
    """
    options: dict[str, Any] = {
        "precompile": precompile,
        "precompile_backward": precompile_backward,
        "allow_implicit": allow_implicit,
        "grad_fxn": grad_fxn,
    }
    if fxn is None:
        return functools.partial(_function, **options)
    return _function(fxn, **options)
