"""The tree of loops: what stands where."""

from __future__ import annotations

from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import LOOP, REDUCE, at, kernel, memory

from tinyfn.codegen.loops import Block, Loop, Update, Write
from tinyfn.codegen.lower import lower
from tinyfn.codegen.normalise import normalise
from tinyfn.uop.ops import Ops, UOp


def outline(block: Block) -> list[object]:
    """Loops by number, with what is in them."""
    found: list[object] = []
    for item in block.items:
        if isinstance(item, Loop):
            found.append((item.range.arg[0], outline(item.body)))
        else:
            found.append(type(item).__name__)
    return found


def tree(sink: UOp) -> list[object]:
    return outline(lower(normalise(sink), "kernel").body)


def test_reductions_stand_in_the_row_loop() -> None:
    assert tree(graphs.softmax(4, 8)) == [(0, [(2, ["Update"]), (2, ["Update"]), (1, ["Write"])])]


def test_scratch_is_filled_in_the_loop_of_the_sum() -> None:
    ((_, row),) = tree(graphs.softmax(4, 8, staged=True))
    assert [number for number, _ in row] == [2, 2, 1]
    assert sorted(row[1][1]) == ["Update", "Write"]
    assert row[2][1] == ["Read", "Write"]


def test_reductions_over_one_range_share_a_loop() -> None:
    i, k = UOp.range(4, 0, LOOP), UOp.range(8, 1, REDUCE)
    x = at(memory(1, 32), i * 8 + k)
    value = x.reduce(k) + (x * x).reduce(k)
    assert tree(kernel(at(memory(0, 4), i).store(value).end(i))) == [
        (0, [(1, ["Update", "Update"]), "Write"])
    ]


def test_a_reduction_of_nothing_outside_comes_first() -> None:
    i, k = UOp.range(4, 0, LOOP), UOp.range(8, 1, REDUCE)
    total = at(memory(1, 8), k).reduce(k)
    assert tree(kernel(at(memory(0, 4), i).store(at(memory(1, 8), i) / total).end(i))) == [
        (1, ["Update"]),
        (0, ["Write"]),
    ]


def test_loops_of_one_iteration_are_gone() -> None:
    assert tree(graphs.matmul(1, 5, 7)) == [(2, [(3, ["Update"]), "Write"])]


def test_independence() -> None:
    def loop(sink: UOp) -> Loop:
        item = lower(normalise(sink), "kernel").body.items[-1]
        assert isinstance(item, Loop)
        return item

    i = UOp.range(29, 0)
    a, c = memory(1, 30), memory(0, 30)
    assert loop(kernel(at(c, i).store(at(a, i)).end(i))).independent
    assert loop(kernel(at(c, i).store(at(c, i) + at(a, i)).end(i))).independent
    assert loop(kernel(at(c, i + 1).store(at(c, i)).end(i))).ordered
    assert loop(kernel(at(c, i // 2).store(at(a, i)).end(i))).ordered
    both = kernel(at(c, i).store(at(a, i)).group(at(c, 28 - i).store(at(a, i))).end(i))
    assert loop(both).ordered


def test_readers_come_before_writers() -> None:
    """A sum over memory that the kernel overwrites is finished before the first store."""
    i, k = UOp.range(8, 0, LOOP), UOp.range(8, 1, REDUCE)
    x = memory(0, 8)
    found = tree(kernel(at(x, i).store(at(x, i) / at(x, k).reduce(k)).end(i)))
    assert found == [(1, ["Read", "Update"]), (0, ["Read", "Write"])]


def test_kinds_of_items() -> None:
    block = lower(normalise(graphs.row_reduce(3, 5)), "kernel").body
    (rows,) = block.items
    assert isinstance(rows, Loop)
    inner, store = rows.body.items
    assert isinstance(inner, Loop) and isinstance(store, Write)
    assert isinstance(inner.body.items[0], Update)
    assert inner.closings[0].node.op is Ops.REDUCE
    assert inner.closings[0].loops == [inner]
