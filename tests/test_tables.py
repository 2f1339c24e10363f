"""Every op of opcodes stands in every table of ops, or in that table's "does not apply" set."""

from __future__ import annotations

import re

import pytest

from tinyfn.codegen import ops as codegen_ops
from tinyfn.gradient import GRADIENT, NO_GRADIENT
from tinyfn.uop import infer, opcodes, spec
from tinyfn.uop.arithmetic import ARITHMETIC
from tinyfn.uop.interpret import DEVICES, STATEFUL
from tinyfn.uop.interpret_kernel import EFFECTS, STEPS
from tinyfn.uop.meaning import MEANING
from tinyfn.uop.opcodes import Ops, rows

# lists of kernels and programs handed over as they are
PROGRAMS = {Ops.LINEAR, Ops.PROGRAM, Ops.SOURCE, Ops.BINARY}
# ops of kernels only, which a graph of tensors gives no value
KERNEL_ONLY = {Ops.RANGE, Ops.INDEX, Ops.LOAD, Ops.REDUCE}
# ops of tensors that no kernel holds
NOT_IN_KERNELS = opcodes.group("device", "call", "reduce", "gather", "scan", "sort") | {
    *(Ops.BUFFER, Ops.FULL, Ops.IOTA, Ops.OUTPUT, Ops.COPY),
    *(Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD),
}


def test_every_row_says_what_the_op_is():
    assert set(rows) == set(Ops)
    for op, row in rows.items():
        assert row.help and row.arity >= -1, op
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", op.name)


def test_every_op_has_a_shape():
    assert set(infer.SHAPE) == set(Ops)


def test_every_op_has_a_device_and_an_axis():
    assert set(infer.DEVICE) == set(Ops)
    assert set(infer.AXIS) == set(Ops)


def test_bounds_are_of_integers():
    assert set(infer.BOUNDS) <= set(Ops)
    assert not set(infer.BOUNDS) & opcodes.group("movement", "program", "call")


def test_every_op_has_one_meaning():
    for one, other in ((MEANING, DEVICES), (MEANING, STATEFUL), (DEVICES, STATEFUL)):
        assert not set(one) & set(other)
    assert set(MEANING) | set(DEVICES) | set(STATEFUL) == set(Ops) - KERNEL_ONLY - PROGRAMS


def test_every_elementwise_op_has_numpys_meaning():
    assert set(ARITHMETIC) == opcodes.ELEMENTWISE - {Ops.CAST, Ops.BITCAST}


def test_every_op_of_kernels_is_run():
    run = set(STEPS) | EFFECTS | opcodes.ELEMENTWISE | opcodes.MOVEMENT | {Ops.BIND}
    assert run == set(Ops) - NOT_IN_KERNELS - PROGRAMS
    assert run == spec.KERNEL.ops


def test_every_op_is_allowed_somewhere():
    assert spec.TENSOR.ops | spec.KERNEL.ops == set(Ops) - PROGRAMS


def test_every_elementwise_op_has_a_name_in_the_generated_language():
    assert not set(codegen_ops.NAMES) & codegen_ops.DOES_NOT_APPLY
    assert set(codegen_ops.NAMES) | codegen_ops.DOES_NOT_APPLY == set(Ops)
    assert len(set(codegen_ops.NAMES.values())) == len(codegen_ops.NAMES)


def test_every_op_has_a_gradient_or_none():
    assert not set(GRADIENT) & NO_GRADIENT
    # the sweep itself follows states of memory
    assert set(GRADIENT) | NO_GRADIENT | {Ops.AFTER} == set(Ops)


# what torch, too, gives no gradient: whole numbers, truth, bits, effects, places; and what only
# passes after the gradient make
WITHOUT_GRADIENT = (
    opcodes.COMPARE
    | opcodes.group("kernel", "program", "call")
    | {Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.THREEFRY, Ops.BITCAST, Ops.FMA}
    | {Ops.CONST, Ops.BUFFER, Ops.FULL, Ops.IOTA, Ops.PARAM, Ops.OUTPUT, Ops.VARIABLE, Ops.BIND}
    | {Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND, Ops.IDIV, Ops.STORE, Ops.DETACH}
    | {Ops.MSELECT, Ops.ALLREDUCE, Ops.ARGSORT}
)


@pytest.mark.parametrize("op", sorted(set(Ops) - WITHOUT_GRADIENT - {Ops.AFTER}, key=str), ids=str)
def test_what_is_smooth_has_a_gradient(op: Ops):
    assert op in GRADIENT
