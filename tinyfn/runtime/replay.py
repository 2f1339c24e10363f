"""A recorded run, packed for the native pool: runs again in few calls, on other memory if asked.

Neighbouring kernels become one table that the pool walks by itself; what a table cannot hold
(copies, programs, kernels run as plain Python) runs between the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tinyfn.device import Buffer
from tinyfn.errors import KernelError
from tinyfn.helpers import NATIVE
from tinyfn.runtime import execute
from tinyfn.runtime.cpu import share
from tinyfn.runtime.execute import Step
from tinyfn.runtime.pool import Launch, Table, shared_pool
from tinyfn.uop.ops import UOp


@dataclass
class Segment:
    """Kernels that run in one native call, and where their arguments stand in the table.

    `places` has for each memory that may be replaced the words that hold an address in it, and
    how many bytes into it.
    """

    table: Table
    steps: list[Step]
    places: dict[int, list[tuple[int, int]]]
    values: list[tuple[int, str]]
    sizes: list[tuple[int, Step]]
    quick: bool
    streams: bool
    bound: dict[str, int] | None = None


@dataclass
class Replay:
    """A list of steps that runs again. `movable` are the buffers that a run may replace."""

    steps: list[Step]
    variables: dict[str, int]
    movable: dict[int, Buffer]
    segments: list[Segment | Step] = field(default_factory=list)
    symbolic: list[tuple[Step, UOp]] = field(default_factory=list)

    def __post_init__(self) -> None:
        group: list[Step] = []
        for step in self.steps:
            if step.program is not None:
                group.append(step)
                continue
            self._close(group)
            group = []
            self.segments.append(step)
        self._close(group)
        self.work = [execute.work_of(s, self.variables) for s in self.steps]

    def _close(self, group: list[Step]) -> None:
        if group:
            self.segments.append(_pack(group, self.variables, self.movable))

    def run(self, replaced: Mapping[int, Buffer], variables: dict[str, int]) -> None:
        """Run once; `replaced` maps the identity of a movable buffer to the one to use now."""
        if not NATIVE:
            self._run_steps(replaced, variables)
            return
        for segment in self.segments:
            if isinstance(segment, Segment):
                _run_segment(segment, replaced, variables)
            else:
                _with_memory(segment, replaced).run(variables)

    def _run_steps(self, replaced: Mapping[int, Buffer], variables: dict[str, int]) -> None:
        for step in self.steps:
            _with_memory(step, replaced).run(variables)


def _with_memory(step: Step, replaced: Mapping[int, Buffer]) -> Step:
    """The step on the memory of this run."""
    if not any(id(b) in replaced for m in step.memory for b in m):
        return step
    memory = [tuple(replaced.get(id(b), b) for b in m) for m in step.memory]
    return execute.on_memory(step, memory)


def _pack(group: list[Step], variables: dict[str, int], movable: dict[int, Buffer]) -> Segment:
    launches, seconds_known = [], True
    for step in group:
        launch, quick = _launch(step, variables)
        launches.append(launch)
        seconds_known = seconds_known and quick
    table = Table(launches)
    places: dict[int, list[tuple[int, int]]] = {}
    values: list[tuple[int, str]] = []
    sizes: list[tuple[int, Step]] = []
    for number, step in enumerate(group):
        assert step.program is not None
        generated = step.program.generated
        for slot in range(step.count):
            for position, memory in enumerate(step.memory):
                buffer = execute.part(memory, slot)
                root = id(buffer)
                if root in movable:
                    word = table.argument(number, slot, position)
                    places.setdefault(root, []).append((word, step.begins[position]))
            for offset, name in enumerate(generated.variables):
                if name != "slot":
                    place = table.argument(number, slot, len(step.memory) + offset)
                    values.append((place, name))
        if not isinstance(generated.extent, int):
            sizes.append((table.extent(number), step))
    quick = seconds_known and len(group) < 32
    streams = any(s.program.streams for s in group if s.program is not None)
    return Segment(table, group, places, values, sizes, quick, streams)


def _launch(step: Step, variables: dict[str, int]) -> tuple[Launch, bool]:
    assert step.program is not None
    work = step.program.generated
    n = execute.size_under(work.extent, variables)
    operations, moved = execute.work_of(step, variables)
    chunk, helpers, quick = share(n, work.step, step.count, moved, operations)
    blocks = [
        [
            *execute.addresses_of(step, [execute.part(m, slot) for m in step.memory]),
            *execute.values_of(step, slot, variables),
        ]
        for slot in range(step.count)
    ]
    address: Any = step.program.kernel.address
    return Launch(address, blocks, n, chunk, helpers, work.name), quick


def _run_segment(
    segment: Segment, replaced: Mapping[int, Buffer], variables: dict[str, int]
) -> None:
    words = segment.table.words
    for identity, places in segment.places.items():
        buffer = replaced.get(identity)
        if buffer is not None:
            address = buffer.address
            if segment.streams and address % 64:
                raise KernelError(
                    "a recorded kernel writes past the caches and needs inputs at multiples of 64 "
                    f"bytes, got memory at {address:#x}; pass a .clone() of the tensor"
                )
            for place, begin in places:
                words[place] = address + begin
    if (segment.values or segment.sizes) and variables is not segment.bound:
        segment.bound = variables
        for place, name in segment.values:
            words[place] = variables[name]
        for place, step in segment.sizes:
            launch, _ = _launch(step, variables)
            words[place : place + 3] = (launch.n, launch.chunk, launch.helpers)
    launch_segment(segment)


def launch_segment(segment: Segment) -> None:
    """Run a segment on the memory that its table names."""
    shared_pool().run(segment.table, keep_gil=segment.quick)


def runs_alone(segment: Segment) -> bool:
    """Whether the segment is microseconds of work that no helper is called for."""
    return segment.quick and not segment.table.helpers
