"""Run a list of calls: compile what is new, then launch kernels, copies and programs in order."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from tinyfn import codegen
from tinyfn.codegen import cache
from tinyfn.codegen.begin import begin_at_arguments
from tinyfn.codegen.numbers import numbers_as_arguments
from tinyfn.device import Buffer, Device, Target
from tinyfn.dtype import dtypes, storage_dtype
from tinyfn.errors import ScheduleError
from tinyfn.helpers import BEAM, DEBUG, NATIVE, GlobalCounters, Recent, prod
from tinyfn.runtime import copy, search
from tinyfn.schedule.memory import MemoryPlan
from tinyfn.uop.ops import Ops, UOp


@dataclass(frozen=True)
class Program:
    """A compiled kernel: what the generator said of it, and its native entry."""

    generated: codegen.Generated
    kernel: Any

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.generated.name

    @functools.cached_property
    def streams(self) -> bool:
        """Whether it writes past the caches, which needs memory at multiples of 64 bytes."""
        return "vstream_" in self.generated.source


@dataclass
class Step:
    """One call made ready: what to run and the memory of each slot, by parameter.

    A kernel begins so many bytes into each memory as `begins` says.
    `start` runs what is no kernel. It must not hold the step: memory is freed when the last name
    of it goes, not when a cycle is found.
    """

    call: UOp
    start: Callable[[dict[str, int]], None] | None
    memory: list[tuple[Buffer, ...]]
    program: Program | None = None
    count: int = 1
    moved: int = 0
    slots: tuple[str, ...] = field(default=())
    begins: tuple[int, ...] = field(default=())

    def run(self, variables: dict[str, int]) -> None:
        """Run it on every slot."""
        if self.start is None:
            run_kernel(self, variables)
        else:
            self.start(variables)


KEPT = 2048  # programs; those of recordings live as long as these
_programs: Recent[tuple[UOp, Target, int], Program] = Recent(KEPT)


class _Recorders(threading.local):
    """Who is told of every list of calls: those that record it, and those that only look on."""

    def __init__(self) -> None:
        self.active: list[Callable[[UOp, dict[str, int], MemoryPlan], None]] = []
        self.watching: list[Callable[[UOp, dict[str, int], MemoryPlan], None]] = []


recorders = _Recorders()


def run(
    linear: UOp, variables: dict[str, int], plan: MemoryPlan | None = None, count: bool = True
) -> None:
    """Run every call of a LINEAR with these values of its variables."""
    if plan is not None:
        place_temporaries(plan)
    for record in (*recorders.active, *recorders.watching):
        record(linear, variables, plan or MemoryPlan())
    steps = prepare(linear.src)
    for step in steps:
        launch(step, variables, count)
    if DEBUG >= 1 and steps:
        kernels = sum(step.count for step in steps if step.program is not None)
        print(f"ran {len(steps)} calls, {kernels} kernels on all slots")


def place_temporaries(plan: MemoryPlan) -> None:
    """Give every temporary its part of a new arena."""
    arenas: dict[Any, list[Buffer]] = {}
    for device, nbytes in plan.arenas:
        slots = device if isinstance(device, tuple) else (device or Device.DEFAULT,)
        arenas[device] = [Buffer(slot, nbytes, dtypes.uint8) for slot in slots]
    for part in plan.slices:
        dtype, size = part.memory.dtype, int(prod(part.memory.arg.shape))
        views = [Buffer.view_of(a, part.offset, size, dtype) for a in arenas[part.device]]
        part.memory.set_buffer(tuple(views) if isinstance(part.device, tuple) else views[0])


def prepare(calls: Sequence[UOp]) -> list[Step]:
    """Steps for the calls; all kernels that are new are compiled together."""
    compile_missing(_kernel_of(c.src[0])[0] for c in calls if c.src[0].op is Ops.SINK)
    return [_step(call) for call in calls]


def compile_missing(sinks: Iterable[UOp]) -> None:
    """Compile the kernel graphs that have no program yet, in one batch."""
    target, width = Device[Device.DEFAULT].target, _beam()
    missing = [s for s in dict.fromkeys(sinks) if _programs.get((s, target, width)) is None]
    if not missing:
        return
    generated = [_generate(sink, target, width) for sink in missing]
    if DEBUG >= 4:
        for one in generated:
            print(one.source)
    kernels = cache.fetch([g.source for g in generated])
    for sink, one, kernel in zip(missing, generated, kernels, strict=True):
        _programs.keep((sink, target, width), Program(one, kernel))


def _beam() -> int:
    """How wide plans are searched for; not at all where nothing is compiled."""
    return int(BEAM) if NATIVE else 0


def _generate(sink: UOp, target: Target, width: int) -> codegen.Generated:
    return codegen.generate(sink, target, search.chosen(sink, target, width))


def program_of(sink: UOp) -> Program:
    """The compiled program of a kernel graph."""
    key = sink, Device[Device.DEFAULT].target, _beam()
    found = _programs.get(key)
    if found is None:  # others have been asked for since it was compiled
        compile_missing([sink])
        found = _programs.get(key)
    assert found is not None
    return found


def unaligned_program_of(sink: UOp) -> Program:
    """The program of a kernel graph for memory at any address: without streaming stores."""
    target = replace(Device[Device.DEFAULT].target, l3_bytes=1 << 60)
    key = sink, target, _beam()
    found = _programs.get(key)
    if found is None:
        generated = _generate(*key)
        found = _programs.keep(key, Program(generated, cache.fetch([generated.source])[0]))
    return found


def memory_of(argument: UOp) -> tuple[Buffer, ...]:
    """The buffers of an argument: one, or one a slot."""
    found = argument.buffer
    return found if isinstance(found, tuple) else (found,)


def _step(call: UOp) -> Step:
    body = call.src[0]
    if body.op is Ops.SINK:
        return _kernel_step(call)
    if body.op is Ops.COPY:
        return _copy_step(call)
    if body.op is Ops.PROGRAM:
        return _program_step(call)
    raise ScheduleError(f"a LINEAR holds kernels, copies and programs; got {body!r}")


def on_memory(step: Step, memory: list[tuple[Buffer, ...]]) -> Step:
    """The same step on other memory."""
    if step.program is not None:
        return replace(step, memory=memory)
    if step.call.src[0].op is Ops.COPY:
        return _copy_between(step.call, memory[0], memory[1])
    return _program_on(step.call, memory)


def _slots_of(call: UOp, arguments: Sequence[UOp]) -> tuple[str, ...]:
    device = next((a.device for a in arguments if a.device is not None), Device.DEFAULT)
    return device if isinstance(device, tuple) else (device,)


def _kernel_of(sink: UOp) -> tuple[UOp, dict[int, int], dict[int, UOp]]:
    """The kernel that is run for this one: where it begins and its numbers are arguments."""
    begun, begins = begin_at_arguments(sink)
    kernel, numbers = numbers_as_arguments(begun)
    return kernel, begins, numbers


def _in_memory(number: UOp, slots: Sequence[str]) -> tuple[Buffer, ...]:
    values = np.array([number.arg], storage_dtype(number.dtype))
    return tuple(Buffer(slot, 1, number.dtype).copyin(values) for slot in slots)


def _kernel_step(call: UOp) -> Step:
    sink, begins, numbers = _kernel_of(call.src[0])
    program = program_of(sink)
    slots = _slots_of(call, call.src[1:])
    memory = [
        _in_memory(numbers[slot], slots) if slot in numbers else memory_of(call.src[1 + slot])
        for slot in program.generated.buffers
    ]
    if program.streams and any(is_unaligned(b) for m in memory for b in m):
        program = unaligned_program_of(sink)
    first = tuple(begins.get(slot, 0) for slot in program.generated.buffers)

    return Step(call, None, memory, program, len(slots), slots=slots, begins=first)


def addresses_of(step: Step, buffers: Sequence[Buffer]) -> list[int]:
    """Where in the memory of a slot a kernel begins."""
    return [b.address + n for b, n in zip(buffers, step.begins, strict=True)]


def _array_from(buffer: Buffer, begin: int) -> Any:
    array = buffer.array()
    return array[begin // array.itemsize :]


def values_of(step: Step, slot: int, variables: dict[str, int]) -> list[int]:
    """The ints that a kernel takes after its memory."""
    assert step.program is not None
    return [slot if n == "slot" else variables[n] for n in step.program.generated.variables]


def is_unaligned(buffer: Buffer) -> bool:
    """Whether memory begins in the middle of a cache line; only somebody else's can."""
    return buffer.is_allocated and buffer.address % 64 != 0


def size_under(size: Any, variables: dict[str, int]) -> int:
    """A size that may depend on variables, as a number."""
    return size if isinstance(size, int) else size.sym_infer(variables)


def run_kernel(step: Step, variables: dict[str, int]) -> None:
    """Run a kernel on every slot."""
    assert step.program is not None
    work = step.program.generated
    extent = size_under(work.extent, variables)
    parts = [[part(m, n).ensure() for m in step.memory] for n in range(step.count)]
    if not NATIVE:
        for slot, buffers in enumerate(parts):
            arrays = [_array_from(b, n) for b, n in zip(buffers, step.begins, strict=True)]
            step.program.kernel.python(*arrays, *values_of(step, slot, variables), 0, extent)
        return
    blocks = [
        [*addresses_of(step, buffers), *values_of(step, slot, variables)]
        for slot, buffers in enumerate(parts)
    ]
    operations, moved = work_of(step, variables)
    backend = Device[Device.DEFAULT]
    backend.launch(
        step.program.kernel.address, blocks, extent, work.step, moved, operations, work.name
    )


def part(memory: tuple[Buffer, ...], slot: int) -> Buffer:
    """One slot's part of an argument."""
    return memory[slot if len(memory) > 1 else 0]


def _copy_step(call: UOp) -> Step:
    return _copy_between(call, memory_of(call.src[1]), memory_of(call.src[2]))


def _copy_between(call: UOp, target: tuple[Buffer, ...], source: tuple[Buffer, ...]) -> Step:
    def start(_variables: dict[str, int]) -> None:
        for number, to in enumerate(target):
            copy.copy(to.ensure(), part(source, number).ensure())

    return Step(call, start, [target, source], None, len(target), target[0].nbytes * len(target))


def _program_step(call: UOp) -> Step:
    body = call.src[0]
    info = body.arg
    order = info.globals or tuple(range(len(call.src) - 1))
    return _program_on(call, [memory_of(call.src[1 + slot]) for slot in order])


def _binary_of(body: UOp) -> bytes:
    binary = next((s.arg for s in body.src if s.op is Ops.BINARY), None)
    if binary is None:
        source = next((s.arg for s in body.src if s.op is Ops.SOURCE), None)
        if source is None:
            raise ScheduleError(f"the program {body.arg.name} has neither SOURCE nor BINARY")
        binary = Device[Device.DEFAULT].compiler.compile(source)
    return cast(bytes, binary)


def _program_on(call: UOp, memory: list[tuple[Buffer, ...]]) -> Step:
    info = call.src[0].arg
    program = Device[Device.DEFAULT].load(info.name, _binary_of(call.src[0]))
    units = [0, int(prod(info.global_size))] if program.is_kernel else []
    slots = _slots_of(call, call.src[1:])

    def start(variables: dict[str, int]) -> None:
        values = [variables[getattr(v, "arg", v).name] for v in info.vars]
        for number, _ in enumerate(slots):
            parts = [part(m, number).ensure() for m in memory]
            program(*(b.address for b in parts), *values, *units)

    return Step(call, start, memory, None, len(slots), slots=slots)


def launch(step: Step, variables: dict[str, int], count: bool = True) -> None:
    """Run one step and count it."""
    started = time.perf_counter()
    step.run(variables)
    seconds = time.perf_counter() - started
    if count:
        note(step, variables, seconds)


def note(step: Step, variables: dict[str, int], seconds: float) -> None:
    """Add a step to the counters; print its line under DEBUG=2."""
    operations, moved = work_of(step, variables)
    if step.program is not None or step.call.src[0].op is Ops.PROGRAM:
        GlobalCounters.kernel_count += step.count
    GlobalCounters.global_ops += operations
    GlobalCounters.global_mem += moved
    GlobalCounters.time_sum_s += seconds
    if DEBUG >= 2:
        name = step.program.name if step.program is not None else step.call.src[0].op.name.lower()
        place = ",".join(step.slots) or str(step.call.device)
        print(
            f"{place:8} {name:42} {seconds * 1e6:10.1f} us "
            f"{moved / max(seconds, 1e-9) * 1e-9:8.2f} GB/s "
            f"{operations / max(seconds, 1e-9) * 1e-9:8.2f} GFLOP/s"
        )


def work_of(step: Step, variables: dict[str, int]) -> tuple[int, int]:
    """Operations and bytes of a step over all its slots."""
    if step.program is None:
        return 0, step.moved
    generated = step.program.generated
    operations = size_under(generated.ops, variables) * step.count
    return operations, size_under(generated.memory, variables) * step.count
