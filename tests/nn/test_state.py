"""Weights by name, into models and files and back."""

import io
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tinyfn import Context, Tensor, dtypes, nn
from tinyfn.errors import ArgumentError, DTypeError, MissingExtraError, ShapeError
from tinyfn.nn.state import (
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_save,
    torch_load,
)

RNG = np.random.default_rng(9)


class Model:
    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.layers = [Tensor.relu, nn.BatchNorm(4), {"last": nn.Linear(4, 2, bias=False)}]


NAMES = [
    "first.weight",
    "first.bias",
    "layers.1.weight",
    "layers.1.bias",
    "layers.1.num_batches_tracked",
    "layers.1.running_mean",
    "layers.1.running_var",
    "layers.2.last.weight",
]


def test_names_and_parameters():
    model = Model()
    found = get_state_dict(model)
    assert list(found) == NAMES
    assert found["layers.1.bias"] is model.layers[1].bias
    assert list(get_state_dict(model, "model.")) == [f"model.{n}" for n in NAMES]
    assert get_state_dict(model.first.bias, "bias.") == {"bias": model.first.bias}
    assert [id(p) for p in get_parameters(model)] == [id(t) for t in found.values()]
    tied = [model.first, model.first.weight]
    assert len(get_parameters(tied)) == 2
    assert list(get_state_dict(tied)) == ["0.weight", "0.bias", "1"]
    assert get_state_dict({"a": 1, "b": 2.0}, tensor_type=float) == {"b": 2.0}


def test_loading_makes_models_equal():
    one, two = Model(), Model()
    x = Tensor(RNG.normal(size=(2, 3)).astype(np.float32))
    loaded = load_state_dict(two, get_state_dict(one))
    assert [id(t) for t in loaded] == [id(t) for t in get_parameters(two)]
    np.testing.assert_equal(two.first(x).numpy(), one.first(x).numpy())
    # a model that has been loaded is a model of its own
    two.first.weight.assign(two.first.weight * 0).realize()
    assert np.abs(one.first.weight.numpy()).min() > 0


def test_loading_some():
    model = Model()
    bias = Tensor([1.0, 2.0, 3.0, 4.0])
    before = model.first.weight.numpy()
    given = {"first.bias": bias, "more": bias}
    assert load_state_dict(model, given, strict=False, consume=True) == [model.first.bias]
    assert list(given) == ["more"]
    np.testing.assert_equal(model.first.bias.numpy(), [1, 2, 3, 4])
    np.testing.assert_equal(model.first.weight.numpy(), before)


def test_loading_says_what_it_leaves(capsys):
    with Context(DEBUG=1):
        load_state_dict({"a": Tensor([1.0]), "c": Tensor([1.0])}, {"a": Tensor([2.0])}, False)
        load_state_dict({"a": Tensor([1.0])}, {"a": Tensor([2.0]), "b": Tensor([2.0])})
        load_state_dict({"a": Tensor([1.0])}, {"a": Tensor([2.0]), "d": Tensor([2.0])}, True, False)
    text = capsys.readouterr().out
    assert "left as they are: c" in text and "not in the model: b" in text and ": d" not in text


def test_loading_onto_slots():
    slots = ("CPU:0", "CPU:1")
    weight = Tensor.zeros(4, 2).shard(slots, 0).realize()
    plain = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2))
    load_state_dict({"w": weight}, {"w": plain})
    assert weight.device == ("CPU", "CPU:1") and weight.uop.axis == 0
    np.testing.assert_equal(weight.numpy(), plain.numpy())


def test_loading_refuses_what_does_not_fit():
    model = Model()
    before = model.first.weight.numpy()
    state = get_state_dict(Model())
    with pytest.raises(ArgumentError, match=r"no tensor for layers.1.bias; use strict=False"):
        load_state_dict(model, {n: t for n, t in state.items() if n != "layers.1.bias"})
    with pytest.raises(ShapeError, match=r"\(4, 2\)|\(2, 4\) for layers.2.last.weight"):
        load_state_dict(model, {**state, "layers.2.last.weight": Tensor.zeros(4, 2)})
    np.testing.assert_equal(model.first.weight.numpy(), before)


# *** safetensors ***


@pytest.mark.parametrize("kind", dtypes.all, ids=str)
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 2)])
def test_files_keep_every_bit(tmp_path, kind, shape):
    values = RNG.integers(0, 2 if kind is dtypes.bool else 100, size=shape).astype(np.float32)
    tensor = Tensor(values).cast(kind)
    file = tmp_path / "one.safetensors"
    safe_save({"x": tensor}, file)
    found = safe_load(file)["x"]
    assert found.dtype is kind and found.shape == shape
    np.testing.assert_equal(found.numpy(), tensor.numpy())


def test_exchange_with_the_package(tmp_path):
    file = tmp_path / "theirs.safetensors"
    arrays = {
        "f": RNG.normal(size=(2, 3)).astype(np.float32),
        "b": RNG.normal(size=(4,)).astype(ml_dtypes.bfloat16),
        "h": RNG.normal(size=(4,)).astype(np.float16),
        "i": np.array([[-1, 2**40]]),
        "m": np.array([True, False]),
    }
    safetensors.numpy.save_file(arrays, file, {"by": "them"})
    found = safe_load(str(file))
    assert {n: t.dtype.name for n, t in found.items()} == {
        n: a.dtype.name for n, a in arrays.items()
    }
    for name, array in arrays.items():
        np.testing.assert_equal(found[name].numpy(), array.astype(found[name].numpy().dtype))
    ours = tmp_path / "ours.safetensors"
    safe_save({n: t for n, t in found.items() if n != "b"}, ours, {"by": "us"})
    back = safetensors.numpy.load_file(ours)
    for name, array in back.items():
        assert array.dtype == arrays[name].dtype
        np.testing.assert_equal(array, arrays[name])
    with safetensors.safe_open(ours, "np") as opened:
        assert opened.metadata() == {"by": "us"}


def test_bfloat16_bits_in_the_file(tmp_path):
    file = tmp_path / "b.safetensors"
    safe_save({"x": Tensor([1.0, -2.5], dtype=dtypes.bfloat16)}, file)
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    bits = np.frombuffer(raw[8 + length :], np.uint16)
    np.testing.assert_equal(bits, np.array([1.0, -2.5], ml_dtypes.bfloat16).view(np.uint16))


def test_files_hold_views_and_pending_values(tmp_path):
    base = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    safe_save({"t": base.T, "s": base[1:, ::2], "p": base + 1}, tmp_path / "v.safetensors")
    found = safe_load(tmp_path / "v.safetensors")
    for name, wanted in {"t": base.T, "s": base[1:, ::2], "p": base + 1}.items():
        np.testing.assert_equal(found[name].numpy(), wanted.numpy())


def test_files_from_bytes():
    raw = safetensors.numpy.save({"x": np.array([1.0, 2.0])})
    assert safe_load(Tensor(raw))["x"].tolist() == [1.0, 2.0]


def test_a_model_comes_back(tmp_path):
    model, other = Model(), Model()
    safe_save(get_state_dict(model), tmp_path / "m.safetensors")
    load_state_dict(other, safe_load(tmp_path / "m.safetensors"))
    for name, tensor in get_state_dict(model).items():
        np.testing.assert_equal(get_state_dict(other)[name].numpy(), tensor.numpy())


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "kept.safetensors"
    safe_save({"x": Tensor([1.0])}, file)
    before = file.read_bytes()

    def broken(parts, path, metadata):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(safetensors, "serialize_file", broken)
    with pytest.raises(OSError, match="disk full"):
        safe_save({"x": Tensor([2.0])}, file)
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["kept.safetensors"]


@pytest.mark.parametrize("raw", [b"", b"text", struct.pack("<Q", 1 << 60), b"\x02" + b"\0" * 7])
def test_damaged_files_are_refused(tmp_path, raw):
    file = tmp_path / "bad.safetensors"
    file.write_bytes(raw)
    with pytest.raises(ArgumentError, match="bad.safetensors: expected a safetensors file"):
        safe_load(file)


def test_a_truncated_file_is_refused(tmp_path):
    file = tmp_path / "cut.safetensors"
    safe_save({"x": Tensor([1.0, 2.0, 3.0])}, file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArgumentError, match="expected a safetensors file"):
        safe_load(file)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for use in (lambda: safe_load("x"), lambda: safe_save({}, tmp_path / "x")):
        with pytest.raises(MissingExtraError, match=r"pip install 'tinyfn\[nn\]'"):
            use()


# *** checkpoints of torch ***


def make_kind(module, name):
    """A stand-in for something of torch that a pickle names."""
    return type(name, (), {"__module__": module, "__qualname__": name})


@pytest.fixture
def torch(monkeypatch):
    """As much of torch as pickling by name needs; what it writes is laid out as torch does."""
    root, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in ("FloatStorage", "LongStorage", "BFloat16Storage", "DoubleStorage"):
        setattr(root, kind, make_kind("torch", kind))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        setattr(utils, name, make_kind("torch._utils", name))
    root._utils = utils
    monkeypatch.setitem(sys.modules, "torch", root)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return root


class Storage:
    def __init__(self, kind, key, array):
        self.kind, self.key, self.array = kind, key, array


class Rebuilt:
    """Pickles as a call of one of torch's makers."""

    def __init__(self, maker, *args):
        self.maker, self.args = maker, args

    def __reduce__(self):
        return self.maker, self.args


def checkpoint(value, storages=(), protocol=2):
    class Writer(pickle.Pickler):
        def persistent_id(self, thing):
            if isinstance(thing, Storage):
                return ("storage", thing.kind, thing.key, "cpu", thing.array.size)
            return None

    described, file = io.BytesIO(), io.BytesIO()
    Writer(described, protocol).dump(value)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", described.getvalue())
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.array.tobytes())
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def describe(instructions):
    """What a checkpoint of these instructions and no storages holds."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", instructions)
    return torch_load(Tensor(file.getvalue()))


def tensor_of(torch, storage, offset, shape, strides):
    make = torch._utils._rebuild_tensor_v2
    return Rebuilt(make, storage, offset, shape, strides, False, OrderedDict())


def test_torch_load(torch, tmp_path):
    numbers = Storage(torch.FloatStorage, "0", np.arange(12, dtype=np.float32))
    whole = Storage(torch.LongStorage, "1", np.array([7, -8]))
    half = Storage(torch.BFloat16Storage, "2", np.array([1.5], ml_dtypes.bfloat16))
    plain = tensor_of(torch, numbers, 0, (3, 4), (4, 1))
    state = OrderedDict(
        plain=plain,
        transposed=tensor_of(torch, numbers, 1, (2, 3), (1, 4)),
        parameter=Rebuilt(torch._utils._rebuild_parameter, plain, True, OrderedDict()),
        scalar=tensor_of(torch, whole, 1, (), ()),
        half=tensor_of(torch, half, 0, (1,), (1,)),
        empty=tensor_of(torch, whole, 0, (0, 2), (2, 1)),
    )
    state._metadata = {"": {"version": 1}}
    file = tmp_path / "model.pt"
    file.write_bytes(checkpoint({"model": state, "step": 3}, [numbers, whole, half]))
    for source in (file, str(file), Tensor(file.read_bytes())):
        found = torch_load(source)
        assert found["step"] == 3
        model, square = found["model"], np.arange(12).reshape(3, 4)
        np.testing.assert_equal(model["plain"].numpy(), square)
        np.testing.assert_equal(model["parameter"].numpy(), square)
        np.testing.assert_equal(model["transposed"].numpy(), square[:, 1:3].T)
        assert model["scalar"].item() == -8 and model["scalar"].dtype is dtypes.int64
        assert model["half"].item() == 1.5 and model["half"].dtype is dtypes.bfloat16
        assert model["empty"].shape == (0, 2)


def test_torch_load_runs_nothing(tmp_path):
    mark = tmp_path / "ran"
    for maker, args in [
        (os.system, (f"touch {mark}",)),
        (eval, (f"open({str(mark)!r}, 'w')",)),
        (getattr, (os, "system")),
    ]:
        for protocol in (2, 4):
            try:
                raw = checkpoint({"x": Rebuilt(maker, *args)}, protocol=protocol)
            except (pickle.PicklingError, TypeError):
                continue
            with pytest.raises(ArgumentError, match="which is not read, since that could run"):
                torch_load(Tensor(raw))
    assert not mark.exists()


def test_torch_load_never_reads_outside_a_storage(torch):
    storage = Storage(torch.FloatStorage, "0", np.zeros(4, np.float32))
    for offset, shape, strides in [
        (0, (5,), (1,)),
        (4, (1,), (1,)),
        (-1, (1,), (1,)),
        (0, (2,), (-1,)),
        (0, (2, 2), (3, 1)),
        (0, (-1,), (1,)),
    ]:
        raw = checkpoint([tensor_of(torch, storage, offset, shape, strides)], [storage])
        with pytest.raises(ArgumentError, match="does not fit its storage of 4 elements"):
            torch_load(Tensor(raw))


def test_torch_load_refuses_other_files(torch, tmp_path):
    with pytest.raises(ArgumentError, match="expected a zip archive as torch.save writes"):
        torch_load(Tensor(b"PK no"))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(ArgumentError, match="expected one data.pkl"):
        torch_load(Tensor(file.getvalue()))
    storage = Storage(torch.FloatStorage, "0", np.zeros(4, np.float32))
    raw = checkpoint([tensor_of(torch, storage, 0, (4,), (1,))])
    with pytest.raises(ArgumentError, match="the checkpoint is damaged"):
        torch_load(Tensor(raw))


@pytest.mark.parametrize(
    "described",
    [
        pytest.param(b"\x80\x02K\x01K\x02R.", id="a call of a number"),
        pytest.param(b"\x80\x02X\x01\x00\x00\x00\xff.", id="text that is no UTF-8"),
        pytest.param(b"\x80\x02K\x01Q.", id="a storage that is a number"),
        pytest.param(b"\x80\x7d.", id="a version to come"),
        pytest.param(b"\x80\x02K\x01", id="no end"),
        pytest.param(b"\x80\x02r\xff\xff\xff\xff.", id="a memo of 4 billion entries"),
    ],
)
def test_torch_load_of_damaged_instructions(described):
    with pytest.raises(ArgumentError, match="the checkpoint is damaged"):
        describe(described)


def test_torch_load_cannot_change_its_makers():
    """BUILD with a pair as state sets attributes: here a default for what a caller leaves out."""
    name = b"ctorch._utils\n_rebuild_tensor_v2\n"
    change = b"N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b"
    assert describe(b"\x80\x02" + name + change + b".").__defaults__ == (1,)
    assert describe(b"\x80\x02" + name + b".").__defaults__ is None


def test_torch_load_refuses_compressed_parts():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02N.")
        archive.writestr("archive/data/0", bytes(1_000_000))
    with pytest.raises(ArgumentError, match="expected parts without compression"):
        torch_load(Tensor(file.getvalue()))


def test_dtypes_that_the_format_lacks(tmp_path):
    class Weak:
        dtype = dtypes.weakint

    with pytest.raises(DTypeError, match="cannot hold dtypes.weakint .tensor x."):
        safe_save({"x": Weak()}, tmp_path / "x")
