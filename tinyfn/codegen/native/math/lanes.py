"""Numbers in lanes: operators on scalar or vector LLVM values; functions then read like formulas.

`Lanes` knows the element type and the count of lanes and makes constants. `Real`, `Whole` and
`Mask` are floats, integers of the same width, and booleans. Nothing here is reassociated or
contracted by itself: a fused multiply-add is written `fma`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from llvmlite import ir


@dataclass(frozen=True)
class Format:
    """What the functions need to know of an IEEE type."""

    bits: int
    mantissa: int
    bias: int
    smallest: float  # the smallest normal number
    rounder: float  # x + rounder - rounder rounds x to an integer, which its low bits then hold

    @property
    def unit(self) -> float:
        """Every number from here up is an integer."""
        return 2.0**self.mantissa


FORMATS = {
    "f32": Format(32, 23, 127, 2.0**-126, 1.5 * 2.0**23),
    "f64": Format(64, 52, 1023, 2.0**-1022, 1.5 * 2.0**52),
}
TYPES = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
INFINITY = float("inf")
NAN = float("nan")


class Splat(ir.Constant):  # type: ignore[misc]
    """A constant given by its LLVM text: `splat (float 1.0)` instead of a list of all lanes."""

    def __init__(self, kind: Any, text: str) -> None:
        super().__init__(kind, None)
        self.text = text

    def _get_reference(self) -> str:
        return self.text


@dataclass(frozen=True)
class Lanes:
    """A place to emit to, an element type and a count of lanes (1: scalar types)."""

    builder: Any
    element: str
    count: int
    fused: bool
    branches: bool

    @property
    def format(self) -> Format:
        """The layout of the element type."""
        return FORMATS[self.element]

    def of(self, element: str) -> Lanes:
        """The same lanes with another element type."""
        return Lanes(self.builder, element, self.count, self.fused, self.branches)

    def shaped(self, scalar: Any) -> Any:
        """The LLVM type that holds one scalar a lane."""
        return scalar if self.count == 1 else ir.VectorType(scalar, self.count)

    @property
    def real_type(self) -> Any:
        """The LLVM type of a `Real`."""
        return self.shaped(TYPES[self.element])

    @property
    def whole_type(self) -> Any:
        """The LLVM type of a `Whole`."""
        return self.shaped(ir.IntType(self.format.bits))

    def constant(self, scalar: Any, text: str) -> Any:
        """A constant in all lanes; `splat` keeps the IR text short."""
        return Splat(self.shaped(scalar), text if self.count == 1 else f"splat ({scalar} {text})")

    def real(self, value: float | Real) -> Real:
        """A float in all lanes, rounded to the element type."""
        if isinstance(value, Real):
            return value
        if self.element == "f32":
            value = struct.unpack("f", struct.pack("f", value))[0]
        pattern = struct.unpack("Q", struct.pack("d", value))[0]
        return Real(self, self.constant(TYPES[self.element], f"0x{pattern:016x}"))

    def whole(self, value: int | Whole) -> Whole:
        """An integer in all lanes (a bit pattern: taken modulo the width)."""
        if isinstance(value, Whole):
            return value
        bits = self.format.bits
        return Whole(self, self.constant(ir.IntType(bits), str(signed(value, bits))))

    def pattern(self, value: float) -> int:
        """The bits of a float of the element type."""
        code = "fI" if self.element == "f32" else "dQ"
        return int(struct.unpack(code[1], struct.pack(code[0], value))[0])

    def call(self, name: str, *args: Any) -> Any:
        """Call an overloaded LLVM intrinsic on values of one type."""
        kind = args[0].type
        scalar = kind.element if self.count > 1 else kind
        short = f"i{scalar.width}" if isinstance(scalar, ir.IntType) else f"f{self.format.bits}"
        full = f"llvm.{name}.{short}" if self.count == 1 else f"llvm.{name}.v{self.count}{short}"
        module = self.builder.module
        function = module.globals.get(full)
        if function is None:
            function = ir.Function(module, ir.FunctionType(kind, [kind] * len(args)), full)
        return self.builder.call(function, args)

    def fma(self, a: Real, b: float | Real, c: float | Real) -> Real:
        """a * b + c: rounded once with `fused`, twice without."""
        b, c = self.real(b), self.real(c)
        if not self.fused:
            return a * b + c
        return Real(self, self.call("fma", a.value, b.value, c.value))

    def careful_fma(self, a: Real, b: float | Real, c: float | Real) -> Real:
        """`fma` where a second rounding shows: float32 without `fused` goes through float64."""
        if self.fused or self.element == "f64":
            return self.fma(a, b, c)
        product = a.to("f64") * self.real(b).to("f64")
        return (product + self.real(c).to("f64")).to("f32")

    def horner(self, x: Real, coefficients: Sequence[float]) -> Real:
        """The polynomial with these coefficients, lowest power first."""
        result = self.real(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.fma(result, x, coefficient)
        return result

    def rarely(
        self, mask: Mask, usual: Sequence[Any], compute: Callable[[], Sequence[Any]]
    ) -> list[Any]:
        """`compute()` in the lanes of the mask, `usual` elsewhere; skipped if no lane needs it."""
        before = self.builder.block
        with self.builder.if_then(mask.any(), likely=False):
            chosen = [mask.select(c, u) for c, u in zip(compute(), usual, strict=True)]
            inside = self.builder.block
        results = []
        for new, old in zip(chosen, usual, strict=True):
            merged = self.builder.phi(new.value.type)
            merged.add_incoming(new.value, inside)
            merged.add_incoming(old.value, before)
            results.append(type(old)(old.lanes, merged))
        return results


def signed(value: int, bits: int) -> int:
    """The integer of that width with the same low bits, as LLVM's text wants it."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(frozen=True)
class Real:
    """Floats in lanes."""

    lanes: Lanes
    value: Any

    def apply(self, operation: str, other: float | Real) -> Real:
        """One of the builder's float operations."""
        method = getattr(self.lanes.builder, operation)
        return Real(self.lanes, method(self.value, self.lanes.real(other).value))

    def __add__(self, other: float | Real) -> Real:
        return self.apply("fadd", other)

    def __sub__(self, other: float | Real) -> Real:
        return self.apply("fsub", other)

    def __rsub__(self, other: float) -> Real:
        return self.lanes.real(other) - self

    def __mul__(self, other: float | Real) -> Real:
        return self.apply("fmul", other)

    def __truediv__(self, other: float | Real) -> Real:
        return self.apply("fdiv", other)

    def __rtruediv__(self, other: float) -> Real:
        return self.lanes.real(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Real:
        return Real(self.lanes, self.lanes.builder.fneg(self.value))

    def __abs__(self) -> Real:
        return Real(self.lanes, self.lanes.call("fabs", self.value))

    def compare(self, sign: str, other: float | Real) -> Mask:
        """An ordered comparison: false where either is NaN."""
        other = self.lanes.real(other)
        return Mask(self.lanes, self.lanes.builder.fcmp_ordered(sign, self.value, other.value))

    def __lt__(self, other: float | Real) -> Mask:
        return self.compare("<", other)

    def __le__(self, other: float | Real) -> Mask:
        return self.compare("<=", other)

    def __gt__(self, other: float | Real) -> Mask:
        return self.compare(">", other)

    def __ge__(self, other: float | Real) -> Mask:
        return self.compare(">=", other)

    def equals(self, other: float | Real) -> Mask:
        """Equal, and neither is NaN."""
        return self.compare("==", other)

    def at_most(self, limit: float) -> Real:
        """The smaller of the value and the limit; NaN stays."""
        bound = self.lanes.real(limit)
        return (bound < self).select(bound, self)

    def at_least(self, limit: float) -> Real:
        """The larger of the value and the limit; NaN stays."""
        bound = self.lanes.real(limit)
        return (bound > self).select(bound, self)

    def with_sign_of(self, other: Real) -> Real:
        """The magnitude of the value under the sign of another."""
        return Real(self.lanes, self.lanes.call("copysign", self.value, other.value))

    def square_root(self) -> Real:
        """The square root, rounded right."""
        return Real(self.lanes, self.lanes.call("sqrt", self.value))

    def bits(self) -> Whole:
        """The bit pattern."""
        return Whole(self.lanes, self.lanes.builder.bitcast(self.value, self.lanes.whole_type))

    def to(self, element: str) -> Real:
        """Converted to another element type."""
        if element == self.lanes.element:
            return self
        target = self.lanes.of(element)
        convert = self.lanes.builder.fpext if element == "f64" else self.lanes.builder.fptrunc
        return Real(target, convert(self.value, target.real_type))


@dataclass(frozen=True)
class Whole:
    """Integers in lanes, as wide as the element type, wrapping."""

    lanes: Lanes
    value: Any

    def apply(self, operation: str, other: int | Whole) -> Whole:
        """One of the builder's integer operations."""
        method = getattr(self.lanes.builder, operation)
        return Whole(self.lanes, method(self.value, self.lanes.whole(other).value))

    def __add__(self, other: int | Whole) -> Whole:
        return self.apply("add", other)

    def __sub__(self, other: int | Whole) -> Whole:
        return self.apply("sub", other)

    def __rsub__(self, other: int) -> Whole:
        return self.lanes.whole(other) - self

    def __mul__(self, other: int | Whole) -> Whole:
        return self.apply("mul", other)

    def __and__(self, other: int | Whole) -> Whole:
        return self.apply("and_", other)

    def __or__(self, other: int | Whole) -> Whole:
        return self.apply("or_", other)

    def __xor__(self, other: int | Whole) -> Whole:
        return self.apply("xor", other)

    def __lshift__(self, other: int | Whole) -> Whole:
        return self.apply("shl", other)

    def __rshift__(self, other: int | Whole) -> Whole:
        """Shift right, filling with zeros."""
        return self.apply("lshr", other)

    def signed_shift(self, other: int) -> Whole:
        """Shift right, filling with the sign."""
        return self.apply("ashr", other)

    def equals(self, other: int | Whole) -> Mask:
        """Equal."""
        other = self.lanes.whole(other)
        return Mask(self.lanes, self.lanes.builder.icmp_signed("==", self.value, other.value))

    def below(self, other: Whole) -> Mask:
        """Less, both taken as unsigned."""
        return Mask(self.lanes, self.lanes.builder.icmp_unsigned("<", self.value, other.value))

    def at_most(self, limit: int) -> Whole:
        """The smaller (signed) of the value and the limit."""
        bound = self.lanes.whole(limit)
        below = self.lanes.builder.icmp_signed("<", self.value, bound.value)
        return Mask(self.lanes, below).select(self, bound)

    def real(self) -> Real:
        """The float with this bit pattern."""
        return Real(self.lanes, self.lanes.builder.bitcast(self.value, self.lanes.real_type))

    def number(self) -> Real:
        """The float nearest this integer; exact up to 2^24 (float32) or 2^51 (float64)."""
        lanes = self.lanes
        if lanes.element == "f32":
            return Real(lanes, lanes.builder.sitofp(self.value, lanes.real_type))
        # Few CPUs convert 64-bit integers in vectors: use the low bits of a float instead.
        return (self + lanes.pattern(lanes.format.rounder)).real() - lanes.format.rounder

    def to(self, element: str) -> Whole:
        """As wide as another element type: zeros above, or the low bits."""
        target = self.lanes.of(element)
        if target.format.bits == self.lanes.format.bits:
            return self
        builder = self.lanes.builder
        convert = builder.zext if target.format.bits > self.lanes.format.bits else builder.trunc
        return Whole(target, convert(self.value, target.whole_type))

    def joined(self, below: Whole, shift: Whole) -> Whole:
        """The high word of (self, below) shifted left by 0 <= shift < width."""
        return Whole(self.lanes, self.lanes.call("fshl", self.value, below.value, shift.value))


@dataclass(frozen=True)
class Mask:
    """Booleans in lanes."""

    lanes: Lanes
    value: Any

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.lanes, self.lanes.builder.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.lanes, self.lanes.builder.or_(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.lanes, self.lanes.builder.not_(self.value))

    @overload
    def select(self, yes: Real, no: float | Real) -> Real: ...
    @overload
    def select(self, yes: float, no: Real) -> Real: ...
    @overload
    def select(self, yes: Whole, no: int | Whole) -> Whole: ...
    @overload
    def select(self, yes: int, no: Whole) -> Whole: ...
    def select(self, yes: Any, no: Any) -> Any:
        """`yes` where true, `no` elsewhere; one of them may be a plain number."""
        if not isinstance(yes, Real | Whole):
            yes = no.lanes.real(yes) if isinstance(no, Real) else no.lanes.whole(yes)
        if not isinstance(no, Real | Whole):
            no = yes.lanes.real(no) if isinstance(yes, Real) else yes.lanes.whole(no)
        return type(yes)(yes.lanes, self.lanes.builder.select(self.value, yes.value, no.value))

    def pick(self, yes: float, no: float) -> Real:
        """One of two constants."""
        return self.select(self.lanes.real(yes), self.lanes.real(no))

    def pick_whole(self, yes: int, no: int) -> Whole:
        """One of two integer constants."""
        return self.select(self.lanes.whole(yes), self.lanes.whole(no))

    def any(self) -> Any:
        """A scalar i1: is it true in some lane?"""
        builder, count = self.lanes.builder, self.lanes.count
        if count == 1:
            return self.value
        packed = builder.bitcast(self.value, ir.IntType(count))
        return builder.icmp_unsigned("!=", packed, ir.Constant(ir.IntType(count), 0))
