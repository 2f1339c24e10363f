"""Conditions on indices as masks, never as branches.

Before: CMPLT(j, 10), j the vector axis. After: `vfirst_x16(10 - j0)`, the lanes below a count.
"""

from __future__ import annotations

from tinyfn.codegen.hoist import Value
from tinyfn.codegen.loops import Binary, Expression, Sum, number
from tinyfn.codegen.position import Arithmetic, Position
from tinyfn.uop.ops import Ops

NAMES = {Ops.CMPLT: "lt", Ops.CMPLE: "le", Ops.CMPEQ: "eq", Ops.CMPNE: "ne"}


def first_lanes(arithmetic: Arithmetic, count: Expression, lanes: int) -> Value:
    """The mask of the lanes below a count."""
    writer = arithmetic.writer
    if isinstance(count, Sum):
        count = arithmetic.short(count)
        if not count.terms:
            return _known_lanes(arithmetic, count.constant, lanes)
    return Value(writer.let("m", f"vfirst_x{lanes}", count), "b1", lanes)


def _known_lanes(arithmetic: Arithmetic, count: int, lanes: int) -> Value:
    """The lanes below a constant: all or none are constants."""
    if 0 < count < lanes:
        name = arithmetic.writer.let("m", f"vfirst_x{lanes}", number(count))
    else:
        name = arithmetic.writer.let("m", f"vconst_b1x{lanes}", count > 0)
    if not 0 < count < lanes:
        (arithmetic.full if count > 0 else arithmetic.empty).add(name)
    return Value(name, "b1", lanes)


def negated(arithmetic: Arithmetic, mask: Value) -> Value:
    """The other lanes."""
    if mask.name in arithmetic.full or mask.name in arithmetic.empty:
        return _known_lanes(
            arithmetic, 0 if mask.name in arithmetic.full else mask.lanes, mask.lanes
        )
    op = f"vnot_b1x{mask.lanes}" if mask.lanes else "not_b1"
    return Value(arithmetic.writer.let("m", op, mask.name), "b1", mask.lanes)


def both_masks(arithmetic: Arithmetic, a: Value | None, b: Value | None) -> Value | None:
    """The lanes that are in both masks; None is all lanes."""
    if a is None or b is None or a == b:
        return b if a is None else a
    for this, other in ((a, b), (b, a)):
        if this.name in arithmetic.full and other.lanes:
            return other
    writer = arithmetic.writer
    lanes = max(a.lanes, b.lanes)
    if lanes:
        a, b = splat_mask(arithmetic, a, lanes), splat_mask(arithmetic, b, lanes)
        return Value(writer.let("m", f"vand_b1x{lanes}", a.name, b.name), "b1", lanes)
    return Value(writer.let("m", "and_b1", a.name, b.name), "b1")


def splat_mask(arithmetic: Arithmetic, mask: Value, lanes: int) -> Value:
    """A condition as a mask of all or no lanes."""
    if mask.lanes:
        return mask
    return Value(arithmetic.writer.let("m", f"vsplat_b1x{lanes}", mask.name), "b1", lanes)


def compare(arithmetic: Arithmetic, op: Ops, x: Position, y: Position) -> Value:
    """A comparison of indices: a scalar condition, or a mask of lanes."""
    if op is Ops.CMPLE:
        return compare(arithmetic, Ops.CMPLT, x, arithmetic.add(y, Position(number(1))))
    difference = arithmetic.add(x, y, -1)
    if difference.uniform:
        return _scalar(arithmetic, op, difference.base)
    lanes = difference.lanes
    if difference.linear and op is Ops.CMPLT:
        return _below_zero(arithmetic, difference.base, difference.stride, lanes)
    if difference.linear and abs(difference.stride) == 1 and op in (Ops.CMPEQ, Ops.CMPNE):
        at = difference.base.times(-difference.stride)
        upto = first_lanes(arithmetic, at.plus(number(1)), lanes)
        name = arithmetic.writer.let(
            "m", f"vxor_b1x{lanes}", upto.name, first_lanes(arithmetic, at, lanes).name
        )
        found = Value(name, "b1", lanes)
        return found if op is Ops.CMPEQ else negated(arithmetic, found)
    left = arithmetic.vector(difference, lanes)
    right = arithmetic.constant(0, lanes)
    name = arithmetic.writer.let("m", f"v{NAMES[op]}_i64x{lanes}", left.name, right.name)
    return Value(name, "b1", lanes)


def _below_zero(arithmetic: Arithmetic, base: Sum, stride: int, lanes: int) -> Value:
    """base + lane * stride < 0."""
    if stride > 0:
        limit = base.times(-1)
        if stride == 1:
            return first_lanes(arithmetic, limit, lanes)
        rounded = arithmetic.short(limit.plus(number(stride - 1)))
        return first_lanes(arithmetic, _quotient(rounded, stride), lanes)
    if stride == -1:
        return negated(arithmetic, first_lanes(arithmetic, base.plus(number(1)), lanes))
    rounded = arithmetic.short(base)
    quotient = _quotient(rounded, -stride)
    count = quotient if isinstance(quotient, Sum) else arithmetic.scalar(quotient).base
    return negated(arithmetic, first_lanes(arithmetic, count.plus(number(1)), lanes))


def _quotient(x: Sum, size: int) -> Expression:
    return Binary("//", x, number(size)) if x.terms else number(x.constant // size)


def _scalar(arithmetic: Arithmetic, op: Ops, difference: Sum) -> Value:
    left = arithmetic.value(Sum(difference.terms))
    right = arithmetic.value(number(-difference.constant))
    name = arithmetic.writer.let("m", f"{NAMES[op]}_i64", left.name, right.name)
    return Value(name, "b1")
