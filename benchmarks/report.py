"""What the benchmarks found, as a table (by rich, or in Markdown) and as a picture."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Line:
    """One workload; by library: rate, seconds to the second result (cold, warm), losses, error."""

    name: str
    unit: str
    rates: dict[str, float] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def ratio(self) -> float | None:
        """Tinyfn over the best peer, if both are there."""
        peers = [rate for library, rate in self.rates.items() if library != "tinyfn"]
        own = self.rates.get("tinyfn")
        return own / max(peers) if own is not None and peers else None

    def record(self) -> dict[str, Any]:
        """The line as it stands in the file of figures."""
        return {**dataclasses.asdict(self), "ratio": self.ratio()}


def mean_ratio(lines: list[Line]) -> float | None:
    """The geometric mean of the ratios."""
    logs = [math.log(ratio) for line in lines if (ratio := line.ratio())]
    return math.exp(sum(logs) / len(logs)) if logs else None


def number(rate: float | None) -> str:
    """A rate with three digits or so."""
    if rate is None:
        return ""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def start(line: Line, kind: str) -> str:
    """Seconds until tinyfn had the second result."""
    found = getattr(line, kind).get("tinyfn")
    return "" if found is None else f"{found:.2f}"


def rows(lines: list[Line], libraries: list[str]) -> list[list[str]]:
    """The table: its head, then one row a line."""
    found = [["workload", "unit", *libraries, "tinyfn / best peer", "cold s", "warm s"]]
    for line in lines:
        ratio = line.ratio()
        cells = [
            "wrong"
            if name in line.errors and name not in line.rates
            else number(line.rates.get(name))
            for name in libraries
        ]
        shown = "" if ratio is None else f"{ratio:.2f}"
        starts = [start(line, "cold"), start(line, "warm")]
        found.append([line.name, line.unit, *cells, shown, *starts])
    return found


def markdown(table: list[list[str]]) -> str:
    """A table in Markdown."""
    head, *body = table
    rule = "|---|---|" + "---:|" * (len(head) - 2)
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head,)] + [rule]) + "".join(
        "\n| " + " | ".join(row) + " |" for row in body
    )


def print_rich(table: list[list[str]]) -> None:
    """The table in colours: green where tinyfn is ahead, red where it is not."""
    head, *body = table
    pretty = importlib.import_module("rich.table").Table(title="higher is better")
    for k, title in enumerate(head):
        pretty.add_column(title, justify="left" if k < 2 else "right")
    for row in body:
        ratio = row[-3]
        colour = "" if not ratio else "green" if float(ratio) >= 1 else "red"
        pretty.add_row(*row[:-3], f"[{colour}]{ratio}[/]" if colour else ratio, *row[-2:])
    importlib.import_module("rich").print(pretty)


def show(
    lines: list[Line], libraries: list[str], limits: dict[str, float], plain: bool = False
) -> None:
    """Print the machine's limits, the table, the mean and what went wrong."""
    for name, value in limits.items():
        print(f"{name}: {value:.1f}")
    table = rows(lines, libraries)
    if plain or not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        print(markdown(table))
    else:
        print_rich(table)
    if mean := mean_ratio(lines):
        print(f"geometric mean of tinyfn / best peer: {mean:.2f}")
    for line in lines:
        for library, error in line.errors.items():
            print(f"{library}, {line.name}: {error}")


def draw(lines: list[Line], file: Path) -> None:
    """The ratios as bars, one a workload, on a logarithmic scale."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    shown = [(line.name, ratio) for line in lines if (ratio := line.ratio())][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.22 * len(shown)), layout="constrained")
    colours = ["tab:green" if ratio >= 1 else "tab:red" for _, ratio in shown]
    places = range(len(shown))
    axes.barh(places, [ratio - 1 for _, ratio in shown], left=1, color=colours)
    axes.set_yticks(places, [name for name, _ in shown], fontsize=8)
    axes.margins(y=0.01)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="tinyfn / best peer (right of 1: tinyfn is faster)")
    figure.savefig(file, dpi=120)
