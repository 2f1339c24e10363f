"""Measure the workloads in one library, in this process: check, then time.

Prints one line of JSON for each workload, so that a crash loses no others.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from libraries import as_numpy, prepare
from workload import SCALE, Workload

SHORT = 0.01  # seconds: shorter calls are repeated inside a round
STEPS = 3  # steps of a training whose losses are compared between libraries


class WrongResult(Exception):
    """A library's output is not what numpy computes in float64."""


def exact(workload: Workload, arrays: list[np.ndarray], folder: Path) -> list[np.ndarray]:
    """What numpy computes in float64 (integers stay what they are), kept for the next library."""
    file = folder / (hashlib.sha256(workload.name.encode()).hexdigest() + ".npz")
    if file.exists():
        with np.load(file) as kept:
            return [kept[name] for name in kept.files]
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    expected = as_numpy(workload.array(np, *wide))
    np.savez(file, *expected)
    return expected


def check(workload: Workload, results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Compare, by the largest of the expected values; the sentence says how far it is off."""
    if len(results) != len(expected):
        raise WrongResult(f"{len(results)} results instead of {len(expected)}")
    for found, right in zip(results, expected, strict=True):
        if found.shape != right.shape:
            raise WrongResult(f"shape {found.shape} instead of {right.shape}")
        scale = float(np.abs(right).max())
        error = float(np.abs(found.astype(np.float64) - right).max())
        if not error <= workload.tolerance * scale:
            raise WrongResult(f"off by {error:.3g} where values reach {scale:.3g}")


def seconds(call: Callable[[], Any], once: float, options: Namespace) -> float:
    """The median time of a call that takes about `once`; one round where that is a long time."""
    rounds, budget = options.rounds, options.budget
    if once > budget:
        return once
    repeat = max(1, round(SHORT / once))
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < rounds and (len(times) < 3 or time.perf_counter() - begun < budget):
        started = time.perf_counter()
        for _ in range(repeat):
            call()
        times.append((time.perf_counter() - started) / repeat)
    return min(times) if options.best else statistics.median(times)


def first_steps(call: Callable[[], Any], workload: Workload, expected: float) -> list[float]:
    """The losses of the first steps of a training; the first is compared with numpy's."""
    losses = [float(as_numpy(call())[0].item()) for _ in range(STEPS)]
    check(workload, [np.array(losses[0])], [np.array(expected)])
    return losses


def figures(library: str, workload: Workload, options: Namespace) -> dict[str, Any]:
    """Rate of a workload, seconds until two calls are done, and what a training's losses were."""
    rng = np.random.default_rng(0)
    arrays = [given.make(rng) for given in workload.inputs]
    expected = exact(workload, arrays, options.folder)
    started = time.perf_counter()
    call = prepare(library, workload, arrays)
    found: dict[str, Any] = {}
    if workload.training:
        found["losses"] = first_steps(call, workload, float(expected[0].item()))
    else:
        call()
        call()
    found["first"] = time.perf_counter() - started
    started = time.perf_counter()
    result = call()
    once = time.perf_counter() - started
    if not workload.training:
        check(workload, as_numpy(result), expected)
    found["rate"] = workload.work / seconds(call, once, options) * SCALE[workload.unit]
    return found


def measure(library: str, chosen: list[Workload], options: Namespace) -> None:
    """Print the figures of each workload, or why there are none."""
    for workload in chosen:
        if library not in workload.functions():
            continue
        try:
            found = figures(library, workload, options)
        except Exception as error:  # a peer's own: the line says so and the others go on
            words = str(error).strip().splitlines() or [""]
            found = {"error": f"{type(error).__name__}: {words[0][:300]}"}
        print(json.dumps({"name": workload.name, **found}), flush=True)
