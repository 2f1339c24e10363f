"""BEAM: plans of a kernel by timing them, in place of the one that the measure of cost prefers.

A beam search: of the plans timed so far the `width` fastest are kept, those that differ from one
of them in one decision are timed next, until none of these is faster than the fastest by GAIN.
What was found is kept in the cache folder, so that a kernel is searched once on a machine.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyfn import codegen
from tinyfn.codegen import cache
from tinyfn.codegen.choice import DEFAULT, Choice
from tinyfn.device import Buffer, Device, Target
from tinyfn.dtype import storage_dtype
from tinyfn.errors import ArgumentError, CompileError
from tinyfn.helpers import DEBUG
from tinyfn.uop.ops import Ops, UOp, toposort

GAIN = 0.02  # a smaller one is noise
ROUNDS = 15  # launches of a plan at most,
SECONDS = 0.02  # or as many as take this long; at least two
HOPELESS = 2.0  # a plan whose first two launches take so many times the best is timed no longer
LARGEST = 2 << 30  # bytes of memory that a kernel is timed on


def chosen(sink: UOp, target: Target, width: int) -> Choice:
    """The plan to take for a kernel under BEAM=width: known from before, or searched for now."""
    if width < 1:
        return DEFAULT
    default = codegen.generate(sink, target)
    key = cache.key_of(f"{default.source}\0beam {width}")
    known = _known(key)
    if known is not None:
        return known
    memory = _Memory.of(sink)
    if memory is None:
        return DEFAULT
    found = _Search(sink, target, memory).run(width)
    cache.write(key, found.text().encode())
    return found


def _known(key: str) -> Choice | None:
    """The plan kept on disk; what cannot be read counts as none."""
    data = cache.read(key)
    try:
        return None if data is None else Choice.from_text(data.decode())
    except (ArgumentError, UnicodeDecodeError):
        return None


@dataclass(frozen=True)
class _Memory:
    """Memory of its own that a kernel can be timed on, and values of its variables."""

    buffers: dict[int, Buffer]
    variables: dict[str, int]

    @staticmethod
    def of(sink: UOp) -> _Memory | None:
        """As large as the kernel's parameters can become; None where that is too much."""
        sizes: dict[int, tuple[int, Any]] = {}
        variables = {"slot": 0}
        for node in toposort([sink]):
            if node.op is Ops.VARIABLE or (node.op is Ops.PARAM and node.arg.vmin_vmax):
                variables[node.arg.name] = int(node.vmax)
            elif node.op is Ops.PARAM:
                size = math.prod(int(s if isinstance(s, int) else s.vmax) for s in node.shape)
                sizes[node.arg.slot] = size, node.dtype
        if sum(size * dtype.itemsize for size, dtype in sizes.values()) > LARGEST:
            return None
        rng = np.random.default_rng(0)
        device = Device.DEFAULT
        made = {slot: _filled(Buffer(device, *of), rng) for slot, of in sizes.items()}
        return _Memory(made, variables)

    def addresses(self, generated: codegen.Generated) -> list[int]:
        """The arguments of a kernel."""
        found = [self.buffers[slot].address for slot in generated.buffers]
        return found + [self.variables[name] for name in generated.variables]

    def size(self, size: Any) -> int:
        """A size that may depend on variables."""
        return size if isinstance(size, int) else int(size.sym_infer(self.variables))


def _filled(buffer: Buffer, rng: np.random.Generator) -> Buffer:
    """Numbers that are neither slow nor out of any range: floats from 0.5 to 1, ints 0 and 1."""
    kind = np.dtype(storage_dtype(buffer.dtype))
    array = buffer.ensure().array()
    if kind.kind == "f":
        array[:] = rng.random(buffer.size, np.float32) / 2 + 0.5
    else:
        array[:] = rng.integers(0, 2, buffer.size, np.int8).astype(kind)
    return buffer


@dataclass
class _Search:
    """The plans of one kernel that were tried, and their seconds."""

    sink: UOp
    target: Target
    memory: _Memory
    seconds: dict[Choice, float] = field(default_factory=dict)
    offers: dict[Choice, tuple[int, ...]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def run(self, width: int) -> Choice:
        """The fastest plan found."""
        self.time_all([DEFAULT])
        best, beam = DEFAULT, [DEFAULT]
        while True:
            new = {c for kept in beam for c in kept.neighbours(self.offers[kept])}
            self.time_all(sorted(new - set(self.offers), key=Choice.text))
            beam = sorted(self.seconds, key=lambda c: self.seconds[c])[:width]
            if self.seconds[beam[0]] > self.seconds[best] * (1 - GAIN):
                break
            best = beam[0]
        if DEBUG >= 2:
            gain = self.seconds[DEFAULT] / self.seconds[best]
            print(f"BEAM {len(self.seconds)} plans, {best.text()} is {gain:.2f} times as fast")
        return best

    def time_all(self, choices: list[Choice]) -> None:
        """Compile and time plans; one whose text is that of another is left out."""
        for choice in choices:
            generated = codegen.generate(self.sink, self.target, choice)
            self.offers[choice] = generated.offers
            body = generated.source.replace(generated.name, "")
            if body in self.seen:
                continue
            self.seen.add(body)
            try:
                kernel = cache.fetch([generated.source])[0]
            except CompileError:
                if choice == DEFAULT:
                    raise
                continue  # a plan that cannot be compiled is none
            self.seconds[choice] = self.time_one(generated, kernel.address)

    def time_one(self, generated: codegen.Generated, address: int) -> float:
        """The seconds of the fastest launch."""
        backend = Device[Device.DEFAULT]
        size = self.memory.size
        nbytes, operations = size(generated.memory), size(generated.ops)
        extent, blocks = size(generated.extent), [self.memory.addresses(generated)]
        fastest = min(self.seconds.values(), default=math.inf)
        best, spent, rounds = math.inf, 0.0, 0
        while rounds < 2 or (rounds < ROUNDS and spent < SECONDS):
            started = time.perf_counter()
            backend.launch(
                address, blocks, extent, generated.step, nbytes, operations, generated.name
            )
            seconds = time.perf_counter() - started
            best, spent, rounds = min(best, seconds), spent + seconds, rounds + 1
            if rounds == 2 and best > HOPELESS * fastest:
                break
        return best
