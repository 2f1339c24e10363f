"""Tensors among other libraries' arrays, and as copies: who shares memory, and what is equal."""

import copy
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit, Variable, dtypes, function, nn
from tinyfn.errors import CaptureError, DTypeError

NUMPY = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMPY = (*NUMPY, "float16", "float32", "float64")
SMALL = {"bfloat16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}
SLOTS = ("CPU", "CPU:1")


def stored(*values):
    return Tensor([float(v) for v in values]).realize()


# *** numpy ***


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_share_the_memory_of_every_dtype(dtype):
    values = np.arange(6).astype(dtype).reshape(2, 3)
    for share in (np.asarray, lambda t: np.asarray(t, copy=False), np.from_dlpack):
        x = Tensor(values)
        array = share(x)
        assert array.dtype == values.dtype and array.tolist() == values.tolist()
        array[0, 0] = 1
        assert x.tolist()[0][0] == 1
    own = np.array(x)
    own[0, 0] = 0
    assert x.tolist()[0][0] == 1


def test_arrays_of_what_is_not_in_memory_yet():
    x = stored(1, 2) + 1
    array = np.asarray(x)
    array[0] = 9
    assert x.tolist() == [9, 3]
    constant = Tensor.ones(2)
    np.asarray(constant)[0] = 5
    assert constant.tolist() == [5, 1]


def test_arrays_of_views_have_strides():
    x = Tensor(np.arange(16, dtype=np.int32).reshape(4, 4))
    for view in (x.T, x[:, ::-1], x[1], x[:, 1:3], x.reshape(2, 8).T, x[None, 1:]):
        array = np.asarray(view)
        assert array.tolist() == view.tolist()
        array.flat[0] += 100
        assert array.tolist() == view.tolist()
    wide = x[0].expand(2, 4)
    assert np.asarray(wide).tolist() == wide.tolist()
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(wide, copy=False)


def test_arrays_of_another_dtype_are_copies():
    x = stored(1.5, 2.5)
    assert np.asarray(x, np.int64).tolist() == [1, 2]
    assert np.array(x, dtype=np.float16, copy=True).dtype == np.float16
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, np.int64, copy=False)
    half = x.bfloat16()
    assert np.asarray(half).dtype == np.float32
    assert np.asarray(half, ml_dtypes.bfloat16).tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(half, copy=False)
    spread = x.shard(SLOTS, 0)
    assert np.asarray(spread).tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(spread, copy=False)


def test_shared_memory_outlives_the_tensor_and_is_not_used_again():
    step = TinyJit(lambda t: (t + 1).realize())
    seen = [np.asarray(step(stored(i, i))) for i in range(6)]
    assert [s.tolist() for s in seen] == [[i + 1, i + 1] for i in range(6)]


def test_functions_of_numpy_give_arrays():
    x, a = stored(1, 2, 3), np.array([1, 0, 2], np.float32)
    found = {
        "add": np.add(a, x),
        "exp": np.exp(x - x),
        "sum": np.sum(x, axis=0),
        "stack": np.stack([x, x], axis=1),
        "reshape": np.reshape(x, (3, 1)),
        "where": np.where(x > 1, x, a),
        "outer": np.multiply.outer(a, x),
    }
    expected = {
        "add": [2, 2, 5],
        "exp": [1, 1, 1],
        "sum": 6,
        "stack": [[1, 1], [2, 2], [3, 3]],
        "reshape": [[1], [2], [3]],
        "where": [1, 2, 3],
        "outer": [[1, 2, 3], [0, 0, 0], [2, 4, 6]],
    }
    assert {k: v.tolist() for k, v in found.items()} == expected
    assert all(isinstance(v, np.ndarray | np.generic) for v in found.values())
    assert np.array_equal(x, [1, 2, 3])
    np.testing.assert_allclose(x, [1, 2, 3])


def test_operators_beside_an_array_give_tensors():
    x, a = stored(1, 2, 3), np.array([1, 0, 2], np.float32)
    cases = [
        (a + x, [2, 2, 5]),
        (x + a, [2, 2, 5]),
        (a - x, [0, -2, -1]),
        (a < x, [False, True, True]),
        (a == x, [True, False, False]),
        (a @ x, 7),
        (x @ a, 7),
        (np.float32(2) * x, [2, 4, 6]),
        (np.int64(2) - x, [1, 0, -1]),
        (x**a, [1, 1, 9]),
        (x.maximum(a), [1, 2, 3]),
        (x.masked_fill(a > 0, 9), [9, 2, 9]),
        ((x > 1).where(a, x), [1, 0, 2]),
        (x.reshape(3, 1) * a.reshape(1, 3), [[1, 0, 2], [2, 0, 4], [3, 0, 6]]),
    ]
    for found, expected in cases:
        assert isinstance(found, Tensor) and found.tolist() == expected
    assert (x + a.astype(np.float64)).dtype is dtypes.float64
    assert (Tensor([1, 2, 3]) + a.astype(np.int8)).dtype is dtypes.int32
    assert (x.shard(SLOTS) + a).tolist() == [2, 2, 5]


# *** the buffer protocol ***


def test_data_shares_what_lies_in_order():
    x = (stored(1, 2, 3, 4) + 1).reshape(2, 2)
    view = x.data()
    assert (view.format, view.shape, view.c_contiguous) == ("f", (2, 2), True)
    np.asarray(view)[0, 1] = 7
    assert x.tolist() == [[2, 7], [4, 5]]
    assert np.asarray(x.T.data()).tolist() == [[2, 4], [7, 5]]
    assert bytes(Tensor([1, 2], dtype="uint8").data()) == b"\x01\x02"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ is of Python 3.12")
def test_memoryview():
    x = stored(1, 2, 3)
    memoryview(x)[0] = 9.0
    assert x.tolist() == [9, 2, 3]
    assert memoryview(x[::-1]).tolist() == [3, 2, 9]
    assert bytes(Tensor([1, 2, 3], dtype="uint8")[::-1]) == b"\x03\x02\x01"
    with pytest.raises(BufferError, match="data()"):
        memoryview(x.shard(("CPU", "CPU:1", "CPU:2"), 0))


# *** DLPack ***


def test_arrays_of_numpy_become_tensors_without_a_copy():
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    x = Tensor.from_dlpack(array)
    turned = Tensor.from_dlpack(array.T)
    array[0, 1] = 50
    assert x.tolist() == [[0, 50, 2], [3, 4, 5]] and turned.tolist() == [[0, 3], [50, 4], [2, 5]]
    x.assign(x * 2).realize()
    assert array.tolist() == [[0, 100, 4], [6, 8, 10]]
    del array
    assert (x + 1).tolist() == [[1, 101, 5], [7, 9, 11]]


def test_memory_that_cannot_be_shared_is_copied():
    array = np.arange(6, dtype=np.float32)
    gaps = Tensor.from_dlpack(array[::2])
    frozen = array.copy()
    frozen.flags.writeable = False
    fixed = Tensor.from_dlpack(frozen)
    fixed += 1
    array[:] = 9
    assert gaps.tolist() == [0, 2, 4]
    assert fixed.tolist() == [1, 2, 3, 4, 5, 6] and frozen.tolist() == [0, 1, 2, 3, 4, 5]
    assert Tensor.from_dlpack(np.zeros((0, 2))).shape == (0, 2)
    assert Tensor.from_dlpack(np.array(3)).item() == 3


def test_tensors_exchange_memory():
    for dtype in (*NUMPY, *SMALL):
        x = Tensor([0, 1, 1]).cast(dtype).realize()
        y = Tensor.from_dlpack(x)
        y.assign(y.ones_like()).realize()
        assert y.dtype is x.dtype and x.tolist() == [1, 1, 1]


def test_dlpack_refuses():
    x = stored(1, 2)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="CPU only"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy=False"):
        x.shard(SLOTS, 0).__dlpack__(copy=False)
    assert np.from_dlpack(x.shard(SLOTS, 0)).tolist() == [1, 2]
    own = np.from_dlpack(x, copy=True)
    own[0] = 5
    assert x.tolist() == [1, 2]
    with pytest.raises(DTypeError, match="__dlpack__"):
        Tensor.from_dlpack([1, 2])
    with pytest.raises(DTypeError, match="complex"):
        Tensor.from_dlpack(np.zeros(2, complex))


@pytest.mark.parametrize("dtype", [*NUMPY, "bfloat16", "fp8e4m3", "fp8e5m2"])
def test_torch_shares_memory_both_ways(dtype):
    torch = pytest.importorskip("torch")
    theirs = {**SMALL, **{n: n for n in NUMPY}}[dtype]
    ours = Tensor([0, 1, 1]).cast(dtype).realize()
    seen = torch.from_dlpack(ours)
    assert seen.dtype is getattr(torch, theirs)
    seen[0] = 1
    assert ours.tolist() == [1, 1, 1]
    back = Tensor.from_dlpack(seen)
    back.assign(back.zeros_like()).realize()
    assert back.dtype is ours.dtype and ours.tolist() == [0, 0, 0]


def test_memory_at_any_address():
    raw = np.zeros(4 * 4096 + 64, np.uint8)
    for shift in (4, 8, 36):
        array = raw[shift : shift + 4 * 4096].view(np.float32)
        array[:] = np.arange(4096)
        x = Tensor.from_dlpack(array)
        y = Tensor.from_blob(array.ctypes.data, (64, 64))
        assert (y @ y).shape == (64, 64) and x.sum().item() == 4096 * 4095 / 2
        y.assign(y * 2 + 1).realize()
        assert array.tolist() == [2 * i + 1 for i in range(4096)]


# *** copies ***


def copies(x):
    return (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)))


@pytest.mark.parametrize("dtype", [*NUMPY, *SMALL])
def test_copies_are_equal_and_own_their_memory(dtype):
    x = Tensor([[0, 1, 1]]).cast(dtype).realize()
    for y in copies(x):
        assert y.dtype is x.dtype and y.shape == (1, 3) and y.tolist() == x.tolist()
        y.assign(y.ones_like())
        assert y.tolist() == [[1, 1, 1]] and x.tolist() == [[0, 1, 1]]


def test_copies_of_what_is_not_computed_yet():
    x = Tensor.rand(4)
    drawn = [copy.deepcopy(x), copy.copy(x)]
    Tensor.rand(2).realize()
    assert [y.tolist() for y in drawn] == [x.tolist()] * 2
    assert [y.tolist() for y in copies(Tensor.ones(2) + 1)] == [[2, 2]] * 3
    assert [y.shape for y in copies(Tensor.zeros(0, 2))] == [(0, 2)] * 3
    assert [y.tolist() for y in copies(stored(1, 2, 3)[::-2])] == [[3, 1]] * 3


@pytest.mark.parametrize("axis", [None, 0])
def test_copies_are_spread_alike(axis):
    x = stored(1, 2, 3, 4).shard(SLOTS, axis).realize()
    for y in copies(x):
        assert (y.device, y.uop.axis, y.tolist()) == (SLOTS, axis, [1, 2, 3, 4])
        y += 1
        assert (y.tolist(), x.tolist()) == ([2, 3, 4, 5], [1, 2, 3, 4])


def test_gradients_are_copied_and_not_shared():
    x = stored(1, 2)
    (x * x).sum().backward()
    shallow, deep, pickled = copies(x)
    assert shallow.grad is None
    for y in (deep, pickled):
        assert y.grad.tolist() == [2, 4]
        (y * 3).sum().backward()
        assert y.grad.tolist() == [5, 7] and x.grad.tolist() == [2, 4]


def test_a_copy_is_no_function_of_the_original():
    x = stored(1, 2)
    y = copy.deepcopy(x)
    (y * x).sum().backward()
    assert x.grad.tolist() == [1, 2] and y.grad.tolist() == [1, 2]


class Model:
    """Tied weights, a list, a state that is no float."""

    def __init__(self):
        self.first = nn.Linear(3, 3)
        self.tied = self.first.weight
        self.rest = [nn.BatchNorm(3), nn.Linear(3, 1, bias=False)]
        self.steps = Tensor(0)

    def __call__(self, x):
        return self.rest[1](self.rest[0](self.first(x).relu() @ self.tied)).sum()


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("optimizer", [nn.optim.SGD, nn.optim.Adam, nn.optim.LAMB, nn.optim.Muon])
def test_models_and_optimizers_go_on_as_the_original_does(way, optimizer):
    def train(model, optimizer):
        with Tensor.train():
            optimizer.zero_grad()
            loss = model(Tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]]))
            loss.backward()
            optimizer.step()
        return loss.item()

    model = Model()
    parameters = [p for p in nn.state.get_parameters(model) if p.ndim == 2]
    rule = optimizer(parameters, lr=0.1)
    train(model, rule)
    other, others_rule = way((model, rule))
    assert other.tied is other.first.weight and others_rule.params[0] is not rule.params[0]
    losses = [train(model, rule) for _ in range(2)]
    assert [train(other, others_rule) for _ in range(2)] == pytest.approx(losses, rel=1e-6)
    for name, value in nn.state.get_state_dict(model).items():
        np.testing.assert_allclose(nn.state.get_state_dict(other)[name], value, rtol=1e-5)


def test_copies_of_a_symbolic_size_have_its_value():
    size = Variable("n", 1, 4).bind(3)
    x = stored(1, 2, 3, 4)[:size]
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 2, 3]
    assert np.asarray(x).tolist() == [1, 2, 3]


def test_values_are_not_read_while_a_function_is_captured():
    for read in (np.asarray, pickle.dumps, np.from_dlpack, lambda t: t.data(), bool):
        with pytest.raises((CaptureError, TypeError)):
            function(lambda t, read=read: read(t) and t)(stored(1))
    assert function(lambda t: copy.deepcopy(t) + 1)(stored(1)).tolist() == [2]


# *** as a Python number, as a collection ***


def test_numbers():
    assert float(Tensor([[2.5]])) == 2.5 and int(Tensor(-2.9)) == -2
    assert complex(Tensor(2)) == 2 and "abcd"[Tensor(2)] == "c"
    assert list(range(Tensor(2, dtype="uint8"))) == [0, 1]
    for wrong in (Tensor(2.0), Tensor([2]), Tensor(True)):
        with pytest.raises(TypeError, match="only an int tensor of no axes"):
            range(wrong)
    for wrong in (Tensor([1, 2]), Tensor([])):
        with pytest.raises(ValueError, match="one element"):
            float(wrong)


def test_collections():
    x = Tensor([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]] and len(x) == 2
    first, second = x
    assert (first + second).tolist() == [4, 6]
    assert 3 in x and 5 not in x and Tensor([9, 2]) in x
    assert x in [x] and {x: 1}[x] == 1
    assert (x == "a") is False and (x != None) is True  # noqa: E711
    for wrong in (iter, len):
        with pytest.raises(TypeError, match="no axes"):
            wrong(Tensor(1))


def test_what_is_printed_is_not_computed():
    x = (Tensor.rand(2, 3) + 1).half()
    with Context(DEBUG=0):
        assert repr(x) == str(x) == "<Tensor (2, 3) dtypes.float16 on CPU>"
    assert not x.uop.is_realized
    spread = Tensor.ones(4).shard(SLOTS, 0)
    assert repr(spread) == "<Tensor (4,) dtypes.float32 on ('CPU', 'CPU:1') along axis 0>"
    size = Variable("n", 1, 4).bind(3)
    assert repr(Tensor.ones(4)[:size]) == "<Tensor (n,) dtypes.float32 on CPU>"
