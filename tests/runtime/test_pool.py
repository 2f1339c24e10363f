"""The pool: every unit runs once, statuses raise, helpers sleep, forks and threads are safe."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tinyfn.errors import KernelError
from tinyfn.runtime import pool_ir
from tinyfn.runtime.pool import Launch, Pool, Table

needs_threads = pytest.mark.skipif(not pool_ir.HAS_FUTEX, reason="one thread on this platform")


@pytest.fixture
def make_pool():
    """Pools that are closed after the test."""
    pools = []

    def make(**kwargs):
        pools.append(Pool(**kwargs))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def address(array):
    return array.__array_interface__["data"][0]


def marks_of(slots, n):
    """A row of counters a slot, with untouched room on both sides."""
    return np.zeros((slots, n + 16), np.int64)


def mark_launch(kernels, marks, n, chunk, helpers):
    blocks = [(address(row) + 64, slot + 1) for slot, row in enumerate(marks)]
    return Launch(kernels["mark"], blocks, n, chunk, helpers, "mark")


def expect_marks(marks, n, times=1):
    wanted = np.zeros_like(marks)
    wanted[:, 8 : n + 8] = np.arange(1, len(marks) + 1)[:, None] * times
    np.testing.assert_array_equal(marks, wanted)


@pytest.mark.parametrize("spins", [0, 50, 2000])
@pytest.mark.parametrize("helpers", [0, 1, 3, 7])
def test_every_unit_of_every_slot_runs_once(kernels, make_pool, helpers, spins):
    pool = make_pool(spins=spins)
    for slots in (1, 2, 5):
        for n in (0, 1, 7, 64, 1000):
            for chunk in (1, 3, 64, 5000):
                marks = marks_of(slots, n)
                pool.run(Table([mark_launch(kernels, marks, n, chunk, helpers)]))
                expect_marks(marks, n)


def test_the_most_helpers_and_more_are_accepted(kernels, make_pool):
    pool = make_pool()
    for helpers in (pool_ir.MAX_HELPERS, pool_ir.MAX_HELPERS + 36):
        marks = marks_of(3, 500)
        pool.run(Table([mark_launch(kernels, marks, 500, 1, helpers)]))
        expect_marks(marks, 500)


def test_launch_takes_one_pointer_a_slot(kernels, make_pool):
    marks = marks_of(2, 100)
    arguments = np.array([[address(row) + 64, slot + 1] for slot, row in enumerate(marks)])
    blocks = np.array([address(row) for row in arguments])
    make_pool().launch(kernels["mark"], address(blocks), 2, 100, 10, helpers=1)
    expect_marks(marks, 100)


@pytest.mark.parametrize("keep_gil", [True, False])
def test_a_table_runs_in_order_and_again_after_a_patch(kernels, make_pool, keep_gil):
    pool, n = make_pool(), 300
    first, second = marks_of(1, n), marks_of(1, n)
    table = Table([mark_launch(kernels, first, n, 16, h) for h in (0, 1, 3)])
    pool.run(table, keep_gil=keep_gil)
    expect_marks(first, n, times=3)
    for launch in range(3):
        table.words[table.argument(launch, 0, 0)] = address(second) + 64
        table.words[table.extent(launch)] = n - 100
    pool.run(table, keep_gil=keep_gil)
    expect_marks(first, n, times=3)
    expect_marks(second[:, : n - 100 + 16], n - 100, times=3)
    pool.run(Table([]))


def test_a_status_raises_and_names_the_kernel(kernels, make_pool):
    pool = make_pool()
    counter = np.zeros(1, np.int64)
    count = Launch(kernels["count"], [(address(counter),)], 100, 10, 1, "count")
    fail = Launch(kernels["fail"], [(4, 55)], 100, 10, 1, "the_failing_one")
    with pytest.raises(KernelError, match=r"expected status 0 from kernel the_failing_one, got 4"):
        pool.run(Table([count, fail, count]))
    assert counter[0] == 100, "what comes after the failure does not run"
    fails_twice = Launch(kernels["fail"], [(4, 55), (3, 5)], 100, 10, 1, "both")
    with pytest.raises(KernelError, match=r"got 7"):
        pool.run(Table([fails_twice]))
    with pytest.raises(KernelError, match=r"got 7"):
        pool.run(Table([fails_twice]), helpers=0)
    pool.run(Table([count]))
    assert counter[0] == 200, "the pool works on after a failure"


@pytest.mark.parametrize(("helpers", "spins"), [(1, 2000), (3, 0), (3, 50)])
def test_several_threads_launch_at_once(kernels, make_pool, helpers, spins):
    pool, rounds = make_pool(spins=spins), 400
    counters = np.zeros((4, 8), np.int64)

    def caller(number):
        block = [(address(counters[number]),)]
        launch = Launch(kernels["count"], block, 90 + number, 7, helpers, "count")
        table = Table([launch] * 5)
        for turn in range(rounds):
            pool.run(table, keep_gil=bool(turn % 2))

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(caller, range(4)))
    assert list(counters[:, 0]) == [rounds * 5 * (90 + i) for i in range(4)]


def test_pools_come_and_go_under_load(kernels):
    for turn in range(12):
        pool = Pool(spins=(0, 20, 2000)[turn % 3])
        marks = marks_of(2, 200)
        table = Table([mark_launch(kernels, marks, 200, 3, 1 + turn % 4)] * 20)
        pool.run(table)
        expect_marks(marks, 200, times=20)
        if turn % 2:
            time.sleep(0.002)
        pool.close()
        assert not [t for t in threading.enumerate() if t in pool._helpers]
        pool.run(table)
        expect_marks(marks, 200, times=40)


@needs_threads
def test_helpers_share_the_work_and_sleep_when_idle(kernels, make_pool):
    pool = make_pool()
    pool.run(Table([Launch(kernels["busy"], [()], 1 << 20, 1 << 12, 1)]))
    assert [t.name for t in pool._helpers] == ["tinyfn-helper-1"]
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - before < 0.02


@needs_threads
@pytest.mark.parametrize("spins", [0, 2000])
def test_sleeping_helpers_are_woken(kernels, make_pool, spins):
    pool = make_pool(spins=spins)
    for pause in (0.0, 0.0, 0.03, 0.03):
        time.sleep(pause)
        counter = np.zeros(1, np.int64)
        block = [(address(counter), 1 << 34)]
        pool.run(Table([Launch(kernels["meet"], block, 2, 1, 1)]))


def test_the_gil_is_free_during_a_long_run(kernels, make_pool):
    pool, ticks, done = make_pool(), [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.perf_counter()
    pool.run(Table([Launch(kernels["busy"], [()], 1 << 27, 1 << 27)]), keep_gil=False)
    ended = time.perf_counter()
    done.set()
    thread.join()
    assert sum(started < tick < ended for tick in ticks) >= 3


def _child(kernels_mark, queue):
    """In a forked child: the pool of the parent starts over."""
    marks = np.zeros((1, 516), np.int64)
    launch = Launch(kernels_mark, [(address(marks) + 64, 1)], 500, 10, 2, "mark")
    POOL.run(Table([launch] * 3))
    queue.put((int(marks[0, 8:508].min()), int(marks.sum()), len(POOL._helpers)))


@needs_threads
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_forked_child_has_a_pool_of_its_own(kernels):
    global POOL
    POOL = Pool()
    marks = marks_of(1, 500)
    table = Table([mark_launch(kernels, marks, 500, 10, 2)])
    POOL.run(table)
    stop = threading.Event()

    def keep_launching():
        while not stop.is_set():
            POOL.run(table)

    other = threading.Thread(target=keep_launching)
    other.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(5):
            queue = context.SimpleQueue()
            child = context.Process(target=_child, args=(kernels["mark"], queue))
            child.start()
            assert queue.get() == (3, 1500, 2)
            child.join(10)
            assert child.exitcode == 0
    finally:
        stop.set()
        other.join(10)
        POOL.close()


POOL = None

AT_EXIT = """
import threading
import tinyfn
assert threading.active_count() == 1, "threads were started by the import"
from tinyfn.device import Buffer
from tinyfn.dtype import dtypes
from tinyfn.runtime import copy
from tinyfn.runtime.pool import shared_pool
import numpy as np
pool = shared_pool()
assert threading.active_count() == 1, "threads were started before a launch wanted them"
a, b = np.ones(1 << 21, np.uint8), np.zeros(1 << 21, np.uint8)
copy.move(b.ctypes.data, a.ctypes.data, 1 << 21)
assert b.all()
left = [Buffer("CPU", 1 << 20, dtypes.float32).ensure() for _ in range(3)]
left.append(left)
"""


@needs_threads
def test_no_thread_before_the_first_launch_and_a_clean_end():
    environment = {**os.environ, "THREADS": "3"}
    command = [sys.executable, "-c", AT_EXIT]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
