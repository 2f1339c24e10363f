"""Device names, buffers, views, and the lifetime of their memory."""

import gc
import threading
import weakref

import numpy as np
import pytest

from tinyfn.device import Buffer, Device, DeviceRegistry
from tinyfn.dtype import dtypes, storage_dtype
from tinyfn.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from tinyfn.helpers import GlobalCounters
from tinyfn.runtime import cpu


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        *(("CPU", "CPU"), ("CPU:0", "CPU"), ("cpu", "CPU"), ("cpu:1", "CPU:1")),
        *(("CPU:63", "CPU:63"), ("cpu:007", "CPU:7"), (None, None)),
        *((("CPU:0", "cpu:1"), ("CPU", "CPU:1")), (["CPU:2"], ("CPU:2",))),
    ],
)
def test_canonical_names(given, canonical):
    assert Device.canonicalize(given) == canonical


@pytest.mark.parametrize(
    "name", ["", "GPU", "CPU:", "CPU:-1", "CPU:x", "CPU:1:2", " CPU", "CPU:64", "CPU:999999", (), 3]
)
def test_unknown_names_are_sentences(name):
    with pytest.raises(DeviceError, match=r"^expected .*CPU.*"):
        Device.canonicalize(name)


def test_a_name_inside_a_tuple_is_checked():
    with pytest.raises(DeviceError, match="got 'TPU'"):
        Device.canonicalize(("CPU", "TPU"))
    with pytest.raises(DeviceError, match="got 1"):
        Device.canonicalize(("CPU", 1))


def test_one_backend_a_slot():
    assert Device["CPU"] is Device["cpu:0"]
    assert Device["CPU:1"] is not Device["CPU"]
    assert Device["cpu:1"].name == "CPU:1"


def test_default_can_be_set(monkeypatch):
    assert Device.DEFAULT == "CPU"
    monkeypatch.setattr(Device, "_default", "CPU")
    Device.DEFAULT = "cpu:3"
    assert Device.DEFAULT == "CPU:3"
    with pytest.raises(DeviceError, match="got 'CUDA'"):
        Device.DEFAULT = "CUDA"


def test_without_a_backend_the_message_says_so():
    with pytest.raises(DeviceError, match="import tinyfn"):
        DeviceRegistry().canonicalize("CPU")


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_dtype_goes_in_and_out(dtype):
    kind = storage_dtype(dtype)
    values = np.random.default_rng(0).integers(0, 2, 37 * dtype.itemsize, np.uint8).view(kind)
    buffer = Buffer("CPU", 37, dtype)
    assert not buffer.is_allocated
    assert buffer.nbytes == values.nbytes
    assert buffer.copyin(values) is buffer
    assert buffer.is_allocated
    assert buffer.address % 64 == 0
    np.testing.assert_array_equal(buffer.copyout(), values)
    assert buffer.array().dtype == kind
    assert np.shares_memory(buffer.array(), buffer.array())
    assert not np.shares_memory(buffer.copyout(), buffer.array())


def test_bytes_and_strided_arrays_go_in():
    buffer = Buffer("CPU", 4, dtypes.int16)
    buffer.copyin(b"\1\0\2\0\3\0\4\0")
    assert buffer.copyout().tolist() == [1, 2, 3, 4]
    buffer.copyin(np.arange(8, dtype=np.int16)[::2])
    assert buffer.copyout().tolist() == [0, 2, 4, 6]
    buffer.copyin(memoryview(np.arange(8, dtype=np.int16))[1::2])
    assert buffer.copyout().tolist() == [1, 3, 5, 7]
    assert Buffer("CPU", 1, dtypes.int16).copyin(np.array(7, np.int16)).copyout().tolist() == [7]


def test_what_does_not_fit_is_refused():
    buffer = Buffer("CPU", 4, dtypes.int16)
    with pytest.raises(ShapeError, match=r"expected 8 bytes \(4 of dtypes.int16\), got 6"):
        buffer.copyin(b"123456")
    with pytest.raises(DTypeError, match=r"array of int16 for a buffer of dtypes.int16, got int32"):
        buffer.copyin(np.zeros(4, np.int32))
    with pytest.raises(ArgumentError, match="0 or more elements, got -3"):
        Buffer("CPU", -3, dtypes.int16)
    with pytest.raises(MemoryError, match="smaller shape"):
        Buffer("CPU", 1 << 60, dtypes.int16).ensure()


def test_empty_buffers_work():
    buffer = Buffer("CPU", 0, dtypes.float32)
    assert buffer.copyin(b"").copyout().shape == (0,)
    assert buffer.address != 0
    assert buffer.array().shape == (0,)


def test_views_share_and_keep_alive():
    base = Buffer("CPU", 100, dtypes.uint8)
    view = Buffer.view_of(base, 64, 4, dtypes.float32)
    inner = Buffer.view_of(view, 4, 2, dtypes.int32)
    assert not view.is_allocated
    inner.copyin(np.array([7, 8], np.int32))
    assert base.is_allocated
    assert inner.address == base.address + 68
    assert base.array()[68:76].view(np.int32).tolist() == [7, 8]
    gc.collect()
    used = cpu.allocator().used_bytes
    del base, view
    gc.collect()
    assert cpu.allocator().used_bytes == used
    assert inner.copyout().tolist() == [7, 8]
    del inner
    gc.collect()
    assert cpu.allocator().used_bytes == used - 100


@pytest.mark.parametrize(("offset", "size"), [(-4, 1), (0, 26), (97, 1), (400, 0)])
def test_a_view_stays_inside(offset, size):
    with pytest.raises(ShapeError, match="a view inside a buffer of 100 bytes"):
        Buffer.view_of(Buffer("CPU", 100, dtypes.uint8), offset, size, dtypes.float32)


def test_memory_is_counted_and_given_back():
    before = GlobalCounters.mem_used
    buffer = Buffer("CPU:2", 1000, dtypes.float64)
    assert GlobalCounters.mem_used == before
    address = buffer.address
    assert GlobalCounters.mem_used == before + 8000
    array = buffer.array()
    del buffer
    assert GlobalCounters.mem_used == before + 8000, "an array keeps the memory"
    del array
    assert GlobalCounters.mem_used == before
    assert Buffer("CPU", 1000, dtypes.float64).address == address


def test_memory_of_somebody_else():
    owned = np.arange(10, dtype=np.int32)
    gone = weakref.ref(owned)
    buffer = Buffer.from_address(owned.ctypes.data, "CPU", 10, dtypes.int32, owner=owned)
    del owned
    gc.collect()
    buffer.array()[3] = 33
    assert gone()[3] == 33
    view = Buffer.view_of(buffer, 12, 1, dtypes.int32)
    del buffer
    assert view.copyout().tolist() == [33]
    del view
    gc.collect()
    assert gone() is None
    with pytest.raises(ArgumentError, match="an address for 4 bytes, got 0"):
        Buffer.from_address(0, "CPU", 1, dtypes.int32)


def test_threads_that_allocate_one_buffer_at_once_agree():
    for _ in range(50):
        buffer, found = Buffer("CPU", 1 << 16, dtypes.uint8), []
        start = threading.Barrier(4)

        def ask(buffer=buffer, found=found, start=start):
            start.wait()
            found.append(buffer.address)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1
