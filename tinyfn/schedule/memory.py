"""Temporaries share memory: each gets an offset in an arena that nothing alive overlaps."""

from __future__ import annotations

from dataclasses import dataclass

from tinyfn.helpers import prod
from tinyfn.uop.info import Device
from tinyfn.uop.ops import Ops, UOp, toposort

ALIGNMENT = 64


@dataclass(frozen=True)
class Slice:
    """The part of an arena that a temporary uses."""

    memory: UOp
    device: Device
    offset: int
    nbytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """Where every temporary of a schedule lies, and how large each device's arena is."""

    slices: tuple[Slice, ...] = ()
    arenas: tuple[tuple[Device, int], ...] = ()


def buffers_of(call: UOp) -> list[UOp]:
    """The buffers a call uses (below slot selections)."""
    return [n for n in toposort(call.src[1:]) if n.op is Ops.BUFFER]


def size_in_bytes(memory: UOp) -> int:
    """Bytes of one slot's part, rounded up to the alignment."""
    raw = int(prod(memory.arg.shape)) * memory.dtype.itemsize
    return -(-raw // ALIGNMENT) * ALIGNMENT


def plan_memory(calls: list[UOp], temporaries: set[UOp]) -> MemoryPlan:
    """Offsets for temporaries by their lifetimes over the list, the smallest hole that fits."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for step, call in enumerate(calls):
        for memory in buffers_of(call):
            if memory in temporaries:
                first.setdefault(memory, step)
                last[memory] = step
    holes: dict[Device, list[tuple[int, int]]] = {}
    tops: dict[Device, int] = {}
    slices: dict[UOp, Slice] = {}
    starting: dict[int, list[UOp]] = {}
    ending: dict[int, list[UOp]] = {}
    for memory, step in first.items():
        starting.setdefault(step, []).append(memory)
        ending.setdefault(last[memory], []).append(memory)
    for step in range(len(calls)):
        for memory in starting.get(step, ()):
            device, nbytes = memory.arg.device, size_in_bytes(memory)
            offset = _take(holes.setdefault(device, []), nbytes)
            if offset is None:
                offset = tops.get(device, 0)
                tops[device] = offset + nbytes
            slices[memory] = Slice(memory, device, offset, nbytes)
        for memory in ending.get(step, ()):
            gone = slices[memory]
            holes[gone.device] = _give(holes[gone.device], gone.offset, gone.nbytes)
    return MemoryPlan(tuple(slices.values()), tuple(tops.items()))


def _take(holes: list[tuple[int, int]], nbytes: int) -> int | None:
    """The offset of the smallest hole that fits, which shrinks; None where none does."""
    fitting = [(size, offset) for offset, size in holes if size >= nbytes]
    if not fitting:
        return None
    size, offset = min(fitting)
    holes.remove((offset, size))
    if size > nbytes:
        holes.append((offset + nbytes, size - nbytes))
    return offset


def _give(holes: list[tuple[int, int]], offset: int, nbytes: int) -> list[tuple[int, int]]:
    """The holes with one more, neighbours joined."""
    if not nbytes:
        return holes
    joined: list[tuple[int, int]] = []
    for start, size in sorted([*holes, (offset, nbytes)]):
        if joined and joined[-1][0] + joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((start, size))
    return joined
