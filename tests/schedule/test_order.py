"""Stores and reads in an order that gives every value its meaning; memory used again."""

import numpy as np
import pytest

from tinyfn import Tensor, dtypes, live
from tinyfn.schedule.cycle import break_cycles
from tinyfn.uop.ops import Ops, UOp, toposort


def buffers(count):
    return [UOp.new_memory("CPU", (4,), dtypes.float32, kind="data") for _ in range(count)]


def stores(root):
    return [n for n in toposort([root], enter_calls=False) if n.op is Ops.STORE]


def sink(*pairs):
    return UOp(Ops.SINK, src=tuple(memory.after(memory.store(value)) for memory, value in pairs))


def test_a_swap_computes_both_values_first():
    a, b = buffers(2)
    found = break_cycles(sink((a, b._alu("NEG")), (b, a._alu("NEG"))))
    assert [s.src[1].op for s in stores(found)] == [Ops.CONTIGUOUS] * 2


def test_a_ring_computes_its_values_first_and_no_others():
    a, b, c, d = buffers(4)
    found = break_cycles(sink((a, b), (b, c), (c, a), (d, a)))
    assert [s.src[1].op is Ops.CONTIGUOUS for s in stores(found)] == [True, True, True, False]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_stores_that_can_take_turns_stay(count):
    memory = buffers(count + 1)
    pairs = [(memory[i], memory[i]._alu("ADD", memory[i + 1])) for i in range(count)]
    root = sink(*pairs)
    assert break_cycles(root) is root


def test_readers_run_before_writers():
    x = Tensor(np.arange(4, dtype=np.float32)).realize()
    turned = x.flip(0) * 2
    place = x.uop.base
    x += 1
    linear, _ = x.linear_with_vars()
    first, second = linear.src
    assert place in first.src[1:] and second.src[1] is place
    x.realize()
    assert turned.tolist() == [6, 4, 2, 0]


def test_a_reader_of_the_same_elements_is_part_of_the_writer():
    x = Tensor(np.ones(4, np.float32)).realize()
    double = x * 2
    x += 1
    assert len(x.linear_with_vars()[0].src) == 1
    assert (x.tolist(), double.tolist()) == ([2] * 4, [2] * 4)


def chain(x, w, steps):
    for _ in range(steps):
        x = (x @ w).relu().contiguous()
    return x


def test_temporaries_share_memory():
    x, w = Tensor.ones(8, 8).contiguous().realize(), Tensor.ones(8, 8).contiguous().realize()
    made = live.plan([chain(x, w, 7).uop]).schedule
    sizes = [part.nbytes for part in made.plan.slices]
    assert len(sizes) == 6
    (arena,) = made.plan.arenas
    assert arena[1] <= 2 * sizes[0]


def lifetimes(made):
    """The first and the last step that uses each temporary."""
    found = {}
    for number, call in enumerate(made.linear.src):
        for argument in call.src[1:]:
            for node in toposort([argument]):
                if node.op is Ops.BUFFER:
                    first, _ = found.get(node, (number, number))
                    found[node] = (first, number)
    return found


PROGRAMS = {
    "chain": lambda x: chain(x, x, 5),
    "branches": lambda x: chain(x, x, 3) @ chain(x, x.T, 2) + chain(x, x + 1, 2),
    "attention": lambda x: x.reshape(1, 1, 8, 8).scaled_dot_product_attention(
        x.reshape(1, 1, 8, 8), x.reshape(1, 1, 8, 8)
    ),
    "sorted": lambda x: x.sort(1)[0].cumsum(0),
    "wide": lambda x: sum((x @ (x + i)).exp().contiguous().sum(0) for i in range(6)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_temporaries_that_live_at_once_lie_apart(name):
    made = live.plan([PROGRAMS[name](Tensor.rand(8, 8).realize()).uop]).schedule
    used = lifetimes(made)
    parts = [p for p in made.plan.slices if p.memory in used]
    for i, p in enumerate(parts):
        assert p.offset % 64 == 0
        for q in parts[i + 1 :]:
            (first, last), (begin, end) = used[p.memory], used[q.memory]
            if first <= end and begin <= last:
                assert p.offset + p.nbytes <= q.offset or q.offset + q.nbytes <= p.offset


@pytest.mark.parametrize("slots", [None, ("CPU:0", "CPU:1")])
def test_a_store_of_no_elements_keeps_its_place(slots):
    x = Tensor(np.arange(4, dtype=np.float32))
    x = x.realize() if slots is None else x.shard(slots).realize()
    first = (-x).clone()
    first[1:3] = 7.0
    second = first.clone()
    second[:0] = 5.0
    third = second.clone()
    third[4:] = 6.0
    assert third.clone().tolist() == [0.0, 7.0, 7.0, -3.0]
