"""Values in and out of tensors: numbers, lists, arrays, bytes, and what is refused."""

import math

import ml_dtypes
import numpy as np
import pytest

from tinyfn import Tensor, dtypes
from tinyfn.errors import ArgumentError, DTypeError, ShapeError

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
NUMPY = ("bool", *INTS, *FLOATS)


def same(found, expected):
    """Equal values, shape and dtype."""
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_of_every_dtype_come_back(dtype):
    values = (np.arange(24) - 5).astype(dtype).reshape(2, 3, 4)
    swapped = values.astype(values.dtype.newbyteorder())
    same(Tensor(values).numpy(), values)
    same(Tensor(values.T[::2, ::-1]).numpy(), values.T[::2, ::-1])
    same(Tensor(swapped).numpy(), values)
    same(Tensor(np.zeros((0, 3), dtype)).numpy(), np.zeros((0, 3), dtype))
    same(Tensor(np.array(3, dtype)).numpy(), np.array(3, dtype))
    same(np.asarray(Tensor(values).data()), values)
    assert Tensor(values).tolist() == values.tolist()
    assert Tensor(values).dtype.name == dtype


def test_arrays_are_copied_both_ways():
    values = np.arange(4, dtype=np.float32)
    x = Tensor(values)
    values[:] = 9
    assert x.tolist() == [0, 1, 2, 3]
    out = x.numpy()
    out[:] = 7
    assert x.tolist() == [0, 1, 2, 3]


def test_data_shares_the_memory():
    x = Tensor([1, 2, 3]).realize()
    view = x.data()
    assert view.format == "i" and view.shape == (3,)
    np.asarray(view)[0] = 9
    assert x.tolist() == [9, 2, 3]
    with pytest.raises(DTypeError, match="cast the tensor to float32"):
        Tensor([1.0], dtype="bfloat16").data()


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (True, "bool", ()),
        (3, "int32", ()),
        (2.5, "float32", ()),
        (math.inf, "float32", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int32", (2,)),
        ([True, 2, 0.5], "float32", (3,)),
        ([[1, 2], (3, 4)], "int32", (2, 2)),
        ((1.0,), "float32", (1,)),
    ],
)
def test_python_values(value, dtype, shape):
    x = Tensor(value)
    assert x.dtype.name == dtype and x.shape == shape
    np.testing.assert_array_equal(x.numpy(), np.array(value, dtype).reshape(shape))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31 - 1, "int32"), (2**31, "int64"), (-(2**63), "int64"), (2**64 - 1, "uint64")],
)
def test_ints_get_a_dtype_that_holds_them(value, dtype):
    for x in (Tensor(value), Tensor([0, value])):
        assert x.dtype.name == dtype
    assert Tensor(value).item() == value
    assert Tensor([0, value]).tolist() == [0, value]


def test_arrays_and_tensors_inside_of_lists():
    assert Tensor([np.float32(1.5), np.int64(2)]).tolist() == [1.5, 2.0]
    assert Tensor([np.arange(2), [5, 6]]).tolist() == [[0, 1], [5, 6]]
    assert Tensor([Tensor(1), Tensor(2)]).tolist() == [1, 2]
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_dtypes_asked_for():
    assert Tensor([1, 0, 2], dtype=dtypes.bool).tolist() == [True, False, True]
    assert Tensor([300, -1], dtype=dtypes.uint8).tolist() == [44, 255]
    assert Tensor([1.9, -1.9], dtype=dtypes.int16).tolist() == [1, -1]
    assert Tensor([1e5], dtype=dtypes.float16).tolist() == [math.inf]
    assert Tensor(np.array([1.9, -1.9]), dtype="int32").tolist() == [1, -1]
    assert Tensor(Tensor([1, 2]), dtype="float32").dtype is dtypes.float32


def test_bytes():
    assert Tensor(b"abc").tolist() == [97, 98, 99]
    assert Tensor(bytearray(b"abc")).dtype is dtypes.uint8
    raw = np.arange(3, dtype=np.float32)
    assert Tensor(raw.tobytes(), dtype="float32").tolist() == [0, 1, 2]
    assert Tensor(memoryview(raw.tobytes()), dtype="float32").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [("bfloat16", "bfloat16"), ("fp8e4m3", "float8_e4m3fn"), ("fp8e5m2", "float8_e5m2")],
)
def test_small_floats(dtype, theirs):
    kind = getattr(ml_dtypes, theirs)
    values = np.array([0, -0.0, 1.00390625, 3.1, -2, 447, 0.001, 0.017, math.nan])
    expected = values.astype(kind)
    same(Tensor(values.tolist(), dtype=dtype).numpy(), expected.astype(np.float32))
    same(Tensor(expected).numpy(), expected.astype(np.float32))
    assert Tensor(expected).dtype.name == dtype
    same(Tensor(expected.tobytes(), dtype=dtype).numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("value", [[[1, 2], [3]], [[1, 2], 3], [[[1]], [2]]])
def test_lists_of_different_lengths_are_refused(value):
    with pytest.raises(ShapeError, match="nested lists of equal lengths"):
        Tensor(value)


@pytest.mark.parametrize(
    "value",
    ["abc", {}, {1}, object(), [None], ["a"], np.zeros(2, complex), np.array(["a"]), [2**64, -1]],
)
def test_other_values_are_refused(value):
    with pytest.raises(DTypeError, match="expected"):
        Tensor(value)


def test_one_element():
    assert Tensor([[2.5]]).item() == 2.5
    assert isinstance(Tensor(3).item(), int) and isinstance(Tensor(True).item(), bool)
    assert float(Tensor(2)) == 2.0 and int(Tensor(2.9)) == 2
    for shape in ((2,), (0,)):
        with pytest.raises(ShapeError, match="one element"):
            Tensor.ones(*shape).item()
    with pytest.raises(TypeError, match="truth value"):
        bool(Tensor(True))
    with pytest.raises(TypeError, match="length"):
        len(Tensor(1))


def test_filled():
    assert Tensor.full((2,), 7).tolist() == [7, 7]
    assert Tensor.full((2,), 7).dtype is dtypes.int32
    assert Tensor.full((), True).dtype is dtypes.bool
    assert Tensor.zeros(2, 0).shape == (2, 0)
    assert Tensor.zeros((2, 1)).tolist() == [[0], [0]]
    assert Tensor.ones(2, dtype="int8").tolist() == [1, 1]
    like = Tensor.ones(2, 2).full_like(3, dtype="int32")
    assert like.tolist() == [[3, 3], [3, 3]] and like.dtype is dtypes.int32
    assert Tensor.empty(3, dtype="uint8").shape == (3,)
    for wrong in ((-1,), (2.0,), ("a",), (True,)):
        with pytest.raises(ShapeError):
            Tensor.zeros(*wrong)


def test_memory_of_others_is_shared():
    values = np.arange(4, dtype=np.float32)
    x = Tensor.from_blob(values.ctypes.data, (2, 2), dtype="float32")
    assert (x + 1).tolist() == [[1, 2], [3, 4]]
    x.assign(x * 2).realize()
    assert values.tolist() == [0, 2, 4, 6]


def test_devices():
    x = Tensor([1, 2], device="CPU:1")
    assert x.device == "CPU:1" and (x + 1).tolist() == [2, 3]
    assert Tensor([1, 2], device="cpu:0").device == Tensor([1, 2]).device == "CPU"
    with pytest.raises(ArgumentError):
        Tensor([1, 2]).assign(Tensor([1, 2], device="CPU:1"))
    with pytest.raises(Exception, match="GPU"):
        Tensor([1], device="GPU")


def test_a_tensor_says_what_it_is():
    assert repr(Tensor.ones(2, 3)) == "<Tensor (2, 3) dtypes.float32 on CPU>"
