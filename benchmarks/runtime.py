"""What the runtime costs by itself: launches, tables of launches, copies, fills, fresh memory.

Run: python benchmarks/runtime.py [launch | copy | memory]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from tinyfn.device import Buffer, Device
from tinyfn.dtype import dtypes
from tinyfn.helpers import Context
from tinyfn.runtime import copy, cpu, native
from tinyfn.runtime.allocator import fresh
from tinyfn.runtime.pool import Launch, Table, helper_count, shared_pool

NOOP = "define i32 @noop(ptr %args, i64 %lo, i64 %hi) {\n  ret i32 0\n}\n"


def seconds(action: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The least and the median time of a call, over 9 runs of some rounds."""
    times = []
    for _ in range(9):
        started = time.perf_counter()
        for _ in range(rounds):
            action()
        times.append((time.perf_counter() - started) / rounds)
    return min(times), sorted(times)[4]


def launches() -> None:
    """Kernels that do nothing."""
    library = native.load(NOOP, ("noop",), ())
    kernel, pool, backend = library["noop"], shared_pool(), Device["CPU"]
    words = cpu.pack([(1, 2, 3)])
    blocks, _ = words.buffer_info()
    table = Table([Launch(kernel, [(1, 2, 3)], 2, 1, helper_count())] * 50)
    rows = {
        "pool, caller alone, GIL kept": lambda: pool.launch(kernel, blocks, 1, 2, 1),
        "pool, caller alone, GIL released": lambda: pool.launch(kernel, blocks, 1, 2, 1, 0, False),
        "pool, with a helper": lambda: pool.launch(kernel, blocks, 1, 2, 1, 1),
        "backend, 3 arguments, alone": lambda: backend.launch(kernel, [(1, 2, 3)], 64, 1, 1000),
        "table of 50, caller alone": lambda: pool.run(table, 0),
        "table of 50, with helpers": lambda: pool.run(table),
        "buffer made, allocated, dropped": lambda: Buffer("CPU", 1000, dtypes.float32).ensure(),
    }
    for name, action in rows.items():
        least, median = seconds(action, 2000)
        print(f"{name:34} {least * 1e6:7.2f} us, median {median * 1e6:7.2f}")


def copies() -> None:
    """Copies (read and written counted) and fills, one thread and all."""
    for size in (64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20):
        target, source = (Buffer("CPU", size, dtypes.uint8).copyin(bytes(size)) for _ in "ab")
        rounds = max(1, (64 << 20) // size)
        line = f"{size >> 10:7} KiB"
        for name, threads in (("one thread", 1), ("all", 0)):
            with Context(THREADS=threads):
                moved = seconds(partial(copy.copy, target, source), rounds)[0]
                filled = seconds(partial(copy.fill, target.address, bytes(4), size // 4), rounds)[0]
            line += f"   {name}: copy {2 * size / moved / 1e9:4.0f} fill {size / filled / 1e9:4.0f}"
        print(line, "GB/s")


def memory() -> None:
    """The first touch of new memory, and the next."""
    for size in (1 << 20, 4 << 20, 64 << 20, 512 << 20):
        best = [1e9, 1e9]
        for _ in range(5):
            block = fresh(size)
            array = Buffer.from_address(block.address, "CPU", size, dtypes.uint8, block).array()
            for turn in range(2):
                started = time.perf_counter()
                array.fill(turn)
                best[turn] = min(best[turn], time.perf_counter() - started)
        first, again = (size / t / 1e9 for t in best)
        print(f"{size >> 20:5} MiB   first touch {first:5.1f} GB/s, again {again:5.1f} GB/s")


if __name__ == "__main__":
    parts = {"launch": launches, "copy": copies, "memory": memory}
    for part in sys.argv[1:] or parts:
        parts[part]()
