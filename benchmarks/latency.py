"""What starting costs: imports, new kernels, kernels from disk, scheduling, memory over many steps.

    python benchmarks/latency.py

Kernels are timed in process time (compiling is work of this process alone), each in a process of
its own with a cache folder of its own: cold the first time, warm the second.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5


def fresh(code: str, **environment: str) -> str:
    """The last line that a new process prints."""
    command = [sys.executable, "-c", code]
    known = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        command, env={**known, **environment}, capture_output=True, text=True, check=True
    )
    return (ran.stdout.strip().splitlines() or [""])[-1]


def imports() -> None:
    """Process time of the import, without that of an empty Python."""
    for module in ("numpy", "tinyfn"):
        code = (
            f"import time; t = time.process_time(); import {module}; print(time.process_time()-t)"
        )
        seconds = statistics.median(float(fresh(code)) for _ in range(ROUNDS))
        print(f"import {module}: {seconds * 1e3:.0f} ms")


def cost(action: Callable[[], Any]) -> float:
    """Process time of a call, in milliseconds."""
    started = time.process_time()
    action()
    return (time.process_time() - started) * 1e3


def kernels() -> dict[str, float]:
    """Milliseconds of each new kernel: schedule, generate, compile (or load), run."""
    from tinyfn import Tensor

    x, w = Tensor.empty(512, 512), Tensor.empty(512, 512)
    Tensor.realize(x, w)
    found = {"first kernel of the process": cost(lambda: (x - 7).realize())}
    found["elementwise"] = cost(lambda: (x * 3 + 1).relu().realize())
    found["softmax"] = cost(lambda: x.softmax().realize())
    found["matmul with relu"] = cost(lambda: (x @ w).relu().realize())
    found["conv2d"] = cost(
        lambda: x.reshape(4, 4, 128, 128).conv2d(w[:16, :36].reshape(16, 4, 3, 3)).realize()
    )
    found["numba imported"] = float("numba" in sys.modules)
    return found


def starts() -> None:
    """The kernels, cold and warm."""
    code = "import json, latency; print(json.dumps(latency.kernels()))"
    rounds: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            for found in rounds.values():
                path = os.path.dirname(os.path.abspath(__file__))
                found.append(json.loads(fresh(code, TINYFN_CACHE=folder, PYTHONPATH=path)))
    for name in rounds["cold"][0]:
        values = {kind: statistics.median(f[name] for f in found) for kind, found in rounds.items()}
        print(f"{name}: cold {values['cold']:.1f} ms, warm {values['warm']:.1f} ms")


def scheduling() -> None:
    """Time to schedule graphs that nothing has seen before, by their size."""
    from tinyfn import Tensor

    for count in (100, 1_000, 10_000):
        x = Tensor.empty(64).realize()
        chain = x
        for k in range(count):
            chain = chain + k if k % 2 else chain * x
        wide = sum((x * k).sum() for k in range(1, count // 3))
        for name, tensor in (("a chain", chain), ("many reductions", wide)):
            spent = cost(tensor.linear_with_vars)
            each = spent / count * 1e3
            print(f"schedule {name} of {count} nodes: {spent:.0f} ms, {each:.0f} us each")


def memory() -> None:
    """The peak of the process's memory, before and after ten thousand replayed steps."""
    from tinyfn import Tensor, TinyJit, nn

    layer = nn.Linear(32, 32)
    optimizer = nn.optim.Adam(nn.state.get_parameters(layer))

    @TinyJit
    @Tensor.train()
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        return layer(x).square().mean().backward().realize(*optimizer.schedule_step())

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    x = Tensor.randn(32, 32).realize()
    for _ in range(100):
        step(x)
    before = peak()
    for _ in range(10_000):
        step(x)
    print(f"memory after 100 steps {before >> 10} MiB, after 10,100 {peak() >> 10} MiB")


if __name__ == "__main__":
    imports()
    starts()
    scheduling()
    memory()
