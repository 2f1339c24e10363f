"""Operations of two and three operands against numpy."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mixin.reference import Eager

from tinyfn.dtype import dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError

INTS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]


def same(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


def values(dtype):
    if np.dtype(dtype).kind == "f":
        return np.array([0.0, -0.0, 1.5, -2.5, 3, np.inf, -np.inf, np.nan], dtype)
    info = np.iinfo(dtype)
    return np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1], dtype)


@pytest.mark.parametrize("dtype", INTS + FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne"])
def test_arithmetic_and_comparison_are_numpys(dtype, op):
    x = values(dtype)
    a, b = np.meshgrid(x, x)
    function = getattr(operator, op)
    with np.errstate(all="ignore"):
        expected = function(a, b)
    found = function(Eager(a), Eager(b))
    assert found.numpy().dtype == expected.dtype
    same(found, expected)


@pytest.mark.parametrize("dtype", INTS + FLOATS)
@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_floor_division_is_numpys(dtype, op):
    a, b = np.meshgrid(values(dtype), values(dtype))
    function = getattr(operator, op)
    with np.errstate(all="ignore"):
        same(function(Eager(a), Eager(b)), function(a, b))


@pytest.mark.parametrize("dtype", INTS + FLOATS)
def test_truncated_division(dtype):
    x = values(dtype)
    a, b = np.meshgrid(x[np.isfinite(x.astype(float))], x[x != 0])
    with np.errstate(all="ignore"):
        same(Eager(a).fmod(Eager(b)), np.fmod(a, b))
        quotient = Eager(a).div(Eager(b), rounding_mode="trunc").numpy()
        if np.dtype(dtype).kind != "f":
            low = np.iinfo(dtype).min
            wanted = [
                low if (p == low and q == -1 and low) else int(abs(p) // abs(q)) * _sign(p, q)
                for p, q in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
            ]
            assert quotient.ravel().tolist() == wanted
        else:
            np.testing.assert_array_equal(quotient, np.trunc(a / b))


def _sign(p, q):
    return -1 if (p < 0) != (q < 0) else 1


def test_an_int_divided_by_zero_gives_zero():
    x = Eager(np.array([-3, 0, 5]))
    zero = Eager(np.array([0, 0, 0]))
    for mode in ("trunc", "floor"):
        assert x.div(zero, rounding_mode=mode).tolist() == [0, 0, 0]
    assert (x % zero).tolist() == [0, 0, 0]


def test_true_division_of_ints_is_a_float():
    found = Eager(np.array([1, 2])) / 4
    assert found.dtype is dtypes.float32
    assert found.tolist() == [0.25, 0.5]
    assert (2 / Eager(np.array([4, 8]))).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        ("float16", 2, "float16"),
        ("float16", 2.5, "float16"),
        ("float64", 2.5, "float64"),
        ("int8", 2, "int8"),
        ("uint64", 2, "uint64"),
        ("int8", 2.5, "float32"),
        ("bool", 2, "int32"),
        ("bool", 2.5, "float32"),
        ("bool", True, "bool"),
        ("int8", True, "int8"),
    ],
)
def test_python_numbers_are_weak(dtype, number, result):
    x = Eager(np.ones(3, dtype))
    for found in (x + number, number * x, x.maximum(number), x.ne(x).where(number, x)):
        assert found.dtype.name == result


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int8", "uint8", "int16"),
        ("int32", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("uint64", "int64", "float32"),
        ("bool", "int8", "int8"),
    ],
)
def test_tensors_promote(a, b, result):
    found = Eager(np.ones(2, a)) + Eager(np.ones(2, b))
    assert found.dtype.name == result


def test_numpy_scalars_are_numbers_on_both_sides():
    x = Eager(np.arange(3, dtype=np.float32))
    assert (x * np.float32(2)).tolist() == [0, 2, 4]
    assert (np.float64(2) * x).tolist() == [0, 2, 4]
    assert (np.int64(1) - x).tolist() == [1, 0, -1]
    assert (np.array(1) - x).tolist() == [1, 0, -1]
    for bad in (lambda: x + np.ones(3), lambda: np.ones(3) * x):
        with pytest.raises(DTypeError, match="ndarray"):
            bad()


@given(st.data())
def test_shapes_broadcast_as_in_numpy(data):
    shape = data.draw(st.lists(st.integers(0, 3), max_size=4))
    pair = []
    for _ in range(2):
        kept = [data.draw(st.sampled_from([1, s])) for s in shape]
        pair.append(np.arange(math.prod(kept)).reshape(kept))
    a, b = pair
    b = b.reshape(b.shape[1:]) if b.ndim and b.shape[0] == 1 else b
    same(Eager(a) + Eager(b), a + b)


def test_errors_name_both_sides():
    x = Eager(np.ones((2, 3)))
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(4,\)"):
        x + Eager(np.ones(4))
    with pytest.raises(DTypeError, match="float64"):
        x & 1
    with pytest.raises(DTypeError, match=r"1\.5"):
        Eager(np.ones(2, int)) << 1.5
    with pytest.raises(DTypeError, match="xor"):
        Eager(np.ones(2, bool)) - Eager(np.ones(2, bool))
    with pytest.raises(TypeError):
        x + "1"
    with pytest.raises(DTypeError, match="list"):
        x.add([1, 2, 3])
    with pytest.raises(ArgumentError, match="int8"):
        Eager(np.ones(2, np.int8)) + 300


@pytest.mark.parametrize("number", [-1, 300, -1000, 2**40])
def test_comparison_with_an_int_out_of_range(number):
    x = np.arange(4, dtype=np.uint8)
    for op in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        same(op(Eager(x), number), op(x, number))
        same(op(number, Eager(x)), op(number, x))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("op", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bits_are_numpys(dtype, op):
    function = getattr(operator, op)
    b = np.array([0, 1, 3, 8, 40, 64, 7, 2]).astype(dtype)
    same(function(Eager(values(dtype)), Eager(b)), function(values(dtype), b))
    same(function(1, Eager(b)), function(1, b))


def test_bool_arithmetic_is_numpys():
    a, b = np.meshgrid([True, False], [True, False])
    for op in ("add", "mul", "and_", "or_", "xor", "floordiv", "mod", "lshift", "pow", "eq"):
        function = getattr(operator, op)
        with np.errstate(all="ignore"):
            expected = function(a, b)
        found = function(Eager(a), Eager(b))
        assert found.numpy().dtype == expected.dtype
        same(found, expected)
    same(~Eager(a), ~a)


def test_extremes_propagate_nan():
    a, b = np.meshgrid(values(np.float32), values(np.float32))
    same(Eager(a).maximum(Eager(b)), np.maximum(a, b))
    same(Eager(a).minimum(Eager(b)), np.minimum(a, b))


@pytest.mark.parametrize("bounds", [(0, 2), (None, 1.5), (-2, None), (3, 1)])
def test_clip(bounds):
    for dtype in (np.float32, np.float64):
        x = values(dtype)
        same(Eager(x).clip(*bounds), np.clip(x, *bounds))


def test_clip_by_tensors_and_beyond_the_dtype():
    x = np.arange(6, dtype=np.uint8)
    same(Eager(x).clip(-5, 300), x)
    low = np.full(6, 2, np.uint8)
    same(Eager(x).clip(Eager(low), 4), np.clip(x, low, np.uint8(4)))
    with pytest.raises(ArgumentError, match="neither"):
        Eager(x).clip()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, -1, -2, 0.5, -0.5, 2.0, 2.5, -3.5])
def test_powers_of_floats(exponent):
    for dtype in (np.float32, np.float64):
        x = np.array([0.0, 0.5, 1.5, -2.0, 7.25, np.inf, np.nan], dtype)
        with np.errstate(all="ignore"):
            expected = np.power(x, dtype(exponent))
        np.testing.assert_allclose((Eager(x) ** exponent).numpy(), expected, rtol=4e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.int64])
def test_powers_of_ints_wrap(dtype):
    x = np.array([0, 1, 2, 3, 5, 11, 100], dtype)
    for n in (0, 1, 2, 3, 7, 20):
        same(Eager(x) ** n, x**n)
    a, b = np.meshgrid(x, x)
    same(Eager(a) ** Eager(b), a**b)
    same(2 ** Eager(x[:6]), np.array(2, dtype) ** x[:6])
    same(3 ** Eager(x), np.array(3, dtype) ** x)
    with pytest.raises(ArgumentError, match="negative"):
        Eager(x) ** -1


def test_negative_powers_of_ints_truncate():
    x = Eager(np.array([1, -1, -1, 2, 0], np.int32))
    assert (x ** Eager(np.array([-3, -3, -2, -1, -1], np.int32))).tolist() == [1, -1, 1, 0, 0]


def test_number_to_the_power_of_a_tensor():
    x = np.array([-1.5, 0.0, 2.0], np.float32)
    np.testing.assert_allclose((2 ** Eager(x)).numpy(), 2**x, rtol=1e-6)
    np.testing.assert_allclose((0.3 ** Eager(x)).numpy(), np.float32(0.3) ** x, rtol=1e-6)


def test_where():
    condition = np.array([[True], [False]])
    x = np.arange(3)
    same(Eager(condition).where(Eager(x), 9), np.where(condition, x, 9))
    same(Eager(condition).where(1, 0), np.where(condition, 1, 0))
    found = Eager(np.array([2, 0])).where(1.5, Eager(np.array([1, 2], np.float16)))
    assert found.dtype is dtypes.float16
    assert found.tolist() == [1.5, 2.0]
    same(Eager(x).masked_fill(Eager(x > 1), -1), np.where(x > 1, -1, x))


def test_isclose_is_numpys():
    x = np.array([1.0, 1.000001, np.inf, -np.inf, np.nan, 0.0], np.float64)
    a, b = np.meshgrid(x, x)
    for equal_nan in (False, True):
        found = Eager(a).isclose(Eager(b), equal_nan=equal_nan)
        same(found, np.isclose(a, b, equal_nan=equal_nan))
    assert Eager(x[:2]).allclose(Eager(x[:2]))
    assert not Eager(x).allclose(Eager(x))
    assert Eager(x[:2]).allclose(Eager(x[:2])).item() is True


def test_copysign_sees_the_sign_of_zero_and_nan():
    a, b = np.meshgrid(values(np.float32), np.array([0.0, -0.0, np.nan, -np.nan, -1], np.float32))
    found, expected = Eager(a).copysign(Eager(b)).numpy(), np.copysign(a, b)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    np.testing.assert_array_equal(found, expected)
    same(Eager(a).copysign(-1.0), np.copysign(a, np.float32(-1)))


def test_logaddexp():
    x = np.array([-np.inf, -1000, 0, 1000, np.inf])
    a, b = np.meshgrid(x, x)
    np.testing.assert_allclose(Eager(a).logaddexp(Eager(b)).numpy(), np.logaddexp(a, b))


def test_lerp():
    a, b = np.array([0.0, 10.0]), np.array([1.0, 20.0])
    np.testing.assert_allclose(Eager(a).lerp(Eager(b), 0.25).numpy(), [0.25, 12.5])


def test_lerp_of_bytes_does_not_wrap():
    a, b = np.array([10, 200], np.uint8), np.array([20, 100], np.uint8)
    np.testing.assert_allclose(Eager(a).lerp(Eager(b), 0.3).numpy(), [13, 170])
    found = Eager(a).lerp(Eager(b), Eager(np.array([0.25, 0.5], np.float32)))
    assert found.dtype is dtypes.uint8
    np.testing.assert_array_equal(found.numpy(), [13, 150])


def test_operators_leave_strangers_alone():
    class Other:
        def __radd__(self, x):
            return "mine"

    assert Eager(np.ones(2)) + Other() == "mine"
    assert hash(Eager(np.ones(2))) is not None
