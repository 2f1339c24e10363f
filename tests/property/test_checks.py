"""Each check lets what is right pass, and says what is wrong with what is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tinyfn import Context, Tensor, function
from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError
from tinyfn.function import _function
from tinyfn.helpers import NATIVE, THREADS
from tinyfn.testing import (
    Disagreement,
    assert_matches_numpy,
    bounds,
    check_deterministic,
    check_function,
    check_gradients,
)
from tinyfn.testing.error_rules import RULES, UNIT
from tinyfn.testing.ways import WAYS
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops

RNG = np.random.default_rng(0)
SMOOTH = {
    "softmax": lambda x: x.softmax(),
    "matmul": lambda x: x @ x.transpose(0, 1),
    "sort": lambda x: x.sort(1)[0].square(),
    "cumprod": lambda x: x.cumprod(1),
    "gather": lambda x: x[np.array([0, 0, 1])],
    "pad": lambda x: x.pad(((1, 1), (0, 2))).square(),
    "layernorm": lambda x: x.layernorm(),
    "power": lambda x: x.abs() ** 1.5,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_to_second_order(name):
    x = np.array([[0.3, -1.2, 2.0], [0.7, 1.1, -0.4]])
    report = check_gradients(SMOOTH[name], x, order=2)
    assert (report.checked, report.kinks, report.rough) == (12, (), ())


def test_kinks_are_reported_and_a_wrong_slope_there_is_not_passed():
    assert check_gradients(lambda x: x.abs(), np.array([0.0, 1.0])).kinks == ((1, 0, 0),)

    def outside(g, call):
        return (g * 2,)

    wrong = function(lambda x: x.abs(), grad_fxn=outside)
    with pytest.raises(Disagreement, match=r"the gradient [\d.]+ is not between them"):
        check_gradients(wrong, np.array([0.0]))


def test_a_function_that_is_not_finite_nearby_is_rough():
    assert check_gradients(lambda x: x.log(), np.array([1e-9])).rough == ((1, 0, 0),)


def test_gradients_want_floats_and_an_order_that_there_is():
    with pytest.raises(ArgumentError, match="arrays of floats"):
        check_gradients(lambda x: x, np.array([1]))
    with pytest.raises(ArgumentError, match="order 1 or 2"):
        check_gradients(lambda x: x, np.array([1.0]), order=3)


def test_overflow_on_the_way_is_told():
    def softplus(x):
        return (x.exp() + 1).log()

    def right(x):
        return np.logaddexp(x, 0)

    assert_matches_numpy(softplus, np.array([-3, 0, 3], np.float32), reference=right)
    with pytest.raises(Disagreement, match=r"expected np.float64\(100.0\).*got np.float32\(inf\)"):
        assert_matches_numpy(softplus, np.array([100], np.float32), reference=right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_bounds_hold_and_are_not_idle(dtype):
    x = Tensor(RNG.standard_normal((40, 300)), dtype=dtype)
    value, error = bounds(x.exp().sum(1))
    exact = np.exp(x.cast("float64").numpy().astype(np.longdouble)).sum(1)
    got = x.exp().sum(1).numpy()
    assert (np.abs(got - exact) <= error).all()
    unit = UNIT[x.dtype][0]
    assert (error < 400 * unit * exact).all()  # the sum of 300 numbers
    with pytest.raises(Disagreement):
        assert_matches_numpy(
            lambda t: t.exp().sum(1), x, reference=lambda a: np.exp(a).sum(1) * (1 + 800 * unit)
        )


def test_comparisons_closer_than_rounding_say_nothing():
    _, error = bounds(Tensor([1.0, 2.0]).exp() < Tensor([2.718281828, 9.0]))
    assert error.tolist() == [np.inf, 0.0]


@pytest.mark.parametrize("name", ["sin", "cos", "erf"])
def test_after_an_overflow_anything_may_come(name):
    x = Tensor([3e38, 1.0])
    _, error = bounds(getattr(x + x, name)())
    assert np.isinf(error).tolist() == [True, False]


def test_sharded_tensors_have_no_bounds():
    with pytest.raises(ArgumentError, match="on one slot"):
        bounds(Tensor([1.0, 2.0]).shard(("CPU:0", "CPU:1"), 0) + 1)


def test_a_function_that_depends_on_how_it_is_run_is_found():
    def by_calls(x, calls=[]):  # noqa: B006
        calls.append(1)
        return x + len(calls)

    with pytest.raises(Disagreement, match="native against the interpreter"):
        check_function(by_calls, np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match="expected ways of"):
        check_function(lambda x: x, np.ones(3), ways=("elsewhere",))


def spread(x):
    return isinstance(x.device, tuple)


# what is wrong only where it is run like that: the function, the way, what is said
WRONG = {
    "a value of the recorded call": (
        lambda x, y: x * x[0, 1].item(),
        "jitted",
        "call 3 of TinyJit against the interpreter",
    ),
    "slots": (lambda x, y: x + spread(x), "sharded", "sharded over 2 slots along None"),
    "slots along one axis": (
        lambda x, y: x + (x.uop.axis == 1),
        "sharded",
        "sharded over 2 slots along 1 against",
    ),
    "both along one axis": (
        lambda x, y: x + (y.uop.axis == 0),
        "sharded",
        "sharded over 2 slots along 0, all alike against",
    ),
    "captured over slots": (
        lambda x, y: x + (spread(x) and _function.depth > 0),
        "sharded",
        "sharded over 2 slots along None, captured against",
    ),
    "dtype": (
        lambda x, y: x.cast("float32" if NATIVE.value else "float64"),
        "python",
        "plain Python: expected the dtype float32, got float64",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_one_way_only_is_found(name):
    f, way, said = WRONG[name]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    y = x + np.arange(2, dtype=np.float32)[:, None]
    check_function(f, x, y, ways=[w for w in WAYS if w not in (way, "captured", "precompiled")][:1])
    with pytest.raises(Disagreement, match=re.escape(said)):
        check_function(f, x, y, ways=(way,))


def test_results_of_no_elements_and_arguments_of_no_axes_run_in_every_way():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_function(lambda x: x[:, 3:], x)
    check_function(lambda x, y: x + y, np.float32(2.0), x)


def of_slots(g, call):
    return (g * (3.0 if spread(call) else 2.0),)


def test_gradients_are_checked_however_they_are_run():
    doubled = function(lambda x: x * 2, grad_fxn=of_slots)
    x = np.arange(4.0)
    assert check_gradients(doubled, x, ways=("captured", "jitted")).checked == 4
    with pytest.raises(Disagreement, match="sharded over 2 slots along None against"):
        check_gradients(doubled, x)


def test_the_gradient_of_a_call_is_compared_with_the_function_s(monkeypatch):
    def of_call(f, precompile):
        return function(f, precompile=precompile, grad_fxn=lambda g, call: (g * 3,))

    monkeypatch.setattr("tinyfn.testing.gradients.function", of_call)
    with pytest.raises(Disagreement, match="argument 0: the gradient of a captured call"):
        check_gradients(lambda x: x * 2, np.arange(4.0), ways=("captured",))


def test_results_that_depend_on_threads_are_found():
    check_deterministic(lambda x: x.sum(), RNG.standard_normal(50_000).astype(np.float32))
    with Context(THREADS=1), pytest.raises(Disagreement, match="with 2 threads"):
        check_deterministic(lambda x: x * THREADS.value, np.ones(2, np.float32))


def test_every_op_of_values_has_a_rule():
    without = opcodes.group("device", "call", "kernel", "program") | {
        *(Ops.CONST, Ops.BUFFER, Ops.IOTA, Ops.PARAM, Ops.OUTPUT, Ops.VARIABLE),
        *(Ops.STORE, Ops.AFTER),
    }
    assert set(RULES) == set(Ops) - without
    assert set(UNIT) == set(dtypes.floats)
