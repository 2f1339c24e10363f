"""Casts between register types: truncation, wrapping and the bits of INT64_MIN, never undefined."""

from __future__ import annotations

from typing import Any

from tinyfn.codegen.native import small_floats
from tinyfn.codegen.native.emitter import Emitter
from tinyfn.codegen.native.types import ELEMENT, bits, is_float, is_signed
from tinyfn.codegen.simd import STORAGE_ONLY, Word

INT64_MIN = -(1 << 63)


def cast(e: Emitter, word: Word, x: Any) -> Any:
    """The value in another type; `e` is for the target's type."""
    source, target = word.source, word.kind
    if source == target:
        return x
    origin = e.to(source)
    if target == "b1":
        return origin.compare("!=", x, origin.const(0 if not is_float(source) else 0.0))
    if is_float(source):
        return _from_float(e, origin, x)
    if is_float(target):
        return _to_float(e, origin, x)
    if bits(target) < bits(source):
        return e.b.trunc(x, e.type)
    if bits(target) == bits(source):
        return x
    return e.b.sext(x, e.type) if is_signed(source) else e.b.zext(x, e.type)


def _to_float(e: Emitter, origin: Emitter, x: Any) -> Any:
    return e.b.sitofp(x, e.type) if is_signed(origin.kind) else e.b.uitofp(x, e.type)


def _from_float(e: Emitter, origin: Emitter, x: Any) -> Any:
    if is_float(e.kind):
        return e.b.fpext(x, e.type) if e.kind == "f64" else e.b.fptrunc(x, e.type)
    wide = _to_int64(e, origin, x)
    if e.kind == "u64":
        high = e.b.and_(
            origin.compare(">=", x, origin.const(2.0**63)),
            origin.compare("<", x, origin.const(2.0**64)),
        )
        safe = e.select(high, x, origin.const(0.0))
        return e.select(high, e.b.fptoui(safe, e.type), wide)
    return wide if bits(e.kind) == 64 else e.b.trunc(wide, e.type)


def _to_int64(e: Emitter, origin: Emitter, x: Any) -> Any:
    """Truncated; the bits of INT64_MIN for NaN and what is out of range."""
    inside = e.b.and_(
        origin.compare(">=", x, origin.const(-(2.0**63))),
        origin.compare("<", x, origin.const(2.0**63)),
    )
    safe = e.select(inside, x, origin.const(0.0))
    long = e.to("i64")
    return e.select(inside, e.b.fptosi(safe, long.type), long.const(INT64_MIN))


def bitcast(e: Emitter, word: Word, x: Any) -> Any:
    """The same bits; small floats stand in f32 registers."""
    if word.source in STORAGE_ONLY:
        stored = small_floats.encode(e.to("f32"), word.source, x)
        if word.kind in STORAGE_ONLY:
            return small_floats.decode(e.to("f32"), word.kind, stored)
        return stored
    if word.source == "b1":
        x = e.b.zext(x, e.of(ELEMENT["u8"]))
    if word.kind in STORAGE_ONLY:
        return small_floats.decode(e.to("f32"), word.kind, x)
    if word.kind == "b1":
        return e.b.icmp_unsigned("!=", x, e.const(0, ELEMENT["u8"]))
    return e.b.bitcast(x, e.type)


def quantize(e: Emitter, word: Word, x: Any) -> Any:
    """The nearest value that the small type can store, as f32."""
    return small_floats.decode(e, word.kind, small_floats.encode(e, word.kind, x))
