"""Random programs agree with numpy and with themselves, however they are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tinyfn import Tensor
from tinyfn.dtype import dtypes as known
from tinyfn.testing import (
    Program,
    broadcastable_shapes,
    check_program,
    dtypes,
    indices,
    programs,
    shardings,
    tensors,
)
from tinyfn.testing.catalogue import CATALOGUE
from tinyfn.testing.lines import Line
from tinyfn.testing.programs import Input
from tinyfn.testing.regression import program_test

BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


@settings(BOUNDED, max_examples=150)
@given(programs())
def test_programs_agree_with_numpy(program: Program) -> None:
    check_program(program, ())


@settings(BOUNDED, max_examples=12)
@given(programs(length=4))
def test_programs_agree_however_they_are_run(program: Program) -> None:
    check_program(program, ("interpreter", "captured", "precompiled", "jitted", "python"))


@pytest.mark.parametrize("kind", CATALOGUE)
def test_each_kind_of_line_agrees_with_numpy(kind: str) -> None:
    found = []

    @settings(BOUNDED, max_examples=25)
    @given(programs(ops=[kind], length=2))
    def each(program: Program) -> None:
        found.extend(program.lines)
        check_program(program, ())

    each()
    assert found


@settings(BOUNDED, max_examples=15)
@given(programs(ops=["order", "scatter", "gather", "select", "window", "scan"], length=3))
def test_what_is_written_as_a_test_runs_by_itself(program: Program) -> None:
    text = program_test(program, (), "a message", "a command")
    names: dict[str, Any] = {}
    exec(compile(text, "<test>", "exec"), names)
    names["test_program"]()
    for in_numpy in (False, True):
        exec(compile(program.source(in_numpy), "<source>", "exec"), {"print": lambda *_: None})


def test_a_program_that_reads_values_is_not_captured() -> None:
    given = Input("a", known.int32, (3,), (0, 1, 2))
    line = Line("v", "v = a.nonzero()", "v = np.argwhere(a)", known.int32, reads=True)
    program = Program((given,), (line,), "v", known.int32)
    assert program.reads
    check_program(program)


@pytest.mark.deep
@settings(BOUNDED, max_examples=5000)
@given(programs(length=8))
def test_programs_agree_with_numpy_at_length(program: Program) -> None:
    check_program(program, ())


@settings(BOUNDED, max_examples=40)
@given(st.data())
def test_indices_are_numpys(data: st.DataObject) -> None:
    x = data.draw(tensors(dtype=dtypes(("int", "uint"))))
    index = data.draw(indices(x.shape))
    np.testing.assert_array_equal(x[index].numpy(), x.numpy()[index])


@settings(BOUNDED, max_examples=40)
@given(st.data())
def test_shardings_hold_the_values(data: st.DataObject) -> None:
    x = data.draw(tensors(dtype=dtypes(("int", "bool"))))
    devices, axis = data.draw(shardings(x.shape))
    np.testing.assert_array_equal(x.shard(devices, axis).numpy(), x.numpy())


@settings(BOUNDED, max_examples=40)
@given(broadcastable_shapes(3))
def test_shapes_that_broadcast_do(shapes: tuple[tuple[int, ...], ...]) -> None:
    total = sum((Tensor.ones(*shape) for shape in shapes), start=Tensor(0.0))
    assert total.shape == np.broadcast_shapes(*shapes)
