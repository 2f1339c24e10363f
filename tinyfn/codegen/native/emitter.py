"""A thin layer over LLVM's builder: lanes, intrinsics, masks; what the lowerings are written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from tinyfn.codegen.native.target import Processor
from tinyfn.codegen.native.types import ELEMENT, I1, I32, constant, is_float, shape
from tinyfn.codegen.simd import Word, spelling
from tinyfn.errors import CompileError


class Emitter:
    """Emits instructions for values of one kind and lane count."""

    def __init__(self, builder: Any, kind: str, lanes: int, cpu: Processor) -> None:
        self.b, self.kind, self.lanes, self.cpu = builder, kind, lanes, cpu
        self.element = ELEMENT[kind]
        self.type = shape(self.element, lanes)

    def const(self, value: Any, element: Any = None) -> Any:
        """A constant in every lane (of the emitter's element unless another is given)."""
        return constant(self.element if element is None else element, value, self.lanes)

    def to(self, kind: str) -> Emitter:
        """The same place for another kind."""
        return Emitter(self.b, kind, self.lanes, self.cpu)

    def of(self, element: Any) -> Any:
        """The LLVM type of these lanes of another element."""
        return shape(element, self.lanes)

    @property
    def suffix(self) -> str:
        """How intrinsics spell the type."""
        return spelled(self.type)

    def call(self, name: str, result: Any, *args: Any) -> Any:
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), args)

    def intrinsic(self, name: str, *args: Any) -> Any:
        """An intrinsic from this type to this type."""
        return self.call(f"llvm.{name}.{self.suffix}", self.type, *args)

    def splat(self, scalar: Any) -> Any:
        """A scalar in every lane."""
        return splat(self.b, scalar, self.lanes)

    def compare(self, sign: str, x: Any, y: Any) -> Any:
        """An ordered comparison (`!=` is unordered, as in C)."""
        if is_float(self.kind):
            if sign == "!=":
                return self.b.fcmp_unordered(sign, x, y)
            return self.b.fcmp_ordered(sign, x, y)
        if self.kind[0] == "i":
            return self.b.icmp_signed(sign, x, y)
        return self.b.icmp_unsigned(sign, x, y)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        """x where the condition holds, else y."""
        return self.b.select(condition, x, y)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z, fused where the processor can."""
        if not self.cpu.has_fma:
            return self.b.fadd(self.b.fmul(x, y), z)
        return self.intrinsic("fma", x, y, z)


def spelled(kind: Any) -> str:
    """A type as it stands in the name of an intrinsic: f32, v16f32, i64."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{spelled(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"


def splat(builder: Any, scalar: Any, lanes: int) -> Any:
    """A scalar in every lane of a vector."""
    if lanes == 1:
        return scalar
    kind = ir.VectorType(scalar.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, lanes), [ir.Constant(I32, 0)] * lanes)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), zeros)


def lanes_of(builder: Any, vector: Any, first: int, count: int) -> Any:
    """Some lanes of a vector, from the first on."""
    picks = ir.Constant(
        ir.VectorType(I32, count), [ir.Constant(I32, first + lane) for lane in range(count)]
    )
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), picks)


def joined(builder: Any, parts: Sequence[Any]) -> Any:
    """Vectors of the same length, a power of two of them, as one."""
    while len(parts) > 1:
        count = 2 * parts[0].type.count
        picks = lane_numbers(I32, count)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.shuffle_vector(low, high, picks) for low, high in pairs]
    return parts[0]


def lane_numbers(element: Any, lanes: int) -> Any:
    """0, 1, ... lanes-1 as a constant."""
    if lanes == 1:
        return ir.Constant(element, 0)
    values = [ir.Constant(element, i) for i in range(lanes)]
    return ir.Constant(ir.VectorType(element, lanes), values)


def all_true(lanes: int) -> Any:
    """The mask of all lanes."""
    return constant(I1, 1, lanes)


def literal(word: Word, value: Any, most: int | None = None) -> int:
    """The number that an argument is, where a kernel has to give it as a literal, up to `most`."""
    number = int(value.constant) if isinstance(value, ir.Constant) else -1
    if number < 0 or (most is not None and number > most):
        limits = "from 0 on" if most is None else f"from 0 to {most}"
        raise CompileError(f"expected a literal {limits} as the last argument of {spelling(word)}")
    return number
