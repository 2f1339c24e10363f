"""Generated source, compiled, against the oracle: results, and no byte written past the end."""

from __future__ import annotations

from typing import Any

import pytest
from codegen import kernel_graphs as graphs
from codegen.kernel_graphs import check, run_native
from codegen.test_generate_random import kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinyfn.dtype import dtypes
from tinyfn.uop.ops import Ops, UOp

GRAPHS = {
    "elementwise": lambda: graphs.elementwise(1000),
    "half": lambda: graphs.elementwise(75, dtypes.float16),
    "bfloat": lambda: graphs.elementwise(75, dtypes.bfloat16),
    "bytes": lambda: graphs.elementwise(75, dtypes.uint8),
    "softmax": lambda: graphs.softmax(3, 45),
    "staged softmax": lambda: graphs.softmax(3, 45, staged=True),
    "layernorm": lambda: graphs.layernorm(2, 70),
    "matmul": lambda: graphs.matmul(9, 33, 5, epilogue=True),
    "transposed": lambda: graphs.matmul(40, 37, 21, transpose_b=True),
    "conv": lambda: graphs.padded_conv(1, 2, 19, 4, 9),
    "attention": lambda: graphs.attention_rows(1, 8, 17, 20),
    "largest": lambda: graphs.row_reduce(3, 37, Ops.MAX),
    "any": lambda: graphs.row_reduce(3, 70, Ops.MAX, dtypes.bool),
    "columns": lambda: graphs.column_reduce(7, 50),
    "gather": lambda: graphs.gather(20, 30, 5),
    "scatter": lambda: graphs.scatter_add(30, 20, 19),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_compiled(name: str) -> None:
    chunks = (1,) if name == "scatter" else (1, 3)
    check(GRAPHS[name](), targets=("avx512", "avx2"), chunks=chunks, execute=run_native)


def test_compiled_for_every_length() -> None:
    for length in (1, 16, 50):
        check(graphs.symbolic_rows(50), {"length": length}, targets=("avx512",), execute=run_native)


def test_loops_as_long_as_memory_says() -> None:
    check(graphs.counted_rows(6, 40), targets=("avx512",), execute=run_native)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.integers(0, 1000))
def test_random_kernels_compiled(sink: UOp, seed: int) -> None:
    check(sink, seed=seed, targets=("avx512",), chunks=(1, 4), execute=run_native)


def test_what_is_watched_is_seen() -> None:
    view, after = graphs.aligned(graphs.contents(graphs.memory(0, 5), {}, 0))
    assert view.ctypes.data % 64 == 0
    assert after.size >= 64
    whole: Any = after
    assert (whole == graphs.GUARD).all()
