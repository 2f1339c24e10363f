"""Reductions down columns: what they come to, and that memory is walked as it lies."""

from __future__ import annotations

import numpy as np
import pytest
from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import TARGETS, at, check, kernel, memory, run_native

from tinyfn import Tensor
from tinyfn.codegen import generate
from tinyfn.codegen.columns import turn_columns
from tinyfn.codegen.normalise import normalise
from tinyfn.dtype import dtypes
from tinyfn.uop.ops import AddrSpace, AxisType, Ops, UOp

LOOP, REDUCE = AxisType.LOOP, AxisType.REDUCE


def softmax_of_columns(rows: int, columns: int, kept: bool) -> UOp:
    """exp(x - max) / sum down the columns, with the exponentials kept in scratch or not."""
    size = rows * columns
    out, data = memory(0, size), memory(1, size)
    column, row = UOp.range(columns, 0, LOOP), UOp.range(rows, 1, LOOP)
    first, second = UOp.range(rows, 2, REDUCE), UOp.range(rows, 3, REDUCE)
    most = UOp(Ops.REDUCE, dtypes.float32, (at(data, first * columns + column), first), Ops.MAX)
    power = graphs.exp(at(data, second * columns + column) - most)
    total = UOp(Ops.REDUCE, dtypes.float32, (power, second), Ops.ADD)
    again = graphs.exp(at(data, row * columns + column) - most)
    if kept:
        scratch = memory(2, rows, space=AddrSpace.LOCAL)
        filled = at(scratch, second).store(power).end(second)
        again = at(scratch.after(filled), row)
    return kernel(at(out, row * columns + column).store(again / total).end(column, row))


GRAPHS = {
    "sum": lambda: graphs.column_reduce(19, 70),
    "largest": lambda: graphs.column_reduce(16, 66, Ops.MAX),
    "product": lambda: graphs.column_reduce(17, 64 + 3, Ops.MUL),
    "softmax with scratch": lambda: softmax_of_columns(16, 70, kept=True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_values(name):
    check(GRAPHS[name](), targets=("neon",), chunks=(1,), execute=run_native)


@pytest.mark.parametrize("name", GRAPHS)
def test_is_turned(name):
    graph = normalise(GRAPHS[name]())
    assert turn_columns(graph, TARGETS["neon"]) is not graph
    source = generate(GRAPHS[name](), TARGETS["neon"]).source
    assert "vstrided" not in source and "vgather" not in source and "vscatter" not in source


@pytest.mark.parametrize(
    "graph",
    [
        graphs.column_reduce(4, 2000),  # short columns
        graphs.column_reduce(40, 64),  # columns whose sums registers hold
        softmax_of_columns(40, 70, kept=False),  # all of it in the cache
        graphs.matmul(40, 600, 20),
        graphs.row_reduce(40, 600),
        graphs.softmax(40, 600),
        graphs.padded_conv(1, 2, 19, 4, 9),
    ],
)
def test_is_left(graph):
    graph = normalise(graph)
    assert turn_columns(graph, TARGETS["neon"]) is graph


@pytest.mark.parametrize("shape", [(37, 1031), (3, 40, 700), (260, 130), (1009, 129)])
def test_columns_of_tensors(shape):
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x, wide = Tensor(data), data.astype(np.float64)
    axis = len(shape) - 2
    np.testing.assert_allclose(x.sum(axis).numpy(), wide.sum(axis), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(x.max(axis).numpy(), data.max(axis))
    np.testing.assert_array_equal(x.argmin(axis).numpy(), data.argmin(axis))
    np.testing.assert_allclose(x.var(axis).numpy(), wide.var(axis, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal((x > 2.5).any(axis).numpy(), (data > 2.5).any(axis))
    power = np.exp(wide - wide.max(axis, keepdims=True))
    np.testing.assert_allclose(
        x.softmax(axis).numpy(), power / power.sum(axis, keepdims=True), rtol=1e-5
    )


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.float16, np.uint8])
def test_columns_of_other_types(kind):
    data = (np.random.default_rng(0).normal(size=(70, 1200)) * 20 + 30).astype(kind)
    x = Tensor(data)
    wide = data.astype(np.float64) if data.dtype.kind == "f" else data.astype(np.int64)
    np.testing.assert_array_equal(x.max(0).numpy(), data.max(0))
    tolerance = {"f": 1e-3}.get(data.dtype.kind, 0)
    np.testing.assert_allclose(x.sum(0).numpy().astype(wide.dtype), wide.sum(0), rtol=tolerance)
