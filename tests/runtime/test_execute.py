"""The executor: counters, debug lines, programs handed over as binaries."""

import numpy as np
import pytest

from tinyfn import Context, Device, GlobalCounters, Tensor
from tinyfn.uop.ops import KernelInfo, Ops, ProgramInfo, UOp

KERNEL = """
def twice(buf0: f32ptr, buf1: f32ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        x = load_f32(buf1, i)
        store_f32(buf0, i, add_f32(x, x))
"""
C = "void twice(float* a, float* b) { for (int i = 0; i < 4; i++) a[i] = b[i] * 2.0f; }"


def as_program(source, units):
    binary = Device["CPU"].compiler.compile(source)

    def body(target, origin):
        sink = UOp.sink(target.base, origin.base, arg=KernelInfo(name="twice"))
        parts = (sink, UOp(Ops.LINEAR, src=(*sink.src, sink)), UOp(Ops.SOURCE, arg=source))
        info = ProgramInfo(name="twice", global_size=(units, 1, 1), globals=(0, 1))
        return UOp(Ops.PROGRAM, src=(*parts, UOp(Ops.BINARY, arg=binary)), arg=info)

    return body


@pytest.mark.parametrize("source", [KERNEL, C], ids=["python", "c"])
def test_a_program_runs_from_its_binary(source):
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    out = Tensor.custom_kernel(Tensor.invalids(4), x, fxn=as_program(source, 4))[0]
    np.testing.assert_equal(out.numpy(), [2, 4, 6, 8])


def test_a_kernel_program_does_the_units_it_is_asked_for():
    x, target = Tensor([1.0, 2.0, 3.0, 4.0]), Tensor([0.0, 0.0, 0.0, 0.0]).realize()
    out = Tensor.custom_kernel(target, x, fxn=as_program(KERNEL, 2))[0]
    np.testing.assert_equal(out.numpy(), [2, 4, 0, 0])


def test_counters_count_what_ran():
    a, b = Tensor(np.ones((8, 4), np.float32)), Tensor(np.ones((4, 6), np.float32))
    product = a @ b
    GlobalCounters.reset()
    product.realize()
    assert GlobalCounters.kernel_count == 1
    assert GlobalCounters.global_ops == 2 * 8 * 4 * 6
    assert GlobalCounters.global_mem == 4 * (8 * 4 + 4 * 6 + 8 * 6)
    GlobalCounters.reset()
    assert GlobalCounters.kernel_count == GlobalCounters.global_ops == 0


def test_debug_prints_a_line_a_kernel_and_the_source(capsys):
    with Context(DEBUG=1):
        (Tensor([1.0, 2.0]) + 1).realize()
    assert "ran 1 calls, 1 kernels" in capsys.readouterr().out
    with Context(DEBUG=2):
        (Tensor([1.0, 2.0]) + 1).realize()
    line = capsys.readouterr().out
    assert "map_2" in line
    assert "GB/s" in line
    with Context(DEBUG=4):
        (Tensor([1.0, 2.0]) * 3.25 + 1.125).realize()
    assert "def map_2" in capsys.readouterr().out


def test_plain_python_gives_the_same():
    x = Tensor(np.arange(20, dtype=np.float32).reshape(4, 5))
    with Context(NATIVE=0):
        plain = (x * 2 + 1).sum(1).numpy()
    np.testing.assert_array_equal(plain, (x * 2 + 1).sum(1).numpy())


def test_large_outputs_may_lie_at_any_address():
    count = Device["CPU"].target.l3_bytes // 4 + 4096
    if count > 1 << 26:
        pytest.skip("the last level cache is too large for a quick test")
    raw = np.zeros(count * 4 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + 16
    values = raw[start : start + count * 4].view(np.float32)
    target = Tensor.from_blob(values.ctypes.data, (count,))
    target.assign(Tensor.ones(count) * 3 + 1).realize()
    assert (values == 4).all()
    assert not raw[:start].any()
    assert not raw[start + count * 4 :].any()
