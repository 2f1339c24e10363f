"""A finished list of calls is proven: what is read was written, copies have their source."""

from __future__ import annotations

from collections.abc import Iterable

from tinyfn import call as calls
from tinyfn.errors import ScheduleError
from tinyfn.uop.ops import Ops, UOp, toposort


def check_linear(linear: UOp, given: Iterable[UOp]) -> None:
    """Raise where a call reads memory that nothing has filled, or a slot reads another's memory.

    `given` is the memory that has contents before the list runs.
    """
    filled = set(given)
    for number, call in enumerate(linear.src):
        reads, writes = _access(call)
        for memory in reads:
            if memory not in filled:
                raise ScheduleError(
                    f"step {number} of the schedule reads {memory!r}, which nothing has written"
                )
        _check_slots(number, call)
        filled |= set(writes)


def _access(call: UOp) -> tuple[list[UOp], list[UOp]]:
    """The buffers a call reads and those it writes."""
    body, arguments = call.src[0], call.src[1:]
    if body.op is Ops.COPY:
        return _memory(arguments[1]), _memory(arguments[0])
    reads, writes = calls.kernel_access(body)
    return (
        [m for slot in sorted(reads - writes) for m in _memory(arguments[slot])],
        [m for slot in sorted(writes) for m in _memory(arguments[slot])],
    )


def _memory(argument: UOp) -> list[UOp]:
    return [n for n in toposort([argument]) if n.op in (Ops.BUFFER, Ops.PARAM)]


def _check_slots(number: int, call: UOp) -> None:
    """A kernel runs on one device, or on each slot of a tuple with the slot's own parts."""
    if call.src[0].op is Ops.COPY:
        return
    devices = {a.device for a in call.src[1:] if a.device is not None}
    if len(devices) > 1:
        raise ScheduleError(
            f"step {number} of the schedule mixes memory of {sorted(map(str, devices))} "
            "without a copy"
        )
