"""Memory for buffers: aligned to 64 bytes, kept after use for the next one of its size.

Why keep it: the first touch of fresh pages costs more than most kernels. `np.ndarray.fill` over
fresh and over reused memory, in GB/s (AMD Zen 4, one thread; `python benchmarks/runtime.py memory`
measures the huge pages):

    block      4 kB pages   huge pages   reused
    4 MiB          2.3          34          90
    64 MiB         2.1          10          28
    512 MiB        1.9           8          26

So blocks from 2 MiB on ask for huge pages (`madvise`, where the system has it), and no memory goes
back to the system before more than a quarter of the machine's lies unused.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.errors import ArgumentError, OutOfMemoryError
from tinyfn.helpers import GlobalCounters
from tinyfn.runtime.machine import after_fork, memory_bytes

ALIGNMENT = 64
MAPPED_FROM = 256 << 10  # smaller blocks come from the C heap
HUGE_PAGE = 2 << 20


@dataclass(slots=True)
class Block:
    """A piece of memory; `owner` is the object that gives it back to the system when dropped."""

    address: int
    capacity: int
    nbytes: int
    owner: Any


def size_class(nbytes: int) -> int:
    """The capacity that serves a size: multiples of 64, from 1 KiB on 8 steps a power of two."""
    if nbytes <= 1024:
        return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


def fresh(capacity: int) -> Block:
    """A block of new memory from the system."""
    if capacity < MAPPED_FROM:
        heap = np.empty(capacity + ALIGNMENT, np.uint8)
        start: int = heap.__array_interface__["data"][0]
        return Block(start + -start % ALIGNMENT, capacity, 0, heap)
    huge = capacity >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")
    # room to begin on a huge page: older kernels do not align mappings by themselves
    room = capacity + HUGE_PAGE if huge else capacity
    if hasattr(mmap, "MAP_ANONYMOUS"):
        mapping = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        mapping = mmap.mmap(-1, room)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    if huge:
        skip = -address % HUGE_PAGE
        mapping.madvise(mmap.MADV_HUGEPAGE, _page_floor(skip), capacity)
        address += skip
    return Block(address, capacity, 0, mapping)


def _page_floor(offset: int) -> int:
    return offset - offset % mmap.PAGESIZE


class Allocator:
    """Hands out blocks and takes them back; any thread may call, also while objects are dropped.

    A block may come back in the middle of `allocate` (the collector drops a buffer there), so
    `free` never waits for the lock: it leaves the block in a queue that the next holder empties.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = max(256 << 20, memory_bytes() // 4) if limit is None else limit
        self.used_bytes = 0  # asked for and not given back
        self.cached_bytes = 0  # given back and kept
        self._used: dict[int, Block] = {}
        self._returned: deque[Block] = deque()
        self._free: dict[int, deque[Block]] = {}
        self._by_age: OrderedDict[int, Block] = OrderedDict()
        self._lock = threading.Lock()
        after_fork(self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # the thread that held the old one is not in the child

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` bytes (0 works too), aligned to 64; contents undefined.

        Raises:
            OutOfMemoryError: with all that is in use it would be more than the process may have.
        """
        if nbytes < 0:
            raise ArgumentError(f"expected a size of 0 or more bytes, got {nbytes}")
        capacity = size_class(nbytes)
        with self._lock:
            self._take_returned()
            if self.used_bytes + nbytes > memory_bytes():
                # a system that promises more ends the process when the memory is written to
                why = f"this process may use {memory_bytes()} bytes at most"
                raise OutOfMemoryError(nbytes, self.used_bytes, why)
            block = self._reuse(capacity) or self._fresh(capacity)
            block.nbytes = nbytes
            self._used[block.address] = block
            self._count(nbytes)
        return block.address

    def free(self, address: int) -> None:
        """Take back what `allocate` gave."""
        block = self._used.pop(address, None)
        if block is None:
            raise ArgumentError(f"expected an address that is in use, got {address:#x}")
        self._returned.append(block)
        # whoever holds the lock meanwhile may have looked already: try again while it is free
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._take_returned()
            finally:
                self._lock.release()

    def clear(self) -> None:
        """Give all unused memory back to the system."""
        with self._lock:
            self._take_returned()
            self._trim(0)

    def _count(self, nbytes: int) -> None:
        self.used_bytes += nbytes
        GlobalCounters.mem_used += nbytes

    def _reuse(self, capacity: int) -> Block | None:
        """The block of that capacity that was used last: it may still lie in a cache."""
        blocks = self._free.get(capacity)
        if not blocks:
            return None
        block = blocks.pop()
        del self._by_age[block.address]
        self.cached_bytes -= capacity
        return block

    def _fresh(self, capacity: int) -> Block:
        self._trim(max(0, memory_bytes() - self.used_bytes - capacity))
        try:
            return fresh(capacity)
        except (MemoryError, OSError):
            self._trim(0)
        try:
            return fresh(capacity)
        except (MemoryError, OSError) as error:
            why = "the system gives no more"
            raise OutOfMemoryError(capacity, self.used_bytes, why) from error

    def _take_returned(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._count(-block.nbytes)
            self._free.setdefault(block.capacity, deque()).append(block)
            self._by_age[block.address] = block
            self.cached_bytes += block.capacity
        if self.cached_bytes > self.limit:
            self._trim(self.limit)

    def _trim(self, limit: int) -> None:
        """Let go of unused blocks, the oldest first, until at most `limit` bytes are kept."""
        while self.cached_bytes > limit:
            _, block = self._by_age.popitem(last=False)
            self._free[block.capacity].popleft()
            self.cached_bytes -= block.capacity
