"""Arithmetic of every dtype in compiled kernels against numpy."""

import operator

import numpy as np
import pytest

from tinyfn import Context, Tensor, dtypes

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
NAMES = "add sub mul floordiv mod truediv lt le eq ne gt ge and_ or_ xor lshift rshift"
OPERATORS = {name: getattr(operator, name) for name in NAMES.split()}
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
BITS = ("and_", "or_", "xor")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod")
FUNCTIONS = {
    "neg": (operator.neg, operator.neg),
    "abs": (abs, abs),
    "maximum": (lambda x: x.maximum(x[::-1]), lambda x: np.maximum(x, x[::-1])),
    "minimum": (lambda x: x.minimum(x[::-1]), lambda x: np.minimum(x, x[::-1])),
    "where": (lambda x: (x < 3).where(x, x[::-1]), lambda x: np.where(x < 3, x, x[::-1])),
    "max": (lambda x: x.max(), lambda x: x.max()),
    "min": (lambda x: x.min(), lambda x: x.min()),
    "argmax": (lambda x: x.argmax(), lambda x: np.int32(x.argmax())),
    "square": (lambda x: x * x, lambda x: x * x),
}


def pairs(dtype, count):
    """Numbers of a dtype, the ends of its range and zeros among them."""
    rng = np.random.default_rng(count)
    x = rng.integers(-100, 100, count)
    y = rng.integers(-5, 6, count)
    if dtype in FLOATS:
        return (x / 4).astype(dtype), y.astype(dtype)
    x, y = x.astype(dtype), y.astype(dtype)
    if dtype != "bool" and count > 4:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x[:5] = low, low, high, high, low
        y[:5] = np.array(-1).astype(dtype), low, high, low, 0
    return x, y


def names_for(dtype):
    if dtype == "bool":
        return (*COMPARISONS, *BITS)
    if dtype in FLOATS:
        return (*ARITHMETIC, "truediv", *COMPARISONS)
    return (*ARITHMETIC, *COMPARISONS, *BITS, "lshift", "rshift")


def check(found, expected, name):
    found = found.numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape, name
    np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("shape", [(67,), (), (0,), (1,), (3, 5)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_operators(dtype, shape):
    x, y = (v.reshape(shape) for v in pairs(dtype, int(np.prod(shape))))
    found, expected = {}, {}
    with np.errstate(all="ignore"):
        for name in names_for(dtype):
            found[name] = OPERATORS[name](Tensor(x), Tensor(y))
            expected[name] = np.asarray(OPERATORS[name](x, y))
    Tensor.realize(*found.values())
    for name, value in found.items():
        check(value, expected[name], f"{name} of {dtype}")


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_functions(dtype):
    x, _ = pairs(dtype, 67)
    with np.errstate(all="ignore"):
        expected = {name: np.asarray(theirs(x)) for name, (_, theirs) in FUNCTIONS.items()}
    found = {name: ours(Tensor(x)) for name, (ours, _) in FUNCTIONS.items()}
    Tensor.realize(*found.values())
    for name, value in found.items():
        check(value, expected[name], f"{name} of {dtype}")


@pytest.mark.parametrize("source", ["bool", *INTS, *FLOATS])
def test_casts(source):
    x, _ = pairs(source, 67)
    kinds = [d for d in ("bool", *INTS, *FLOATS) if d != source]
    found = [Tensor(x).cast(d) for d in kinds]
    Tensor.realize(*found)
    for kind, value in zip(kinds, found, strict=True):
        with np.errstate(all="ignore"):
            expected = x.astype(kind)
            if source in FLOATS and kind in INTS:  # numpy is not consistent below 64 bits
                expected = x.astype(np.int64).astype(kind)
        check(value, expected, f"{source} to {kind}")


@pytest.mark.parametrize("source", FLOATS)
def test_casts_of_what_no_int_is(source):
    low = -(2**63)
    x = np.array([np.nan, np.inf, -np.inf, 1.9, -1.9, 65504, -65504], source)
    ints = [low, low, low, 1, -1, 65504, -65504]
    found = {d: Tensor(x).cast(d) for d in INTS}
    Tensor.realize(*found.values())
    for kind, value in found.items():
        expected = np.array(ints, np.int64).astype(kind)
        check(value, expected, f"{source} to {kind}")
    if source != "float16":
        far = np.array([2.0**63, -(2.0**63), 2.0**62, 1e30, -1e30], source)
        assert Tensor(far).cast("int64").tolist() == [low, low, 2**62, low, low]
        assert Tensor(far).cast("uint64").tolist()[:3] == [2**63, 2**63, 2**62]


def test_ints_divided_by_zero_and_at_the_ends():
    low = -(2**31)
    x, y = Tensor([7, -7, 0, low, low]), Tensor([0, 0, 0, -1, 0])
    assert (x // y).tolist() == [0, 0, 0, low, 0]
    assert (x % y).tolist() == [0, 0, 0, 0, 0]
    assert (x // 0).tolist() == (x % 0).tolist() == [0] * 5
    assert (Tensor([7, -7]) // Tensor([2, 2])).tolist() == [3, -4]
    assert (Tensor([7, -7]) % Tensor([2, -2])).tolist() == [1, -1]
    assert Tensor([low]).abs().tolist() == (-Tensor([low])).tolist() == [low]


def test_floats_divided_by_zero():
    x = Tensor([1.0, -1.0, 0.0, np.nan])
    np.testing.assert_array_equal((x / 0).numpy(), [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal((x // 0).numpy(), [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal((x % 0).numpy(), [np.nan] * 4)
    np.testing.assert_array_equal((Tensor([1]) / Tensor([0])).numpy(), [np.inf])


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_the_width_or_more(dtype):
    bits = np.dtype(dtype).itemsize * 8
    x = np.array([-77, 5, -1, 1], np.int64).astype(dtype)
    for count in (0, 1, bits - 1, bits, bits + 1, 120):
        by = np.full(4, count).astype(dtype)
        check(Tensor(x) << Tensor(by), x << by, f"{dtype} << {count}")
        check(Tensor(x) >> Tensor(by), x >> by, f"{dtype} >> {count}")


def test_nan_goes_through():
    x = Tensor([1.0, np.nan, 3.0])
    assert np.isnan(x.max().item()) and np.isnan(x.min().item()) and np.isnan(x.sum().item())
    np.testing.assert_array_equal(x.maximum(2).numpy(), [2, np.nan, 3])
    np.testing.assert_array_equal(x.relu().numpy(), [1, np.nan, 3])
    assert (x == x).tolist() == [True, False, True] and (x != x).tolist() == [False, True, False]


def test_small_floats_round_once_an_operation():
    for dtype, eps in (("bfloat16", 2**-8), ("float16", 2**-11)):
        one = Tensor([1.0], dtype=dtype)
        assert (one + eps).tolist() == [1.0] and (one + 3 * eps).tolist() == [1 + 4 * eps]
        assert ((one + eps) + eps).tolist() == [1.0]
        assert (one + eps).dtype.name == dtype
    many = Tensor.ones(4096, dtype="float16").contiguous()
    assert many.sum().item() == 4096 and (many * 16).mean().item() == 16


def test_dtypes_meet():
    def of(x, y):
        return (Tensor([1], dtype=x) + Tensor([1], dtype=y)).dtype.name

    assert of("int8", "int16") == "int16" and of("uint8", "int8") == "int16"
    assert of("int64", "float16") == "float16" and of("bool", "uint8") == "uint8"
    assert of("float16", "bfloat16") == of("bfloat16", "float16") == "float32"
    weak = {"int8": 1, "float16": 2, "bool": True}
    for dtype, number in weak.items():
        assert (Tensor([1], dtype=dtype) * number).dtype.name == dtype
    assert (Tensor([1], dtype="int8") * 0.5).dtype is dtypes.float32
    assert (Tensor([1]) / Tensor([2])).dtype is dtypes.float32


def test_no_elements():
    empty = Tensor.zeros(0, 3)
    assert (empty + 1).tolist() == [] and empty.sum().item() == 0 and empty.prod().item() == 1
    assert empty.sum(0).tolist() == [0, 0, 0] and empty.max(1).tolist() == []
    assert empty.cat(Tensor.ones(1, 3)).tolist() == [[1, 1, 1]]
    assert (empty @ Tensor.ones(3, 2)).shape == (0, 2)
    assert (Tensor.ones(2, 0) @ Tensor.ones(0, 2)).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="max of no elements"):
        empty.max()


PROGRAMS = {
    "chain": lambda x: (x * 2 + 1).exp().log() - x.abs().sqrt(),
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(0),
    "norm": lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
    "product": lambda x: x @ x.T,
    "gelu of a product": lambda x: (x @ x.T + x[:, 0]).gelu(),
    "sums": lambda x: x.cumsum(1),
    "sorted": lambda x: x.sort(1)[0],
    "rows": lambda x: x[[2, 0, 1, 0]],
    "padded": lambda x: x.pad(((1, 2), (0, 3))).flip(0)[::2],
    "pooled": lambda x: x.reshape(1, 1, *x.shape).max_pool2d(2),
    "ints": lambda x: (x * 9).cast("int32") // 4 % 3,
    "where": lambda x: (x > 0).where(x, x.T.contiguous().T * 2),
    "half": lambda x: (x.half() * 3).sum(0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_python_gives_the_same(name):
    x = np.random.default_rng(5).normal(size=(5, 7)).astype(np.float32)
    native = PROGRAMS[name](Tensor(x)).numpy()
    with Context(NATIVE=0):
        plain = PROGRAMS[name](Tensor(x)).numpy()
    assert native.dtype == plain.dtype
    np.testing.assert_allclose(plain, native, rtol=2e-3 if name == "half" else 2e-6, atol=1e-6)
