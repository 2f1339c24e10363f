"""Generated source, run as plain Python, against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import LOOP, REDUCE, at, check, f32, kernel, memory

from tinyfn.codegen import generate
from tinyfn.dtype import dtypes
from tinyfn.errors import CompileError
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.ops import Ops, UOp

EVERY_DTYPE = [d for d in dtypes.all if d is not dtypes.bool]


@pytest.mark.parametrize("n", [1, 3, 16, 100, 333])
def test_elementwise_of_any_size(n: int) -> None:
    check(graphs.elementwise(n))


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=lambda d: d.name)
def test_elementwise_of_any_dtype(dtype: object) -> None:
    check(graphs.elementwise(75, dtype))


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("rows", "n"), [(1, 5), (3, 16), (2, 45)])
def test_softmax(rows: int, n: int, staged: bool) -> None:
    check(graphs.softmax(rows, n, staged))


@pytest.mark.parametrize(("rows", "n"), [(1, 5), (3, 16), (2, 45)])
def test_layernorm(rows: int, n: int) -> None:
    check(graphs.layernorm(rows, n))


@pytest.mark.parametrize(
    ("m", "n", "depth"), [(1, 40, 9), (5, 7, 3), (9, 33, 5), (8, 32, 4), (13, 1, 20)]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transpose_a": True},
        {"transpose_b": True},
        {"epilogue": True},
        {"batch": 2},
        {"dtype": dtypes.int32},
    ],
    ids=str,
)
def test_matmul(m: int, n: int, depth: int, options: dict[str, object]) -> None:
    check(graphs.matmul(m, n, depth, **options))


def test_padded_conv() -> None:
    check(graphs.padded_conv(1, 2, 5, 3, 9), chunks=(3,))
    check(graphs.padded_conv(2, 1, 3, 2, 17), chunks=(1,))


@pytest.mark.parametrize("options", [{}, {"transpose_b": True}, {"transpose_a": True}], ids=str)
def test_operands_in_panels(options: dict[str, object]) -> None:
    check(graphs.matmul(35, 19, 7, **options), targets=("avx512", "neon"), chunks=(3,))


def test_weights_in_panels() -> None:
    check(graphs.padded_conv(1, 1, 18, 6, 6), targets=("avx512", "avx2"), chunks=(3,))


def test_long_bodies_are_written_once() -> None:
    """What is left over at the end of a long body is masked in the same text."""
    i = UOp.range(37, 0, LOOP)
    value = at(memory(1, 37), i)
    for _ in range(90):
        value = value * 0.5 + 1.0
    sink = kernel(at(memory(0, 37), i).store(value).end(i))
    check(sink, chunks=(1,))
    assert generate(sink, graphs.target()).source.count("vmul_f32x16") == 90


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [f32, dtypes.int16, dtypes.float16], ids=lambda d: d.name)
def test_reductions(op: Ops, dtype: object) -> None:
    check(graphs.row_reduce(3, 37, op, dtype))


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN], ids=lambda op: op.name)
def test_reductions_of_bools(op: Ops) -> None:
    check(graphs.row_reduce(4, 70, op, dtypes.bool))


def test_attention_rows() -> None:
    """Costly factors are kept in rows, several rows share the loads of the other factor."""
    check(graphs.attention_rows(2, 5, 7, 9))
    check(graphs.attention_rows(1, 8, 17, 20))
    source = generate(graphs.attention_rows(2, 64, 64, 64), graphs.target()).source
    assert "row0 = local_f32(256)" in source
    assert "vexp_f32x16" in source
    assert " exp_f32" not in source


def test_columns_and_totals() -> None:
    check(graphs.column_reduce(7, 50))
    check(graphs.column_reduce(3, 100, Ops.MAX))
    check(graphs.total(300))


def test_gather_and_scatter() -> None:
    check(graphs.gather(20, 30, 5))
    check(graphs.gather(20, 30, 1))
    check(graphs.scatter_add(30, 20, 19), chunks=(1,))


@pytest.mark.parametrize("length", [1, 5, 16, 33, 130])
def test_symbolic_sizes(length: int) -> None:
    check(graphs.symbolic_rows(130), {"length": length})


@pytest.mark.parametrize(
    "dtype", [f32, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.float16], ids=lambda d: d.name
)
def test_counters_as_values(dtype: object) -> None:
    i = UOp.range(50, 0, LOOP)
    check(kernel(at(memory(0, 50, dtype), i).store((i * 3 - 5).cast(dtype)).end(i)))


@pytest.mark.parametrize("size", [4, 12, 16, 40])
def test_quotients_and_remainders_in_offsets(size: int) -> None:
    i = UOp.range(240, 0, LOOP)
    value = (
        at(memory(1, 240), i // size)
        + at(memory(1, 240), i % size * 3)
        + at(memory(1, 240), (i + 3) // 7 % 5)
    )
    check(kernel(at(memory(0, 240), i).store(value).end(i)))


def test_reversed_and_transposed() -> None:
    i, j = UOp.range(13, 0, LOOP), UOp.range(21, 1, LOOP)
    value = at(memory(1, 273), j * 13 + (12 - i))
    check(kernel(at(memory(0, 273), i * 21 + j).store(value).end(i, j)))


@pytest.mark.parametrize("dtype", [f32, dtypes.float16, dtypes.int8], ids=lambda d: d.name)
def test_squares_change_places(dtype: Any) -> None:
    """Lanes far apart are loaded along their neighbours and turned in scratch."""
    i, j = UOp.range(34, 0, LOOP), UOp.range(33, 1, LOOP)
    a, b, c = (memory(slot, 33 * 34, dtype) for slot in (1, 2, 0))
    value = at(a, j * 34 + i) + at(b, i * 33 + j)
    sink = kernel(at(c, i * 33 + j).store(value).end(i, j))
    check(sink)
    if dtype is f32:
        assert "local_f32(256)" in generate(sink, graphs.target()).source


@pytest.mark.parametrize("sizes", [(5, 0), (0, 5), (0, 0), (40, 0)], ids=str)
def test_empty_loops(sizes: tuple[int, int]) -> None:
    rows, n = sizes
    i, k = UOp.range(rows, 0, LOOP), UOp.range(n, 1, REDUCE)
    value = at(memory(1, 1), i * n + k).reduce(k)
    check(kernel(at(memory(0, max(rows, 1)), i).store(value).end(i)))


@pytest.mark.parametrize(("before", "after"), [(3, 5), (16, 0), (0, 70)])
def test_padding_is_masked(before: int, after: int) -> None:
    i = UOp.range(30 + before + after, 0, LOOP)
    inner = i - before
    valid = (UOp.const(-1, dtypes.weakint) < inner) & (inner < 30)
    value = at(memory(1, 30), inner, valid) + 1.0
    check(kernel(at(memory(0, 30 + before + after), i).store(value).end(i)))


def test_one_hot_compares_indices_as_data() -> None:
    i, j = UOp.range(9, 0, LOOP), UOp.range(33, 1, LOOP)
    equal = UOp(Ops.CMPEQ, dtypes.bool, (at(memory(1, 9, dtypes.int32), i), j.cast(dtypes.int32)))
    value = UOp(Ops.WHERE, f32, (equal, UOp.const(1.0, f32), UOp.const(0.0, f32)))
    check(kernel(at(memory(0, 297), i * 33 + j).store(value).end(i, j)))


# *** kernels as users write them ***


def test_custom_matmul_in_two_dimensions() -> None:
    a, b, c = (UOp.placeholder(s, f32, i) for i, s in ((1, (5, 9)), (2, (9, 7)), (0, (5, 7))))
    i, j, k = UOp.range(5, 0), UOp.range(7, 1), UOp.range(9, 2, REDUCE)
    value = (a.index(i, k) * b.index(k, j)).reduce(k)
    check(kernel(c.index(i, j).store(value).end(i, j)))


def test_custom_accumulation_in_memory() -> None:
    a, c = UOp.placeholder((20, 9), f32, 1), UOp.placeholder((20,), f32, 0)
    i, k = UOp.range(20, 0), UOp.range(9, 1, REDUCE)
    first = c[i].store(0.0)
    check(kernel(c[i].store(c.after(first, k)[i] + a[i, k]).end(k).end(i)))


def test_custom_prefix_sum_stays_in_order() -> None:
    a, c = UOp.placeholder((30,), f32, 1), UOp.placeholder((30,), f32, 0)
    i = UOp.range(29, 0)
    first = c[0].store(a[0])
    check(kernel(c[i + 1].store(c.after(first)[i] + a[i + 1]).end(i)))


def test_custom_kernel_with_two_loops() -> None:
    a, c, d = memory(1, 10), memory(0, 10), memory(2, 8)
    i, j = UOp.range(10, 0), UOp.range(8, 1)
    check(kernel(c[i].store(a[i] * 2.0).end(i), d[j].store(a[j]).end(j)))


def test_custom_kernel_reads_what_it_adds_to() -> None:
    a, c = memory(1, 40), memory(0, 40)
    i = UOp.range(40, 0)
    check(kernel(c[i].store(c[i].load() + a[i]).end(i)))


def test_custom_views_and_gates() -> None:
    a, c = UOp.placeholder((5, 9), f32, 1), UOp.placeholder((9, 5), f32, 0)
    i = UOp.range(45, 0)
    value = a.flip(1).reshape(45)[i] * 2.0
    check(kernel(c.permute(1, 0).flatten()[i].store(value).end(i)))
    gated = c.flatten()[i].store(value, i < 40)
    check(kernel(gated.end(i)))


def test_old_contents_are_read_before_they_are_overwritten() -> None:
    """p and m are updated together; both new values are made of the old ones."""
    p, m, g = memory(0, 50), memory(1, 50), memory(2, 50)
    i = UOp.range(50, 0, LOOP)
    new = at(m, i) * 0.5 + at(g, i)
    both = at(m, i).store(new).group(at(p, i).store(at(p, i) - (at(m, i) + new)))
    made = generate(kernel(both.end(i)), graphs.target())
    source = made.source
    assert source.index("vload_f32x16(buf1") < source.index("vstore_f32x16(buf1")
    assert source.count("vload_f32x16(buf1, i0)") == 1


# *** what comes with the source ***


def test_names_are_plain_and_belong_to_the_graph() -> None:
    i = UOp.range(4, 0, LOOP)
    one = kernel(at(memory(0, 4), i).store(at(memory(1, 4), i)).end(i), name="a b; import os")
    two = kernel(at(memory(0, 4), i).store(at(memory(2, 4), i)).end(i), name="a b; import os")
    names = [generate(sink, graphs.target()).name for sink in (one, two)]
    assert names[0] != names[1]
    assert all(name.isidentifier() and name.startswith("a_b__import_os") for name in names)


def test_operations_and_bytes() -> None:
    made = generate(graphs.matmul(12, 20, 33), graphs.target())
    assert made.ops == 2 * 12 * 20 * 33
    assert made.memory == 4 * (12 * 33 + 33 * 20 + 12 * 20)
    assert made.buffers == (0, 1, 2)
    padded = generate(graphs.elementwise(17), graphs.target())
    assert padded.ops == 2 * 17


@pytest.mark.parametrize("n", [5, 40])
def test_loops_as_long_as_memory_says(n: int) -> None:
    sink = graphs.counted_rows(6, n)
    check(sink)
    made = generate(sink, graphs.target())
    assert made.ops == 6 * (n // 2)  # between none and all


def test_symbolic_extent_and_variables() -> None:
    made = generate(graphs.symbolic_rows(50), graphs.target())
    assert made.variables == ("length",)
    assert made.ops.sym_infer({"length": 10}) == 4 * 10 * 2 + 10


def test_unclosed_loops_are_an_error() -> None:
    i = UOp.range(4, 0, LOOP)
    with pytest.raises(CompileError, match="add .end"):
        generate(kernel(at(memory(0, 4), i).store(1.0)), graphs.target())


def test_scratch_that_copies_share() -> None:
    """Rows of scratch that do not depend on a loop are filled once, and read by all its copies."""
    i, c = UOp.range(16, 0, LOOP), UOp.range(8, 1, LOOP)
    k, j = UOp.range(16, 2, REDUCE), UOp.range(16, 3, REDUCE)
    row = memory(1000, 16, space=AddrSpace.LOCAL)
    power = at(memory(1, 256), k * 16 + j).exp()
    filled = row.after(at(row, j).store(power).end(j))
    share = at(filled, i) / power.reduce(j, arg=Ops.ADD)
    value = (share * at(memory(2, 128), k * 8 + c)).reduce(k, arg=Ops.ADD)
    check(kernel(at(memory(0, 128), i * 8 + c).store(value).end(i, c)))


def test_costly_parts_of_a_sum_have_rows_of_their_own() -> None:
    i, c = UOp.range(3, 0, LOOP), UOp.range(8, 1, LOOP)
    k, m = UOp.range(17, 2, REDUCE), UOp.range(17, 3, REDUCE)

    def product(part: UOp, slot: int, loop: UOp) -> UOp:
        return part * at(memory(slot, 136), loop * 8 + c)

    x, y = (at(memory(1, 51), i * 17 + loop) for loop in (k, m))
    three = product(x.exp(), 2, k) + product((x * 2).exp(), 3, k) + product((-x).exp(), 4, k)
    one = product((y + 1).exp(), 5, m)
    value = three.reduce(k, arg=Ops.ADD) + one.reduce(m, arg=Ops.ADD)
    check(kernel(at(memory(0, 24), i * 8 + c).store(value).end(i, c)))
