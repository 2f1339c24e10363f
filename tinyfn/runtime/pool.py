"""The threads of the process: launch kernels over slots and chunks, one at a time or by the table.

Helpers are Python threads that stay inside native code (`pool_ir`), without the GIL. They start
with the first launch that wants one, spin for some microseconds after work and then sleep; an idle
pool uses no CPU. One launch has the pool at a time: who finds it busy works alone, so launches
from several threads, and launches inside of launches, never wait for each other. A forked child
starts with a pool of its own. Where there is no futex (not Linux, or neither x86-64 nor aarch64)
every launch runs on its caller.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.errors import KernelError
from tinyfn.runtime import native, pool_ir
from tinyfn.runtime.machine import after_fork, thread_count

SPINS = 2000  # pauses: some 30 microseconds on Zen, twice that on recent Intel
POINTER, WORD, STATUS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
LAUNCH = (STATUS, POINTER, POINTER, POINTER, WORD, WORD, WORD, WORD)
RUN = (WORD, POINTER, POINTER, WORD, WORD)
HEAD_WORDS = 2


class Native:
    """The loaded native half; the addresses are valid while this object lives.

    `keeping` functions hold the GIL while they run: for work of microseconds, because taking the
    GIL back costs 250 microseconds while another Python thread computes. `releasing` ones let
    other Python threads run meanwhile.
    """

    def __init__(self) -> None:
        self.library = native.load(pool_ir.TEXT, pool_ir.EXPORTS, pool_ir.IMPORTS)
        self.launch = self._both("launch", LAUNCH)
        self.run = self._both("run", RUN)
        # a whole table (the address of its head) on this thread, with the GIL
        self.alone = ctypes.PYFUNCTYPE(WORD, POINTER)(self.library["alone"])
        self.helper = ctypes.CFUNCTYPE(None, POINTER, WORD)(self.library["helper"])
        self.stop = ctypes.CFUNCTYPE(None, POINTER)(self.library["stop"])

    def _both(self, name: str, signature: tuple[Any, ...]) -> tuple[Any, Any]:
        releasing = ctypes.CFUNCTYPE(*signature)(self.library[name])
        keeping = ctypes.PYFUNCTYPE(*signature)(self.library[name])
        return releasing, keeping


@functools.cache
def native_half() -> Native:
    """The native half, loaded once."""
    return Native()


@dataclass(frozen=True)
class Launch:
    """One kernel over [0, n) of each slot, a block of arguments (addresses, ints) a slot."""

    function: int
    blocks: Sequence[Sequence[int]]
    n: int
    chunk: int  # units that one thread takes at a time; a multiple of the kernel's step
    helpers: int = 0  # threads that may join the caller; 0: the caller works alone
    name: str = "kernel"


class Table:
    """A packed list of launches, for `Pool.run`: run it, patch it, run it again.

    `words` holds, as int64, first the rows (function, argument table, slots, n, chunk, helpers) of
    all launches, then for each launch a pointer a slot to that slot's arguments, and the arguments;
    at the end the address of the rows and their number.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.names = tuple(launch.name for launch in launches)
        self.count = len(launches)
        self.helpers = max((launch.helpers for launch in launches), default=0)
        rows = self.count * pool_ir.ENTRY_WORDS
        sizes = [len(one.blocks) + sum(map(len, one.blocks)) for one in launches]
        self.words = np.zeros(rows + sum(sizes) + HEAD_WORDS, np.int64)
        self.address: int = self.words.__array_interface__["data"][0]
        self.head = self.address + 8 * (rows + sum(sizes))
        self.words[-HEAD_WORDS:] = self.address, self.count
        self._starts: list[list[int]] = []
        place = rows
        for number, launch in enumerate(launches):
            place = self._pack(number, launch, place)

    def _pack(self, number: int, launch: Launch, place: int) -> int:
        row, table = number * pool_ir.ENTRY_WORDS, place
        place += len(launch.blocks)
        starts = []
        for slot, block in enumerate(launch.blocks):
            self.words[table + slot] = self.address + 8 * place
            self.words[place : place + len(block)] = block
            starts.append(place)
            place += len(block)
        self.words[row : row + pool_ir.ENTRY_WORDS] = (
            launch.function,
            self.address + 8 * table,
            len(launch.blocks),
            launch.n,
            launch.chunk,
            launch.helpers,
        )
        self._starts.append(starts)
        return place

    def argument(self, launch: int, slot: int, number: int) -> int:
        """Where in `words` an argument stands: `table.words[place] = address` replaces it."""
        return self._starts[launch][slot] + number

    def extent(self, launch: int) -> int:
        """Where in `words` a launch's n stands; its chunk and helpers follow it."""
        return launch * pool_ir.ENTRY_WORDS + 3


class Pool:
    """Helpers parked in native code, and the memory they share with whoever launches."""

    def __init__(self, spins: int = SPINS) -> None:
        self._spins = spins
        self._native = native_half()
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        """Shared memory and a lock of its own, no helpers: at first, and in a forked child."""
        self._memory = np.zeros(pool_ir.SHARED_BYTES + 64, np.uint8)
        start: int = self._memory.__array_interface__["data"][0]
        self._shared = start + -start % 64
        WORD.from_address(self._shared + pool_ir.SPINS).value = self._spins
        self._lock = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._closed = False

    def launch(
        self,
        function: int,
        blocks: int,
        slots: int,
        n: int,
        chunk: int,
        helpers: int = 0,
        keep_gil: bool = True,
        name: str = "kernel",
    ) -> None:
        """Run a kernel over [0, n) of every slot; `blocks` is the address of a pointer a slot."""
        call, lock = self._native.launch[keep_gil], self._lock
        if helpers > 0 and lock.acquire(blocking=False):
            try:
                ready = self._ready(helpers)
                status = call(self._shared, function, blocks, slots, n, chunk, ready)
            finally:
                lock.release()
        else:
            status = call(self._shared, function, blocks, slots, n, chunk, 0)
        if status:
            raise failure(name, status)

    def run(self, table: Table, helpers: int | None = None, keep_gil: bool = False) -> None:
        """Run all launches of a table in order, with at most `helpers` of them to help each."""
        call, lock = self._native.run[keep_gil], self._lock
        wanted = table.helpers if helpers is None else min(helpers, table.helpers)
        if wanted > 0 and lock.acquire(blocking=False):
            try:
                outcome = call(self._shared, table.address, table.count, self._ready(wanted))
            finally:
                lock.release()
        else:
            outcome = call(self._shared, table.address, table.count, 0)
        if outcome:
            raise failed(table, outcome)

    def _ready(self, wanted: int) -> int:
        """How many of the wanted helpers there are; starts what is missing. Holds the lock."""
        if not pool_ir.HAS_FUTEX or self._closed:
            return 0
        wanted = min(wanted, pool_ir.MAX_HELPERS)
        try:
            while len(self._helpers) < wanted:
                self._start(len(self._helpers))
        except RuntimeError:  # no thread to be had: at exit, or at the system's limit
            return len(self._helpers)
        return wanted

    def _start(self, index: int) -> None:
        helper = threading.Thread(
            target=self._help,
            args=(self._shared, index),
            name=f"tinyfn-helper-{index + 1}",
            daemon=True,
        )
        helper.start()
        self._helpers.append(helper)

    def _help(self, shared: int, index: int) -> None:
        """What a helper thread runs; its reference to the pool keeps the shared memory alive."""
        self._native.helper(shared, index)

    def close(self) -> None:
        """Let the helpers leave; from now on every launch runs on its caller."""
        if not self._lock.acquire(timeout=1.0):
            return  # somebody's launch is still running: at exit, nothing waits for it
        try:
            self._closed = True
            if self._helpers:
                self._native.stop(self._shared)
            for helper in self._helpers:
                helper.join(timeout=1.0)
            self._helpers = []
        finally:
            self._lock.release()


def failed(table: Table, outcome: int) -> KernelError:
    """The error for a table that did not return 0."""
    return failure(table.names[outcome >> 32], outcome & 0xFFFFFFFF)


def failure(name: str, status: int) -> KernelError:
    """The error for a kernel that did not return 0."""
    return KernelError(
        f"expected status 0 from kernel {name}, got {status}; this is an error inside tinyfn, "
        "please report it with the kernel's source (DEBUG=4 prints it)"
    )


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: list[Pool] = []
_making = threading.Lock()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _reset_all() -> None:
    for pool in list(_pools):
        pool._reset()


atexit.register(_close_all)
after_fork(_reset_all)


def shared_pool() -> Pool:
    """The pool of the process; it starts threads when a launch first wants helpers."""
    return _shared[0] if _shared else _make_shared()


def _make_shared() -> Pool:
    with _making:
        if not _shared:
            _shared.append(Pool())
    return _shared[0]


def helper_count() -> int:
    """How many threads may help a caller now: the flag THREADS, or what the machine offers."""
    return thread_count() - 1
