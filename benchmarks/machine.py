"""The limits of the machine: bandwidth and peak FLOP/s, by kernels in the generated language.

    python benchmarks/machine.py

Each kernel runs on all threads of tinyfn's pool; the best of some rounds counts, since a limit is
what the machine can do. Copies count bytes read and bytes written.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tinyfn.codegen import cache
from tinyfn.device import Buffer, Device
from tinyfn.dtype import dtypes

COUNT = 1 << 26  # float32 elements: 256 MiB, far larger than any cache
STEP = 1 << 16
ROUNDS = 12
TARGET = Device["CPU"].target
LANES, ACCUMULATORS, REPEAT = TARGET.vector_bytes // 4, TARGET.registers // 2, 4000


def moving(name: str, store: str) -> str:
    """A kernel that copies, with the store given, or only reads (no store)."""
    target = "buf0: f32ptr, buf1: f32ptr"
    body = [f"x{k} = vload_f32x{LANES}(buf1, i + {k * LANES})" for k in range(4)]
    if store:
        body += [f"{store}_f32x{LANES}(buf0, i + {k * LANES}, x{k})" for k in range(4)]
    else:
        body += [f"a{k} = vadd_f32x{LANES}(a{k}, x{k})" for k in range(4)]
    before = [] if store else [f"a{k} = vconst_f32x{LANES}(0.0)" for k in range(4)]
    after = [] if store else [f"vstore_f32x{LANES}(buf0, {k * LANES}, a{k})" for k in range(4)]
    lines = [f"def {name}({target}, lo: i64, hi: i64):"]
    lines += [f"    {line}" for line in before]
    lines += [f"    for i in range(lo, hi, {4 * LANES}):"]
    lines += [f"        {line}" for line in body] + [f"    {line}" for line in after]
    return "\n".join(lines) + "\n"


def multiplying(name: str) -> str:
    """A kernel of nothing but fused multiply-adds in registers."""
    numbers = range(ACCUMULATORS)
    lines = [f"def {name}(buf0: f32ptr, lo: i64, hi: i64):"]
    lines += [f"    x = vload_f32x{LANES}(buf0, 0)"]
    lines += [f"    a{k} = vload_f32x{LANES}(buf0, {k * LANES})" for k in numbers]
    lines += ["    for i in range(lo, hi, 1):", f"        for j in range(0, {REPEAT}, 1):"]
    lines += [f"            a{k} = vfma_f32x{LANES}(a{k}, x, x)" for k in numbers]
    lines += [f"    vstore_f32x{LANES}(buf0, {k * LANES}, a{k})" for k in numbers]
    return "\n".join(lines) + "\n"


def best(action: Callable[[], object]) -> float:
    """The least time of some rounds."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def machine() -> dict[str, float]:
    """Copy (plain and streaming), read and peak FLOP/s on all threads; and the peak of one."""
    sources = (
        moving("copy_plain", "vstore"),
        moving("copy_stream", "vstream"),
        moving("read_all", ""),
        multiplying("multiply_add"),
    )
    plain, stream, read, multiply = cache.fetch(sources)
    backend = Device["CPU"]
    target, source = (Buffer("CPU", COUNT, dtypes.float32).ensure() for _ in "ab")
    source.array().fill(1)
    target.array().fill(0)
    block = [(target.address, source.address)]
    nbytes, huge = 4 * COUNT, 1 << 40

    def moved(address: int, times: int) -> float:
        return (
            times * nbytes / best(lambda: backend.launch(address, block, COUNT, STEP, huge)) / 1e9
        )

    def computed(chunks: int) -> float:
        operations = chunks * REPEAT * ACCUMULATORS * LANES * 2
        seconds = best(
            lambda: backend.launch(multiply.address, [(target.address,)], chunks, 1, huge)
        )
        return operations / seconds / 1e9

    return {
        "copy, plain stores, GB/s": moved(plain.address, 2),
        "copy, streaming stores, GB/s": moved(stream.address, 2),
        "read, GB/s": moved(read.address, 1),
        "peak float32, all threads, GFLOP/s": computed(64),
        "peak float32, one thread, GFLOP/s": computed(1),
    }


if __name__ == "__main__":
    for name, value in machine().items():
        print(f"{name}: {value:.1f}")
