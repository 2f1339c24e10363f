"""What a recorded function overwrites of what was there before, and who waits to read that.

A tensor that is not computed yet may need a value that a replay is about to overwrite. It is
computed before, outside of the recording: within, every replay would compute it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinyfn import live
from tinyfn.call import stored_places
from tinyfn.uop.ops import UOp


class Overwritten:
    """The memory from before a call that the call writes to; its inputs are told apart."""

    def __init__(self, inputs: Iterable[UOp], started: int) -> None:
        self.inputs = False
        self._memories: set[UOp] = set()
        self._given, self._started = set(inputs), started
        self._seen = 0

    def note(self, linear: UOp, *_run: object) -> None:
        """Look at one list of calls."""
        places = {place for call in linear.src for place in stored_places(call)}
        self.inputs |= not places.isdisjoint(self._given)
        self._memories |= {p for p in places - self._given if p.born <= self._started}

    @property
    def outside(self) -> bool:
        """Whether memory other than that of inputs is overwritten."""
        return bool(self._memories)

    def realize_readers(self, inputs: Sequence[UOp] = ()) -> None:
        """Compute what waits to read the memory that another call with these inputs overwrites."""
        if self._memories:
            self._seen = live.realize_new_readers(self._memories, self._seen)
        if self.inputs and inputs:
            live.realize_new_readers(set(inputs), 0)
