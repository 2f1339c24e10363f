"""Which loops become lanes, tiles and units."""

from __future__ import annotations

import pytest
from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import LOOP, at, kernel, memory

from tinyfn.codegen import generate, plan
from tinyfn.codegen.loops import Loop, loops_in
from tinyfn.codegen.lower import lower
from tinyfn.codegen.normalise import normalise
from tinyfn.dtype import dtypes
from tinyfn.uop.ops import UOp


def planned(sink: UOp, vector_bytes: int = 64, registers: int = 32) -> dict[int, Loop]:
    """The loops of a kernel by number, planned."""
    found = lower(normalise(sink), "kernel")
    plan(found, graphs.target(vector_bytes, registers))
    return {loop.range.arg[0]: loop for loop in loops_in(found.body)}


def test_the_contiguous_axis_becomes_lanes() -> None:
    loops = planned(graphs.matmul(64, 64, 64))
    assert (loops[1].lanes, loops[2].lanes, loops[3].lanes) == (0, 16, 0)


def test_a_product_with_a_transposed_matrix_sums_over_lanes() -> None:
    loops = planned(graphs.matmul(64, 64, 2048, transpose_b=True))
    assert (loops[1].lanes, loops[2].lanes, loops[3].lanes) == (0, 0, 16)
    assert loops[1].copies * loops[2].copies >= 8


def test_a_transposed_matrix_is_packed_where_sums_over_lanes_cost_more() -> None:
    loops = planned(graphs.matmul(256, 256, 64, transpose_b=True))
    assert (loops[1].lanes, loops[2].lanes, loops[3].lanes) == (0, 16, 0)
    source = generate(graphs.matmul(256, 256, 64, transpose_b=True), graphs.target()).source
    assert "row0 = local_f32" in source
    assert "vstrided" not in source


@pytest.mark.parametrize(("vector_bytes", "registers"), [(64, 32), (32, 16), (16, 32), (16, 16)])
def test_a_tile_of_accumulators_fits_the_registers(vector_bytes: int, registers: int) -> None:
    loops = planned(graphs.matmul(512, 512, 512), vector_bytes, registers)
    tile = loops[1].copies * loops[2].copies
    assert registers // 2 <= tile < registers
    assert loops[2].lanes == vector_bytes // 4


@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [
        (dtypes.float64, 8),
        (dtypes.float32, 16),
        (dtypes.float16, 16),
        (dtypes.int8, 64),
        (dtypes.int16, 32),
    ],
    ids=str,
)
def test_lanes_follow_the_widest_register(dtype: object, lanes: int) -> None:
    assert planned(graphs.elementwise(1000, dtype))[0].lanes == lanes


def test_sums_have_several_accumulators() -> None:
    assert planned(graphs.total(10000))[0].copies >= 4
    assert planned(graphs.column_reduce(1000, 1000))[0].copies >= 4


def test_rows_stay_scalar_where_their_elements_are_contiguous() -> None:
    loops = planned(graphs.softmax(1000, 1000))
    assert loops[0].lanes == 0
    assert loops[1].lanes == loops[2].lanes == 16


def test_a_loop_whose_order_matters_stays_scalar() -> None:
    c = memory(0, 30)
    i = UOp.range(29, 0)
    assert planned(kernel(at(c, i + 1).store(at(c, i)).end(i)))[0].lanes == 0
    loops = planned(graphs.scatter_add(50, 20, 32))
    assert (loops[0].lanes, loops[1].lanes) == (0, 16)


def test_scratch_rows_are_not_shared_by_lanes() -> None:
    loops = planned(graphs.softmax(1000, 3, staged=True))
    assert loops[0].lanes == 0


def test_padding_becomes_masks() -> None:
    i = UOp.range(100, 0, LOOP)
    inner = i - 3
    valid = (UOp.const(-1, dtypes.weakint) < inner) & (inner < 90)
    source = generate(
        kernel(at(memory(0, 100), i).store(at(memory(1, 90), inner, valid)).end(i)), graphs.target()
    ).source
    assert "vloadm_f32x16" in source
    assert "vfirst_x16" in source
    assert "if " not in source


def test_no_tail_where_the_size_divides() -> None:
    assert generate(graphs.elementwise(640), graphs.target()).source.count("for ") == 1
    assert "vstorem" not in generate(graphs.elementwise(640), graphs.target()).source
    assert "vstorem" in generate(graphs.elementwise(641), graphs.target()).source


def test_units_for_threads() -> None:
    many = generate(graphs.elementwise(1 << 20), graphs.target())
    assert many.extent == 1 << 20 and many.step == 64
    rows = generate(graphs.softmax(512, 64), graphs.target())
    assert (rows.extent, rows.step) == (512, 1)
    tiles = generate(graphs.matmul(512, 512, 512), graphs.target(threads=8))
    assert tiles.extent == 16
    thin = generate(graphs.matmul(1, 4096, 512), graphs.target(threads=8))
    assert thin.extent // thin.step >= 8


@pytest.mark.parametrize(
    ("size", "threads", "unit"),
    [
        ((512, 512, 512), 2, "64 of r2 < 512"),
        ((512, 512, 512), 16, "132 of r1 < 512, 64 of r2 < 512"),
        ((2048, 64, 512), 2, "516 of r1 < 2048"),
        ((1009, 1013, 3), 2, "72 of r1 < 1009"),  # too shallow: rows of the result stay together
    ],
)
def test_units_share_rows_before_they_share_panels(
    size: tuple[int, int, int], threads: int, unit: str
) -> None:
    made = generate(graphs.matmul(*size), graphs.target(threads=threads))
    assert f"# a unit: {unit}\n" in made.source
