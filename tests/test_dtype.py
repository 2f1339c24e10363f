"""Data types: what two meet in, what each holds, how bits and values go from one to another."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tinyfn import Context, Tensor, dtypes
from tinyfn.dtype import least_upper_dtype, to_dtype
from tinyfn.errors import ArgumentError, DTypeError, FlagError, ShapeError
from tinyfn.uop.interpret import interpret

INTS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()
FLOATS = "fp8e4m3 fp8e5m2 float16 bfloat16 float32 float64".split()
SMALL = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "fp8e4m3": ml_dtypes.float8_e4m3fn,
    "fp8e5m2": ml_dtypes.float8_e5m2,
}

# *** promotion ***

# a row for each dtype, a column for each int; what tinygrad 0.14 gives, too
MEETS = """
        bool   int8   uint8  int16  uint16 int32  uint32 int64  uint64
bool    bool   int8   uint8  int16  uint16 int32  uint32 int64  uint64
int8    int8   int8   int16  int16  int32  int32  int64  int64  float32
uint8   uint8  int16  uint8  int16  uint16 int32  uint32 int64  uint64
int16   int16  int16  int16  int16  int32  int32  int64  int64  float32
uint16  uint16 int32  uint16 int32  uint16 int32  uint32 int64  uint64
int32   int32  int32  int32  int32  int32  int32  int64  int64  float32
uint32  uint32 int64  uint32 int64  uint32 int64  uint32 int64  uint64
int64   int64  int64  int64  int64  int64  int64  int64  int64  float32
uint64  uint64 float32 uint64 float32 uint64 float32 uint64 float32 uint64
"""
FLOATS_MEET = """
         fp8e4m3  fp8e5m2  float16  bfloat16 float32  float64
fp8e4m3  fp8e4m3  float16  float16  bfloat16 float32  float64
fp8e5m2  float16  fp8e5m2  float16  bfloat16 float32  float64
float16  float16  float16  float16  float32  float32  float64
bfloat16 bfloat16 bfloat16 float32  bfloat16 float32  float64
float32  float32  float32  float32  float32  float32  float64
float64  float64  float64  float64  float64  float64  float64
"""


def table(text):
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {(row[0], name): kind for row in rows for name, kind in zip(head, row[1:], strict=True)}


@pytest.mark.parametrize("text", [MEETS, FLOATS_MEET], ids=["ints", "floats"])
def test_two_dtypes_meet(text):
    for (a, b), expected in table(text).items():
        x, y = Tensor([1], dtype=a), Tensor([1], dtype=b)
        assert least_upper_dtype(x.dtype, y.dtype).name == expected
        assert (x + y).dtype.name == x.maximum(y).dtype.name == expected
        assert (x == x).where(x, y).dtype.name == Tensor.cat(x, y).dtype.name == expected


def test_an_int_and_a_float_meet_in_the_float():
    for a, b in itertools.product(["bool", *INTS], FLOATS):
        assert (Tensor([1], dtype=a) * Tensor([1], dtype=b)).dtype.name == b


def test_python_numbers_are_weak():
    for name in ("bool", *INTS, *FLOATS):
        x = Tensor([1], dtype=name)
        assert (x + True).dtype is x.dtype
        assert (x + 1).dtype.name == (1 * x).dtype.name == ("int32" if name == "bool" else name)
        assert (x * 1.5).dtype.name == (x / 2).dtype.name == (name if name in FLOATS else "float32")
        assert (x < 1.5).dtype is dtypes.bool
    with Context(DEFAULT_FLOAT="float64", DEFAULT_INT="int64"):
        assert (Tensor([1], dtype="int8") / 2).dtype is dtypes.float64
        assert (Tensor([True]) + 1).dtype is dtypes.int64
        assert (Tensor([1], dtype="int8") + Tensor([1], dtype="uint64")).dtype is dtypes.float64


def test_ints_that_do_not_fit_are_refused():
    for name, number in (("uint8", -1), ("int8", 300), ("uint64", -1), ("int32", 2**31)):
        x = Tensor([1], dtype=name)
        for operate in (lambda t, n: t + n, lambda t, n: n * t, lambda t, n: t & n):
            with pytest.raises(ArgumentError, match="can hold"):
                operate(x, number)
        assert (x < number).item() == (number > 1) and (x == number).item() is False


# what a method gives for bool, int8, uint8, int64, uint64, float16
KINDS = ("bool", "int8", "uint8", "int64", "uint64", "float16")
GIVES = {
    "sum": ("int32", "int32", "uint32", "int64", "uint64", "float16"),
    "prod": ("int32", "int32", "uint32", "int64", "uint64", "float16"),
    "cumsum": ("int32", "int32", "uint32", "int64", "uint64", "float16"),
    "mean": ("float32", "float32", "float32", "float32", "float32", "float16"),
    "max": KINDS,
    "argmax": ("int32",) * 6,
    "any": ("bool",) * 6,
    "exp": ("float32", "float32", "float32", "float32", "float32", "float16"),
    "abs": KINDS,
    "logical_not": ("bool",) * 6,
}


def test_methods_give_a_dtype():
    for name, expected in GIVES.items():
        found = tuple(getattr(Tensor([1, 0], dtype=k), name)().dtype.name for k in KINDS)
        assert found == expected, name


# *** integers wrap ***


@pytest.mark.parametrize("name", INTS)
def test_integers_wrap_as_numpys_do(name):
    info = np.iinfo(name)
    values = np.array([info.min, info.max, info.max - 1, 1, 0, 3], name)
    x = Tensor(values)
    with np.errstate(all="ignore"):
        for operate in (
            lambda v: v + v,
            lambda v: v * v,
            lambda v: v - v - v,
            lambda v: -v,
            lambda v: v + 1,
            abs,
        ):
            np.testing.assert_array_equal(operate(x).numpy(), operate(values))
    assert (x << 1).tolist() == np.left_shift(values, np.array(1, name)).tolist()


# *** small floats ***


def every_value(name):
    kind = np.dtype(SMALL[name])
    return np.arange(256**kind.itemsize).astype(f"uint{8 * kind.itemsize}").view(kind)


def as_tensor(values):
    return Tensor(values.view(f"uint{8 * values.itemsize}"))


@pytest.mark.parametrize("name", SMALL)
def test_every_small_float(name):
    values = every_value(name)
    bits = as_tensor(values)
    x = bits.bitcast(name).realize()
    wide = values.astype(np.float32)
    np.testing.assert_array_equal(x.cast("float32").numpy(), wide)
    np.testing.assert_array_equal(np.signbit(x.cast("float64").numpy()), np.signbit(wide))
    nan = np.isnan(wide)
    back = x.cast("float64").cast(name).bitcast(bits.dtype).numpy()
    np.testing.assert_array_equal(back[~nan], bits.numpy()[~nan])
    assert np.isnan(back.view(values.dtype)[nan].astype(np.float32)).all()
    np.testing.assert_array_equal(x.bool().numpy(), wide != 0)
    with np.errstate(invalid="ignore", over="ignore"):
        more = (values + SMALL[name](1)).astype(np.float32)
    np.testing.assert_array_equal((x + 1).cast("float32").numpy(), more)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_rounding_to_small_floats(name, source):
    """Every half, and random numbers beside the places where float64 is rounded twice."""
    random = np.random.default_rng(0)
    if source in SMALL:
        values = every_value(source)
        x = as_tensor(values).bitcast(source)
    else:
        middle = every_value(name).astype(np.float32).astype(np.float64)
        middle = middle[np.isfinite(middle) & ~np.signbit(middle)]
        middle = (middle[1:] + middle[:-1]) / 2  # ties
        near = middle * (1 + random.choice([0, 2.0**-30, -(2.0**-30), 2.0**-22], middle.size))
        values = np.concatenate([near, -near, [np.inf, -np.inf, 0.0, -0.0]]).astype(source)
        x = Tensor(values)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = values.astype(np.float64)
        expected = exact.astype(SMALL[name])
    kept = ~np.isnan(exact)
    raw = f"uint{8 * expected.itemsize}"
    found = x.cast(name).bitcast(raw).numpy()
    np.testing.assert_array_equal(found[kept], expected.view(raw)[kept])
    with Context(NATIVE=0):
        part = x[:300].cast(name).bitcast(raw).numpy()
    np.testing.assert_array_equal(part, found[:300])


def test_float64_is_rounded_once():
    """Just beside the middle of two halves; float32 in between would give the middle."""
    for name, value, expected in (
        ("float16", 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-10),
        ("float16", 1 + 3 * 2.0**-11 - 2.0**-40, 1 + 2.0**-10),
        ("bfloat16", -(1 + 2.0**-8 + 2.0**-40), -(1 + 2.0**-7)),
        ("fp8e4m3", 1 + 2.0**-4 + 2.0**-40, 1 + 2.0**-3),
    ):
        x = Tensor(np.array([value]))
        assert x.cast(name).item() == interpret([x.cast(name).uop])[0].item() == expected
        assert Tensor([value], dtype=name).item() == expected


# *** bits ***


def test_bitcast_keeps_bits():
    values = np.array([1.0, -0.0, np.inf, 3.5], np.float32)
    assert Tensor(values).bitcast("uint32").tolist() == values.view(np.uint32).tolist()
    assert Tensor([True, False]).bitcast("uint8").tolist() == [1, 0]
    x = Tensor(np.arange(65536, dtype=np.uint16))
    halves = x.bitcast("float16").realize()
    np.testing.assert_array_equal(halves.bitcast("uint16").numpy(), x.numpy())


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("uint8", "uint16"),
        ("uint8", "float32"),
        ("float32", "uint8"),
        ("int16", "int64"),
        ("float64", "int32"),
        ("uint32", "float64"),
        ("int64", "int8"),
        ("float16", "float32"),
    ],
)
def test_bitcast_to_another_width(source, target):
    raw = np.arange(2, 2 + 48, dtype=np.uint8).reshape(2, 24)
    values = raw.view(source)
    found = Tensor(values).bitcast(target)
    expected = values.view(target)
    assert found.shape == expected.shape and found.dtype is to_dtype(target)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_bitcast_needs_whole_elements():
    for x, kind in ((Tensor([1, 2, 3], dtype="uint8"), "uint16"), (Tensor(1), "uint8")):
        with pytest.raises(ShapeError, match="whole number"):
            x.bitcast(kind)
    assert Tensor([[1.0, 2.0]]).bfloat16().bitcast("uint32").shape == (1, 1)


# *** defaults ***


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_the_default_float(name):
    with Context(DEFAULT_FLOAT=name):
        made = [Tensor([1.0]), Tensor(0.5), Tensor.rand(2), Tensor.randn(2), Tensor.zeros(2)]
        made += [Tensor.eye(2), Tensor.linspace(0, 1, 3), Tensor.full((2,), 1.5), Tensor([])]
        made += [Tensor([1]).exp(), Tensor([1]) / 2, Tensor([1]).mean(), Tensor.arange(0, 1, 0.5)]
        made += [Tensor([True]).where(1.0, 2.0), Tensor.empty(2), Tensor.uniform(2)]
        assert {x.dtype.name for x in made} == {name}
    assert Tensor([1.0]).dtype is dtypes.float32


def test_the_default_int():
    with Context(DEFAULT_INT="int64"):
        made = [Tensor([1]), Tensor(1), Tensor.arange(3), Tensor.full((2,), 1), Tensor([True]) + 1]
        assert {x.dtype.name for x in made} == {"int64"}
    assert Tensor([1]).dtype is dtypes.int32


def test_names():
    assert to_dtype("half") is dtypes.float16 and to_dtype("dtypes.long") is dtypes.int64
    assert Tensor([1], dtype="uchar").dtype is dtypes.uint8
    for wrong in ("float99", 3):
        with pytest.raises(DTypeError, match="no dtype is called"):
            Tensor([1]).cast(wrong)
    with pytest.raises((FlagError, DTypeError)), Context(DEFAULT_FLOAT=5):
        Tensor([1.0])
