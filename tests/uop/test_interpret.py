"""The oracle itself, against values worked out by hand: every op, memory, slots, calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import ArgumentError
from tinyfn.uop.arithmetic import ARITHMETIC, bitcast, cast, elementwise
from tinyfn.uop.info import pack
from tinyfn.uop.interpret import interpret
from tinyfn.uop.ops import CallInfo, Ops, ParamInfo, ReduceInfo, UOp

F, W = dtypes.float32, dtypes.weakint
INF, NAN = math.inf, math.nan
TWO = ("CPU", "CPU:1")


class Graph:
    """Buffers with contents, and what a graph over them gives."""

    def __init__(self) -> None:
        self.state: dict[UOp, Any] = {}

    def data(self, values: Any, dtype=F, device: Any = "CPU") -> UOp:
        array = np.array(values)
        node = UOp.new_memory(device, array.shape, dtype, kind="data")
        self.state[node] = array.astype(np.dtype(dtype.name))
        return node

    def parts(self, values: list[Any], dtype=F) -> UOp:
        """A buffer with contents of its own on each of two slots."""
        arrays = [np.array(v, np.dtype(dtype.name)) for v in values]
        node = UOp.new_memory(TWO, arrays[0].shape, dtype, kind="data")
        self.state[node] = arrays
        return node

    def __call__(self, *roots: UOp, **kwargs: Any) -> Any:
        values = interpret(roots, self.state, **kwargs)
        return values[0] if len(values) == 1 else values


@pytest.fixture
def graph() -> Graph:
    return Graph()


def const(value: Any, dtype=F) -> UOp:
    return UOp.const(value, dtype)


def same(actual: Any, wanted: Any, dtype: str | None = None) -> None:
    """Equal bit by bit up to the kind of NaN."""
    if dtype is not None:
        assert actual.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(actual, np.array(wanted))
    if actual.dtype.kind == "f":
        known = ~np.isnan(np.array(wanted, float))
        np.testing.assert_array_equal(
            np.signbit(actual)[known], np.signbit(np.array(wanted, float))[known]
        )


# *** elementwise ***

i8, u8, i32, u32, i64, u64 = (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64)
f16, f32, f64, b1 = np.float16, np.float32, np.float64, np.bool_
BY_HAND = [
    ("NEG", f32, [[0.0, -1.5, INF, NAN]], [-0.0, 1.5, -INF, NAN]),
    ("NEG", i8, [[1, -128]], [-1, -128]),
    ("NEG", u8, [[1, 0]], [255, 0]),
    ("ABS", f32, [[-0.0, -2.5, NAN]], [0.0, 2.5, NAN]),
    ("ABS", i8, [[-5, -128]], [5, -128]),
    ("NOT", i8, [[0, 5]], [-1, -6]),
    ("NOT", u8, [[0, 5]], [255, 250]),
    ("NOT", b1, [[True, False]], [False, True]),
    ("SQRT", f32, [[4.0, 2.0, -1.0, -0.0]], [2.0, f32(math.sqrt(2)), NAN, -0.0]),
    ("RECIP", f32, [[4.0, 0.0, -0.0, INF]], [0.25, INF, -INF, 0.0]),
    ("RSQRT", f32, [[4.0, 0.0, -1.0]], [0.5, INF, NAN]),
    ("EXP", f32, [[0.0, 1.0, -INF, 89.0]], [1.0, f32(math.e), 0.0, INF]),
    ("EXP2", f32, [[3.0, -149.0, 128.0]], [8.0, f32(2.0**-149), INF]),
    ("EXPM1", f32, [[0.0, 1e-8, -INF]], [0.0, f32(1e-8), -1.0]),
    ("LOG", f32, [[1.0, 0.0, -1.0, INF]], [0.0, -INF, NAN, INF]),
    ("LOG2", f32, [[8.0, 0.5]], [3.0, -1.0]),
    ("LOG1P", f32, [[0.0, 1e-8, -1.0]], [0.0, f32(1e-8), -INF]),
    ("SIN", f32, [[0.0, -0.0, math.pi / 2, INF]], [0.0, -0.0, 1.0, NAN]),
    ("COS", f32, [[0.0, 1e30]], [1.0, f32(math.cos(float(f32(1e30))))]),
    ("TAN", f32, [[0.0, 1.0]], [0.0, f32(math.tan(1.0))]),
    ("TANH", f32, [[0.0, 20.0, -INF]], [0.0, 1.0, -1.0]),
    ("SIGMOID", f32, [[0.0, 200.0, -200.0, -80.0]], [0.5, 1.0, 0.0, f32(math.exp(-80))]),
    ("ERF", f32, [[0.0, 1.0, INF]], [0.0, f32(math.erf(1.0)), 1.0]),
    ("TRUNC", f32, [[1.7, -1.7, -0.2]], [1.0, -1.0, -0.0]),
    ("FLOOR", f32, [[1.7, -1.7]], [1.0, -2.0]),
    ("CEIL", f32, [[1.2, -1.7]], [2.0, -1.0]),
    ("ROUND", f32, [[0.5, 1.5, 2.5, -0.5]], [0.0, 2.0, 2.0, -0.0]),
    ("ROUND", i32, [[7]], [7]),
    ("ADD", f32, [[1.0, INF, 1e38], [2.0, -INF, 3e38]], [3.0, NAN, INF]),
    ("ADD", i8, [[127], [1]], [-128]),
    ("ADD", u8, [[255], [2]], [1]),
    ("SUB", u32, [[0], [1]], [2**32 - 1]),
    ("SUB", b1, [[True, True], [True, False]], [False, True]),
    ("MUL", i32, [[2**30], [4]], [0]),
    ("MUL", f32, [[0.0, 1e30], [INF, 1e30]], [NAN, INF]),
    ("DIV", f32, [[1.0, 1.0, 0.0, -1.0], [3.0, 0.0, 0.0, 0.0]], [f32(1 / 3), INF, NAN, -INF]),
    ("IDIV", i32, [[7, -7, 7, -7, 5], [2, 2, -2, -2, 0]], [3, -4, -4, 3, 0]),
    ("IDIV", i8, [[-128], [-1]], [-128]),
    ("IDIV", u8, [[7, 7], [2, 0]], [3, 0]),
    ("IDIV", f32, [[7.0, -7.0, 1.0], [2.0, 2.0, 0.0]], [3.0, -4.0, INF]),
    ("MOD", i32, [[7, -7, 7, -7, 5], [2, 2, -2, -2, 0]], [1, 1, -1, -1, 0]),
    ("MOD", i8, [[-128], [-1]], [0]),
    ("MOD", f32, [[5.5, -5.5, 1.0], [2.0, 2.0, 0.0]], [1.5, 0.5, NAN]),
    ("MAX", f32, [[1.0, NAN, 2.0], [2.0, 1.0, NAN]], [2.0, NAN, NAN]),
    ("MIN", f32, [[1.0, NAN, 2.0], [2.0, 1.0, NAN]], [1.0, NAN, NAN]),
    ("MAX", b1, [[True, False], [False, False]], [True, False]),
    ("POW", f32, [[2.0, -8.0, 0.0, -2.0], [10.0, 1 / 3, 0.0, 3.0]], [1024.0, NAN, 1.0, -8.0]),
    ("AND", i8, [[12], [-6]], [8]),
    ("OR", u8, [[12], [3]], [15]),
    ("XOR", b1, [[True, True], [True, False]], [False, True]),
    ("SHL", i32, [[1, 1, -1], [31, 32, 1]], [-(2**31), 0, -2]),
    ("SHR", i32, [[-8, -8, 8], [1, 40, 40]], [-4, -1, 0]),
    ("SHR", u8, [[128, 128], [7, 8]], [1, 0]),
    ("SHL", i8, [[1], [-1]], [0]),
    ("CMPLT", f32, [[1.0, NAN, 2.0], [2.0, 1.0, 2.0]], [True, False, False]),
    ("CMPLE", i8, [[1, 2, 3], [2, 2, 2]], [True, True, False]),
    ("CMPEQ", f32, [[0.0, NAN], [-0.0, NAN]], [True, False]),
    ("CMPNE", f32, [[0.0, NAN], [-0.0, NAN]], [False, True]),
    ("CMPLT", u64, [[2**63], [1]], [False]),
]


@pytest.mark.parametrize(("name", "kind", "sources", "wanted"), BY_HAND)
def test_elementwise_by_hand(name: str, kind: Any, sources: list[Any], wanted: list[Any]):
    op = Ops[name]
    dtype = getattr(dtypes, np.dtype(kind).name)
    result = dtypes.bool if name.startswith("CMP") else dtype
    found = elementwise(op, result, *(np.array(s, kind) for s in sources))
    same(found, np.array(wanted, np.dtype(result.name)), result.name)


def test_every_elementwise_op_is_worked_out():
    known = {name for name, *_ in BY_HAND} | {"WHERE", "FMA", "THREEFRY"}
    assert known == {op.name for op in ARITHMETIC}


def test_where_chooses_even_beside_nan():
    found = elementwise(Ops.WHERE, F, np.array([True, False]), np.array([1, NAN], f32), f32(2))
    same(found, [1.0, 2.0], "float32")


def test_fma_rounds_once():
    x, z = f32(1 + 2**-12), f32(-1 - 2**-11)
    same(elementwise(Ops.FMA, F, x, x, z), f32(2**-24), "float32")
    assert x * x + z == 0
    x, z = f64(1 + 2**-27), f64(-1 - 2**-26)
    assert elementwise(Ops.FMA, dtypes.float64, x, x, z) == 2.0**-54
    same(elementwise(Ops.FMA, F, f32(INF), f32(1), f32(-INF)), NAN)
    assert elementwise(Ops.FMA, F, f32(3e38), f32(10), f32(-1)) == INF


def test_threefry_gives_the_published_numbers():
    def block(low: int, high: int) -> np.ndarray:
        return np.array(low | high << 32, u64)

    known = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    for counter, key, wanted in known:
        found = elementwise(Ops.THREEFRY, dtypes.uint64, block(*counter), block(*key))
        assert int(found) == int(block(*wanted))


def test_narrow_floats_compute_in_float32_and_round_once():
    x, y = np.array([2048.0, 65504.0], f16), np.array([1.0, 16.0], f16)
    same(elementwise(Ops.ADD, dtypes.float16, x, y), [2048.0, INF], "float16")
    same(elementwise(Ops.ADD, dtypes.bfloat16, f32(256.0), f32(1.0)), f32(256.0), "float32")
    same(elementwise(Ops.ADD, dtypes.bfloat16, f32(256.0), f32(3.0)), f32(260.0), "float32")
    same(elementwise(Ops.MUL, dtypes.fp8e4m3, f32(1.125), f32(1.125)), f32(1.25), "float32")
    same(elementwise(Ops.MUL, dtypes.fp8e4m3, f32(448.0), f32(2.0)), f32(NAN), "float32")
    same(elementwise(Ops.MUL, dtypes.fp8e5m2, f32(57344.0), f32(2.0)), f32(INF), "float32")
    assert elementwise(Ops.EXP, dtypes.float16, f16(1.0)) == f16(math.e)


MIN64 = -(2**63)
CASTS = [
    ("float32", "int32", [1.9, -1.9, NAN, 2.0**31, INF], [1, -1, 0, -(2**31), 0]),
    ("float32", "int8", [300.0, -129.0, NAN], [44, 127, 0]),
    ("float64", "int64", [NAN, 2.0**63, -(2.0**63), -INF], [MIN64, MIN64, MIN64, MIN64]),
    ("float64", "uint64", [2.0**63, -1.0, 2.0**64, NAN], [2**63, 2**64 - 1, 2**63, 2**63]),
    ("float32", "uint8", [255.0, 256.0, -1.0], [255, 0, 255]),
    ("float32", "bool", [0.0, -0.0, NAN, 0.5], [False, False, True, True]),
    ("int32", "bool", [0, 256], [False, True]),
    ("bool", "float32", [True, False], [1.0, 0.0]),
    ("int32", "int8", [300, -129], [44, 127]),
    ("int8", "uint64", [-1], [2**64 - 1]),
    ("uint64", "float32", [2**64 - 1, 2**24 + 1], [2.0**64, 2.0**24]),
    ("float64", "float16", [65520.0, 1e-8, 1 + 2**-11 + 2**-30], [INF, 0.0, 1 + 2**-10]),
    ("float32", "bfloat16", [1 + 2**-9, 1 + 3 * 2**-9], [1.0, 1 + 2**-7]),
    ("float64", "bfloat16", [1 + 2**-8 + 2**-40], [1 + 2**-7]),
    ("float32", "fp8e4m3", [449.0, 1000.0, 2.0**-10], [448.0, NAN, 0.0]),
    ("float32", "fp8e5m2", [1e6, 5.1], [INF, 5.0]),
    ("int32", "bfloat16", [257], [256.0]),
]


@pytest.mark.parametrize(("before", "after", "values", "wanted"), CASTS)
def test_casts_by_hand(before: str, after: str, values: list[Any], wanted: list[Any]):
    source, target = getattr(dtypes, before), getattr(dtypes, after)
    held = np.dtype("float32" if target in (dtypes.bfloat16, *dtypes.fp8s) else after)
    same(cast(np.array(values, before), source, target), np.array(wanted, held), held.name)


def test_bitcasts_by_hand():
    same(bitcast(np.array([1.0], f32), F, dtypes.int32), [0x3F800000], "int32")
    same(bitcast(np.array([0x3F80], np.uint16), dtypes.uint16, dtypes.bfloat16), [1.0], "float32")
    same(bitcast(np.array([1.0], f32), dtypes.bfloat16, dtypes.int16), [0x3F80], "int16")
    same(bitcast(np.array([-1], i8), dtypes.int8, dtypes.uint8), [255], "uint8")
    same(bitcast(np.array([2, 0], u8), dtypes.uint8, dtypes.bool), [True, False], "bool")
    same(bitcast(np.array([True]), dtypes.bool, dtypes.uint8), [1], "uint8")
    same(bitcast(np.array(0x7E, u8), dtypes.uint8, dtypes.fp8e4m3), f32(448.0), "float32")


# *** leaves ***


def test_leaves(graph: Graph):
    n = UOp.variable("n", 1, 8)
    filled = UOp.full((2, n), 1.5, F, "CPU")
    counted = UOp._iota(n, dtypes.int32)
    values = graph(filled, counted, const(2.5), n.bind(3), graph.data([1, 2], dtypes.int8))
    same(values[0], np.full((2, 3), 1.5, f32), "float32")
    same(values[1], [0, 1, 2], "int32")
    same(values[2], f32(2.5), "float32")
    assert values[3] == 3
    same(values[4], [1, 2], "int8")


def test_variables_may_be_given(graph: Graph):
    n = UOp.variable("n", 1, 8)
    same(graph(UOp._iota(n, dtypes.int32), variables={"n": 2}), [0, 1], "int32")


def test_memory_without_contents_reads_zero():
    node = UOp.new_buffer("CPU", (2,), F)
    same(interpret([node])[0], [0.0, 0.0], "float32")


class Memory:
    """Stands for a buffer of a device: a flat array of storage."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def array(self) -> Any:
        return self.values


def test_memory_of_the_node_is_read_and_written():
    node = UOp.new_buffer("CPU", (2,), dtypes.bfloat16)
    memory = Memory(np.array([0x3F80, 0x4000], np.uint16))
    object.__setattr__(node, "_realized", memory)
    changed = node.after(node._move("SHRINK", (0, 1)).store(const(3.0, dtypes.bfloat16)))
    same(interpret([changed])[0], [3.0, 2.0], "float32")
    same(memory.values, [0x4040, 0x4000], "uint16")
    same(interpret([node], {})[0], [3.0, 2.0], "float32")


# *** movement, reduction, gathering ***


def test_movement(graph: Graph):
    a = graph.data([[0, 1, 2], [3, 4, 5]])
    same(graph(a._move("RESHAPE", (3, 2))), [[0, 1], [2, 3], [4, 5]])
    row = a._move("SHRINK", (1, 1, 0, 3))
    same(graph(row), [[3, 4, 5]])
    same(graph(row._move("EXPAND", (2, 3))), [[3, 4, 5], [3, 4, 5]])
    same(graph(a._move("PERMUTE", (1, 0))), [[0, 3], [1, 4], [2, 5]])
    same(graph(row._move("PAD", (1, 0, 0, 2))), [[0, 0, 0, 0, 0], [3, 4, 5, 0, 0]])
    same(graph(a._move("FLIP", (0, 1))), [[5, 4, 3], [2, 1, 0]])


def test_symbolic_movement(graph: Graph):
    a, n = graph.data(np.arange(8)), UOp.variable("n", 0, 4)
    bound = n.bind(2)
    same(graph(a._move("SHRINK", (bound, bound))), [2, 3])
    same(graph(a._move("SHRINK", (0, bound))._move("PAD", (1, bound))), [0, 0, 1, 0, 0])
    one = const(7.0)._move("RESHAPE", (1,))
    same(graph(one._move("EXPAND", (bound,))), [7, 7])


def test_reductions(graph: Graph):
    a = graph.data([[1, 2, 3], [4, 5, NAN]])
    same(graph(a._reduce("ADD", (1,))), [[6], [NAN]], "float32")
    same(graph(a._reduce("MUL", (0,))), [[4, 10, NAN]])
    same(graph(a._reduce("MAX", (0, 1))), [[NAN]])
    same(graph(a._reduce("MIN", (0,))), [[1, 2, NAN]])
    small = graph.data([[100, 100]], dtypes.int8)
    same(graph(small._reduce("ADD", (1,))), [[-56]], "int8")
    same(graph(graph.data([[True, False]], dtypes.bool)._reduce("MAX", (1,))), [[True]], "bool")


def test_sums_are_rounded_once(graph: Graph):
    tiny = graph.data([1.0] + [2.0**-24] * 16)
    same(graph(tiny._reduce("ADD", (0,))), [f32(1 + 2**-20)])
    half = graph.data([2048.0, 1.0, 1.0], dtypes.float16)
    same(graph(half._reduce("ADD", (0,))), [2050.0], "float16")


def test_empty_reductions(graph: Graph):
    a = graph.data(np.zeros((2, 0)))
    for op, wanted in ((Ops.ADD, 0.0), (Ops.MUL, 1.0), (Ops.MAX, -INF), (Ops.MIN, INF)):
        same(graph(UOp(Ops.REDUCE_AXIS, F, (a,), ReduceInfo(op, (1,)))), [[wanted], [wanted]])


def test_gather(graph: Graph):
    a = graph.data([[0, 1, 2], [3, 4, 5]])
    index = graph.data([[2, 0], [-1, 3]], dtypes.int64)
    same(graph(a._gather(index, 1)), [[[2, 0], [0, 0]], [[5, 3], [0, 0]]])
    same(
        graph(a._gather(graph.data([1, 2, 0], dtypes.uint8), 0)), [[3, 4, 5], [0, 0, 0], [0, 1, 2]]
    )
    empty = graph.data(np.zeros((0, 2)))
    same(graph(empty._gather(graph.data([0], dtypes.int32), 0)), [[0, 0]])


def test_scatter_add(graph: Graph):
    a = graph.data([[1, 1, 1], [2, 2, 2]])
    index = graph.data([0, 2, 0, 5], dtypes.int32)
    added = graph.data([[1, 10, 100, 7], [2, 20, 200, 7]])
    same(graph(a._scatter("ADD", index, added, 1)), [[102, 1, 11], [204, 2, 22]], "float32")
    same(graph(a), [[1, 1, 1], [2, 2, 2]])
    rows = graph.data([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    same(
        graph(a._scatter("ADD", graph.data([1, -1, 1], dtypes.int32), rows, 0)),
        [[1, 1, 1], [10, 12, 14]],
    )


@pytest.mark.parametrize(
    ("name", "expected"), [("MUL", [12, 1, 3]), ("MAX", [4, 1, 3]), ("MIN", [1, 1, -2])]
)
def test_scatter_of_other_ops(graph: Graph, name, expected):
    table, index = graph.data([1, 1, 1]), graph.data([0, 2, 0, 5, 2, -1], dtypes.int32)
    values = graph.data([3, 3, 4, 9, -2 if name == "MIN" else 1, 9])
    same(graph(table._scatter(name, index, values, 0)), expected)


def test_markers_pass_values_on(graph: Graph):
    a = graph.data([1, 2])
    values = graph(a._alu("NEG").contiguous(), a.detach(), a.contiguous_backward())
    same(values[0], [-1, -2])
    same(values[1], [1, 2])
    same(values[2], [1, 2])


# *** stores ***


def test_a_store_writes_through_a_view(graph: Graph):
    a = graph.data(np.zeros((2, 3)))
    view = a._move("PERMUTE", (1, 0))._move("SHRINK", (1, 2, 0, 1))._move("FLIP", (0,))
    changed = a.after(view.store(graph.data([[1], [2]])))
    same(graph(changed), [[0, 2, 1], [0, 0, 0]])
    same(graph.state[a], [[0, 2, 1], [0, 0, 0]])


def test_padding_takes_no_store(graph: Graph):
    a = graph.data([1, 2])
    same(graph(a.after(a._move("PAD", (1, 1)).store(graph.data([7, 8, 9, 10])))), [8, 9])


def test_readers_see_what_was_before(graph: Graph):
    a = graph.data([1, 2])
    changed = a.after(a.store(a._alu("ADD", const(10.0))))
    same(graph(changed._alu("SUB", a)), [10, 10])


def test_stores_in_a_chain(graph: Graph):
    a = graph.data([1, 2])
    once = a.after(a._move("SHRINK", (0, 1)).store(const(5.0)))
    twice = once.after(once._move("SHRINK", (1, 1)).store(once._move("SHRINK", (0, 1))))
    values = graph(once, twice)
    same(values[0], [5, 2])
    same(values[1], [5, 5])


def test_independent_stores_both_count(graph: Graph):
    a = graph.data([1, 2])
    ends = [a.after(a._move("SHRINK", (i, 1)).store(const(9.0))) for i in range(2)]
    graph(*ends)
    same(graph.state[a], [9, 9])


def test_invalid_leaves_memory_alone(graph: Graph):
    a = graph.data([1, 2, 3])
    same(graph(a.after(a.store(Invalid))), [1, 2, 3])
    gate = graph.data([True, False, True], dtypes.bool)
    chosen = gate._alu("WHERE", graph.data([7, 8, 9]), const(Invalid))
    same(graph(a.after(a.store(chosen))), [7, 2, 9])
    moved = chosen._move("FLIP", (0,))._move("SHRINK", (0, 2))
    same(graph(a.after(a._move("SHRINK", (1, 2)).store(moved))), [7, 9, 9])
    filled = UOp.full((3,), Invalid, F, "CPU")
    same(graph(a.after(a.store(filled))), [7, 9, 9])


def test_a_gate_keeps_a_store_back(graph: Graph):
    a = graph.data([1, 2])
    gate = graph.data([False, True], dtypes.bool)
    same(graph(a.after(a.store(const(9.0), gate))), [1, 9])


def test_values_that_are_stored_into_are_memory(graph: Graph):
    a = graph.data([1, 2])
    copy = a._alu("NEG").contiguous()
    changed = copy.after(copy._move("SHRINK", (0, 1)).store(const(5.0)))
    values = graph(changed, a)
    same(values[0], [5, -2])
    same(values[1], [1, 2])


# *** slots ***


def test_copies_and_shards(graph: Graph):
    a = graph.data([[1, 2], [3, 4]])
    copied = graph(a.shard(TWO))
    assert isinstance(copied, list)
    same(copied[0], [[1, 2], [3, 4]])
    same(copied[1], [[1, 2], [3, 4]])
    split = graph(a.shard(TWO, 1)._alu("NEG"))
    same(split[0], [[-1], [-3]])
    same(split[1], [[-2], [-4]])
    same(graph(a.shard(TWO, 1)._alu("NEG").copy_to_device("CPU")), [[-1, -2], [-3, -4]])
    same(graph(a.copy_to_device("CPU:1")), [[1, 2], [3, 4]])


def test_parts_of_slots(graph: Graph):
    parts = graph.parts([[1, 2], [3, 4]])
    same(graph(parts.mselect(1)), [3, 4])
    whole = parts.unshard(0)
    assert whole.shape == (4,)
    same(graph(whole._reduce("ADD", (0,)))[1], [10])
    both = graph(whole)
    same(both[0], [1, 2])
    same(both[1], [3, 4])
    totals = graph(parts.allreduce(Ops.ADD, TWO))
    same(totals[0], [4, 6])
    same(totals[1], [4, 6])
    same(graph(parts.allreduce(Ops.MAX, "CPU")), [3, 4])
    part = graph.data([5]), graph.data([6], device="CPU:1")
    stacked = graph(part[0].mstack(part[1])._alu("NEG"))
    same(stacked[0], [-5])
    same(stacked[1], [-6])
    kept = graph(part[0].mstack(part[1]).copy_to_device(("CPU:2", "CPU:3")))
    same(kept[1], [6])


def test_sharded_with_replicated(graph: Graph):
    whole = graph.parts([[1, 2], [3, 4]]).unshard(0)
    other = graph.parts([[10, 20, 30, 40], [10, 20, 30, 40]])
    values = graph(whole._alu("ADD", other))
    same(values[0], [11, 22])
    same(values[1], [33, 44])
    back = graph(UOp(Ops.SHARD, F, (other,), 0))
    same(back[1], [30, 40])


def test_the_number_of_the_slot(graph: Graph):
    other = graph.parts([[10, 20, 30, 40], [10, 20, 30, 40]])
    slot = UOp(Ops.SLOT, W)
    values = graph(other._move("SHRINK", (slot._alu("MUL", UOp.const(2, W)), 2)))
    same(values[0], [10, 20])
    same(values[1], [30, 40])


def test_stores_on_slots(graph: Graph):
    parts = graph.parts([[[1], [2]], [[3], [4]]])
    whole = parts.unshard(1)
    row = whole._move("SHRINK", (0, 1, 0, 2))
    graph(whole.after(row.store(graph.data([[7, 8]], device=TWO))))
    same(graph.state[parts][0], [[7], [2]])
    same(graph.state[parts][1], [[8], [4]])
    copies = graph.parts([[1, 2], [1, 2]])
    values = graph(copies.after(copies._move("SHRINK", (0, 1)).store(const(9.0))))
    same(values[0], [9, 2])
    same(values[1], [9, 2])


# *** calls ***


def param(slot: int, shape: tuple[Any, ...], dtype=F, device: Any = "CPU") -> UOp:
    packed, symbols = pack(shape)
    return UOp(Ops.PARAM, dtype, symbols, ParamInfo(slot, packed, device))


def outputs(body: tuple[UOp, ...], *arguments: UOp) -> list[UOp]:
    call = UOp(Ops.CALL, src=(UOp(Ops.TUPLE, src=body), *arguments), arg=CallInfo())
    found = []
    for i, value in enumerate(body):
        packed, symbols = pack(value.shard_shape)
        place = UOp(Ops.OUTPUT, value.dtype, symbols, ParamInfo(i, packed, value.device))
        found.append((place if value.axis is None else place.unshard(value.axis)).after(call))
    return found


def test_a_call_gives_its_outputs(graph: Graph):
    x, y = param(0, (2,)), param(1, (2,))
    both = outputs((x._alu("ADD", y), x._alu("MUL", y)), graph.data([1, 2]), graph.data([3, 4]))
    values = graph(*both, both[0]._move("FLIP", (0,)))
    same(values[0], [4, 6])
    same(values[1], [3, 8])
    same(values[2], [6, 4])


def test_calls_inside_of_calls(graph: Graph):
    (inner,) = outputs((param(0, (2,))._alu("NEG"),), param(0, (2,))._alu("ADD", const(1.0)))
    (outer,) = outputs((inner._alu("MUL", const(2.0)),), graph.data([1, 2]))
    same(graph(outer), [-4, -6])


def test_a_bound_argument_gives_the_variable_its_value(graph: Graph):
    n = UOp.variable("n", 1, 4)
    cut = graph.data([1, 2, 3, 4])._move("SHRINK", (0, n.bind(2)))
    (doubled,) = outputs((param(0, (n,))._alu("MUL", const(2.0)),), cut, n.bind(2))
    same(graph(doubled), [2, 4])
    again = doubled._move("SHRINK", (0, 1))
    same(graph(again), [2])


def test_stores_of_a_body_reach_the_argument(graph: Graph):
    place = param(0, (2,))
    changed = place.after(place._move("SHRINK", (0, 1)).store(const(9.0)))
    a = graph.data([1, 2, 3, 4])
    (result,) = outputs((changed,), a._move("SHRINK", (1, 2)))
    same(graph(result), [9, 3])
    same(graph.state[a], [1, 9, 3, 4])


def test_a_call_over_slots(graph: Graph):
    x = param(0, (2,), device=TWO).unshard(0)
    parts = graph.parts([[1, 2], [3, 4]])
    total = x._reduce("ADD", (0,))
    doubled, summed = outputs((x._alu("ADD", x), total), parts.unshard(0))
    values = graph(doubled, summed)
    same(values[0][1], [6, 8])
    same(values[1][0], [10])


def test_scratch_of_a_body_is_its_own(graph: Graph):
    scratch = UOp.new_memory("CPU", (2,), F, num=-1, kind="scratch")
    written = scratch.after(scratch.store(param(0, (2,))))
    (first,) = outputs((written,), graph.data([1, 2]))
    (second,) = outputs((written,), graph.data([3, 4]))
    same(graph(first._alu("ADD", second)), [4, 6])
    assert scratch not in graph.state


def test_programs_have_no_meaning(graph: Graph):
    call = UOp(Ops.CALL, src=(UOp(Ops.PROGRAM), graph.data([1])), arg=CallInfo("k"))
    with pytest.raises(ArgumentError, match="compiled program"):
        graph(graph.data([1]).after(call))


def test_kernel_nodes_have_no_value_outside_of_kernels(graph: Graph):
    with pytest.raises(ArgumentError, match="RANGE has no value"):
        graph(UOp.range(4, 0))


def test_fma_rounds_once_in_its_own_type():
    # just below the middle of two float32; float64 would round it onto the middle first
    x, y, z = 2.0**-24 * (1 + 2.0**-23), 1 - 2.0**-23, 1 + 2.0**-23
    assert elementwise(Ops.FMA, F, f32(x), f32(y), f32(z)) == f32(z)
    # the product is finite before it is rounded
    assert elementwise(Ops.FMA, F, f32(3e38), f32(3e38), f32(-INF)) == -INF
