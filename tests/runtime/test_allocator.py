"""The allocator: aligned, reused, bounded, counted, and clear about what it cannot give."""

import ctypes
import gc
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tinyfn.errors import ArgumentError, OutOfMemoryError
from tinyfn.helpers import GlobalCounters
from tinyfn.runtime.allocator import MAPPED_FROM, Allocator, size_class

SIZES = [0, 1, 63, 64, 65, 1000, 1025, 4096, 70_000, MAPPED_FROM, (2 << 20) + 1, 5 << 20]


def test_size_classes_cover_and_waste_little():
    for size in [*range(3000), *(1 << k for k in range(12, 40)), *(3**k for k in range(1, 25))]:
        capacity = size_class(size)
        assert capacity >= size
        assert capacity % 64 == 0
        assert size <= 1024 or capacity <= size * 1.125 + 64
        assert size_class(capacity) == capacity


@pytest.mark.parametrize("size", SIZES)
def test_memory_is_aligned_writable_and_reused(size):
    allocator = Allocator()
    first = allocator.allocate(size)
    assert first % 64 == 0
    ctypes.memset(first, 0xA5, size_class(size))
    second = allocator.allocate(size)
    assert abs(second - first) >= size_class(size)
    allocator.free(first)
    assert allocator.allocate(size) == first
    assert ctypes.string_at(first, size) == b"\xa5" * size


def test_blocks_never_overlap_and_counts_are_right():
    allocator, generator, live = Allocator(limit=1 << 20), random.Random(1), {}
    before = GlobalCounters.mem_used
    for _ in range(3000):
        if live and generator.random() < 0.5:
            address = generator.choice(list(live))
            size, canary = live.pop(address)
            assert ctypes.string_at(address, size) == bytes([canary]) * size
            allocator.free(address)
        else:
            size = generator.choice([0, 8, 100, 5000, 40_000, 300_000])
            address, canary = allocator.allocate(size), generator.randrange(256)
            assert address not in live
            ctypes.memset(address, canary, size)
            live[address] = size, canary
        assert allocator.used_bytes == sum(size for size, _ in live.values())
        assert GlobalCounters.mem_used - before == allocator.used_bytes
        assert allocator.cached_bytes <= 1 << 20
    for address in live:
        allocator.free(address)
    assert allocator.used_bytes == 0
    allocator.clear()
    assert allocator.cached_bytes == 0


def test_the_oldest_unused_memory_goes_first():
    allocator = Allocator(limit=3 * MAPPED_FROM)
    blocks = [allocator.allocate(MAPPED_FROM) for _ in range(4)]
    for block in blocks:
        allocator.free(block)
    assert allocator.cached_bytes == 3 * MAPPED_FROM
    assert [allocator.allocate(MAPPED_FROM) for _ in range(3)] == blocks[:0:-1]


def test_refusals_are_sentences():
    allocator = Allocator()
    with pytest.raises(ArgumentError, match="expected a size of 0 or more bytes, got -1"):
        allocator.allocate(-1)
    for size in (1 << 62, 1 << 80):
        with pytest.raises(OutOfMemoryError, match=rf"of {size} bytes: 0 .*use a smaller shape"):
            allocator.allocate(size)
    with pytest.raises(ArgumentError, match="an address that is in use"):
        allocator.free(64)
    assert allocator.used_bytes == 0


def test_a_failing_system_gets_the_cache_back_first(monkeypatch):
    allocator = Allocator()
    allocator.free(allocator.allocate(1 << 20))

    def no_memory(capacity):
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr("tinyfn.runtime.allocator.fresh", no_memory)
    with pytest.raises(MemoryError, match="no memory for a buffer of 4096 bytes: 0 .*system"):
        allocator.allocate(4096)
    assert allocator.cached_bytes == 0
    assert allocator.used_bytes == 0


def test_what_is_in_use_and_kept_counts(monkeypatch):
    monkeypatch.setattr("tinyfn.runtime.allocator.memory_bytes", lambda: 10 << 20)
    allocator = Allocator()
    held = allocator.allocate(4 << 20)
    allocator.free(allocator.allocate(5 << 20))
    with pytest.raises(OutOfMemoryError, match=f"{7 << 20} bytes: {4 << 20} bytes are in use"):
        allocator.allocate(7 << 20)
    assert (allocator.used_bytes, allocator.cached_bytes) == (4 << 20, 5 << 20)
    other = allocator.allocate(3 << 20)  # together with what is kept it would be too much
    assert (allocator.used_bytes, allocator.cached_bytes) == (7 << 20, 0)
    for address in (held, other):
        allocator.free(address)
    allocator.free(allocator.allocate(10 << 20))
    assert allocator.used_bytes == 0


def test_threads_share_an_allocator():
    allocator = Allocator(limit=1 << 22)

    def worker(seed):
        generator = random.Random(seed)
        live = []
        for _ in range(1500):
            size = generator.choice([8, 100, 5000])
            address = allocator.allocate(size)
            ctypes.memset(address, seed, size)
            live.append((address, size))
            if len(live) > 20:
                address, size = live.pop(generator.randrange(len(live)))
                assert ctypes.string_at(address, size) == bytes([seed]) * size
                allocator.free(address)
        for address, _ in live:
            allocator.free(address)

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(worker, range(4)))
    assert allocator.used_bytes == 0


def test_the_collector_may_free_inside_of_allocate():
    allocator = Allocator()

    class Holder:
        def __init__(self):
            self.address, self.me = allocator.allocate(100), self

        def __del__(self):
            allocator.free(self.address)

    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(500):
            Holder()
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert allocator.used_bytes == 0
