"""One engine rewrites graphs: sources first, to a fixed point, bodies of calls only when asked."""

from __future__ import annotations

import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import ScheduleError
from tinyfn.uop.match import Rules
from tinyfn.uop.ops import Ops, UOp, rewrite, substitute, toposort

F = dtypes.float32
W = dtypes.weakint


def buffer(*shape: int) -> UOp:
    return UOp.new_buffer("CPU", shape, F)


def number(value: float) -> UOp:
    return UOp.const(value, F)


def body_of(op: Ops) -> UOp:
    place = UOp(Ops.PARAM, F, (), UOp.param(0, F, (3,), "CPU").arg)
    return UOp(Ops.TUPLE, src=(UOp(op, F, (place,)),))


# *** order ***


def test_toposort_puts_sources_first():
    a, b = buffer(3), buffer(3)
    top = a._alu("ADD", b)._alu("MUL", a._alu("EXP"))
    order = toposort([top])
    assert order[-1] is top
    assert all(order.index(s) < order.index(n) for n in order for s in n.src)
    assert len(order) == len(set(order)) == 5
    assert list(top.toposort()) == order


def test_toposort_stops_at_the_gate():
    a = buffer(3)
    inner = a._alu("EXP")
    order = toposort([inner._alu("NEG")], gate=lambda n: n is not inner)
    assert order == [inner, inner._alu("NEG")]


def test_toposort_enters_bodies_when_asked():
    call = body_of(Ops.EXP).call(buffer(3))
    assert Ops.EXP in {n.op for n in toposort([call])}
    assert Ops.EXP not in {n.op for n in toposort([call], enter_calls=False)}


# *** rules ***


def test_rules_run_to_a_fixed_point():
    rules = Rules("count down")

    @rules.on(Ops.CONST)
    def down(node: UOp) -> UOp | None:
        return number(node.arg - 1) if node.arg > 0 else None

    assert rewrite(number(5.0)._alu("ADD", buffer(3)), rules).src[0] is number(0.0)


def test_the_first_rule_that_answers_wins():
    rules = Rules("order")
    seen = []

    @rules.on(Ops.EXP)
    def not_here(node: UOp) -> None:
        seen.append("not_here")

    @rules.on(Ops.EXP, Ops.LOG)
    def to_neg(node: UOp) -> UOp:
        seen.append("to_neg")
        return node.src[0]._alu("NEG")

    @rules.on(Ops.EXP)
    def never(node: UOp) -> UOp:
        seen.append("never")
        return node.src[0]

    a = buffer(3)
    assert rewrite(a._alu("EXP"), rules) is a._alu("NEG")
    assert seen == ["not_here", "to_neg"]
    assert rewrite(a._alu("LOG"), rules) is a._alu("NEG")


def test_rules_see_rewritten_sources():
    rules = Rules("fold")

    @rules.on(Ops.NEG)
    def fold(node: UOp) -> UOp | None:
        source = node.src[0]
        return number(-source.arg) if source.op is Ops.CONST else None

    node = UOp(Ops.NEG, F, (UOp(Ops.NEG, F, (UOp(Ops.NEG, F, (number(2.0),)),)),))
    assert rewrite(node, rules) is number(-2.0)


def test_rules_get_their_context():
    rules = Rules("replace")

    @rules.on(Ops.BUFFER)
    def known(node: UOp, table: dict[UOp, UOp]) -> UOp | None:
        return table.get(node)

    a, b, c = buffer(3), buffer(3), buffer(3)
    assert rewrite(a._alu("ADD", b), rules, context={a: c}) is c._alu("ADD", b)


def test_rules_include_other_rules():
    first, a = Rules("first"), buffer(3)

    @first.on(Ops.EXP)
    def to_neg(node: UOp) -> UOp:
        return node.src[0]._alu("NEG")

    second = Rules("second", first)

    @second.on(Ops.EXP)
    def unused(node: UOp) -> UOp:
        return node.src[0]

    assert rewrite(a._alu("EXP"), second) is a._alu("NEG")
    assert first.apply(a) is None and second.apply(a._alu("LOG")) is None


def test_a_rule_that_answers_with_its_node_has_not_applied():
    rules = Rules("same")

    @rules.on(Ops.EXP)
    def same(node: UOp) -> UOp:
        return node

    node = buffer(3)._alu("EXP")
    assert rewrite(node, rules) is node


def test_what_replaces_a_node_is_rewritten_too():
    rules = Rules("expand")

    @rules.on(Ops.TANH)
    def to_sigmoid(node: UOp) -> UOp:
        return node.src[0]._alu("MUL", number(2.0))._alu("SIGMOID")

    @rules.on(Ops.SIGMOID)
    def to_exp(node: UOp) -> UOp:
        return node.src[0]._alu("EXP")

    a = buffer(3)
    assert rewrite(a._alu("TANH"), rules) is a._alu("MUL", number(2.0))._alu("EXP")


def test_rules_that_go_in_circles_are_an_error():
    rules = Rules("circle")

    @rules.on(Ops.EXP)
    def there(node: UOp) -> UOp:
        return node.src[0]._alu("LOG")

    @rules.on(Ops.LOG)
    def back(node: UOp) -> UOp:
        return node.src[0]._alu("EXP")

    with pytest.raises(ScheduleError, match="'circle' never come to rest"):
        rewrite(buffer(3)._alu("EXP"), rules)


def test_rules_that_grow_for_ever_are_an_error():
    rules = Rules("growth")

    @rules.on(Ops.EXP)
    def grow(node: UOp) -> UOp:
        return node.src[0]._alu("SIN")._alu("EXP")._alu("NEG")

    with pytest.raises(ScheduleError, match="'growth' never come to rest"):
        rewrite(buffer(3)._alu("EXP"), rules)


def test_a_node_may_travel_down_a_long_chain():
    rules = Rules("sink")

    @rules.on(Ops.NEG)
    def below(node: UOp) -> UOp | None:
        inner = node.src[0]
        return inner.src[0]._alu("NEG")._alu("EXP") if inner.op is Ops.EXP else None

    a = buffer(3)
    chain = a
    for _ in range(10_000):
        chain = chain._alu("EXP")
    negated = a._alu("NEG")
    for _ in range(10_000):
        negated = negated._alu("EXP")
    assert rewrite(chain._alu("NEG"), rules) is negated


def test_shared_nodes_are_rewritten_once():
    rules = Rules("once")
    seen = []

    @rules.on(Ops.EXP)
    def look(node: UOp) -> None:
        seen.append(node)

    shared = buffer(3)._alu("EXP")
    rewrite(shared._alu("ADD", shared)._alu("MUL", shared), rules)
    assert seen == [shared]


def test_memo_is_kept_between_runs():
    rules = Rules("memo")
    seen = []

    @rules.on(Ops.EXP)
    def look(node: UOp) -> None:
        seen.append(node)

    node, memo = buffer(3)._alu("EXP"), {}
    rewrite(node, rules, memo=memo)
    rewrite(node._alu("NEG"), rules, memo=memo)
    assert seen == [node]


def test_bodies_are_rewritten_when_asked():
    rules = Rules("bodies")

    @rules.on(Ops.EXP)
    def to_log(node: UOp) -> UOp:
        return node.src[0]._alu("LOG")

    call = body_of(Ops.EXP).call(buffer(3)._alu("EXP"))
    outside = rewrite(call, rules)
    assert outside.src[0] is call.src[0] and outside.src[1].op is Ops.LOG
    both = rewrite(call, rules, enter_calls=True)
    assert both.src[0] is body_of(Ops.LOG) and both.src[1].op is Ops.LOG


# *** substitution ***


def test_what_is_put_in_is_not_searched_again():
    a, b = buffer(3), buffer(3)
    swapped = a._alu("SUB", b).substitute({a: b, b: a})
    assert swapped is b._alu("SUB", a)
    assert a._alu("EXP").substitute({a: a._alu("NEG")}) is a._alu("NEG")._alu("EXP")


def test_substitution_replaces_inner_nodes_whole():
    a, b = buffer(3), buffer(3)
    inner = a._alu("EXP")
    assert inner._alu("NEG").substitute({inner: b, a: b._alu("LOG")}) is b._alu("NEG")


def test_substitution_of_several_roots():
    a, b = buffer(3), buffer(3)
    assert substitute([a, a._alu("EXP"), b], {a: b}) == [b, b._alu("EXP"), b]


def test_substitution_leaves_bodies_alone():
    place = body_of(Ops.EXP).src[0].src[0]
    call = body_of(Ops.EXP).call(buffer(3))
    assert call.substitute({place: buffer(3)}) is call
    assert call.substitute({place: buffer(3)}, enter_calls=True) is not call


# *** simplification ***


def loop(size: int, axis: int = 0) -> UOp:
    return UOp.range(size, axis)


def w(value: int) -> UOp:
    return UOp.const(value, W)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (lambda i, j: (i * 4 + j) // 4, "r0"),
        (lambda i, j: (i * 4 + j) % 4, "r1"),
        (lambda i, j: (i * 12 + j * 3 + 2) // 3 % 4, "r1"),
        (lambda i, j: i + j - i, "r1"),
        (lambda i, j: i * 2 * 3, "(r0*6)"),
        (lambda i, j: (i * 6 + 7) // 3, "((r0*2)+2)"),
        (lambda i, j: i % 8, "r0"),
        (lambda i, j: i // 8, "0"),
        (lambda i, j: i // 2 // 3, "0"),
        (lambda i, j: (i + j) // 2 // 3, "((r0+r1)//6)"),
        (lambda i, j: i % 2 + i // 2 * 2, "r0"),
        (lambda i, j: i * 0 + 3, "3"),
        (lambda i, j: (i - 8) // 8, "-1"),
        (lambda i, j: (i - 8) % 8, "r0"),
        (lambda i, j: i // 0, "0"),
        (lambda i, j: i % 1, "0"),
    ],
)
def test_index_arithmetic_has_a_normal_form(text, wanted):
    expression = text(Index(loop(5)), Index(loop(4, 1)))
    assert expression.node.render(simplify=False) == wanted


class Index:
    """Index nodes with Python's operators, straight onto the builders."""

    def __init__(self, node: UOp) -> None:
        self.node = node

    def _do(self, name: str, other: Index | int) -> Index:
        right = other.node if isinstance(other, Index) else w(other)
        return Index(self.node._alu(name, right))

    def __add__(self, other):
        return self._do("ADD", other)

    def __sub__(self, other):
        return self._do("SUB", other)

    def __mul__(self, other):
        return self._do("MUL", other)

    def __floordiv__(self, other):
        return self._do("IDIV", other)

    def __mod__(self, other):
        return self._do("MOD", other)


def test_equal_index_expressions_are_one_node():
    i, j = Index(loop(5)), Index(loop(4, 1))
    assert ((i + j) * 3).node is (j * 0 + i * 3 + j * 3).node


def test_known_conditions_choose():
    i = loop(5)
    a, b = buffer(3), buffer(3)
    gate = UOp(Ops.CMPLT, dtypes.bool, (i, w(5)))
    assert UOp(Ops.WHERE, F, (gate, a, b)).simplify() is a
    assert UOp(Ops.WHERE, F, (UOp(Ops.NOT, dtypes.bool, (gate,)), a, b)).simplify() is b
    open_gate = UOp(Ops.CMPLT, dtypes.bool, (i, w(3)))
    assert UOp(Ops.WHERE, F, (open_gate, a, a)).simplify() is a
    assert UOp(Ops.AND, dtypes.bool, (gate, open_gate)).simplify() is open_gate
    assert UOp(Ops.OR, dtypes.bool, (gate, open_gate)).simplify().arg is True
    assert (
        UOp(Ops.NOT, dtypes.bool, (UOp(Ops.NOT, dtypes.bool, (open_gate,)),)).simplify()
        is open_gate
    )


def test_neutral_elements_of_floats_keep_signs_and_nan():
    a = buffer(3)
    assert a._alu("ADD", number(-0.0)).simplify() is a
    assert a._alu("ADD", number(0.0)).simplify() is not a
    assert a._alu("SUB", number(0.0)).simplify() is a
    assert a._alu("SUB", number(-0.0)).simplify() is not a
    assert a._alu("MUL", number(1.0)).simplify() is a
    assert a._alu("DIV", number(1.0)).simplify() is a
    assert a._alu("MUL", number(0.0)).simplify() is not number(0.0)
    assert a._alu("NEG")._alu("NEG").simplify() is a
    assert a.cast(F) is a


def test_casts_of_constants_fold():
    assert number(2.5).cast(dtypes.int32) is UOp.const(2, dtypes.int32)
    node = UOp(Ops.CAST, dtypes.uint8, (UOp.const(300, dtypes.int32),))
    assert node.simplify() is UOp.const(44, dtypes.uint8)


def test_invalid_offsets_survive():
    i = loop(5)
    gate = i._alu("CMPLT", w(3))
    place = gate._alu("WHERE", i, UOp.const(Invalid, W))
    assert place.simplify() is place
