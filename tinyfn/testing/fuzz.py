"""Fuzz until something fails or the time is over: programs of tinyfn, or a module's functions."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tinyfn.dtype import dtypes as known
from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.helpers import optional
from tinyfn.tensor import Tensor
from tinyfn.testing.checks import check_function, check_program
from tinyfn.testing.gradients import check_gradients
from tinyfn.testing.programs import Program, programs
from tinyfn.testing.regression import module_test, program_test, write_test
from tinyfn.testing.strategies import elements, shapes, st, tensors
from tinyfn.testing.ways import WAYS

hypothesis = optional("hypothesis", "testing")

ROUND = 200  # examples of one run of hypothesis; each has a seed of its own


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    seconds: float = 60.0
    seed: int = 0
    ops: tuple[str, ...] | None = None
    length: int = 6
    module: str | None = None
    folder: Path = Path()
    examples: int | None = None
    progress: bool = True
    ways: tuple[str, ...] | None = None

    @property
    def command(self) -> str:
        """The command that finds the same again."""
        parts = ["python -m tinyfn.testing fuzz", f"--seed {self.seed}"]
        parts += [f"--ops {','.join(self.ops)}"] if self.ops else []
        parts += [f"--module {self.module}"] if self.module else []
        parts += [f"--ways {','.join(self.ways)}"] if self.ways else []
        parts += [f"--length {self.length}"] if self.length != Options.length else []
        return " ".join(parts)


@dataclass
class Found:
    """The smallest example that fails and how, and the number of the first that did."""

    example: Any
    ways: tuple[str, ...]
    error: BaseException
    first: int


@dataclass
class Hunt:
    """One hunt: what is drawn, what is checked, and what came of it."""

    name: str
    strategy: Any
    check: Callable[[Any, tuple[str, ...]], None]
    until: float
    most: int | None = None
    ways: tuple[str, ...] | None = None
    count: int = 0
    found: Found | None = None
    tick: Callable[[], Any] = field(default=lambda: None)

    def over(self) -> bool:
        """Whether time or examples are used up."""
        return time.monotonic() > self.until or (self.most is not None and self.count >= self.most)

    def run(self, seed: int) -> None:
        """Draw and check up to `ROUND` examples; keep the smallest that fails."""
        ways = self.ways
        if ways is None:  # each way of running takes turns; most rounds compare with numpy only
            ways = () if seed % 4 else (WAYS[(seed // 4) % len(WAYS)],)

        def one(example: Any) -> None:
            if self.found is None and self.over():
                return
            self.count += 1
            self.tick()
            try:
                self.check(example, ways)
            except hypothesis.errors.UnsatisfiedAssumption:
                raise
            except Exception as error:
                first = self.found.first if self.found else self.count
                self.found = Found(example, ways, error, first)
                raise

        settings = hypothesis.settings(
            max_examples=ROUND if self.most is None else min(ROUND, self.most),
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            report_multiple_bugs=False,
        )
        try:
            hypothesis.seed(seed)(settings(hypothesis.given(self.strategy)(one)))()
        except Exception as error:
            if self.found is None:
                raise
            self.found.error = self.found.error or error


def module_functions(name: str) -> list[tuple[str, Callable[..., Tensor], int]]:
    """The public functions of a module all of whose parameters are annotated as Tensor.

    Raises:
        ArgumentError: the module has none.
    """
    module, found = _imported(name), []
    for key, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if key.startswith("_") or not callable(value) or inspect.isclass(value) or not own:
            continue
        parameters = inspect.signature(value).parameters.values()
        kinds = {getattr(p.annotation, "__name__", p.annotation) for p in parameters}
        if parameters and kinds == {"Tensor"}:
            found.append((key, value, len(parameters)))
    if not found:
        raise ArgumentError(
            f"expected functions in {name} whose parameters are all annotated as Tensor, found none"
        )
    return found


def _imported(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def _arguments(draw: Any, count: int) -> list[Tensor]:
    shape = draw(shapes(1, 3, (1, 2, 3, 5)))
    numbers = elements(known.float32, hurting=False)
    return [draw(tensors(shape, known.float32, numbers)) for _ in range(count)]


def _check_user(f: Callable[..., Tensor], given: list[Tensor], ways: tuple[str, ...]) -> None:
    try:
        f(*given)
    except ShapeError:
        hypothesis.reject()  # not a shape that the function takes
    check_function(f, *given, ways=ways)
    check_gradients(f, *given, ways=ways)


def hunts(options: Options) -> list[Hunt]:
    """What to fuzz: random programs, or each function of a module for a share of the time."""
    begin = time.monotonic()
    if options.module is None:
        strategy = programs(options.ops, options.length)
        until = begin + options.seconds
        return [Hunt("programs", strategy, check_program, until, options.examples, options.ways)]
    functions = module_functions(options.module)
    share = options.seconds / len(functions)
    return [
        Hunt(
            name,
            st.composite(_arguments)(count),
            lambda given, ways, f=f: _check_user(f, given, ways),  # type: ignore[misc]
            begin + share * (i + 1),
            options.examples,
            options.ways,
        )
        for i, (name, f, count) in enumerate(functions)
    ]


def fuzz(options: Options) -> int:
    """Run the command; returns 0 where nothing was found, 1 where something was."""
    for hunt in hunts(options):
        bar = optional("tqdm", "testing").tqdm(
            desc=hunt.name, unit=" examples", disable=not options.progress, total=hunt.most
        )
        hunt.tick = bar.update
        seed = options.seed
        begin, at_first = time.monotonic(), resident_megabytes()
        while hunt.found is None and not hunt.over():
            hunt.run(seed)
            seed += 1
        bar.close()
        if hunt.found is not None:
            report(options, hunt)
            return 1
        print(f"{hunt.name}: {hunt.count} examples, nothing found")
        rate = hunt.count / max(time.monotonic() - begin, 1e-9)
        memory = f"; {at_first} MB resident at first, {resident_megabytes()} at the end"
        print(f"{rate:.0f} examples/s{memory if at_first else ''}")
    return 0


def resident_megabytes() -> int:
    """The memory that the process holds now; 0 where the system does not say."""
    table = Path("/proc/self/statm")
    pages = int(table.read_text().split()[1]) if table.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 10**6 if pages else 0


def report(options: Options, hunt: Hunt) -> None:
    """Print the smallest example that fails, and write it as a test."""
    assert hunt.found is not None
    example, error = hunt.found.example, hunt.found.error
    message = f"{type(error).__name__}: {error}"
    if isinstance(example, Program):
        text = program_test(example, hunt.found.ways, message, options.command)
        shown = repr(example)
    else:
        text = module_test(options.module or "", hunt.name, example, message, options.command)
        shown = "\n".join(f"{t!r} {t.tolist()}" for t in example)
    place = write_test(options.folder, text)
    print(f"\nfound by example {hunt.found.first}, shrunk in {hunt.count - hunt.found.first} more")
    print(f"{shown}\n{message}\n")
    print(f"written as a test: {place}")


def names(text: str) -> Sequence[str]:
    """Comma-separated names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
