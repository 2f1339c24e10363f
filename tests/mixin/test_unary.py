"""Functions of one operand, and activations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.25, 3.0, 80.0, -80.0, np.inf, -np.inf, np.nan, 1e-20]


def grid(low, high, dtype):
    return np.concatenate([np.linspace(low, high, 4001), [low, high]]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("sinh", -89.4, 89.4),
        ("cosh", -89.4, 89.4),
        ("arcsinh", -1e5, 1e5),
        ("arccosh", 1, 1e5),
        ("arctanh", -0.9999, 0.9999),
        ("arctan", -50, 50),
        ("arcsin", -1, 1),
        ("arccos", -1, 1),
        ("log10", 1e-30, 1e30),
        ("sinh", -1e-3, 1e-3),
        ("arcsinh", -1e-3, 1e-3),
        ("arctanh", -1e-3, 1e-3),
        ("arctan", -1e-3, 1e-3),
        ("arcsin", -1e-3, 1e-3),
    ],
)
def test_composed_functions_are_accurate(name, low, high, dtype):
    x = grid(low, high, dtype)
    method = name.replace("arc", "a")
    found = getattr(Eager(x), method)().numpy()
    expected = getattr(np, name)(x.astype(np.float64))
    error = np.abs(found - expected) / np.maximum(
        np.spacing(np.abs(expected).astype(dtype)), 1e-300
    )
    slack = 1e-7 if name == "arccos" else 0  # near 1 the argument's own rounding is larger
    assert ((error <= 6) | (np.abs(found - expected) <= slack)).all(), error.max()


@pytest.mark.parametrize(
    "name", ["sinh", "cosh", "arcsinh", "arccosh", "arctanh", "arctan", "arcsin", "arccos", "log10"]
)
def test_composed_functions_at_special_values(name):
    for dtype in (np.float32, np.float64):
        x = np.array([*SPECIAL, 1e10, -1e10, 1e38, -1e38], dtype)
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        found = getattr(Eager(x), name.replace("arc", "a"))().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "sqrt",
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "tan",
        "tanh",
        "trunc",
        "floor",
        "ceil",
        "abs",
        "sign",
    ],
)
def test_named_functions_are_numpys(name):
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array(SPECIAL, dtype)
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x.astype(np.float64)).astype(dtype)
        found = getattr(Eager(x), name)()
        assert found.numpy().dtype == dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-7)
    x = np.array([0, 3, 5], np.int8)
    found = getattr(Eager(x), name)().numpy()
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, getattr(np, name)(x.astype(np.float32)), rtol=1e-6)


def test_rounding_keeps_ints_and_ties_go_to_even():
    assert Eager(np.array([0.5, 1.5, -2.5])).round().tolist() == [0, 2, -2]
    assert Eager(np.array([1, 2])).floor().dtype is dtypes.int64


def test_signs():
    assert Eager(np.array([3, 0], np.uint8)).sign().tolist() == [1, 0]
    assert Eager(np.array([3, -3, 0], np.int8)).sign().tolist() == [1, -1, 0]
    assert np.isnan(Eager(np.array([np.nan])).sign().item())
    assert (-Eager(np.array([1], np.uint8))).tolist() == [255]
    with pytest.raises(DTypeError, match="not"):
        -Eager(np.array([True]))


def test_questions():
    x = np.array(SPECIAL)
    np.testing.assert_array_equal(Eager(x).isnan().numpy(), np.isnan(x))
    np.testing.assert_array_equal(Eager(x).isinf().numpy(), np.isinf(x))
    np.testing.assert_array_equal(Eager(x).isfinite().numpy(), np.isfinite(x))
    np.testing.assert_array_equal(Eager(x).isinf(True, False).numpy(), np.isposinf(x))
    np.testing.assert_array_equal(Eager(x).isinf(False, True).numpy(), np.isneginf(x))
    assert not Eager(x).isinf(False, False).numpy().any()
    np.testing.assert_array_equal(Eager(x).logical_not().numpy(), np.logical_not(x))
    assert Eager(np.array([1, 2])).isnan().tolist() == [False, False]
    assert Eager(x).is_floating_point()
    assert Eager(x).element_size() == 8
    assert Eager(x).nbytes() == x.nbytes


def test_casts_by_name():
    x = Eager(np.array([0, 3]))
    kinds = {
        n: getattr(x, n)().dtype.name
        for n in ["float", "double", "half", "int", "long", "short", "bool"]
    }
    assert kinds == {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "int": "int32",
        "long": "int64",
        "short": "int16",
        "bool": "bool",
    }


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x)),
    "silu": lambda x: x * _sigmoid(x),
    "swish": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "logsigmoid": lambda x: -np.logaddexp(-x, 0),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": _sigmoid,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": lambda x: x * x,
}


@pytest.mark.parametrize("name", FORMULAS)
@given(x=st.floats(-500, 500))
def test_activations_follow_their_formula(name, x):
    with np.errstate(all="ignore"):
        expected = FORMULAS[name](np.float64(x))
    found = getattr(Eager(np.array([x])), name)().item()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_let_nan_through_and_keep_the_dtype(name):
    for dtype in (np.float16, np.float32):
        found = getattr(Eager(np.array([np.nan, 1], dtype)), name)()
        assert np.isnan(found.numpy()[0])
        assert found.numpy().dtype == dtype


def test_gelu_with_erf():
    x = np.linspace(-4, 4, 9)
    expected = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(Eager(x).gelu("none").numpy(), expected, rtol=1e-12)
    with pytest.raises(ArgumentError, match="exact"):
        Eager(x).gelu("exact")


def test_softplus_with_beta_and_elu_with_alpha():
    x = np.linspace(-4, 400, 9)
    np.testing.assert_allclose(Eager(x).softplus(3.0).numpy(), np.logaddexp(3 * x, 0) / 3)
    found = Eager(x).celu(2.0).numpy()
    np.testing.assert_allclose(found, np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)))


def test_sequential():
    assert Eager(np.array([1.0])).sequential([Eager.neg, lambda x: x + 3]).tolist() == [2.0]
