"""Elementwise ops as LLVM instructions, with numpy's meaning and nothing undefined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyfn.codegen.native import math
from tinyfn.codegen.native.emitter import Emitter
from tinyfn.codegen.native.types import ELEMENT, I32, I64, bits, is_float, is_signed

Lowering = Callable[..., Any]
COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


def _add(e: Emitter, x: Any, y: Any) -> Any:
    return e.b.fadd(x, y) if is_float(e.kind) else e.b.add(x, y)


def _sub(e: Emitter, x: Any, y: Any) -> Any:
    return e.b.fsub(x, y) if is_float(e.kind) else e.b.sub(x, y)


def _mul(e: Emitter, x: Any, y: Any) -> Any:
    return e.b.fmul(x, y) if is_float(e.kind) else e.b.mul(x, y)


def _div(e: Emitter, x: Any, y: Any) -> Any:
    return e.b.fdiv(x, y)


def _neg(e: Emitter, x: Any) -> Any:
    return e.b.fneg(x) if is_float(e.kind) else e.b.neg(x)


def _abs(e: Emitter, x: Any) -> Any:
    if is_float(e.kind):
        return e.intrinsic("fabs", x)
    if not is_signed(e.kind):
        return x
    return e.select(e.compare("<", x, e.const(0)), e.b.neg(x), x)


def _not(e: Emitter, x: Any) -> Any:
    return e.b.not_(x)


def _extreme(sign: str) -> Lowering:
    def emit(e: Emitter, x: Any, y: Any) -> Any:
        chosen = e.select(e.compare(sign, x, y), x, y)
        if not is_float(e.kind):
            return chosen
        # y is taken where x is NaN already; a NaN in x has to win too
        return e.select(e.b.fcmp_unordered("uno", x, x), x, chosen)

    return emit


def _guarded(e: Emitter, y: Any) -> tuple[Any, Any]:
    """A divisor that cannot trap, and where it was 0."""
    zero = e.compare("==", y, e.const(0))
    return e.select(zero, e.const(1), y), zero


def _signed_parts(e: Emitter, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Quotient and remainder towards zero, where to step down, and where y is 0 or -1."""
    divisor, zero = _guarded(e, y)
    minus = e.compare("==", divisor, e.const(-1))
    safe = e.select(minus, e.const(1), divisor)
    quotient = e.select(minus, e.b.neg(x), e.b.sdiv(x, safe))
    remainder = e.select(minus, e.const(0), e.b.srem(x, safe))
    apart = e.compare("<", e.b.xor(remainder, divisor), e.const(0))
    step = e.b.and_(e.compare("!=", remainder, e.const(0)), apart)
    return quotient, remainder, step, zero


def _idiv(e: Emitter, x: Any, y: Any) -> Any:
    """floor(x / y); integers by zero give 0."""
    if is_float(e.kind):
        return _float_floor_divide(e, x, y)
    if not is_signed(e.kind):
        divisor, zero = _guarded(e, y)
        return e.select(zero, e.const(0), e.b.udiv(x, divisor))
    quotient, _, step, zero = _signed_parts(e, x, y)
    floored = e.select(step, e.b.sub(quotient, e.const(1)), quotient)
    return e.select(zero, e.const(0), floored)


def _mod(e: Emitter, x: Any, y: Any) -> Any:
    """x - floor(x / y) * y; integers by zero give 0."""
    if is_float(e.kind):
        return _float_mod(e, x, y)
    if not is_signed(e.kind):
        divisor, zero = _guarded(e, y)
        return e.select(zero, e.const(0), e.b.urem(x, divisor))
    _, remainder, step, zero = _signed_parts(e, x, y)
    divisor, _ = _guarded(e, y)
    floored = e.select(step, e.b.add(remainder, divisor), remainder)
    return e.select(zero, e.const(0), floored)


def _remainder(e: Emitter, x: Any, y: Any) -> Any:
    """C's fmod, exact: by long division of the mantissas' bits, without a library call."""
    from_bits = I32 if e.kind == "f32" else I64
    return _long_remainder(e, x, y, from_bits)


def _float_mod(e: Emitter, x: Any, y: Any) -> Any:
    """numpy's mod: fmod, moved to the sign of y."""
    rest = _remainder(e, x, y)
    zero = e.const(0.0)
    other_sign = e.b.xor(e.compare("<", rest, zero), e.compare("<", y, zero))
    moved = e.select(other_sign, e.b.fadd(rest, y), rest)
    is_zero = e.compare("==", rest, zero)
    signed_zero = e.intrinsic("copysign", zero, y)
    return e.select(is_zero, signed_zero, moved)


def _float_floor_divide(e: Emitter, x: Any, y: Any) -> Any:
    """numpy's floor_divide: (x - mod) / y, put right to a whole number."""
    zero, one = e.const(0.0), e.const(1.0)
    rest = _remainder(e, x, y)
    quotient = e.b.fdiv(e.b.fsub(x, rest), y)
    other_sign = e.b.xor(e.compare("<", rest, zero), e.compare("<", y, zero))
    step = e.b.and_(e.b.fcmp_unordered("!=", rest, zero), other_sign)
    quotient = e.select(step, e.b.fsub(quotient, one), quotient)
    floored = rounded(e, "floor", quotient)
    up = e.compare(">", e.b.fsub(quotient, floored), e.const(0.5))
    whole = e.select(up, e.b.fadd(floored, one), floored)
    plain = e.b.fdiv(x, y)
    whole = e.select(e.compare("==", quotient, zero), e.intrinsic("copysign", zero, plain), whole)
    return e.select(e.compare("==", y, zero), plain, whole)


def _long_remainder(e: Emitter, x: Any, y: Any, integer: Any) -> Any:
    """Remainder of magnitudes by shift and subtract; NaN and infinite cases as C has them."""
    place = FloatBits(e, integer)
    a, b = e.intrinsic("fabs", x), e.intrinsic("fabs", y)
    rest = place.remainder(a, b)
    invalid = e.b.or_(
        e.b.fcmp_unordered("uno", x, y),
        e.b.or_(e.compare("==", a, e.const(float("inf"))), e.compare("==", b, e.const(0.0))),
    )
    smaller = e.compare("<", a, b)
    found = e.select(smaller, a, rest)
    found = e.intrinsic("copysign", found, x)
    return e.select(invalid, e.const(float("nan")), found)


class FloatBits:
    """Mantissa and exponent of floats as integers."""

    def __init__(self, e: Emitter, integer: Any) -> None:
        self.e, self.integer = e, integer
        self.mantissa = 23 if e.kind == "f32" else 52
        self.total = 32 if e.kind == "f32" else 64

    def _c(self, value: int) -> Any:
        return self.e.const(value, self.integer)

    def split(self, value: Any) -> tuple[Any, Any]:
        """Mantissa with its leading bit, and exponent counted from the denormals."""
        b = self.e.b
        raw = b.bitcast(value, self.e.of(self.integer))
        exponent = b.lshr(raw, self._c(self.mantissa))
        fraction = b.and_(raw, self._c((1 << self.mantissa) - 1))
        normal = b.icmp_unsigned("!=", exponent, self._c(0))
        whole = b.select(normal, b.or_(fraction, self._c(1 << self.mantissa)), fraction)
        return whole, b.select(normal, exponent, self._c(1))

    def remainder(self, a: Any, b: Any) -> Any:
        """a mod b for finite a >= b > 0: the mantissa of a is doubled and reduced, bit by bit."""
        builder = self.e.b
        top, top_exponent = self.split(a)
        low, low_exponent = self.split(b)
        low = builder.select(builder.icmp_unsigned("==", low, self._c(0)), self._c(1), low)
        count = builder.sub(top_exponent, low_exponent)
        rest = self._reduce(builder.urem(top, low), low, count)
        return self._join(rest, low_exponent)

    def _reduce(self, rest: Any, low: Any, count: Any) -> Any:
        """rest * 2^count mod low, in a loop that runs while any lane still counts."""
        e, b = self.e, self.e.b
        entry = b.block
        head, body, leave = (b.append_basic_block(n) for n in ("fmod", "fmod_step", "fmod_end"))
        b.branch(head)
        b.position_at_end(head)
        kind = e.of(self.integer)
        value, left = b.phi(kind), b.phi(kind)
        value.add_incoming(rest, entry)
        left.add_incoming(count, entry)
        busy = b.icmp_signed(">", left, self._c(0))
        some = (
            busy
            if e.lanes == 1
            else e.call(f"llvm.vector.reduce.or.v{e.lanes}i1", ELEMENT["b1"], busy)
        )
        b.cbranch(some, body, leave)
        b.position_at_end(body)
        doubled = b.shl(value, self._c(1))
        reduced = b.select(b.icmp_unsigned(">=", doubled, low), b.sub(doubled, low), doubled)
        value.add_incoming(b.select(busy, reduced, value), body)
        left.add_incoming(b.sub(left, self._c(1)), body)
        b.branch(head)
        b.position_at_end(leave)
        return value

    def _join(self, mantissa: Any, exponent: Any) -> Any:
        """The float of an integer mantissa at an exponent, exactly."""
        e, b = self.e, self.e.b
        as_float = b.uitofp(mantissa, e.type)
        bias = 127 if e.kind == "f32" else 1023
        # in two factors, so that neither leaves the range of exponents
        shift = b.sub(exponent, self._c(bias + self.mantissa))
        half = b.ashr(shift, self._c(1))
        other = b.sub(shift, half)
        return b.fmul(b.fmul(as_float, self._power(half, bias)), self._power(other, bias))

    def _power(self, exponent: Any, bias: int) -> Any:
        b = self.e.b
        raw = b.shl(b.add(exponent, self._c(bias)), self._c(self.mantissa))
        return b.bitcast(raw, self.e.type)


def _shift(name: str) -> Lowering:
    def emit(e: Emitter, x: Any, y: Any) -> Any:
        width = bits(e.kind)
        over = e.b.icmp_unsigned(">=", y, e.const(width))
        by = e.select(over, e.const(0), y)
        if name == "shl":
            return e.select(over, e.const(0), e.b.shl(x, by))
        if is_signed(e.kind):
            return e.b.ashr(x, e.select(over, e.const(width - 1), y))
        return e.select(over, e.const(0), e.b.lshr(x, by))

    return emit


def _compare(sign: str) -> Lowering:
    return lambda e, x, y: e.compare(sign, x, y)


def _rounding(name: str) -> Lowering:
    return lambda e, x: rounded(e, name, x) if is_float(e.kind) else x


def rounded(e: Emitter, name: str, x: Any) -> Any:
    """floor, ceil, trunc or roundeven of floats; without an instruction, by adding 2^23 (2^52)."""
    if e.cpu.has_rounding:
        return e.intrinsic(name, x)
    one, whole_from = e.const(1.0), e.const(2.0**23 if e.kind == "f32" else 2.0**52)
    size = e.intrinsic("fabs", x)
    near = e.b.fsub(e.b.fadd(size, whole_from), whole_from)
    if name == "trunc":
        near = e.select(e.compare(">", near, size), e.b.fsub(near, one), near)
    near = e.intrinsic("copysign", near, x)
    if name == "floor":
        near = e.select(e.compare(">", near, x), e.b.fsub(near, one), near)
    if name == "ceil":
        near = e.select(e.compare("<", near, x), e.b.fadd(near, one), near)
    # zeros keep the sign; what is large, infinite or NaN is whole already
    return e.select(e.compare("<", size, whole_from), e.intrinsic("copysign", near, x), x)


def _math(name: str) -> Lowering:
    def emit(e: Emitter, *args: Any) -> Any:
        return math.emit(name, e.b, list(args), e.kind, e.lanes, fma=e.cpu.has_fma, branches=True)

    return emit


def _rsqrt(e: Emitter, x: Any) -> Any:
    """1 / sqrt(x); float32 through float64, so that it is rounded once."""
    if e.kind == "f64":
        return e.b.fdiv(e.const(1.0), e.intrinsic("sqrt", x))
    wide = e.to("f64")
    root = wide.intrinsic("sqrt", e.b.fpext(x, wide.type))
    return e.b.fptrunc(e.b.fdiv(wide.const(1.0), root), e.type)


def _words_of(e: Emitter, half: Emitter, x: Any) -> tuple[Any, Any]:
    """The low and the high half of 64-bit values."""
    return e.b.trunc(x, half.type), e.b.trunc(e.b.lshr(x, e.const(32)), half.type)


def _threefry(e: Emitter, counter: Any, key: Any) -> Any:
    """Threefry2x32 with 20 rounds (Salmon et al., 2011); low words come first."""
    b, half = e.b, e.to("u32")
    keys = list(_words_of(e, half, key))
    keys.append(b.xor(b.xor(keys[0], keys[1]), half.const(0x1BD11BDA)))
    x, y = (b.add(w, k) for w, k in zip(_words_of(e, half, counter), keys[:2], strict=True))
    for turn in range(5):
        for step in range(4):
            by = (13, 15, 26, 6, 17, 29, 16, 24)[(turn % 2) * 4 + step]
            x = b.add(x, y)
            turned = b.or_(b.shl(y, half.const(by)), b.lshr(y, half.const(32 - by)))
            y = b.xor(turned, x)
        x = b.add(x, keys[(turn + 1) % 3])
        y = b.add(b.add(y, keys[(turn + 2) % 3]), half.const(turn + 1))
    return b.or_(b.shl(b.zext(y, e.type), e.const(32)), b.zext(x, e.type))


LOWERINGS: dict[str, Lowering] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "abs": _abs,
    "not": _not,
    "max": _extreme(">"),
    "min": _extreme("<"),
    "idiv": _idiv,
    "mod": _mod,
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "and": lambda e, x, y: e.b.and_(x, y),
    "or": lambda e, x, y: e.b.or_(x, y),
    "xor": lambda e, x, y: e.b.xor(x, y),
    "where": lambda e, m, x, y: e.select(m, x, y),
    "fma": lambda e, x, y, z: e.fma(x, y, z),
    "sqrt": lambda e, x: e.intrinsic("sqrt", x),
    "recip": lambda e, x: e.b.fdiv(e.const(1.0), x),
    "rsqrt": _rsqrt,
    "threefry": _threefry,
    **{name: _compare(sign) for name, sign in COMPARE.items()},
    **{name: _rounding(own) for name, own in ROUNDING.items()},
    **{
        name: _math(name)
        for name in "exp exp2 expm1 log log2 log1p sin cos tan tanh sigmoid erf pow".split()
    },
}
