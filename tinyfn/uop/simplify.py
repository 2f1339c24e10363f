"""Index arithmetic in a normal form: sums of terms with constant factors, folded by bounds.

Integers of dtype weakint (loop counters, symbolic sizes, offsets) never wrap, so the laws of
whole numbers hold. `index_op` builds such a node simplified; `RULES` simplifies a finished graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinyfn.dtype import Invalid, const_key, dtypes
from tinyfn.uop.match import Rules
from tinyfn.uop.opcodes import Ops

Node = Any
Terms = dict[Node, int]


def is_const(node: Node) -> bool:
    """Whether the node is a constant that has a value."""
    return node.op is Ops.CONST and node.arg is not Invalid


def linear_form(node: Node) -> tuple[Terms, int]:
    """The node as sum(factor * term) + constant; no term is itself a sum or a multiple."""
    terms: Terms = {}
    constant = 0
    stack: list[tuple[Node, int]] = [(node, 1)]
    while stack:
        top, factor = stack.pop()
        if is_const(top):
            constant += factor * top.arg
        elif top.op is Ops.ADD:
            stack += [(top.src[1], factor), (top.src[0], factor)]
        elif top.op is Ops.SUB:
            stack += [(top.src[1], -factor), (top.src[0], factor)]
        elif top.op is Ops.NEG:
            stack.append((top.src[0], -factor))
        elif top.op is Ops.MUL and top.src[1].op is Ops.CONST:
            stack.append((top.src[0], factor * top.src[1].arg))
        elif top.op is Ops.MUL and top.src[0].op is Ops.CONST:
            stack.append((top.src[1], factor * top.src[0].arg))
        else:
            terms[top] = terms.get(top, 0) + factor
    return {t: f for t, f in terms.items() if f}, constant


def from_linear(like: Node, terms: Terms, constant: int) -> Node:
    """The node of a linear form (terms in their order, the constant last)."""
    make = type(like)
    total = None
    for term, factor in terms.items():
        part = term
        if factor != 1:
            part = make(Ops.MUL, dtypes.weakint, (term, make.const(factor, dtypes.weakint)))
        total = part if total is None else make(Ops.ADD, dtypes.weakint, (total, part))
    if total is None:
        return make.const(constant, dtypes.weakint)
    if constant:
        total = make(Ops.ADD, dtypes.weakint, (total, make.const(constant, dtypes.weakint)))
    return total


def bounds_of_linear(terms: Terms, constant: int) -> tuple[int, int]:
    """Lowest and highest value of a linear form."""
    low = high = constant
    for term, factor in terms.items():
        ends = term.bounds[0] * factor, term.bounds[1] * factor
        low, high = low + min(ends), high + max(ends)
    return low, high


def _join_remainders(terms: Terms) -> bool:
    """(x % a) * f + (x // a) * a * f is x * f; the same one level up for ((x // a) % b)."""
    for term, factor in list(terms.items()):
        if term.op is not Ops.MOD or not is_const(term.src[1]):
            continue
        value, size = term.src[0], term.src[1].arg
        quotient = idiv(value, term.src[1])
        for other, other_factor in list(terms.items()):
            if other_factor != factor * size or other is term:
                continue
            if other is quotient:
                joined = value
            elif other.op is Ops.MOD and other.src[0] is quotient and is_const(other.src[1]):
                joined = mod(value, type(value).const(size * other.src[1].arg, dtypes.weakint))
            else:
                continue
            del terms[term], terms[other]
            more, constant = linear_form(joined)
            if constant:
                terms[term], terms[other] = factor, other_factor
                continue
            for node, extra in more.items():
                terms[node] = terms.get(node, 0) + extra * factor
                if not terms[node]:
                    del terms[node]
            return True
    return False


def add_many(like: Node, parts: list[tuple[Node, int]], constant: int = 0) -> Node:
    """The sum of factor * part over the parts, plus a constant, in normal form."""
    terms: Terms = {}
    for part, factor in parts:
        more, extra = linear_form(part)
        constant += extra * factor
        for term, count in more.items():
            terms[term] = terms.get(term, 0) + count * factor
    terms = {t: f for t, f in terms.items() if f}
    while any(t.op is Ops.MOD for t in terms) and len(terms) > 1 and _join_remainders(terms):
        pass
    return from_linear(like, terms, constant)


def add(x: Node, y: Node) -> Node:
    """x + y."""
    return add_many(x, [(x, 1), (y, 1)])


def sub(x: Node, y: Node) -> Node:
    """x - y."""
    return add_many(x, [(x, 1), (y, -1)])


def mul(x: Node, y: Node) -> Node:
    """x * y; a constant factor is spread over the terms of a sum."""
    if y.op is Ops.CONST:
        return add_many(x, [(x, y.arg)])
    if x.op is Ops.CONST:
        return add_many(x, [(y, x.arg)])
    return type(x)(Ops.MUL, dtypes.weakint, (x, y))


def _split(x: Node, size: int) -> tuple[Terms, int, Terms, int]:
    """x as size * whole + rest: terms and constant of both; constant of the rest in [0, size)."""
    terms, constant = linear_form(x)
    whole = {t: f // size for t, f in terms.items() if f // size}
    rest = {t: f % size for t, f in terms.items() if f % size}
    # keep small negative factors whole: -1 * t has no better form than itself
    for term, factor in terms.items():
        if factor < 0 and factor % size:
            whole.pop(term, None)
            rest[term] = factor
            if factor // size < -1:
                whole[term] = -(-factor // size)
                rest[term] = factor - whole[term] * size
    return whole, constant // size, rest, constant % size


def _split_nearest(x: Node, size: int) -> tuple[Terms, int, Terms, int]:
    """The same with the factors of the rest as near to 0 as can be: j * 9 by 10 is 10 * j - j."""
    terms, constant = linear_form(x)
    whole = {t: (f + size // 2) // size for t, f in terms.items()}
    rest = {t: f - whole[t] * size for t, f in terms.items() if f - whole[t] * size}
    low, _ = bounds_of_linear(rest, constant)
    more = low // size
    return {t: f for t, f in whole.items() if f}, more, rest, constant - more * size


def idiv(x: Node, y: Node) -> Node:
    """floor(x / y)."""
    if y.op is not Ops.CONST or y.arg <= 0:
        return _idiv_general(x, y)
    size = y.arg
    if size == 1:
        return x
    if x.bounds[0] // size == x.bounds[1] // size:
        return type(x).const(x.bounds[0] // size, dtypes.weakint)
    for split in (_split_nearest, _split):
        whole, whole_constant, rest, rest_constant = split(x, size)
        low, high = bounds_of_linear(rest, rest_constant)
        if low // size == high // size:
            return from_linear(x, whole, whole_constant + low // size)
    divisor = math.gcd(size, *rest.values())
    if divisor > 1:
        rest = {t: f // divisor for t, f in rest.items()}
        rest_constant //= divisor
        inner = idiv(
            from_linear(x, rest, rest_constant), type(x).const(size // divisor, dtypes.weakint)
        )
    else:
        inner = _idiv_node(from_linear(x, rest, rest_constant), size)
    if not whole and not whole_constant:
        return inner
    return add_many(x, [(from_linear(x, whole, whole_constant), 1), (inner, 1)])


def _idiv_node(x: Node, size: int) -> Node:
    make = type(x)
    if x.op is Ops.IDIV and is_const(x.src[1]) and x.src[1].arg > 0:
        return idiv(x.src[0], make.const(x.src[1].arg * size, dtypes.weakint))
    return make(Ops.IDIV, dtypes.weakint, (x, make.const(size, dtypes.weakint)))


def _idiv_general(x: Node, y: Node) -> Node:
    make = type(x)
    if y.op is Ops.CONST and y.arg == 0:
        return y
    if is_const(x) and is_const(y):
        return make.const(x.arg // y.arg, dtypes.weakint)
    if x is y and x.bounds[0] > 0:
        return make.const(1, dtypes.weakint)
    return make(Ops.IDIV, dtypes.weakint, (x, y))


def mod(x: Node, y: Node) -> Node:
    """x - floor(x / y) * y."""
    make = type(x)
    if y.op is Ops.CONST and y.arg == 0:
        return y
    if y.op is not Ops.CONST or y.arg <= 0:
        if is_const(x) and is_const(y):
            return make.const(x.arg % y.arg if y.arg else 0, dtypes.weakint)
        return make(Ops.MOD, dtypes.weakint, (x, y))
    size = y.arg
    if size == 1:
        return make.const(0, dtypes.weakint)
    for split in (_split_nearest, _split):
        _, _, rest, rest_constant = split(x, size)
        low, high = bounds_of_linear(rest, rest_constant)
        if low // size == high // size:
            return from_linear(x, rest, rest_constant - low // size * size)
    divisor = math.gcd(size, *rest.values())
    if divisor > 1:
        small = {t: f // divisor for t, f in rest.items()}
        inner = mod(
            from_linear(x, small, rest_constant // divisor),
            make.const(size // divisor, dtypes.weakint),
        )
        return add_many(x, [(inner, divisor)], rest_constant % divisor)
    value = from_linear(x, rest, rest_constant)
    if value.op is Ops.MOD and is_const(value.src[1]) and value.src[1].arg % size == 0:
        return mod(value.src[0], y)
    return make(Ops.MOD, dtypes.weakint, (value, make.const(size, dtypes.weakint)))


def _extreme(op: Ops, pick: Callable[[int, int], int]) -> Callable[[Node, Node], Node]:
    def build(x: Node, y: Node) -> Node:
        if x is y:
            return x
        if is_const(x) and is_const(y):
            return type(x).const(pick(x.arg, y.arg), dtypes.weakint)
        (a, b), (c, d) = x.bounds, y.bounds
        if b <= c:
            return x if op is Ops.MIN else y
        if d <= a:
            return y if op is Ops.MIN else x
        return type(x)(op, dtypes.weakint, (x, y))

    return build


def compare(op: Ops) -> Callable[[Node, Node], Node]:
    """A comparison of index expressions: by the bounds of their difference where they decide."""

    def build(x: Node, y: Node) -> Node:
        difference = sub(x, y)
        low, high = difference.bounds
        make = type(x)
        known = {
            Ops.CMPLT: True if high < 0 else False if low >= 0 else None,
            Ops.CMPLE: True if high <= 0 else False if low > 0 else None,
            Ops.CMPEQ: True if low == high == 0 else False if low > 0 or high < 0 else None,
            Ops.CMPNE: False if low == high == 0 else True if low > 0 or high < 0 else None,
        }[op]
        if known is not None:
            return make.const(known, dtypes.bool)
        if op is Ops.CMPLE:
            op_out, x, y = Ops.CMPLT, x, add_many(y, [(y, 1)], 1)
        else:
            op_out = op
        terms, constant = linear_form(sub(x, y))
        negative = {t: -f for t, f in terms.items() if f < 0}
        positive = {t: f for t, f in terms.items() if f > 0}
        left, right = from_linear(x, positive, 0), from_linear(x, negative, -constant)
        return make(op_out, dtypes.bool, (left, right))

    return build


INDEX_OPS: dict[Ops, Callable[[Node, Node], Node]] = {
    Ops.ADD: add,
    Ops.SUB: sub,
    Ops.MUL: mul,
    Ops.IDIV: idiv,
    Ops.MOD: mod,
    Ops.MAX: _extreme(Ops.MAX, max),
    Ops.MIN: _extreme(Ops.MIN, min),
    Ops.CMPLT: compare(Ops.CMPLT),
    Ops.CMPLE: compare(Ops.CMPLE),
    Ops.CMPEQ: compare(Ops.CMPEQ),
    Ops.CMPNE: compare(Ops.CMPNE),
}


def index_op(op: Ops, x: Node, y: Node) -> Node | None:
    """The simplified node of a binary op on weakints; None where the op is none of them."""
    build = INDEX_OPS.get(op)
    return build(x, y) if build is not None else None


RULES = Rules("simplify")


@RULES.on(*INDEX_OPS)
def normal_form(node: Node) -> Node | None:
    """Index arithmetic is rebuilt in normal form."""
    if all(s.dtype is dtypes.weakint for s in node.src):
        return index_op(node.op, *node.src)
    return None


@RULES.on(Ops.AND, Ops.OR)
def logic(node: Node) -> Node | None:
    """True and False fold away in bool logic."""
    if node.dtype is not dtypes.bool:
        return None
    x, y = node.src
    if x is y:
        return x
    keep = node.op is Ops.AND
    for this, other in ((x, y), (y, x)):
        if is_const(this):
            return other if this.arg is keep else this
    return None


@RULES.on(Ops.NOT)
def logic_not(node: Node) -> Node | None:
    """not not x is x; a constant is inverted."""
    source = node.src[0]
    if node.dtype is dtypes.bool and is_const(source):
        return type(node).const(not source.arg, dtypes.bool)
    return source.src[0] if source.op is Ops.NOT else None


@RULES.on(Ops.WHERE)
def where(node: Node) -> Node | None:
    """A known condition, or equal branches, choose."""
    condition, yes, no = node.src
    if is_const(condition):
        return yes if condition.arg else no
    if node.dtype is dtypes.bool and is_const(yes) and is_const(no) and yes.arg and not no.arg:
        return condition
    return yes if yes is no else None


@RULES.on(Ops.CAST)
def cast(node: Node) -> Node | None:
    """A cast to the same dtype is nothing; a constant is cast at once."""
    source = node.src[0]
    if source.dtype is node.dtype:
        return source
    if is_const(source):
        return type(node).const(dtypes.as_const(source.arg, node.dtype), node.dtype)
    return None


@RULES.on(Ops.MUL, Ops.DIV)
def times_one(node: Node) -> Node | None:
    """x * 1 and x / 1 are x."""
    x, y = node.src
    if is_const(y) and y.arg == 1:
        return x
    if node.op is Ops.MUL and is_const(x) and x.arg == 1:
        return y
    return None


@RULES.on(Ops.ADD, Ops.SUB)
def plus_nothing(node: Node) -> Node | None:
    """x + 0 and x - 0 are x; for floats only the zero that keeps the sign of zero."""
    x, y = node.src
    neutral = const_key(-0.0 if node.op is Ops.ADD else 0.0)
    for this, other in ((y, x), (x, y)) if node.op is Ops.ADD else ((y, x),):
        if is_const(this):
            zero = const_key(this.arg) == neutral if node.dtype.kind == "float" else not this.arg
            if zero:
                return other
    return None


@RULES.on(Ops.NEG)
def double_negation(node: Node) -> Node | None:
    """-(-x) is x."""
    return node.src[0].src[0] if node.src[0].op is Ops.NEG else None
