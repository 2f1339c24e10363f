"""Register and pointer types: as numba sees them, and as LLVM does."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import models, register_model

ELEMENT: dict[str, Any] = {
    "b1": ir.IntType(1),
    **{f"{s}{n}": ir.IntType(n) for s in "iu" for n in (8, 16, 32, 64)},
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
# what lies in memory: bools and fp8 as bytes, 16-bit floats as their bits
STORED: dict[str, Any] = {
    **ELEMENT,
    "b1": ir.IntType(8),
    "f16": ir.IntType(16),
    "bf16": ir.IntType(16),
    "fp8e4m3": ir.IntType(8),
    "fp8e5m2": ir.IntType(8),
}
I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
# numba compares what pointers point to; LLVM itself only knows `ptr`
POINTER = I8.as_pointer()


class Register(types.Type):  # type: ignore[misc]
    """A value in a register: `lanes` elements of a kind (1: a scalar)."""

    def __init__(self, kind: str, lanes: int) -> None:
        self.kind, self.lanes = kind, lanes
        super().__init__(name=f"{kind}x{lanes}")


class Memory(types.Type):  # type: ignore[misc]
    """A pointer to elements of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"{kind}ptr")


@register_model(Register)
class RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    """A register is an LLVM scalar or vector."""

    def __init__(self, manager: Any, front: Register) -> None:
        super().__init__(manager, front, shape(ELEMENT[front.kind], front.lanes))


@register_model(Memory)
class MemoryModel(models.PrimitiveModel):  # type: ignore[misc]
    """Memory is an LLVM pointer."""

    def __init__(self, manager: Any, front: Memory) -> None:
        super().__init__(manager, front, POINTER)


def shape(element: Any, lanes: int) -> Any:
    """The LLVM type of so many elements."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


def constant(element: Any, value: Any, lanes: int) -> Any:
    """The same constant in every lane."""
    if lanes == 1:
        return ir.Constant(element, value)
    return ir.Constant(ir.VectorType(element, lanes), [ir.Constant(element, value)] * lanes)


def is_float(kind: str) -> bool:
    """Whether the elements are floating point numbers."""
    return kind in ("f32", "f64")


def is_signed(kind: str) -> bool:
    """Whether the elements are integers with a sign."""
    return kind[0] == "i"


def bits(kind: str) -> int:
    """The width of an element."""
    return 1 if kind == "b1" else int(kind[1:])
