"""Nodes are interned, immutable and weak; nothing about them recurses over the depth of a graph."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import ArgumentError, DeviceError, ShapeError
from tinyfn.uop import node as nodes
from tinyfn.uop.interpret import interpret
from tinyfn.uop.match import Rules
from tinyfn.uop.ops import Ops, UOp, listing, rewrite, substitute, toposort

W = dtypes.weakint
DEPTH = 10_000


def buffer(*shape: int, dtype=dtypes.float32) -> UOp:
    return UOp.new_buffer("CPU", shape, dtype)


# *** identity ***


def test_equal_parts_are_one_node():
    a, b = buffer(3), buffer(3)
    assert a is not b
    assert a._alu("ADD", b) is a._alu("ADD", b)
    assert UOp.variable("n", 1, 8) is UOp.variable("n", 1, 8)
    assert UOp.range(4, 0) is not UOp.range(4, 1)


def test_constants_meet_by_value_and_dtype():
    assert UOp.const(1.5, dtypes.float32) is UOp.const(1.5, dtypes.float32)
    assert UOp.const(1, dtypes.int32) is not UOp.const(1, dtypes.int64)
    assert UOp.const(True, dtypes.bool) is UOp.const(1, dtypes.bool)
    assert UOp.const(Invalid, dtypes.float32) is UOp.const(Invalid, dtypes.float32)


def test_signed_zeros_are_apart_and_nan_is_itself():
    plus, minus = UOp.const(0.0, dtypes.float32), UOp.const(-0.0, dtypes.float32)
    assert plus is not minus
    assert math.copysign(1, plus.arg) == 1 and math.copysign(1, minus.arg) == -1
    assert UOp.const(math.nan, dtypes.float32) is UOp.const(math.nan, dtypes.float32)


def test_constants_are_what_the_dtype_holds():
    assert UOp.const(300, dtypes.uint8).arg == 44
    assert UOp.const(-1, dtypes.uint64).arg == 2**64 - 1
    assert UOp.const(0.1, dtypes.float32).arg == float(np.float32(0.1))
    assert UOp.const(2.9, dtypes.int32).arg == 2


def test_every_fill_is_its_own():
    assert UOp.full((3,), 1.0, dtypes.float32, "CPU") is not UOp.full(
        (3,), 1.0, dtypes.float32, "CPU"
    )


def test_a_node_never_changes():
    node = buffer(3)
    with pytest.raises(AttributeError, match="never changes"):
        node.arg = None
    with pytest.raises(AttributeError, match="never changes"):
        node.anything = None


def test_nodes_are_freed():
    node = buffer(3)._alu("ADD", buffer(3))
    references = [weakref.ref(n) for n in (node, *node.src)]
    keys = [n._intern_key for n in (node, *node.src)]
    assert all(key in nodes._interned for key in keys)
    del node
    assert keys[0] not in nodes._interned
    # keys hold the sources
    numbers = [key[3].num for key in keys[1:]]
    del keys
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]
    assert not any(k[0] is Ops.BUFFER and k[3].num in numbers for k in nodes._interned)


def test_a_node_that_died_is_made_again():
    base = buffer(3)
    first = id(base._alu("EXP"))
    again = base._alu("EXP")
    assert again is base._alu("EXP")
    assert isinstance(first, int)


def test_born_counts_up():
    assert buffer(1).born < buffer(1).born


# *** builders ***


def test_operands_on_two_devices_are_an_error():
    a, b = (
        UOp.new_buffer("CPU", (3,), dtypes.float32),
        UOp.new_buffer("CPU:1", (3,), dtypes.float32),
    )
    with pytest.raises(DeviceError, match=r"operands of ADD on the same device, got CPU and CPU:1"):
        a._alu("ADD", b)


def test_operands_sharded_differently_follow_the_first():
    parts = [UOp.new_buffer(("CPU", "CPU:1"), s, dtypes.float32) for s in ((2, 4), (4, 2))]
    a, b = (p.unshard(axis) for axis, p in enumerate(parts))
    assert a.shape == b.shape
    assert (a._alu("ADD", b).axis, b._alu("ADD", a).axis) == (0, 1)


def test_bitcast_needs_the_same_width():
    with pytest.raises(ShapeError, match="4 bytes"):
        buffer(3).bitcast(dtypes.int64)


def test_movement_that_does_nothing_is_no_node():
    a = buffer(2, 3)
    assert a._move("RESHAPE", (2, 3)) is a
    assert a._move("EXPAND", (2, 3)) is a
    assert a._move("PERMUTE", (0, 1)) is a
    assert a._move("PAD", (0, 0, 0, 0)) is a
    assert a._move("SHRINK", (0, 2, 0, 3)) is a
    assert a._move("FLIP", ()) is a
    assert a._move("RESHAPE", (6,))._move("RESHAPE", (2, 3)) is a
    assert a._move("PERMUTE", (1, 0))._move("PERMUTE", (1, 0)) is a


def test_reducing_axes_of_size_one_is_no_node():
    a = buffer(2, 1)
    assert a._reduce("ADD", (1,)) is a
    assert a._reduce("ADD", ()) is a


def test_expanded_constants_stay_scalars():
    one = UOp.const(1.0, dtypes.float32)._move("RESHAPE", (1,))._move("EXPAND", (3,))
    added = buffer(3)._alu("ADD", one)
    assert added.src[1].op is Ops.CONST
    assert added.shape == (3,)
    scalar = UOp.new_buffer("CPU", (), dtypes.float32)
    assert scalar._alu("ADD", one).shape == (3,)


def test_padded_constants_are_no_scalars():
    one = UOp.const(1.0, dtypes.float32)._move("RESHAPE", (1,))._move("EXPAND", (3,))
    a, padded = buffer(5), one._move("PAD", (1, 1))
    assert a._alu("ADD", padded).src[1] is padded
    (value,) = interpret([a._alu("ADD", padded)], {a: np.zeros(5, np.float32)})
    np.testing.assert_array_equal(value, [0, 1, 1, 1, 0])


def test_variables():
    n = UOp.variable("n", 1, 8)
    bound = n.bind(3)
    assert bound.unbind() == (n, 3)
    assert bound.val == 3
    with pytest.raises(ArgumentError, match="between 1 and 8, got 9"):
        n.bind(9)
    with pytest.raises(ArgumentError, match="identifier"):
        UOp.variable("no name", 0, 1)
    with pytest.raises(ArgumentError, match="min_val <= max_val"):
        UOp.variable("n", 2, 1)
    with pytest.raises(ArgumentError, match="bound variable"):
        n.unbind()


def test_symbolic_sums_are_evaluated():
    n, m = UOp.variable("n", 0, 9), UOp.variable("m", 1, 9)
    total = n._alu("MUL", m)._alu("ADD", UOp.const(2, W))
    assert total.sym_infer({"n": 3, m: 4}) == 14
    assert total.variables() == [m, n]


def test_truth_of_symbolic_values():
    n = UOp.variable("n", 1, 8)
    assert bool(n._alu("CMPLT", UOp.const(9, W)))
    assert not bool(n._alu("CMPLT", UOp.const(1, W)))
    with pytest.raises(ArgumentError, match="no truth value"):
        bool(n._alu("CMPLT", UOp.const(4, W)))


def test_base_looks_below_views():
    a = buffer(2, 3)
    view = a._move("PERMUTE", (1, 0))._move("SHRINK", (0, 2, 0, 1)).detach()
    assert view.base is a and view.buf_uop is a
    stored = a.after(view.store(UOp.const(0.0, dtypes.float32)))
    assert stored._move("RESHAPE", (6,)).base is stored
    assert stored._move("RESHAPE", (6,)).buf_uop is a
    assert a.has_buffer_identity and stored.has_buffer_identity
    assert not view.has_buffer_identity


def test_replace_and_with_src():
    a, b = buffer(3), buffer(3)
    added = a._alu("ADD", b)
    assert added.with_src((a, b)) is added
    assert added.with_src((b, a)) is b._alu("ADD", a)
    assert added.replace(op=Ops.MUL) is a._alu("MUL", b)


# *** structural keys ***


def test_keys_follow_structure():
    def graph(n: int) -> UOp:
        return UOp.range(n, 0)._alu("MUL", UOp.const(3, W))._alu("ADD", UOp.variable("v", 0, 2))

    assert graph(5).key == graph(5).key
    assert graph(5).key != graph(6).key
    a, b = UOp.range(4, 0), UOp.range(4, 1)
    assert UOp(Ops.IDIV, W, (a, b)).key != UOp(Ops.IDIV, W, (b, a)).key
    assert UOp.const(0.0, dtypes.float32).key != UOp.const(-0.0, dtypes.float32).key


# *** depth ***


def chain(depth: int = DEPTH) -> tuple[UOp, UOp]:
    a = top = buffer(3)
    for _ in range(depth):
        top = top._alu("ADD", UOp.const(1.0, dtypes.float32))
    return a, top


def test_deep_chain_has_facts():
    _, top = chain()
    assert top.shape == (3,) and top.device == "CPU" and top.axis is None and top.ranges == {}
    assert top.bounds == (-math.inf, math.inf)
    assert len(top.key) == 16
    assert len(top.toposort()) == DEPTH + 2
    assert not top.variables()


def test_deep_chain_is_rewritten():
    rules = Rules("double")

    @rules.on(Ops.ADD)
    def to_sub(node: UOp) -> UOp:
        return UOp(Ops.SUB, node.dtype, node.src)

    a, top = chain()
    changed = rewrite(top, rules)
    assert {n.op for n in toposort([changed])} == {Ops.BUFFER, Ops.CONST, Ops.SUB}
    other = buffer(3)
    replaced = substitute([top], {a: other})[0]
    assert other in replaced.toposort() and a not in replaced.toposort()
    assert top.simplify() is top


def test_deep_index_is_simplified():
    i = top = UOp.range(7, 0)
    for _ in range(DEPTH):
        top = UOp(Ops.ADD, W, (top, UOp.const(1, W)))
    assert top.simplify() is i._alu("ADD", UOp.const(DEPTH, W))
    assert top.bounds == (DEPTH, DEPTH + 6)


def test_deep_chain_is_interpreted():
    a, top = chain()
    (value,) = interpret([top], {a: np.zeros(3, np.float32)})
    np.testing.assert_array_equal(value, np.full(3, DEPTH, np.float32))


def test_deep_chain_of_views_and_stores():
    a = view = state = buffer(4)
    for _ in range(DEPTH // 2):
        view = UOp(Ops.FLIP, view.dtype, (view,), (0,))
    for i in range(200):
        state = state.after(state._move("SHRINK", (i % 4, 1)).store(UOp.const(float(i), a.dtype)))
    values = interpret([view, state], {a: np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(values[0], [0, 1, 2, 3])
    np.testing.assert_array_equal(values[1], [196, 197, 198, 199])


def test_deep_chain_is_shown_and_freed():
    _, top = chain()
    assert len(listing(top).splitlines()) == DEPTH + 2
    assert top.render(simplify=False).startswith("(((")
    before = len(nodes._interned)
    del top
    gc.collect()
    assert len(nodes._interned) <= before - DEPTH


# *** text ***


def test_expressions_as_text():
    i, n = UOp.range(4, 0), UOp.variable("n", 1, 8)
    four = UOp.const(4, W)
    assert i._alu("MUL", four)._alu("ADD", n).render() == "((r0*4)+n)"
    assert n.bind(3).render() == "n"
    assert UOp(Ops.IDIV, W, (n, four)).render() == "(n//4)"
    gate = i._alu("CMPLT", UOp.const(3, W))
    assert gate._alu("WHERE", i, UOp.const(0, W)).render() == "where((r0<3), r0, 0)"
    memory = UOp.placeholder((4, 4), dtypes.float32, 2)
    assert memory.index(i, 0).render() == "p2[r0, 0]"
    assert memory.index(i, 0)._alu("NEG").render() == "(-p2[r0, 0])"


def test_listing_marks_the_node():
    a = buffer(2, 3)
    scaled = a._alu("MUL", UOp.const(2.0, dtypes.float32))
    text = listing(scaled._alu("EXP"), mark=scaled).splitlines()
    assert [line.startswith("->") for line in text] == [False, False, True, False]
    assert "%2 = MUL(%0, %1) : float32 [2, 3]" in text[2]


def test_listing_leaves_bodies_out_unless_asked():
    body = UOp(Ops.TUPLE, src=(UOp(Ops.PARAM, dtypes.float32, (), nodes_param()),))
    call = body.call(buffer(3))
    assert "body" in listing(call) and "PARAM" not in listing(call)
    assert "PARAM" in listing(call, enter_calls=True)


def nodes_param():
    return UOp.param(0, dtypes.float32, (3,), "CPU").arg
