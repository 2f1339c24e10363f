"""Measure tinyfn beside its peers, each library in a process of its own.

A figure is the median over rounds, and the best of a few turns of all libraries, so that other work
on the machine spoils no line for good.

    python benchmarks/run.py                          # every workload, every installed library
    python benchmarks/run.py --only matmul --libs tinyfn,numpy --json figures.json

Results are compared with numpy in float64 before anything is timed. numpy and torch run eagerly,
jax under jit, tinygrad and tinyfn under TinyJit (replay).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import Workload, workloads

LIBRARIES = ("tinyfn", "numpy", "torch", "jax", "tinygrad")


def prepared(library: str, workload: Workload, arrays: list[Any]) -> tuple[Callable[[], Any], Any]:
    """A call that runs the workload to its end, and its result as a numpy array."""
    function = workload.functions[library]
    if library == "numpy":
        return lambda: function(*arrays), function(*arrays)
    module = importlib.import_module(library)
    if library == "torch":
        tensors = [module.from_numpy(a) for a in arrays]
        return lambda: function(*tensors), function(*tensors).numpy()
    if library == "jax":
        compiled, given = module.jit(function), [module.numpy.asarray(a) for a in arrays]
        return lambda: compiled(*given).block_until_ready(), np.asarray(compiled(*given))
    given = [module.Tensor(a).realize() for a in arrays]
    replayed = module.TinyJit(lambda *args: function(*args).realize())
    for _ in range(3):
        result = replayed(*given)
    device = module.Device[module.Device.DEFAULT]

    def call() -> None:
        replayed(*given)
        device.synchronize()

    return call, result.numpy()


def measure(library: str, only: list[str], rounds: int) -> dict[str, float]:
    """The rate of each workload in one library, in this process."""
    modules = {"numpy": np}
    if library in ("torch", "jax"):
        modules[library] = importlib.import_module(library)
    rates = {}
    rng = np.random.default_rng(0)
    for workload in workloads(modules):
        if not any(word in workload.name for word in only) or library not in workload.functions:
            continue
        arrays = [rng.standard_normal(s).astype(np.float32) for s in workload.shapes]
        call, result = prepared(library, workload, arrays)
        exact = workload.functions["numpy"](*(a.astype(np.float64) for a in arrays))
        scale = np.abs(exact).max()
        if not np.allclose(result, exact, rtol=workload.tolerance, atol=workload.tolerance * scale):
            raise SystemExit(f"{library} computes {workload.name} wrong")
        rates[workload.name] = workload.work / _seconds(call, rounds) * 1e-9
    return rates


def _seconds(call: Callable[[], Any], rounds: int) -> float:
    """The median of the rounds; short calls are repeated inside a round."""
    call()
    started = time.perf_counter()
    call()
    repeat = max(1, int(0.02 / max(time.perf_counter() - started, 1e-7)))
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(repeat):
            call()
        times.append((time.perf_counter() - started) / repeat)
    return statistics.median(times)


def in_own_process(library: str, options: argparse.Namespace) -> dict[str, float]:
    """The rates of a library, measured in a new process."""
    command = [sys.executable, __file__, "--child", library, "--rounds", str(options.rounds)]
    environment = {
        k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    }
    ran = subprocess.run(
        [*command, "--only", options.only], env=environment, capture_output=True, text=True
    )
    if ran.returncode:
        print(f"{library}: {ran.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def table(rates: dict[str, dict[str, float]], units: dict[str, str]) -> str:
    """The rates as a Markdown table, with the ratio of tinyfn to the best peer."""
    peers = [name for name in rates if name != "tinyfn"]
    head = ["workload", "unit", "tinyfn", *peers, "tinyfn / best peer"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, unit in units.items():
        own = rates["tinyfn"].get(name)
        others = [rates[p].get(name) for p in peers]
        if own is None:
            continue
        best = max((o for o in others if o is not None), default=None)
        cells = [f"{own:.1f}", *("" if o is None else f"{o:.1f}" for o in others)]
        ratio = "" if best is None else f"{own / best:.2f}"
        lines.append("| " + " | ".join([name, unit, *cells, ratio]) + " |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="words; a workload with one of them is measured")
    parser.add_argument("--libs", default=",".join(LIBRARIES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--repeat",
        type=int,
        default=3,
        help="turns of all libraries; the best median of each counts",
    )
    parser.add_argument("--json", metavar="FILE", help="write the rates")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.only.split(","), options.rounds)))
        return
    wanted = ["tinyfn", *(lib for lib in options.libs.split(",") if lib != "tinyfn")]
    rates: dict[str, dict[str, float]] = {}
    for library in wanted:
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed: left out", file=sys.stderr)
        else:
            rates[library] = {}
    for _ in range(options.repeat):
        for library, known in rates.items():
            for name, rate in in_own_process(library, options).items():
                known[name] = max(rate, known.get(name, 0.0))
    units = {w.name: w.unit for w in workloads({"numpy": np})}
    print(table(rates, units))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rates, file, indent=2)


if __name__ == "__main__":
    main()
