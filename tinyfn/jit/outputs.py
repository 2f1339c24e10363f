"""Memory for an output of a recording, used again once nobody can see it any more."""

from __future__ import annotations

from sys import getrefcount

from tinyfn.device import Storage
from tinyfn.runtime import execute
from tinyfn.uop.ops import UOp

REMEMBERED = 3  # outputs of earlier replays whose memory may be used again


def _references_of_nobody() -> int:
    """What getrefcount says of a tuple's part in a loop: Pythons differ in what they count."""
    for part, _ in [(object(), 0)]:
        return getrefcount(part)
    return 0


FREE = _references_of_nobody()


class Ring:
    """The memories that the replays of one recording have given to one of its outputs."""

    def __init__(self, recorded: UOp) -> None:
        self.recorded = recorded
        self._made: list[tuple[UOp, int, tuple[Storage, ...]]] = []

    def take(self) -> tuple[UOp, int]:
        """A node of memory that is free, and the address of its (first slot's) memory."""
        for node, address, storages in self._made:
            if getrefcount(node) <= FREE:
                for storage in storages:
                    # the cell of the buffer has one; arrays and other tensors would add one
                    if getrefcount(storage) > FREE + 1:
                        break
                else:
                    return node, address
        return self._make()

    def _make(self) -> tuple[UOp, int]:
        info = self.recorded.arg
        node: UOp = UOp.new_memory(info.device, info.shape, self.recorded.dtype, kind=info.kind)
        memory = execute.memory_of(node)
        self._made.append((node, memory[0].address, tuple(b.storage for b in memory)))
        del self._made[:-REMEMBERED]
        return node, memory[0].address
