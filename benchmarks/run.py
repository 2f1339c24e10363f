"""Measure tinyfn beside its peers, each library in a process of its own, in turn.

    python benchmarks/run.py                          # every workload, every installed library
    python benchmarks/run.py --only matmul,sum --libs tinyfn,numpy --json figures.json

A figure is the median over rounds in one process, and the best of a few turns of all libraries, so
that other work on the machine spoils no line for good. Outputs are compared with numpy in float64
before anything is timed. The first turn finds the caches of compiled code empty (cold), the later
ones find what the first one left (warm). Without `--only` the machine's limits are measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from libraries import installed, versions
from machine import machine
from measure import measure
from report import Line, draw, show
from workload import LIBRARIES, SCALE, Workload
from workloads import all_workloads

# of the first losses of a training, between libraries: ties of a pooling may go to one or to all
LOSS_TOLERANCE = 0.02


def in_own_process(library: str, options: argparse.Namespace, caches: Path) -> list[dict[str, Any]]:
    """The figures of a library, measured in a new process."""
    command = [sys.executable, __file__, "--child", library, "--only", options.only]
    command += [
        "--folder",
        str(caches),
        "--rounds",
        str(options.rounds),
        "--budget",
        str(options.budget),
    ]
    environment = {
        **os.environ,
        "TINYFN_CACHE": str(caches / "tinyfn"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "CACHEDB": str(caches / "tinygrad.db"),
    }
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"name"')]
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{library} ended with status {ran.returncode}: {last}", file=sys.stderr)
    return found


def merge(line: Line, library: str, found: dict[str, Any], turn: int) -> None:
    """Add what a turn measured: the best rate, the cold and the warm start, the losses."""
    if "error" in found:
        line.errors[library] = found["error"]
        return
    line.rates[library] = max(found["rate"], line.rates.get(library, 0.0))
    starts = line.cold if turn == 0 else line.warm
    starts[library] = min(found["first"], starts.get(library, found["first"]))
    if "losses" in found:
        line.losses[library] = found["losses"]


def compare_losses(line: Line) -> None:
    """Take out a library whose first steps of a training are not those of the others."""
    if len(line.losses) < 2:
        return
    middle = [statistics.median(step) for step in zip(*line.losses.values(), strict=True)]
    for library, losses in line.losses.items():
        away = max(abs(a - b) / abs(b) for a, b in zip(losses, middle, strict=True))
        if not away <= LOSS_TOLERANCE:
            line.errors[library] = f"its losses {losses} are not the others' {middle}"
            line.rates.pop(library, None)


def chosen(only: str) -> list[Workload]:
    """The workloads with one of the words in their names."""
    found = [w for w in all_workloads() if any(word in w.name for word in only.split(","))]
    if not found:
        raise SystemExit(f"--only {only}: no workload has one of these words in its name")
    return found


def wanted(libraries: str) -> list[str]:
    """The libraries asked for that are installed, tinyfn first."""
    names = [name for name in libraries.split(",") if name]
    if unknown := set(names) - set(LIBRARIES):
        raise SystemExit(
            f"--libs {libraries}: expected some of {', '.join(LIBRARIES)}, not {unknown}"
        )
    names = [name for name in LIBRARIES if name == "tinyfn" or name in names]
    for name in names:
        if not installed(name):
            print(f"{name} is not installed: left out", file=sys.stderr)
    return [name for name in names if installed(name)]


def run(options: argparse.Namespace) -> list[Line]:
    """All turns of all libraries."""
    lines = {w.name: Line(w.name, w.unit) for w in chosen(options.only)}
    with tempfile.TemporaryDirectory() as folder:
        caches = (options.caches or Path(folder)).resolve()
        caches.mkdir(parents=True, exist_ok=True)
        for turn in range(options.turns):
            for library in wanted(options.libs):
                print(f"turn {turn + 1} of {options.turns}: {library}", file=sys.stderr)
                for found in in_own_process(library, options, caches):
                    merge(lines[found["name"]], library, found, turn)
    for line in lines.values():
        compare_losses(line)
    return list(lines.values())


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="words; a workload with one of them is measured")
    parser.add_argument("--libs", default=",".join(LIBRARIES), help="the libraries, with commas")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds in a process")
    parser.add_argument("--turns", type=int, default=2, help="processes of each library")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds for a line's rounds")
    parser.add_argument(
        "--best",
        action="store_true",
        help="the least time instead of the median: on a machine with other work to do",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios")
    parser.add_argument(
        "--caches", type=Path, metavar="FOLDER", help="keep compiled code: another run starts warm"
    )
    parser.add_argument("--plain", action="store_true", help="a Markdown table in any case")
    parser.add_argument("--child", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure the machine and the workloads; print, write and draw what came out."""
    options = arguments()
    if options.child:
        measure(options.child, chosen(options.only), options)
        return
    libraries = wanted(options.libs)
    limits, lines = {} if options.only else machine(), run(options)
    show(lines, libraries, limits, options.plain)
    if options.json:
        record = {
            "machine": limits,
            "versions": versions(libraries),
            "units": SCALE,
            "lines": [line.record() for line in lines],
        }
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if options.plot:
        draw(lines, options.plot)


if __name__ == "__main__":
    main()
