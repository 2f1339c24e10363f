"""Index arithmetic in normal form has the values it had, and its bounds hold all of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp, toposort
from tinyfn.uop.simplify import from_linear, linear_form

W = dtypes.weakint
SIZES = (1, 2, 3, 4, 6, 8)
FUNCTIONS = {
    Ops.ADD: lambda x, y: x + y,
    Ops.SUB: lambda x, y: x - y,
    Ops.MUL: lambda x, y: x * y,
    Ops.IDIV: lambda x, y: x // y if y else 0,
    Ops.MOD: lambda x, y: x % y if y else 0,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.NEG: lambda x: -x,
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPLE: lambda x, y: x <= y,
    Ops.CMPEQ: lambda x, y: x == y,
    Ops.CMPNE: lambda x, y: x != y,
    Ops.AND: lambda x, y: x and y,
    Ops.OR: lambda x, y: x or y,
    Ops.NOT: lambda x: not x,
    Ops.WHERE: lambda x, y, z: y if x else z,
}
ARITHMETIC = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN)
DIVISIONS = (Ops.IDIV, Ops.MOD)
COMPARISONS = (Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ, Ops.CMPNE)


def loop(number: int) -> UOp:
    """A loop counter; every number has a size of its own."""
    return UOp.range(SIZES[number + 1], number)


def variable(number: int) -> UOp:
    """A symbolic size that may be negative."""
    return UOp.variable(f"v{number}", -2, 3 + number)


LEAVES = [loop(0), loop(1), loop(2), variable(0)]


def raw(op: Ops, *src: UOp) -> UOp:
    """A node that no builder has touched."""
    truth = op in COMPARISONS or op in (Ops.AND, Ops.OR, Ops.NOT)
    return UOp(op, dtypes.bool if truth else W, src)


constants = st.sampled_from([-13, -7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 24]).map(
    lambda value: UOp.const(value, W)
)
positive = st.sampled_from([1, 2, 3, 4, 6, 8, 12]).map(lambda value: UOp.const(value, W))


def extended(inner: Any) -> Any:
    """One more operation on top of index expressions."""
    truth = st.tuples(st.sampled_from(COMPARISONS), inner, inner).map(lambda t: raw(*t))
    logic = st.one_of(
        truth,
        st.tuples(st.sampled_from([Ops.AND, Ops.OR]), truth, truth).map(lambda t: raw(*t)),
        truth.map(lambda t: raw(Ops.NOT, t)),
    )
    return st.one_of(
        st.tuples(st.sampled_from(ARITHMETIC), inner, inner).map(lambda t: raw(*t)),
        st.tuples(st.sampled_from(ARITHMETIC), inner, constants).map(lambda t: raw(*t)),
        st.tuples(st.sampled_from(DIVISIONS), inner, positive).map(lambda t: raw(*t)),
        st.tuples(st.sampled_from(DIVISIONS), inner, positive).map(lambda t: raw(*t)),
        st.tuples(st.sampled_from(DIVISIONS), inner, st.one_of(constants, inner)).map(
            lambda t: raw(*t)
        ),
        inner.map(lambda x: raw(Ops.NEG, x)),
        st.tuples(logic, inner, inner).map(lambda t: raw(Ops.WHERE, *t)),
    )


leaves = st.one_of(st.sampled_from(LEAVES), st.sampled_from(LEAVES), constants)
nested = st.recursive(leaves, extended, max_leaves=8)


@st.composite
def plain_expressions(draw: Any) -> UOp:
    """Expressions of any form."""
    return draw(nested)


def points(root: UOp) -> list[dict[UOp, int]]:
    """Every assignment of the loops and variables below the node."""
    leaves = [n for n in toposort([root]) if n.op in (Ops.RANGE, Ops.VARIABLE)]
    spans = [range(leaf.vmin, leaf.vmax + 1) for leaf in leaves]
    return [dict(zip(leaves, point, strict=True)) for point in itertools.product(*spans)]


def evaluate(root: UOp, point: dict[UOp, int]) -> Any:
    """The value of an expression in Python's whole numbers."""
    values: dict[UOp, Any] = dict(point)
    for node in toposort([root]):
        if node.op is Ops.CONST:
            values[node] = node.arg
        elif node not in values:
            values[node] = FUNCTIONS[node.op](*(values[s] for s in node.src))
    return values[root]


def rebuilt(root: UOp) -> UOp:
    """The expression once more, through the builders."""
    new: dict[UOp, UOp] = {}
    for node in toposort([root]):
        sources = [new[s] for s in node.src]
        leaf = node.op in (Ops.RANGE, Ops.VARIABLE, Ops.CONST)
        new[node] = node if leaf else sources[0]._alu(node.op.name, *sources[1:])
    return new[root]


@st.composite
def recombined(draw: Any) -> UOp:
    """Remainder and quotient of one value, put together again (or nearly)."""
    value, size, exact = draw(plain_expressions()), draw(positive), draw(st.booleans())
    factor, other = draw(st.sampled_from([1, 2, 3, 4, -1, -2])), draw(positive)
    scale = size.arg * factor if exact else factor
    quotient = raw(Ops.IDIV, value, size)
    high = quotient if exact else raw(Ops.MOD, quotient, other)
    low = raw(Ops.MUL, raw(Ops.MOD, value, size), UOp.const(factor, W))
    return raw(Ops.ADD, low, raw(Ops.MUL, high, UOp.const(scale, W)))


expressions = st.one_of(plain_expressions(), recombined())


def check_values(root: UOp) -> None:
    """The expression, simplified and rebuilt, at every point."""
    simple = root.simplify()
    built = rebuilt(root)
    for point in points(root):
        wanted = evaluate(root, point)
        assert evaluate(simple, point) == wanted, (root.render(False), simple.render(False), point)
        assert evaluate(built, point) == wanted, (root.render(False), built.render(False), point)


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_simplified_has_the_same_values(root: UOp) -> None:
    check_values(root)


@pytest.mark.deep
@settings(max_examples=10_000, deadline=None)
@given(expressions)
def test_simplified_has_the_same_values_at_length(root: UOp) -> None:
    check_values(root)


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_bounds_hold_every_value(root: UOp) -> None:
    for node in (root, root.simplify()):
        low, high = node.bounds
        for point in points(root):
            value = evaluate(node, point)
            assert low <= value <= high, (node.render(False), (low, high), point)


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_simplifying_again_changes_nothing(root: UOp) -> None:
    simple = root.simplify()
    assert simple.simplify() is simple


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_linear_form_is_the_expression(root: UOp) -> None:
    terms, constant = linear_form(root)
    again = from_linear(root, terms, constant)
    for point in points(root):
        assert evaluate(again, point) == evaluate(root, point)
