"""Programs that come as binaries: C with plain arguments, kernels with a block of arguments."""

from __future__ import annotations

import inspect
import shutil

import numpy as np
import pytest

from tinyfn.device import Buffer, Device
from tinyfn.dtype import dtypes
from tinyfn.errors import CompileError, KernelError
from tinyfn.runtime import native

KERNEL = """
define i32 @twice(ptr %args, i64 %lo, i64 %hi) {
entry:
  %p.in = getelementptr i64, ptr %args, i64 1
  %p.status = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %args
  %in = load ptr, ptr %p.in
  %status = load i32, ptr %p.status
  br label %head
head:
  %i = phi i64 [%lo, %entry], [%i.1, %body]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %f = getelementptr float, ptr %in, i64 %i
  %t = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %f
  %y = fadd float %x, %x
  store float %y, ptr %t
  %i.1 = add i64 %i, 1
  br label %head
done:
  ret i32 %status
}
"""
needs_cc = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


@pytest.fixture
def pair():
    source = Buffer("CPU", 4, dtypes.float32).copyin(np.array([1, 2, 3, 4], np.float32))
    target = Buffer("CPU", 4, dtypes.float32).copyin(np.zeros(4, np.float32))
    return target, source


def test_an_object_gets_a_block_of_arguments(pair):
    target, source = pair
    program = Device["CPU"].load("twice", native.compile_ir(KERNEL))
    program(target.address, source.address, 0, 1, 4)
    assert target.copyout().tolist() == [0, 4, 6, 8]
    with pytest.raises(KernelError, match="expected status 0 from kernel twice, got 5"):
        program(target.address, source.address, 5, 0, 1)
    assert Device["CPU:1"].load("twice", native.compile_ir(KERNEL)) is program


@needs_cc
def test_c_gets_plain_arguments(pair):
    target, source = pair
    text = (
        "void k(float* restrict a, float* restrict b, int n, long m) "
        "{ for (int i = 0; i < n; i++) a[i] = b[i] * 2.0f + m; }"
    )
    binary = Device["CPU"].compiler.compile(text)
    assert isinstance(binary, bytes)
    Device["CPU"].run_binary(binary, "k", [target, source], [3, 10])
    assert target.copyout().tolist() == [12, 14, 16, 0]
    other = Device["CPU"].compiler.compile(text.replace("2.0f", "3.0f"))
    Device["CPU"].run_binary(other, "k", [target, source], [3, 10])
    assert target.copyout().tolist() == [13, 16, 19, 0]


def doubled(buf0: f32ptr, buf1: f32ptr, lo: i64, hi: i64):  # noqa: F821 (names of simd.py)
    for i in range(lo, hi):
        x = load_f32(buf1, i)  # noqa: F821
        y = add_f32(x, x)  # noqa: F821
        store_f32(buf0, i, y)  # noqa: F821


@pytest.mark.parametrize("as_text", [True, False])
def test_a_kernel_in_python(pair, as_text):
    target, source = pair
    given = inspect.getsource(doubled) if as_text else doubled
    binary = Device["CPU"].compiler.compile(given)
    Device["CPU"].load("doubled", binary)(target.address, source.address, 1, 4)
    assert target.copyout().tolist() == [0, 4, 6, 8]


@needs_cc
def test_a_missing_function_is_a_sentence():
    for binary in (Device["CPU"].compiler.compile("void k(void) {}"), native.compile_ir(KERNEL)):
        with pytest.raises(CompileError, match="a binary with a function other, found none"):
            Device["CPU"].load("other", binary)


def test_what_is_no_program_is_refused():
    with pytest.raises(CompileError, match="expected a shared object .* got 7 bytes"):
        Device["CPU"].load("k", b"garbage")
    for source in ("", "  ", None, 3):
        with pytest.raises(CompileError, match="expected the text of a C program"):
            Device["CPU"].compiler.compile(source)
