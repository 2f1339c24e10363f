"""Shape, device, sharded axis, ranges and bounds follow from a node's parts."""

from __future__ import annotations

import math

import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.uop import infer
from tinyfn.uop.info import pack, unpack
from tinyfn.uop.ops import Ops, ReduceInfo, UOp

W = dtypes.weakint
TWO = ("CPU", "CPU:1")


def buffer(*shape: int, dtype=dtypes.float32, device="CPU") -> UOp:
    return UOp.new_buffer(device, shape, dtype)


def const(value: int) -> UOp:
    return UOp.const(value, W)


def sharded(shape: tuple[int, ...], axis: int) -> UOp:
    """A tensor of this shape over two slots."""
    part = [s // 2 if i == axis else s for i, s in enumerate(shape)]
    return buffer(*part, device=TWO).unshard(axis)


# *** shape ***


def test_shapes_of_leaves():
    n = UOp.variable("n", 1, 8)
    assert buffer(2, 3).shape == (2, 3)
    assert const(1).shape == () and n.shape == () and n.bind(2).shape == ()
    assert UOp.full((2, n), 0.0, dtypes.float32, "CPU").shape == (2, n)
    assert UOp._iota(5, dtypes.int32).shape == (5,)
    assert UOp._iota(n, dtypes.int32).shape == (n,)
    assert UOp.placeholder((2, n), dtypes.float32, 0).shape == (2, n)
    assert UOp.range(4, 0).shape == ()


def test_shapes_of_movement():
    a = buffer(2, 3)
    assert a._move("RESHAPE", (3, 2)).shape == (3, 2)
    assert a._move("RESHAPE", (2, 1, 3))._move("EXPAND", (2, 4, 3)).shape == (2, 4, 3)
    assert a._move("PERMUTE", (1, 0)).shape == (3, 2)
    assert a._move("PAD", (1, 2, 0, 3)).shape == (5, 6)
    assert a._move("SHRINK", (1, 1, 0, 2)).shape == (1, 2)
    assert a._move("FLIP", (0,)).shape == (2, 3)


def test_shapes_of_symbolic_movement():
    n = UOp.variable("n", 1, 8)
    cut = buffer(2, 8)._move("SHRINK", (0, 2, n, n))
    assert cut.shape == (2, n)
    assert cut.max_shape == (2, 8)
    padded = cut._move("PAD", (0, 0, 1, n))
    assert padded.shape[1] is n._alu("MUL", const(2))._alu("ADD", const(1))


def test_shapes_of_the_rest():
    a, b = buffer(2, 3), buffer(2, 3)
    assert a._alu("ADD", b).shape == (2, 3)
    assert UOp.const(1.0, dtypes.float32)._alu("ADD", a).shape == (2, 3)
    assert a._reduce("ADD", (1,)).shape == (2, 1)
    index = buffer(4, 5, dtype=dtypes.int32)
    assert a._gather(index, 1).shape == (2, 4, 5)
    assert a._gather(index, 0).shape == (4, 5, 3)
    assert a._scatter("ADD", index, buffer(2, 4, 5), 1).shape == (2, 3)
    assert a.after(a.store(b)).shape == (2, 3)
    assert a.store(b).shape is None
    memory = UOp.placeholder((2, 3, 4), dtypes.float32, 0)
    assert memory.index(0).shape == (3, 4)
    assert memory.index(0, 1, 2).shape == ()


def test_shapes_over_slots():
    whole = sharded((4, 3), 0)
    assert whole.shape == (4, 3) and whole.shard_shape == (2, 3) and whole.axis == 0
    assert UOp(Ops.SHARD, whole.dtype, (whole,), 0).shape == (2, 3)
    assert whole.src[0].mselect(1).shape == (2, 3)
    stacked = buffer(3).mstack(buffer(3, device="CPU:1"))
    assert stacked.shape == (3,) and stacked.device == TWO


def test_every_shape_packs():
    n = UOp.variable("n", 1, 8)
    for sizes in ((), (3,), (n,), (2, n, 4, n)):
        assert unpack(*pack(sizes)) == sizes


# *** device ***


def test_devices():
    a = buffer(3)
    assert a._alu("ADD", UOp.const(1.0, dtypes.float32)).device == "CPU"
    assert const(1).device is None
    assert a.copy_to_device("CPU:1").device == "CPU:1"
    assert a.copy_to_device("CPU") is a
    assert a.shard(TWO).device == TWO
    assert a.shard(TWO).mselect(1).device == "CPU:1"
    assert sharded((4,), 0)._reduce("ADD", (0,)).allreduce(Ops.ADD, TWO).device == TWO
    memory = buffer(3, device="CPU:1")
    assert memory.after(memory.store(UOp.const(0.0, memory.dtype))).device == "CPU:1"


# *** axis ***


@pytest.mark.parametrize(
    ("shape", "axis", "move", "arg", "wanted"),
    [
        ((4, 6), 0, "PERMUTE", (1, 0), 1),
        ((4, 6), 1, "PERMUTE", (1, 0), 0),
        ((4, 6), 0, "RESHAPE", (4, 2, 3), 0),
        ((4, 6), 1, "RESHAPE", (4, 2, 3), 1),
        ((4, 6), 1, "RESHAPE", (2, 2, 6), 2),
        ((4, 6), 1, "RESHAPE", (24,), None),
        ((4, 6), 0, "RESHAPE", (24,), 0),
        ((4, 6), 0, "RESHAPE", (1, 4, 6), 1),
        ((4, 6), 1, "RESHAPE", (4, 3, 2), None),
        ((4, 6), 0, "SHRINK", (0, 2, 0, 6), None),
        ((4, 6), 0, "SHRINK", (0, 4, 1, 3), 0),
        ((4, 6), 0, "PAD", (1, 0, 0, 0), None),
        ((4, 6), 0, "PAD", (0, 0, 1, 1), 0),
        ((4, 6), 0, "FLIP", (0,), None),
        ((4, 6), 0, "FLIP", (1,), 0),
        ((4, 1), 0, "EXPAND", (4, 5), 0),
    ],
)
def test_axis_through_movement(shape, axis, move, arg, wanted):
    assert sharded(shape, axis)._move(move, arg).axis == wanted


def test_axis_of_the_rest():
    a = sharded((4, 6), 0)
    assert a._alu("EXP").axis == 0
    assert a._alu("ADD", buffer(4, 6, device=TWO)).axis == 0
    assert a._reduce("ADD", (1,)).axis == 0
    assert a._reduce("ADD", (0,)).axis is None
    assert a.contiguous().axis == 0 and a.detach().axis == 0
    index = buffer(3, dtype=dtypes.int32, device=TWO)
    assert a._gather(index, 1).axis == 0
    assert a._gather(index, 0).axis is None
    assert sharded((4, 6), 1)._gather(buffer(2, 3, dtype=dtypes.int32, device=TWO), 0).axis == 2
    table = buffer(5, 6, device=TWO)
    assert table._gather(UOp.new_buffer(TWO, (2,), dtypes.int32).unshard(0), 0).axis == 0
    assert a.copy_to_device("CPU").axis is None


# *** ranges ***


def test_ranges_are_closed():
    i, j = UOp.range(4, 0), UOp.range(5, 1)
    memory = UOp.placeholder((4, 5), dtypes.float32, 0)
    value = memory.index(i, j)
    assert list(value.ranges) == [i, j]
    assert list(value.reduce(j).ranges) == [i]
    stored = memory.index(i, 0).store(value.reduce(j))
    assert list(stored.ranges) == [i]
    assert not stored.end(i).ranges
    assert not stored.end(i).sink().ranges


def test_a_range_may_depend_on_another():
    i = UOp.range(4, 0)
    j = UOp.range(i._alu("ADD", const(1)), 1)
    assert list(j.ranges) == [i, j]
    assert j.bounds == (0, 3)


# *** bounds ***


def test_bounds_of_index_arithmetic():
    i, j = UOp.range(4, 0), UOp.range(6, 1)
    assert i.bounds == (0, 3)
    assert UOp(Ops.ADD, W, (i, j)).bounds == (0, 8)
    assert UOp(Ops.SUB, W, (i, j)).bounds == (-5, 3)
    assert UOp(Ops.MUL, W, (i, const(-2))).bounds == (-6, 0)
    assert UOp(Ops.IDIV, W, (j, const(4))).bounds == (0, 1)
    assert UOp(Ops.MOD, W, (j, const(4))).bounds == (0, 3)
    assert UOp(Ops.MOD, W, (i, const(4))).bounds == (0, 3)
    assert UOp(Ops.NEG, W, (j,)).bounds == (-5, 0)
    assert UOp(Ops.MAX, W, (i, j)).bounds == (0, 5)
    assert UOp(Ops.MIN, W, (i, j)).bounds == (0, 3)
    n = UOp.variable("n", -3, 5)
    assert n.bounds == (-3, 5) and n.bind(2).bounds == (-3, 5)
    assert UOp(Ops.IDIV, W, (n, const(2))).bounds == (-2, 2)


def test_bounds_of_comparisons():
    i = UOp.range(4, 0)
    assert UOp(Ops.CMPLT, dtypes.bool, (i, const(4))).bounds == (True, True)
    assert UOp(Ops.CMPLT, dtypes.bool, (i, const(0))).bounds == (False, False)
    assert UOp(Ops.CMPLE, dtypes.bool, (i, const(2))).bounds == (False, True)
    assert UOp(Ops.CMPEQ, dtypes.bool, (i, const(7))).bounds == (False, False)
    assert UOp(Ops.CMPNE, dtypes.bool, (i, const(7))).bounds == (True, True)


def test_bounds_of_a_choice_leave_invalid_out():
    i = UOp.range(4, 0)
    gate = UOp(Ops.CMPLT, dtypes.bool, (i, const(2)))
    assert UOp(Ops.WHERE, W, (gate, i, const(9))).bounds == (0, 9)
    assert UOp(Ops.WHERE, W, (gate, i, UOp.const(Invalid, W))).bounds == (0, 3)


def test_bounds_never_leave_the_dtype():
    a, b = buffer(3, dtype=dtypes.int8), buffer(3, dtype=dtypes.uint8)
    assert a._alu("ADD", a).bounds == (-128, 127)
    assert a._alu("NEG").bounds == (-128, 127)
    assert b._alu("MUL", b).bounds == (0, 255)
    assert b.cast(dtypes.int32).bounds == (0, 255)
    assert b.cast(dtypes.int8).bounds == (-128, 127)
    assert buffer(3).cast(dtypes.int32).bounds == (-(2**31), 2**31 - 1)
    assert buffer(3).bounds == (-math.inf, math.inf)
    assert UOp.const(3.0, dtypes.float32).bounds == (3.0, 3.0)


def test_rules_are_asked_once():
    calls = []

    class Probe:
        prop = infer.derived("_value", lambda n: calls.append(n) or len(calls))
        src: tuple = ()

    probe = Probe()
    assert probe.prop == 1 and probe.prop == 1
    assert calls == [probe]


def test_reduce_info_is_a_value():
    assert ReduceInfo(Ops.ADD, (1,)) == ReduceInfo(Ops.ADD, (1,))
