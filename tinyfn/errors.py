"""Every exception class, with the sentence it says: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class TinyfnError(Exception):
    """The base of what tinyfn raises."""


class FlagError(TinyfnError, ValueError):
    """A flag got a value it cannot take."""

    def __init__(self, name: str, wanted: str, got: str) -> None:
        super().__init__(f"flag {name} takes {wanted}, got {got}")

    @classmethod
    def unknown(cls, names: Sequence[str], known: Sequence[str]) -> FlagError:
        """A name that is no flag."""
        error = cls.__new__(cls)
        ValueError.__init__(
            error, f"no flag is called {', '.join(names)}; the flags are {', '.join(known)}"
        )
        return error


class MissingExtraError(TinyfnError, ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package}, which is not installed: "
            f"pip install 'tinyfn[{extra}]'"
        )


class ShapeError(TinyfnError, ValueError):
    """Shapes do not fit."""


class DTypeError(TinyfnError, TypeError, ValueError):
    """A dtype does not fit."""


class IndexingError(TinyfnError, IndexError):
    """An index does not fit the shape."""


class ArgumentError(TinyfnError, ValueError, TypeError):
    """An argument has a value that is not allowed."""


class DeviceError(TinyfnError, ValueError, RuntimeError):
    """A device name or a combination of devices does not fit."""


class ImplicitInputError(TinyfnError, RuntimeError):
    """A function reads a buffer that was not passed to it."""

    def __init__(self, name: str, buffers: Iterable[str]) -> None:
        listed = "\n  ".join(buffers)
        super().__init__(
            f"function {name} reads implicit buffers (tensors that are not among its arguments):"
            f"\n  {listed}\npass them as arguments, or use @function(allow_implicit=True)"
        )


class CaptureError(TinyfnError, RuntimeError):
    """Something that cannot be done while a function is being captured."""


class FunctionResultError(TinyfnError, RuntimeError, TypeError):
    """A captured function returned something that is not a Tensor or a tuple of Tensors."""

    def __init__(self, name: str, got: Any) -> None:
        super().__init__(
            f"function {name} must return a Tensor or a tuple of Tensors, got {got}; "
            "return the tensors of it as a flat tuple"
        )


class GradientError(TinyfnError, RuntimeError):
    """A gradient that cannot be computed."""


class SpecError(TinyfnError, RuntimeError):
    """A graph breaks a rule of its stage; the message shows the listing with the node marked."""


class ScheduleError(TinyfnError, RuntimeError):
    """A graph that cannot be turned into kernels."""


class BindingError(ScheduleError):
    """One variable has two values in one schedule."""


class CompileError(TinyfnError, RuntimeError):
    """A kernel could not be compiled."""


class KernelError(TinyfnError, RuntimeError):
    """A kernel reported a nonzero status."""


class JitError(TinyfnError, RuntimeError):
    """A TinyJit call that cannot be recorded or replayed."""


class OutOfMemoryError(TinyfnError, MemoryError):
    """There is no memory for a buffer."""

    def __init__(self, wanted: int, in_use: int, why: str) -> None:
        super().__init__(
            f"no memory for a buffer of {wanted} bytes: {in_use} bytes are in use by buffers, and "
            f"{why}; use a smaller shape or dtype, or drop tensors that are no longer needed"
        )
