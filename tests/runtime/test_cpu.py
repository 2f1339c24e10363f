"""The backend: how work is shared out, and launches through it."""

import numpy as np
import pytest

from tinyfn.device import Device
from tinyfn.errors import KernelError
from tinyfn.helpers import Context
from tinyfn.runtime.cpu import is_python, share


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("step", [1, 6, 64])
@pytest.mark.parametrize("n", [0, 1, 5, 64, 1000, 1 << 24])
def test_shares_are_multiples_of_the_step(n, step, slots, threads):
    with Context(THREADS=threads):
        for nbytes in (0, 1 << 10, 1 << 20, 1 << 30):
            chunk, helpers, _ = share(n, step, slots, nbytes)
            assert chunk >= 1
            pieces = -(-n // step) * slots
            assert helpers in (0, min(threads, pieces) - 1)
            assert chunk % step == 0 or chunk >= n
            if helpers and n >= 64 * 8 * threads:
                assert -(-n // chunk) * slots >= threads


def test_little_work_wakes_nobody_and_keeps_the_gil():
    with Context(THREADS=4):
        assert share(1000, 1, 1, 4000) == (1000, 0, True)
        assert share(1000, 1, 1, 0, 1 << 30)[1:] == (3, False)
        assert share(1 << 24, 16, 2, 1 << 28)[1:] == (3, False)


def test_there_are_no_more_threads_than_pieces():
    with Context(THREADS=4):
        assert share(1, 1, 1, 0, 1 << 19) == (1, 0, True)
        assert share(64, 64, 2, 1 << 28)[1] == 1


@pytest.mark.parametrize("nbytes", [0, 1 << 28])
def test_launch_spans_the_slots(kernels, nbytes):
    marks = np.zeros((3, 1000), np.int64)
    blocks = [(row.ctypes.data, slot + 1) for slot, row in enumerate(marks)]
    with Context(THREADS=3):
        Device["CPU"].launch(kernels["mark"], blocks, 1000, 8, nbytes)
        Device["CPU"].launch(kernels["mark"], np.array(blocks), 1000, 8, nbytes)
    np.testing.assert_array_equal(marks, np.full((3, 1000), 2) * [[1], [2], [3]])


def test_launch_raises_with_the_name(kernels):
    with pytest.raises(KernelError, match="from kernel my_kernel, got 3"):
        Device["CPU"].launch(kernels["fail"], [(3, 0)], 10, 1, 100, name="my_kernel")


def test_python_is_told_from_c():
    assert is_python("def k(buf0: f32ptr, lo: i64, hi: i64):\n    pass\n")
    for text in ("void k(void) {}", "#include <math.h>\nint k() { return 0; }", "x = 1", "#", "\0"):
        assert not is_python(text)
