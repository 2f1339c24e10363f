"""Every rule of every stage can fail, and says which node, which rule and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import SpecError
from tinyfn.uop import spec
from tinyfn.uop.ops import (
    AddrSpace,
    AxisType,
    BufferInfo,
    CallInfo,
    Ops,
    ParamInfo,
    ReduceInfo,
    ScanInfo,
    ScatterInfo,
    SortInfo,
    UOp,
    VariableInfo,
)
from tinyfn.uop.spec_memory import LOOPS, MEMORY
from tinyfn.uop.spec_values import VALUES

F, W, B, I32 = dtypes.float32, dtypes.weakint, dtypes.bool, dtypes.int32
SUM_AT_1 = ScatterInfo(Ops.ADD, 1)
TWO = ("CPU", "CPU:1")


def buffer(*shape: int, dtype=F, device: Any = "CPU") -> UOp:
    return UOp.new_buffer(device, shape, dtype)


def const(value: Any, dtype=F) -> UOp:
    return UOp.const(value, dtype)


def memory(slot: int, *shape: int, dtype=F, space=AddrSpace.GLOBAL) -> UOp:
    return UOp.placeholder(shape, dtype, slot, space)


def node(op: Ops, dtype: Any, *src: UOp, arg: Any = None) -> UOp:
    return UOp(op, dtype, src, arg)


def parts(*shape: int) -> UOp:
    return buffer(*shape, device=TWO)


def body(*outputs: UOp) -> UOp:
    return node(Ops.TUPLE, dtypes.void, *outputs)


def param(slot: int, *shape: int) -> UOp:
    return node(Ops.PARAM, F, arg=ParamInfo(slot, shape, "CPU"))


def output(slot: int) -> UOp:
    return node(Ops.OUTPUT, F, arg=ParamInfo(slot, (3,), "CPU"))


def call(inner: UOp, *arguments: UOp) -> UOp:
    return UOp(Ops.CALL, src=(inner, *arguments), arg=CallInfo())


a, b = buffer(2, 3), buffer(2, 3)
n = UOp.variable("n", 1, 8)
i, j = UOp.range(4, 0), UOp.range(3, 1)
m = memory(0, 4)
index = buffer(5, dtype=I32)
stored = a.store(b)

BROKEN_VALUES: list[tuple[str, Callable[[], UOp], str]] = [
    ("arity", lambda: node(Ops.ADD, F, a), "expected 2, got 1"),
    ("packed_sizes", lambda: node(Ops.RESHAPE, F, a, arg=(None, 2)), "expected 1 symbolic"),
    ("packed_sizes", lambda: node(Ops.EXPAND, F, a, const(3, I32), arg=(2, None)), "int32"),
    ("sources_are_values", lambda: node(Ops.NEG, F, stored), "got STORE"),
    ("constant_fits", lambda: node(Ops.CONST, F, arg=1), "of type int for dtypes.float32"),
    ("constant_fits", lambda: node(Ops.CONST, dtypes.uint8, arg=300), "holds 44 for 300"),
    ("constant_fits", lambda: node(Ops.CONST, F, arg=0.1), "dtypes.float32 holds"),
    ("elementwise_shapes", lambda: node(Ops.ADD, F, a, buffer(3)), r"shapes \(2, 3\) and \(3,\)"),
    (
        "elementwise_dtypes",
        lambda: node(Ops.ADD, F, a, buffer(2, 3, dtype=I32)),
        "got dtypes.int32",
    ),
    ("elementwise_dtypes", lambda: node(Ops.CMPLT, F, a, b), "a comparison gives bool"),
    ("elementwise_dtypes", lambda: node(Ops.WHERE, F, a, a, b), "a condition is bool"),
    ("op_has_dtype", lambda: node(Ops.EXP, I32, index), "EXP takes floats"),
    ("op_has_dtype", lambda: node(Ops.XOR, F, a, b), "XOR takes integers"),
    ("op_has_dtype", lambda: node(Ops.THREEFRY, I32, index, index), "expected uint64"),
    ("cast_dtypes", lambda: node(Ops.CAST, dtypes.void, a), "to dtypes.void"),
    ("cast_dtypes", lambda: node(Ops.BITCAST, dtypes.int16, a), "4 bytes to dtypes.int16"),
    ("movement_fits", lambda: node(Ops.RESHAPE, F, a, arg=(7,)), r"\(2, 3\) cannot be \(7,\)"),
    ("movement_fits", lambda: node(Ops.EXPAND, F, a, arg=(4, 3)), "cannot be expanded"),
    ("movement_fits", lambda: node(Ops.PERMUTE, F, a, arg=(0, 0)), "order"),
    ("movement_fits", lambda: node(Ops.PAD, F, a, arg=(1, 1)), "two numbers an axis"),
    ("movement_fits", lambda: node(Ops.PAD, F, a, arg=(0, -1, 0, 0)), "padding -1"),
    ("movement_fits", lambda: node(Ops.SHRINK, F, a, arg=(1, 2, 0, 3)), "leave an axis of 2"),
    ("movement_fits", lambda: node(Ops.SHRINK, F, a, arg=(-1, 2, 0, 3)), "begin -1"),
    ("movement_fits", lambda: node(Ops.FLIP, F, a, arg=(2,)), "axes"),
    ("dtype_is_kept", lambda: node(Ops.FLIP, I32, a, arg=(0,)), "float32 to dtypes.int32"),
    ("reduce_fits", lambda: node(Ops.REDUCE_AXIS, F, a, arg=ReduceInfo(Ops.SUB, (0,))), "SUB"),
    ("reduce_fits", lambda: node(Ops.REDUCE_AXIS, F, a, arg=ReduceInfo(Ops.ADD, (2,))), "axes"),
    ("gather_fits", lambda: node(Ops.GATHER, F, a, b, arg=0), "index of dtypes.float32"),
    ("gather_fits", lambda: node(Ops.GATHER, F, a, index, arg=2), "axis 2"),
    (
        "gather_fits",
        lambda: node(Ops.SCATTER, F, a, index, a, arg=ScatterInfo(Ops.ADD, 1)),
        r"shape \(2, 5\)",
    ),
    ("scan_fits", lambda: node(Ops.SCAN, F, a, arg=ScanInfo(Ops.SUB, 0)), "got SUB"),
    ("scan_fits", lambda: node(Ops.SCAN, F, a, arg=ScanInfo(Ops.FMA, 0)), "1 sources for FMA"),
    ("scan_fits", lambda: node(Ops.SCAN, I32, a, arg=ScanInfo(Ops.ADD, 0)), "dtypes.int32"),
    ("scan_fits", lambda: node(Ops.SCAN, F, a, arg=ScanInfo(Ops.ADD, 2)), "axis 2"),
    ("argsort_fits", lambda: node(Ops.ARGSORT, F, a, arg=SortInfo()), "numbers of dtypes.float32"),
    ("argsort_fits", lambda: node(Ops.ARGSORT, I32, const(1, I32), arg=SortInfo()), r"shape \(\)"),
    ("argsort_fits", lambda: node(Ops.ARGSORT, I32, a, arg=SortInfo(count=4)), "got 4 of 3"),
]
BROKEN_MEMORY: list[tuple[str, Callable[[], UOp], str]] = [
    ("buffer_is_plain", lambda: node(Ops.BUFFER, W, arg=BufferInfo(0, "CPU", (3,))), "weakint"),
    ("buffer_is_plain", lambda: node(Ops.BUFFER, F, arg=BufferInfo(0, "CPU", (-3,))), "size -3"),
    ("store_has_place", lambda: node(Ops.STORE, dtypes.void, a._alu("NEG"), b), "got NEG"),
    (
        "store_fits",
        lambda: node(Ops.STORE, dtypes.void, a, const(1, I32)),
        "dtypes.int32 for a place",
    ),
    ("store_fits", lambda: node(Ops.STORE, dtypes.void, a, buffer(3)), r"got shape \(3,\)"),
    ("store_fits", lambda: node(Ops.STORE, dtypes.void, a, b, b), "a gate of dtypes.float32"),
    ("store_fits", lambda: node(Ops.STORE, dtypes.void, a), "got 1 sources"),
    ("after_waits", lambda: node(Ops.AFTER, F, a), "waits for nothing"),
    ("after_waits", lambda: node(Ops.AFTER, F, a, b), "got BUFFER"),
    ("after_waits", lambda: node(Ops.AFTER, dtypes.void, stored, stored), "got STORE as its value"),
    ("output_has_call", lambda: output(0).after(stored), "got 0 calls"),
    (
        "output_has_call",
        lambda: output(1).after(call(body(param(0, 3)), buffer(3))),
        "output 1 of 1",
    ),
    ("one_device", lambda: node(Ops.ADD, F, a, buffer(2, 3, device="CPU:1")), "CPU and CPU:1"),
    ("slots_have_parts", lambda: node(Ops.UNSHARD, F, a, arg=0), "got device CPU"),
    ("slots_have_parts", lambda: parts(2).unshard(0).mselect(0), "sharded along axis 0"),
    ("slots_have_parts", lambda: parts(2).mselect(2), "slot 2 of 2"),
    ("slots_have_parts", lambda: parts(2).allreduce(Ops.SUB, TWO), "got the op"),
    ("axis_is_there", lambda: node(Ops.UNSHARD, F, parts(2), arg=1), "axis 1"),
    ("axis_is_there", lambda: node(Ops.SHARD, F, parts(3), arg=0), "do not divide a size of 3"),
    ("stacked_alike", lambda: a.mstack(buffer(3, 3, device="CPU:1")), r"shape \(3, 3\) beside"),
    ("stacked_alike", lambda: a.mstack(parts(2, 3)), "got device"),
    ("call_has_arguments", lambda: call(a), "no body"),
    (
        "call_has_arguments",
        lambda: call(body(param(1, 3)), buffer(3)),
        "1 arguments for parameter 1",
    ),
    ("call_has_arguments", lambda: call(body(param(0, 3)), index), "dtypes.int32 for parameter 0"),
    ("call_has_arguments", lambda: call(body(param(0, 3)), buffer(4)), r"shape \(4,\)"),
    ("bound_in_range", lambda: node(Ops.BIND, W, n, const(9, W)), "got 9 outside of 1 to 8"),
    ("bound_in_range", lambda: node(Ops.BIND, W, const(1, W), const(1, W)), "got CONST bound"),
    ("tuple_has_value", lambda: node(Ops.GETTUPLE, F, body(a), arg=1), "number 1 of a TUPLE of 1"),
]
BROKEN_LOOPS: list[tuple[str, Callable[[], UOp], str]] = [
    ("param_is_memory", lambda: param(0, 3), "no address space"),
    (
        "param_is_memory",
        lambda: node(Ops.PARAM, F, n, arg=ParamInfo(0, (None,), None, AddrSpace.LOCAL)),
        "scratch of shape",
    ),
    ("store_has_place", lambda: node(Ops.STORE, dtypes.void, const(1.0), const(1.0)), "got CONST"),
    ("store_fits", lambda: m.index(i).store(const(1.0), const(1, I32)), "gate of dtypes.int32"),
    ("after_waits", lambda: m.after(const(1.0)), "got CONST"),
    ("bound_in_range", lambda: node(Ops.BIND, W, n, const(0, W)), "got 0"),
    ("index_fits", lambda: node(Ops.INDEX, F, const(1.0), i), "got CONST as memory"),
    ("index_fits", lambda: node(Ops.INDEX, F, m, i, j), "got 2 numbers"),
    ("index_fits", lambda: node(Ops.INDEX, F, m, const(1.0)), "index of dtypes.float32"),
    ("load_has_place", lambda: node(Ops.LOAD, I32, m.index(i)), "got"),
    (
        "load_has_place",
        lambda: node(Ops.LOAD, F, m.index(i), const(1, I32)),
        "dtypes.int32 instead",
    ),
    ("range_counts", lambda: node(Ops.RANGE, W, const(1.0), arg=(0, AxisType.LOOP)), "no whole"),
    ("range_counts", lambda: node(Ops.RANGE, W, const(4, W), arg=0), "got 0"),
    ("loops_are_ranges", lambda: m.index(i).store(const(1.0)).end(i, const(1, W)), "got CONST"),
    ("loops_are_ranges", lambda: node(Ops.REDUCE, F, m.index(i), i, i, arg=Ops.ADD), "twice"),
    ("kernel_reduce_fits", lambda: m.index(i).reduce(i, arg=Ops.SUB), "got the op"),
    ("kernel_reduce_fits", lambda: node(Ops.REDUCE, I32, m.index(i), i, arg=Ops.ADD), "float32 to"),
    ("holds_effects", lambda: UOp.sink(m.index(0)), "got INDEX"),
    ("loops_are_closed", lambda: UOp.sink(m.index(i).store(const(1.0))), "r0 stays open"),
]


def broken(rules: spec.Spec, make: Callable[[], UOp], name: str, detail: str) -> None:
    bad = make()
    with pytest.raises(SpecError, match=detail) as caught:
        spec.check(bad, rules, "testing")
    message = str(caught.value)
    assert f"breaks the rule {name}: " in message
    assert message.startswith(f"after testing, {rules.name} ")
    assert sum(line.startswith("->") for line in message.splitlines()) == 1


@pytest.mark.parametrize(("name", "make", "detail"), BROKEN_VALUES + BROKEN_MEMORY)
def test_rules_of_tensors_can_fail(name: str, make: Callable[[], UOp], detail: str):
    broken(spec.TENSOR, make, name, detail)


@pytest.mark.parametrize(("name", "make", "detail"), BROKEN_LOOPS)
def test_rules_of_kernels_can_fail(name: str, make: Callable[[], UOp], detail: str):
    broken(spec.KERNEL, make, name, detail)


def test_every_rule_was_broken():
    assert {name for name, *_ in BROKEN_VALUES} == {rule.name for rule in VALUES}
    assert {name for name, *_ in BROKEN_MEMORY} == {rule.name for rule in MEMORY}
    assert {name for name, *_ in BROKEN_LOOPS} == {rule.name for rule in LOOPS}


def test_every_rule_is_a_sentence():
    for rule in VALUES + MEMORY + LOOPS:
        assert rule.sentence[0].isupper() and rule.sentence.endswith("."), rule.name


def test_a_stage_holds_its_own_ops_only():
    broken(spec.TENSOR, lambda: i, "ops_of_stage", "may not hold RANGE")
    broken(spec.KERNEL, lambda: a, "ops_of_stage", "may not hold BUFFER")
    whole = parts(2).unshard(0)
    spec.check(whole, spec.TENSOR, "testing")
    broken(spec.PER_SLOT, lambda: whole, "ops_of_stage", "may not hold UNSHARD")
    shard = node(Ops.SHARD, F, parts(2), arg=0)
    broken(spec.PER_SLOT, lambda: shard, "ops_of_stage", "may not hold SHARD")


def test_the_listing_shows_the_node_in_its_graph():
    bad = node(Ops.ADD, F, a, buffer(7))
    with pytest.raises(SpecError) as caught:
        spec.check(bad._alu("EXP")._alu("NEG"), spec.TENSOR, "fusing")
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "after fusing, a graph of tensors breaks the rule elementwise_shapes: The operands of an "
        "elementwise op have the same shape, or are scalars. Here got shapes (2, 3) and (7,)."
    )
    assert len(lines) == 6
    assert lines[3].startswith("-> %2 = ADD(%0, %1)")


def test_bodies_are_checked():
    bad = node(Ops.ADD, F, param(0, 3), param(0, 3)._move("RESHAPE", (3, 1)))
    once = output(0).after(call(body(bad), buffer(3)))
    for _ in range(2):
        with pytest.raises(SpecError, match="elementwise_shapes"):
            spec.check(once, spec.PER_SLOT, "testing")
    kernel = UOp.sink(m.index(i).store(const(1.0)))
    with pytest.raises(SpecError, match="a kernel breaks the rule loops_are_closed"):
        spec.check(buffer(4).after(call(kernel, buffer(4))), spec.TENSOR, "testing")


def test_sound_graphs_pass():
    index_row = a._gather(index, 1)._scatter("ADD", buffer(4, dtype=I32), buffer(2, 4), 1)
    assert index_row.shape == (2, 5)
    cut = buffer(8)._move("SHRINK", (0, n.bind(3)))
    gate = a._alu("CMPLT", b)
    chosen = gate._alu("WHERE", a, const(Invalid))
    value = output(0).after(call(body(param(0, 3)._alu("EXP")), buffer(3)))
    whole = parts(2, 2).unshard(1)
    roots = (
        *(index_row, cut, a.after(a.store(chosen)), value, whole._reduce("ADD", (1,))),
        *(whole.copy_to_device("CPU"), a.cast(dtypes.int8), a.bitcast(I32), UOp._iota(n, I32)),
    )
    spec.check(UOp.sink(*roots), spec.TENSOR, "testing")


def test_a_sound_kernel_passes():
    out, row = memory(0, 2, 3), memory(5, 3, space=AddrSpace.LOCAL)
    outer, k = UOp.range(2, 0, AxisType.LOOP), UOp.range(3, 1, AxisType.REDUCE)
    kept = row.index(k).store(memory(1, 2, 3).index(outer, k)).end(k)
    again = UOp.range(3, 2)
    place = again._alu("CMPLT", const(2, W))._alu("WHERE", again, const(Invalid, W))
    value = row.after(kept).index(place)._alu("ADD", out.index(outer, k).reduce(k))
    sink = out.index(outer, again).store(value).end(again).end(outer).sink()
    spec.check(sink, spec.KERNEL, "testing")


def test_variables_are_fine_anywhere():
    spec.check(node(Ops.VARIABLE, W, arg=VariableInfo("k", 0, 3)), spec.KERNEL, "testing")
