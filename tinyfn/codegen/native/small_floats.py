"""16-bit and 8-bit floats: bits in memory to f32 registers and back, rounded to nearest even.

Integer sequences that are right for every value, NaN and denormals included; float16 uses the
processor's own conversion where it has one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from tinyfn.codegen.native.emitter import Emitter
from tinyfn.codegen.native.types import I8, I16, I32, shape

# exponent bits, mantissa bits, bias, has infinity
FORMATS = {"f16": (5, 10, 15), "fp8e4m3": (4, 3, 7), "fp8e5m2": (5, 2, 15)}


def _int32(e: Emitter, value: int) -> Any:
    return e.const(value, I32)


def _float32(e: Emitter, value: float) -> Any:
    return e.const(value, ir.FloatType())


def decode(e: Emitter, kind: str, stored: Any) -> Any:
    """f32 values of stored bits."""
    if kind == "bf16":
        wide = e.b.shl(e.b.zext(stored, e.of(I32)), e.const(16, I32))
        return e.b.bitcast(wide, e.of(ir.FloatType()))
    if kind == "f16" and e.cpu.has_half:
        half = e.b.bitcast(stored, shape(ir.HalfType(), e.lanes))
        return e.b.fpext(half, e.of(ir.FloatType()))
    return _decode_by_bits(e, kind, stored)


def encode(e: Emitter, kind: str, value: Any) -> Any:
    """Stored bits of f32 values."""
    if kind == "bf16":
        return _encode_bfloat(e, value)
    if kind == "f16" and e.cpu.has_half:
        return e.b.bitcast(e.b.fptrunc(value, shape(ir.HalfType(), e.lanes)), e.of(I16))
    return _encode_by_bits(e, kind, value)


def _encode_bfloat(e: Emitter, value: Any) -> Any:
    """Add half of what is dropped, less one where the kept part is even; keep the high half."""
    b, c = e.b, partial(_int32, e)
    raw = b.bitcast(value, e.of(I32))
    odd = b.and_(b.lshr(raw, c(16)), c(1))
    rounded = b.add(b.add(raw, c(0x7FFF)), odd)
    nan = b.fcmp_unordered("uno", value, value)
    wide = b.select(nan, b.or_(raw, c(0x400000)), rounded)
    return b.trunc(b.lshr(wide, c(16)), e.of(I16))


def _decode_by_bits(e: Emitter, kind: str, stored: Any) -> Any:
    exponent, mantissa, bias = FORMATS[kind]
    b, c = e.b, partial(_int32, e)
    f = partial(_float32, e)
    wide = b.zext(stored, e.of(I32))
    sign = b.shl(b.and_(b.lshr(wide, c(exponent + mantissa)), c(1)), c(31))
    magnitude = b.and_(wide, c((1 << (exponent + mantissa)) - 1))
    # the bits moved to float32's place read as the value times 2^(bias - 127)
    moved = b.bitcast(b.shl(magnitude, c(23 - mantissa)), e.of(ir.FloatType()))
    scaled = b.fmul(moved, f(2.0 ** (127 - bias)))
    found = b.bitcast(scaled, e.of(I32))
    top = ((1 << exponent) - 1) << mantissa
    if kind == "fp8e4m3":
        special = b.icmp_unsigned("==", magnitude, c(0x7F))
        found = b.select(special, c(0x7FC00000), found)
    else:
        special = b.icmp_unsigned(">=", magnitude, c(top))
        tail = b.shl(b.and_(magnitude, c((1 << mantissa) - 1)), c(23 - mantissa))
        found = b.select(special, b.or_(tail, c(0x7F800000)), found)
    return b.bitcast(b.or_(found, sign), e.of(ir.FloatType()))


def _encode_by_bits(e: Emitter, kind: str, value: Any) -> Any:
    exponent, mantissa, bias = FORMATS[kind]
    b, c = e.b, partial(_int32, e)
    raw = b.bitcast(value, e.of(I32))
    sign = b.and_(b.lshr(raw, c(31 - exponent - mantissa)), c(1 << (exponent + mantissa)))
    magnitude = b.and_(raw, c(0x7FFFFFFF))
    shift = 23 - mantissa
    odd = b.and_(b.lshr(magnitude, c(shift)), c(1))
    rounded = b.add(b.add(magnitude, c((1 << (shift - 1)) - 1)), odd)
    normal = b.lshr(b.sub(rounded, c((127 - bias) << 23)), c(shift))
    # denormals: adding a power of two lets the float adder round at the right bit
    anchor = e.const(2.0 ** (1 - bias + 23 - mantissa), ir.FloatType())
    summed = b.fadd(b.bitcast(magnitude, e.of(ir.FloatType())), anchor)
    small = b.sub(b.bitcast(summed, e.of(I32)), b.bitcast(anchor, e.of(I32)))
    is_small = b.icmp_unsigned("<", magnitude, c((127 - bias + 1) << 23))
    found = b.select(is_small, small, normal)
    top = ((1 << exponent) - 1) << mantissa
    if kind == "fp8e4m3":
        over = b.icmp_unsigned(">", found, c(0x7E))
        large = b.icmp_unsigned(">=", magnitude, c(0x7F800000))
        found = b.select(b.or_(over, large), c(0x7F), found)
    else:
        # everything that rounds beyond the largest is infinity
        found = b.select(b.icmp_unsigned(">", found, c(top)), c(top), found)
        large = b.icmp_unsigned(">=", magnitude, c(0x7F800000))
        found = b.select(large, c(top), found)
        quiet = c(top | ((1 << mantissa) - 1 if kind == "fp8e5m2" else 1 << (mantissa - 1)))
        nan = b.icmp_unsigned(">", magnitude, c(0x7F800000))
        found = b.select(nan, quiet, found)
    width = I16 if kind == "f16" else I8
    return b.trunc(b.or_(found, sign), e.of(width))
