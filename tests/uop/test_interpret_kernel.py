"""Kernel graphs run one element after the other: loops, gates, reductions, scratch, order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import ArgumentError
from tinyfn.uop.interpret import interpret
from tinyfn.uop.interpret_kernel import run_kernel
from tinyfn.uop.ops import AddrSpace, AxisType, Ops, UOp

F, W = dtypes.float32, dtypes.weakint


def memory(slot: int, *shape: int, dtype=F, space: AddrSpace = AddrSpace.GLOBAL) -> UOp:
    return UOp.placeholder(shape, dtype, slot, space)


def w(value: int) -> UOp:
    return UOp.const(value, W)


def const(value: float) -> UOp:
    return UOp.const(value, F)


def loop(size: Any, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp.range(size, number, kind)


def run(*effects: UOp, **buffers: Any) -> list[np.ndarray]:
    """Run a kernel on buffers b0, b1 ...; their contents after it."""
    flat = {int(name[1:]): np.array(v, np.float32).reshape(-1) for name, v in buffers.items()}
    run_kernel(UOp.sink(*effects), flat, {"n": 3})
    return [flat[slot] for slot in sorted(flat)]


def test_elementwise_in_two_loops():
    out, a = memory(0, 2, 3), memory(1, 2, 3)
    i, j = loop(2, 0), loop(3, 1)
    doubled = out.index(i, j).store(a.index(i, j)._alu("MUL", const(2.0))).end(i, j)
    assert run(doubled, b0=[0] * 6, b1=range(6))[0].tolist() == [0, 2, 4, 6, 8, 10]


def test_what_was_written_is_told():
    i = loop(2, 0)
    stored = memory(0, 4).index(i._alu("MUL", w(2))).store(const(1.0)).end(i)
    flat = {0: np.zeros(4, np.float32)}
    masks = run_kernel(UOp.sink(stored), flat, {})
    assert masks[0].tolist() == [True, False, True, False]


def test_an_index_out_of_range_reads_zero_and_writes_nothing():
    out, a = memory(0, 3), memory(1, 3)
    i = loop(5, 0)
    shifted = i._alu("SUB", w(1))
    stored = out.index(shifted).store(a.index(i)._alu("ADD", const(1.0))).end(i)
    assert run(stored, b0=[9, 9, 9], b1=[1, 2, 3])[0].tolist() == [3, 4, 1]


def test_a_gated_offset():
    out, a = memory(0, 4), memory(1, 4)
    i = loop(4, 0)
    gate = i._alu("CMPLT", w(2))
    place = gate._alu("WHERE", i, UOp.const(Invalid, W))
    read = out.index(i).store(a.index(place)).end(i)
    assert run(read, b0=[9] * 4, b1=[1, 2, 3, 4])[0].tolist() == [1, 2, 0, 0]
    written = out.index(place).store(a.index(i)).end(i)
    assert run(written, b0=[9] * 4, b1=[1, 2, 3, 4])[0].tolist() == [1, 2, 9, 9]
    other = UOp(Ops.LOAD, F, (a.index(place), const(-1.0)))
    assert run(out.index(i).store(other).end(i), b0=[9] * 4, b1=[1, 2, 3, 4])[0].tolist() == [
        *(1, 2, -1, -1)
    ]


def test_gates_and_invalid_values():
    out = memory(0, 3)
    i = loop(3, 0)
    gated = out.index(i).store(const(1.0), i._alu("CMPLT", w(2))).end(i)
    assert run(gated, b0=[9] * 3)[0].tolist() == [1, 1, 9]
    chosen = i._alu("CMPLT", w(1))._alu("WHERE", const(5.0), const(Invalid))
    assert run(out.index(i).store(chosen).end(i), b0=[9] * 3)[0].tolist() == [5, 9, 9]
    assert run(out.index(i).store(const(Invalid)).end(i), b0=[9] * 3)[0].tolist() == [9, 9, 9]


def test_reductions():
    out, a = memory(0, 2), memory(1, 2, 3)
    i, k = loop(2, 0), loop(3, 1, AxisType.REDUCE)
    for op, wanted in (
        (Ops.ADD, [6, 15]),
        (Ops.MAX, [3, 6]),
        (Ops.MUL, [6, 120]),
        (Ops.MIN, [1, 4]),
    ):
        stored = out.index(i).store(a.index(i, k).reduce(k, arg=op)).end(i)
        assert run(stored, b0=[0, 0], b1=range(1, 7))[0].tolist() == wanted


def test_gated_reductions():
    out, a = memory(0, 1), memory(1, 4)
    k = loop(6, 0, AxisType.REDUCE)
    place = k._alu("CMPLT", w(3))._alu("WHERE", k._alu("SUB", w(1)), UOp.const(Invalid, W))
    stored = out.index(0).store(a.index(place).reduce(k))
    assert run(stored, b0=[0], b1=[1, 2, 4, 8])[0].tolist() == [3]


def test_a_matrix_product():
    out, a, b = memory(0, 2, 4), memory(1, 2, 3), memory(2, 3, 4)
    i, j, k = loop(2, 0), loop(4, 1), loop(3, 2, AxisType.REDUCE)
    product = a.index(i, k)._alu("MUL", b.index(k, j)).reduce(k)
    x, y = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    found = run(out.index(i, j).store(product).end(i, j), b0=[0] * 8, b1=x, b2=y)[0]
    assert found.tolist() == (x @ y).reshape(-1).tolist()


def test_a_softmax_row():
    out, a = memory(0, 2, 3), memory(1, 2, 3)
    i, j = loop(2, 0), loop(3, 1)
    k, m = loop(3, 2, AxisType.REDUCE), loop(3, 3, AxisType.REDUCE)
    top = a.index(i, k).reduce(k, arg=Ops.MAX)
    total = a.index(i, m)._alu("SUB", top)._alu("EXP").reduce(m)
    share = a.index(i, j)._alu("SUB", top)._alu("EXP")._alu("DIV", total)
    x = np.array([[1, 2, 3], [0, 0, 5]], np.float32)
    found = run(out.index(i, j).store(share).end(j).end(i), b0=[0] * 6, b1=x)[0]
    wanted = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, (wanted / wanted.sum(1, keepdims=True)).reshape(-1), 1e-6)


def test_a_scratch_row():
    out, a = memory(0, 2, 3), memory(1, 2, 3)
    row = memory(7, 3, space=AddrSpace.LOCAL)
    i, k, j = loop(2, 0), loop(3, 1), loop(3, 2)
    kept = row.index(k).store(a.index(i, k)._alu("MUL", const(2.0))).end(k)
    last = w(2)._alu("SUB", j)
    stored = out.index(i, j).store(row.after(kept).index(last)).end(j).end(i)
    assert run(stored, b0=[0] * 6, b1=range(6))[0].tolist() == [4, 2, 0, 10, 8, 6]


def test_a_serial_loop_reads_what_it_wrote():
    out, a = memory(0, 1), memory(1, 4)
    k = loop(4, 0, AxisType.REDUCE)
    added = out.index(0).store(out.index(0)._alu("ADD", a.index(k))).end(k)
    assert run(added, b0=[100], b1=[1, 2, 3, 4])[0].tolist() == [110]


def test_an_accumulator_in_registers():
    out, a = memory(0, 2), memory(1, 2, 3)
    total = memory(5, 1, space=AddrSpace.REG)
    i, k = loop(2, 0), loop(3, 1, AxisType.REDUCE)
    zeroed = total.after(i).index(0).store(const(0.0))
    ready = total.after(zeroed)
    summed = ready.index(0).store(ready.after(k).index(0)._alu("ADD", a.index(i, k))).end(k)
    stored = out.index(i).store(total.after(summed).index(0)).end(i)
    assert run(stored, b0=[0, 0], b1=range(6))[0].tolist() == [3, 12]


def test_effects_run_in_order_and_once():
    out, log = memory(0, 2), memory(1, 1)
    count = log.index(0).store(log.index(0)._alu("ADD", const(1.0)))
    first = out.index(0).store(log.after(count).index(0))
    second = out.index(1).store(log.after(count).index(0))
    assert [b.tolist() for b in run(count, first, second, b0=[0, 0], b1=[5])] == [[6, 6], [6]]
    assert [b.tolist() for b in run(first, second, count, b0=[0, 0], b1=[5])] == [[6, 6], [6]]


def test_groups_in_one_loop():
    out, more, a = memory(0, 3), memory(1, 3), memory(2, 3)
    i = loop(3, 0)
    both = UOp.group(
        out.index(i).store(a.index(i)._alu("NEG")), more.index(i).store(a.index(i)._alu("ABS"))
    ).end(i)
    found = run(both, b0=[0] * 3, b1=[0] * 3, b2=[1, -2, 3])
    assert found[0].tolist() == [-1, 2, -3] and found[1].tolist() == [1, 2, 3]


def test_loops_that_depend_on_loops_and_variables():
    out = memory(0, 3)
    i = loop(UOp.variable("n", 1, 3), 0)
    k = loop(i._alu("ADD", w(1)), 1, AxisType.REDUCE)
    stored = out.index(i).store(k.cast(F).reduce(k)).end(i)
    assert run(stored, b0=[9] * 3)[0].tolist() == [0, 1, 3]


def test_views_of_memory():
    out, a = memory(0, 2, 3), memory(1, 2, 3)
    i = loop(6, 0)
    flat_out, flat_a = (m._move("RESHAPE", (6,)) for m in (out, a))
    stored = flat_out.index(i).store(flat_a._move("FLIP", (0,)).index(i)).end(i)
    assert run(stored, b0=[0] * 6, b1=range(6))[0].tolist() == [5, 4, 3, 2, 1, 0]
    corner = out._move("SHRINK", (1, 1, 2, 1))._move("RESHAPE", ())
    assert run(corner.store(const(7.0)), b0=[0] * 6)[0].tolist() == [0, 0, 0, 0, 0, 7]
    row = out.index(1).store(a.index(0))
    assert run(row, b0=[0] * 6, b1=range(6))[0].tolist() == [0, 0, 0, 0, 1, 2]


def test_offsets_may_be_loaded():
    out, index = memory(0, 3), memory(2, 3, dtype=dtypes.float32)
    i = loop(3, 0)
    place = index.index(i).cast(dtypes.int64).cast(W)
    stored = out.index(place).store(i.cast(F)).end(i)
    assert run(stored, b0=[9] * 3, b2=[2, 0, 7])[0].tolist() == [1, 9, 0]


def test_an_open_loop_is_an_error():
    i = loop(3, 0)
    with pytest.raises(ArgumentError, match=r"range r0 closed by an END"):
        run(memory(0, 3).index(i).store(const(1.0)), b0=[0] * 3)


def test_missing_memory_is_an_error():
    with pytest.raises(ArgumentError, match="no memory for parameter 1"):
        run(memory(1, 3).index(0).store(const(1.0)), b0=[0])


def test_a_call_of_a_kernel():
    out, a = memory(0, 2), memory(1, 2)
    i = loop(2, 0)
    body = out.index(i).store(a.index(i)._alu("MUL", const(2.0))).end(i).sink()
    target = UOp.new_memory("CPU", (2,), F, kind="scratch")
    data = UOp.new_buffer("CPU", (4,), F)
    state = {data: np.arange(4, dtype=np.float32)}
    call = body.call(target, data._move("SHRINK", (2, 2)))
    values = interpret([target.after(call), data.after(call)], state)
    assert values[0].tolist() == [4, 6] and values[1].tolist() == [0, 1, 2, 3]
    assert state[target].tolist() == [4, 6]


def test_a_kernel_writes_through_the_view_it_was_given():
    i = loop(2, 0)
    body = memory(0, 2).index(i).store(const(9.0)).end(i).sink()
    data = UOp.new_buffer("CPU", (4,), F)
    state = {data: np.arange(4, dtype=np.float32)}
    interpret([data.after(body.call(data._move("SHRINK", (1, 2))))], state)
    assert state[data].tolist() == [0, 9, 9, 3]


def test_a_kernel_on_every_slot():
    two = ("CPU", "CPU:1")
    i = loop(2, 0)
    slot = UOp(Ops.SLOT, W).cast(F)
    read = memory(1, 2).index(i)
    body = memory(0, 2).index(i).store(read._alu("ADD", slot)).end(i).sink()
    target = UOp.new_memory(two, (2,), F, kind="scratch")
    data = UOp.new_buffer(two, (2,), F)
    state = {data: [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]}
    whole = target.unshard(0)
    (value,) = interpret([whole.after(body.call(whole, data.unshard(0)))], state)
    assert [part.tolist() for part in value] == [[1, 2], [4, 5]]
