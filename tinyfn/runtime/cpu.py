"""The backend of "CPU", "CPU:1", ...: slots of one machine that share its memory and threads."""

from __future__ import annotations

import ast
import inspect
import textwrap
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from tinyfn.codegen import cache, host_c
from tinyfn.device import Buffer, Device, Target
from tinyfn.errors import CompileError
from tinyfn.helpers import ceildiv
from tinyfn.runtime import copy, machine
from tinyfn.runtime.allocator import Allocator
from tinyfn.runtime.pool import helper_count, shared_pool
from tinyfn.runtime.program import Program, load_program

# Estimated seconds of a launch: below the first no helper is called, below the second the GIL is
# kept; a thread takes pieces of about the third.
SHARE_FROM, KEEP_GIL_BELOW, PIECE = 8e-6, 20e-6, 4e-6
BYTES_PER_SECOND, OPERATIONS_PER_SECOND = 20e9, 30e9  # of one thread, cautious
PIECES_PER_THREAD = 8

_allocator = Allocator()


def allocator() -> Allocator:
    """The memory of all slots of this machine."""
    return _allocator


def share(n: int, step: int, slots: int, nbytes: int, operations: int = 0) -> tuple[int, int, bool]:
    """How to launch n units a slot, in multiples of `step`: chunk, helpers, keep the GIL.

    `nbytes` and `operations` are the work of all slots together.
    """
    seconds = max(nbytes / BYTES_PER_SECOND, operations / OPERATIONS_PER_SECOND)
    pieces = ceildiv(n, step) * slots
    helpers = max(min(helper_count(), pieces - 1), 0) if seconds >= SHARE_FROM else 0
    if helpers == 0:
        return max(n, 1), 0, seconds < KEEP_GIL_BELOW
    threads = helpers + 1
    rounds = min(PIECES_PER_THREAD, max(1, int(seconds / (threads * PIECE))))
    pieces_per_slot = ceildiv(threads * rounds, slots)
    chunk = ceildiv(ceildiv(max(n, 1), pieces_per_slot), step) * step
    return chunk, helpers, seconds < threads * KEEP_GIL_BELOW


def pack(blocks: Sequence[Sequence[int]]) -> array[int]:
    """A pointer a slot to its block of arguments, and the blocks behind."""
    words = array("q", (0,) * len(blocks))
    for block in blocks:
        words.extend(block)
    place = words.buffer_info()[0] + 8 * len(blocks)
    for slot, block in enumerate(blocks):
        words[slot] = place
        place += 8 * len(block)
    return words


class CpuBackend:
    """One slot."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compiler = CpuCompiler()

    @property
    def target(self) -> Target:
        """The processor that kernels are made for, with the threads the flags allow now."""
        return machine.target()

    def allocate(self, nbytes: int) -> int:
        """The address of fresh memory, aligned to 64 bytes, contents undefined."""
        return _allocator.allocate(nbytes)

    def free(self, address: int, owner: Allocator = _allocator) -> None:
        """Give memory back."""
        # the allocator is bound here because module globals are gone when the interpreter exits
        owner.free(address)

    def copy_in(self, address: int, source: memoryview) -> None:
        """Copy the bytes of `source` (contiguous) into memory of the slot."""
        copy.move(address, copy.address_of(source), source.nbytes)

    def copy_out(self, destination: memoryview, address: int) -> None:
        """Copy memory of the slot into `destination` (contiguous, writable)."""
        copy.move(copy.address_of(destination), address, destination.nbytes)

    def copy_between(self, destination: int, source: int, nbytes: int) -> None:
        """Copy bytes from the memory of any slot to this slot's."""
        copy.move(destination, source, nbytes)

    def load(self, name: str, binary: bytes) -> Program:
        """The function `name` of a binary that `compiler.compile` made."""
        return load_program(name, binary)

    def run_binary(
        self, binary: bytes, name: str, buffers: Sequence[Buffer], values: Sequence[int]
    ) -> None:
        """Run a program once, unsplit: plain arguments, the buffers' addresses first."""
        load_program(name, binary)(*(b.address for b in buffers), *values)

    def launch(
        self,
        address: int,
        blocks: Sequence[Sequence[int]],
        n: int,
        step: int,
        nbytes: int,
        operations: int = 0,
        name: str = "kernel",
    ) -> None:
        """Run a kernel over [0, n) of every slot, one block of arguments (int64) a slot.

        `step`: what chunks are multiples of; `nbytes` and `operations`: the work, all slots
        together, from which the launch decides how many threads are worth waking.
        """
        chunk, helpers, keep_gil = share(n, step, len(blocks), nbytes, operations)
        words = pack(blocks)
        start, _ = words.buffer_info()
        shared_pool().launch(address, start, len(blocks), n, chunk, helpers, keep_gil, name)

    def synchronize(self) -> None:
        """Wait until everything launched has finished: launches return when they have."""


class CpuCompiler:
    """Programs from C text, from the text of a kernel in Python, or from a Python function."""

    def compile(self, source: str | Callable[..., Any]) -> bytes:
        """The binary: a shared object (C), or a relocatable object (Python)."""
        text = textwrap.dedent(inspect.getsource(source)) if callable(source) else source
        if not isinstance(text, str) or not text.strip():
            raise CompileError(
                "expected the text of a C program, of a kernel in Python, or a Python function, "
                f"got {source!r}"
            )
        return cache.compile_object(text) if is_python(text) else host_c.compile_c(text)


def is_python(text: str) -> bool:
    """Whether the text is Python with a function in it (C never parses as that)."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(statement, ast.FunctionDef) for statement in body)


Device.register("CPU", CpuBackend)
