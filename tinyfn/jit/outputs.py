"""Memory for an output of a recording, used again once nobody can see it any more."""

from __future__ import annotations

from collections.abc import Iterable
from sys import getrefcount

from tinyfn.device import Storage
from tinyfn.runtime import execute
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, toposort

REMEMBERED = 3  # outputs of earlier replays whose memory may be used again


def _references_of_nobody() -> int:
    """What getrefcount says of a tuple's part in a loop: Pythons differ in what they count."""
    for part, _ in [(object(), 0)]:
        return getrefcount(part)
    return 0


FREE = _references_of_nobody()


class Ring:
    """The memories that the replays of one recording have given to one of its outputs.

    `nodes` are the recorded memory and the views of it that are results, sources first. A replay
    gets nodes like them on memory that is free: on memory that nobody else can reach any more.
    """

    def __init__(self, recorded: UOp, results: Iterable[UOp] = ()) -> None:
        self.recorded = recorded
        self.nodes = (recorded, *_views(recorded, results))
        self._made: list[
            tuple[tuple[tuple[UOp, int], ...], int, tuple[UOp, ...], tuple[Storage, ...]]
        ] = []

    def take(self) -> tuple[tuple[UOp, ...], int]:
        """Nodes whose memory is free, and the address of its (first slot's) memory."""
        for held, address, nodes, storages in self._made:
            for node, own in held:
                if getrefcount(node) > own:
                    break
            else:
                for storage in storages:
                    # the cell of the buffer has one; arrays and other tensors would add one
                    if getrefcount(storage) > FREE + 1:
                        break
                else:
                    return nodes, address
        return self._make()

    def _make(self) -> tuple[tuple[UOp, ...], int]:
        info = self.recorded.arg
        memory: UOp = UOp.new_memory(info.device, info.shape, self.recorded.dtype, kind=info.kind)
        table = {self.recorded: memory}
        for view in self.nodes[1:]:
            table[view] = view.with_src(tuple(table.get(s, s) for s in view.src))
        nodes = tuple(table.values())
        # in the tuple of nodes, and in the sources of those that stand on it
        held = tuple((n, FREE + 1 + sum(v.src.count(n) for v in nodes)) for n in nodes)
        buffers = execute.memory_of(memory)
        storages = tuple(b.storage for b in buffers)
        self._made.append((held, buffers[0].address, nodes, storages))
        del self._made[:-REMEMBERED]
        return nodes, buffers[0].address


def _views(recorded: UOp, results: Iterable[UOp]) -> list[UOp]:
    """What stands between memory and the results that are views of it, results included."""
    found: dict[UOp, None] = {}
    for result in results:
        chain = [result]
        while chain[-1].op in opcodes.MOVEMENT and not _has_other_memory(chain[-1]):
            chain.append(chain[-1].src[0])
        if chain.pop() is recorded:
            found.update(dict.fromkeys(reversed(chain)))
    return list(found)


def _has_other_memory(view: UOp) -> bool:
    """Whether the sizes of a view are what a call brings."""
    return any(n.op in (Ops.BUFFER, Ops.BIND) for n in toposort(view.src[1:]))
