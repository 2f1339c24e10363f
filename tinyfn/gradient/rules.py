"""One gradient rule an op.

A rule takes the node and the gradient of its value, and gives one gradient (or None) a source.
Where a formula has a choice (ties, the edge of a domain), it is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp

Gradients = Sequence[UOp | None]
Rule = Callable[[UOp, UOp], Gradients]
GRADIENT: dict[Ops, Rule] = {}


def rule(*ops: Ops) -> Callable[[Rule], Rule]:
    """Decorator: the gradient rule of these ops."""

    def add(function: Rule) -> Rule:
        for op in ops:
            GRADIENT[op] = function
        return function

    return add


def _like(node: UOp, value: Any) -> UOp:
    """A scalar constant that stands beside `node` in an elementwise op."""
    return UOp.const(value, node.dtype)


def _zero_where(condition: UOp, gradient: UOp) -> UOp:
    return condition._alu("WHERE", _like(gradient, 0.0), gradient)


# *** elementwise, one source ***

# op: gradient factor from (x, y, g) where y is the node's value
UNARY_FACTOR: dict[Ops, Callable[[UOp, UOp], Any]] = {
    Ops.SQRT: lambda x, y: 0.5 / y,
    Ops.RECIP: lambda x, y: -(y * y),
    Ops.RSQRT: lambda x, y: y * y * y * -0.5,
    Ops.EXP: lambda x, y: y,
    Ops.EXP2: lambda x, y: y * math.log(2.0),
    Ops.EXPM1: lambda x, y: y + 1.0,
    Ops.LOG: lambda x, y: 1.0 / x,
    Ops.LOG2: lambda x, y: 1.0 / (x * math.log(2.0)),
    Ops.LOG1P: lambda x, y: 1.0 / (x + 1.0),
    Ops.SIN: lambda x, y: x._alu("COS"),
    Ops.COS: lambda x, y: -x._alu("SIN"),
    Ops.TAN: lambda x, y: y * y + 1.0,
    Ops.TANH: lambda x, y: 1.0 - y * y,
    Ops.SIGMOID: lambda x, y: y * (1.0 - y),
    Ops.ERF: lambda x, y: (-(x * x))._alu("EXP") * (2.0 / math.sqrt(math.pi)),
}


@rule(*UNARY_FACTOR)
def unary(node: UOp, g: UOp) -> Gradients:
    """The gradient times the derivative."""
    return (g * UNARY_FACTOR[node.op](node.src[0], node),)


@rule(Ops.NEG)
def neg(node: UOp, g: UOp) -> Gradients:
    """d(-x) = -dx."""
    return (-g,)


@rule(Ops.ABS)
def absolute(node: UOp, g: UOp) -> Gradients:
    """d|x| = sign(x) dx, 0 at 0."""
    x = node.src[0]
    zero = _like(x, 0.0)
    negative = zero._alu("CMPLT", x)._alu("WHERE", g, x._alu("CMPLT", zero)._alu("WHERE", -g, zero))
    return (negative,)


@rule(Ops.CAST)
def cast(node: UOp, g: UOp) -> Gradients:
    """A cast between floats casts the gradient back."""
    source = node.src[0]
    return (g.cast(source.dtype) if source.dtype.kind == "float" else None,)


# *** elementwise, two and three sources ***


@rule(Ops.ADD)
def add(node: UOp, g: UOp) -> Gradients:
    """d(x+y) = dx + dy."""
    return g, g


@rule(Ops.SUB)
def sub(node: UOp, g: UOp) -> Gradients:
    """d(x-y) = dx - dy."""
    return g, -g


@rule(Ops.MUL)
def mul(node: UOp, g: UOp) -> Gradients:
    """d(xy) = y dx + x dy."""
    x, y = node.src
    return g * y, g * x


@rule(Ops.DIV)
def div(node: UOp, g: UOp) -> Gradients:
    """d(x/y) = dx/y - (x/y)/y dy."""
    y = node.src[1]
    return g / y, -g * (node / y)


@rule(Ops.MAX, Ops.MIN)
def extreme(node: UOp, g: UOp) -> Gradients:
    """The chosen side gets the gradient; equal sides half each, both all of it beside NaN."""
    x, y = node.src
    half, tie = g * 0.5, x._alu("CMPEQ", y)
    less = x._alu("CMPLT", y), y._alu("CMPLT", x)
    first, second = less if node.op is Ops.MAX else reversed(less)
    return (
        tie._alu("WHERE", half, _zero_where(first, g)),
        tie._alu("WHERE", half, _zero_where(second, g)),
    )


@rule(Ops.POW)
def power(node: UOp, g: UOp) -> Gradients:
    """d(x^y) = y x^(y-1) dx + x^y log(x) dy; 0 for a zero exponent, and for log(0) of y >= 0."""
    x, y = node.src
    zero = _like(x, 0.0)
    base = g * (y * x._alu("POW", y - 1.0))
    flat = x._alu("CMPEQ", zero)._alu("AND", zero._alu("CMPLE", y))
    exponent = g * (node * x._alu("LOG"))
    return _zero_where(y._alu("CMPEQ", zero), base), _zero_where(flat, exponent)


@rule(Ops.MOD)
def modulo(node: UOp, g: UOp) -> Gradients:
    """d(x mod y) = dx - floor(x/y) dy."""
    x, y = node.src
    return g, -g * x._alu("IDIV", y)


@rule(Ops.WHERE)
def where(node: UOp, g: UOp) -> Gradients:
    """Each branch gets the gradient where it was taken."""
    condition, zero = node.src[0], _like(g, 0.0)
    return None, condition._alu("WHERE", g, zero), condition._alu("WHERE", zero, g)


# *** movement ***


@rule(Ops.RESHAPE)
def reshape(node: UOp, g: UOp) -> Gradients:
    """Back to the shape it came from."""
    return (g._move("RESHAPE", node.src[0].shape),)


@rule(Ops.EXPAND)
def expand(node: UOp, g: UOp) -> Gradients:
    """What was repeated is summed."""
    before, after = node.src[0].shape, node.shape
    axes = tuple(
        i for i, (b, a) in enumerate(zip(before, after, strict=True)) if b is not a and b != a
    )
    return (_sum(g, axes),)


def _sum(g: UOp, axes: tuple[int, ...]) -> UOp:
    """A sum that keeps its axes; halves are added up in float32 and rounded once."""
    if g.dtype in (dtypes.float16, dtypes.bfloat16):
        return g.cast(dtypes.float32)._reduce("ADD", axes).cast(g.dtype)
    return g._reduce("ADD", axes)


@rule(Ops.PERMUTE)
def permute(node: UOp, g: UOp) -> Gradients:
    """The order undone."""
    return (g._move("PERMUTE", tuple(node.arg.index(i) for i in range(len(node.arg)))),)


@rule(Ops.FLIP)
def flip(node: UOp, g: UOp) -> Gradients:
    """Flipped again."""
    return (g._move("FLIP", node.arg),)


@rule(Ops.PAD)
def pad(node: UOp, g: UOp) -> Gradients:
    """The padding is cut off."""
    before = _arguments(node)[::2]
    box = [v for pair in zip(before, node.src[0].shape, strict=True) for v in pair]
    return (g._move("SHRINK", box),)


@rule(Ops.SHRINK)
def shrink(node: UOp, g: UOp) -> Gradients:
    """What was cut off has gradient 0."""
    flat = _arguments(node)
    around: list[Any] = []
    for begin, size, whole in zip(flat[::2], flat[1::2], node.src[0].shape, strict=True):
        around += [begin, whole - begin - size]
    return (g._move("PAD", around),)


def _arguments(node: UOp) -> tuple[Any, ...]:
    rest = iter(node.src[1:])
    return tuple(next(rest) if a is None else a for a in node.arg)


# *** across elements ***


@rule(Ops.REDUCE_AXIS)
def reduce_axis(node: UOp, g: UOp) -> Gradients:
    """Sum: spread. Extremes: spread evenly over those that are equal to it. Product: see below.

    Nothing is equal to NaN: the gradient of such an extreme is NaN (0 times 1/0).
    """
    x = node.src[0]
    spread = g._move("EXPAND", x.shape)
    if node.arg.op is Ops.ADD:
        return (spread,)
    if node.arg.op is Ops.MUL:
        return (spread * _product_of_others(node),)
    chosen = x._alu("CMPEQ", node._move("EXPAND", x.shape))
    count = chosen.cast(dtypes.float32)._reduce("ADD", node.arg.axes).cast(g.dtype)
    share = (g / count)._move("EXPAND", x.shape)
    return (chosen._alu("WHERE", share, share * 0.0),)


def _product_of_others(node: UOp) -> UOp:
    """The product of all other elements: zeros are counted, so that nothing is divided by 0."""
    x, axes = node.src[0], node.arg.axes
    is_zero = x._alu("CMPEQ", _like(x, 0.0))
    safe = is_zero._alu("WHERE", _like(x, 1.0), x)
    product = safe._reduce("MUL", axes)._move("EXPAND", x.shape)
    zeros = is_zero.cast(x.dtype)._reduce("ADD", axes)._move("EXPAND", x.shape)
    other_zeros = zeros - is_zero.cast(x.dtype)
    return other_zeros._alu("CMPEQ", _like(x, 0.0))._alu("WHERE", product / safe, _like(x, 0.0))


@rule(Ops.SCAN)
def scan(node: UOp, g: UOp) -> Gradients:
    """Sums: the gradients that come after. Extremes: all to the last element that is equal.

    A product of earlier ones is never divided: what is after an element, r[i] = g[i] + x[i+1]
    r[i+1], is running backwards itself.
    """
    x, op, axis, back = node.src[0], node.arg.op, node.arg.axis, not node.arg.reverse
    if op is Ops.ADD:
        return (g._scan("ADD", axis, back),)
    if op in (Ops.MAX, Ops.MIN):
        zeros = UOp.const(0.0, g.dtype)._move("RESHAPE", (1,) * len(x.shape))
        zeros = zeros._move("EXPAND", x.shape)
        return (zeros.scatter(axis, _taken_from(node), g, reduce="add"),)
    factor = x if op is Ops.MUL else node.src[1]
    later = g._scan("FMA", axis, back, _shifted(factor, axis, back, 1))
    if op is Ops.MUL:
        return (later * _shifted(node, axis, not back, 1),)
    return later, later * _shifted(node, axis, not back, 0)


def _shifted(x: UOp, axis: int, back: bool, value: Any) -> UOp:
    """The element before each along an axis, or behind it if `back`; a value at the end."""
    pairs = [(0, 0)] * len(x.shape)
    pairs[axis] = (-1, 1) if back else (1, -1)
    return x._pad_constant(pairs, value)


def _taken_from(node: UOp) -> UOp:
    """The number of the element that a running extreme was taken from: the last that is equal."""
    x, axis, size = node.src[0], node.arg.axis, node.shape[node.arg.axis]
    here = x._alu("CMPEQ", node)
    if x.dtype.kind == "float":
        here = here | (x.isnan() & node.isnan())
    numbers = x._iota_along(axis, len(x.shape), size)
    numbers = size - 1 - numbers if node.arg.reverse else numbers
    found = here.where(numbers, 0)._scan("MAX", axis, node.arg.reverse)
    return size - 1 - found if node.arg.reverse else found


@rule(Ops.GATHER)
def gather(node: UOp, g: UOp) -> Gradients:
    """What was taken gets its gradient added, in order."""
    table, index = node.src
    zeros = UOp.const(0.0, g.dtype)._move("RESHAPE", (1,) * len(table.shape))
    return zeros._move("EXPAND", table.shape)._scatter("ADD", index, g, node.arg), None


@rule(Ops.SCATTER)
def scatter(node: UOp, g: UOp) -> Gradients:
    """Sum: what was added gets the gradient of its place. Extremes: as for a reduction.

    Product: the others' product; zeros are counted, so that nothing is divided by 0.
    """
    table, index, values = node.src
    op, axis = node.arg.op, node.arg.axis
    if op is Ops.ADD:
        return g, None, g._gather(index, axis)
    if op in (Ops.MAX, Ops.MIN):
        own, hit = table._alu("CMPEQ", node), values._alu("CMPEQ", node._gather(index, axis))
        count = own.cast(dtypes.float32)._scatter("ADD", index, hit.cast(dtypes.float32), axis)
        share = g / count.cast(g.dtype)
        given = share._gather(index, axis)
        return (
            own._alu("WHERE", share, share * 0.0),
            None,
            hit._alu("WHERE", given, given * 0.0),
        )
    return _gradients_of_scattered_product(node, g)


def _gradients_of_scattered_product(node: UOp, g: UOp) -> Gradients:
    table, index, values = node.src
    axis, zero, one = node.arg.axis, _like(node, 0.0), _like(node, 1.0)
    is_zero = [x._alu("CMPEQ", zero) for x in (table, values)]
    safe = [z._alu("WHERE", one, x) for z, x in zip(is_zero, (table, values), strict=True)]
    number = [z.cast(dtypes.float32) for z in is_zero]
    product = safe[0]._scatter("MUL", index, safe[1], axis)
    zeros = number[0]._scatter("ADD", index, number[1], axis)
    here = product, zeros, g
    there = tuple(x._gather(index, axis) for x in here)
    found = []
    for (all_of_them, zeros_of_them, given), own, its_zeros in zip(
        (here, there), safe, number, strict=True
    ):
        alone = zeros_of_them._alu("CMPEQ", its_zeros)
        found.append(given * alone._alu("WHERE", all_of_them / own, zero))
    return found[0], None, found[1]


# *** memory, order, devices ***


@rule(Ops.CONTIGUOUS)
def contiguous(node: UOp, g: UOp) -> Gradients:
    """The same values."""
    return (g,)


@rule(Ops.CONTIGUOUS_BACKWARD)
def contiguous_backward(node: UOp, g: UOp) -> Gradients:
    """The gradient is stored row-major."""
    return (g.contiguous(),)


@rule(Ops.COPY)
def copy(node: UOp, g: UOp) -> Gradients:
    """The gradient goes back to where the value came from."""
    return (g.copy_to_device(node.src[0].device),)


@rule(Ops.UNSHARD)
def unshard(node: UOp, g: UOp) -> Gradients:
    """Each slot takes its part."""
    return (UOp(Ops.SHARD, g.dtype, (g,), node.arg),)


@rule(Ops.SHARD)
def shard(node: UOp, g: UOp) -> Gradients:
    """The parts together."""
    return (g.unshard(node.arg),)


@rule(Ops.MSTACK)
def mstack(node: UOp, g: UOp) -> Gradients:
    """Each slot's part goes back to it."""
    return tuple(g.mselect(i) for i in range(len(node.src)))


NO_GRADIENT: frozenset[Ops] = frozenset(Ops) - frozenset(GRADIENT) - {Ops.AFTER}
