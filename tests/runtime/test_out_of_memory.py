"""What there is no memory for is an error of tinyfn's; nothing is lost by it, and work goes on."""

import gc

import pytest

from tinyfn import Tensor, TinyJit, function
from tinyfn.errors import OutOfMemoryError, TinyfnError
from tinyfn.runtime.cpu import allocator


def spread(x, size):
    return (x.reshape(2, 1).expand(2, size) + 1).contiguous()


def of_arena(x):
    return (spread(x, 2**50) * 2).contiguous().sum()


HUGE = {
    "empty": lambda x: Tensor.empty(2**50).sum(),
    "zeros": lambda x: Tensor.zeros(2**50).contiguous(),
    "more bytes than int64 counts": lambda x: Tensor.zeros(2**62).contiguous(),
    "more elements than int64 counts": lambda x: Tensor.zeros(2**40, 2**40).contiguous(),
    "numbers": lambda x: Tensor.arange(2**64),
    "random": lambda x: Tensor.rand(2**50),
    "a kernel": lambda x: spread(x, 2**60),
    "a function": lambda x: function(lambda t: spread(t, 2**60))(x),
    "a precompiled function": lambda x: function(lambda t: spread(t, 2**60), precompile=True)(x),
    "an intermediate value": of_arena,
    "a part of it": lambda x: Tensor.ones(2**65)[2**64 : 2**64 + 2**60].contiguous(),
    "sorted": lambda x: Tensor.ones(2**40, 2**40).sort()[0],
    "a matrix": lambda x: Tensor.ones(2**33, 2**33) @ Tensor.ones(2**33, 2**33),
    "sharded": lambda x: Tensor.zeros(2**50).contiguous().shard(("CPU:0", "CPU:1"), 0),
}


@pytest.mark.parametrize("name", HUGE)
def test_what_is_too_large_leaves_all_as_it_was(name):
    x = Tensor([1.0, 2.0]).realize()
    Tensor.rand(1).realize()  # the state of the generator is there to stay
    gc.collect()
    before = allocator().used_bytes
    large = HUGE[name](x)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match=r"no memory for a buffer of \d+ bytes: \d+ b"):
            large.realize()
    del large
    gc.collect()
    assert allocator().used_bytes == before
    assert (x + 1).tolist() == [2.0, 3.0]


def test_a_recorder_works_after_a_call_that_was_too_large():
    @TinyJit
    def step(x, wide):
        return spread(x, 2**50 if wide else 3).realize()

    x = Tensor([1.0, 2.0]).realize()
    for wide in (True, False, True, False):
        if wide:
            with pytest.raises(MemoryError):
                step(x, wide)
        else:
            assert step(x, wide).tolist() == [[2.0] * 3, [3.0] * 3]


def test_except_memory_error_and_except_tinyfn_error_both_catch_it():
    assert issubclass(OutOfMemoryError, MemoryError)
    assert issubclass(OutOfMemoryError, TinyfnError)
    with pytest.raises(TinyfnError, match="drop tensors that are no longer needed"):
        Tensor.ones(2**60).contiguous().realize()
