"""A number that changes from run to run is an argument of a kernel, not part of its code.

Before: `x * 0.1`, then `x * 0.05`, then `x * 0.025`, each a kernel to compile. After the first two
the code stays the same, and reads the number from memory of one element. A kernel that is only seen
with one number or two keeps them as constants, which is what most kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyfn.dtype import Invalid, const_key, dtypes
from tinyfn.helpers import Recent
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, substitute, toposort

CONSTANT = 2  # so many kernels that differ in nothing but numbers have these as constants
KEPT = 2048
DTYPES = frozenset(
    (dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
)
USERS = opcodes.ELEMENTWISE | {Ops.STORE}

_known: Recent[UOp, tuple[UOp, dict[int, UOp]]] = Recent(KEPT)


@dataclass
class Alike:
    """Kernels that differ in numbers only: the first few, and which of their numbers differ."""

    first: list[tuple[Any, ...]] = field(default_factory=list)
    changing: set[int] = field(default_factory=set)

    def keeps_constant(self, numbers: tuple[Any, ...]) -> bool:
        """Whether a kernel with these numbers has them as constants."""
        if numbers not in self.first:
            if self.first:
                pairs = zip(numbers, self.first[0], strict=True)
                self.changing |= {i for i, (a, b) in enumerate(pairs) if a != b}
            if len(self.first) == CONSTANT:
                return False
            self.first.append(numbers)
        return True


_seen: Recent[UOp, Alike] = Recent(KEPT)


def numbers_as_arguments(sink: UOp) -> tuple[UOp, dict[int, UOp]]:
    """The kernel to run, and the constants that it takes as memory, by slot."""
    found = _known.get(sink)
    return _known.keep(sink, _with_arguments(sink)) if found is None else found


def _with_arguments(sink: UOp) -> tuple[UOp, dict[int, UOp]]:
    order = toposort([sink])
    constants = _constants(order)
    slots = [n.arg.slot for n in order if n.op is Ops.PARAM]
    if not constants or not slots:
        return sink, {}
    alike, _ = _replaced(sink, constants, -len(constants))  # slots that no kernel has
    seen = _seen.get(alike)
    seen = _seen.keep(alike, Alike()) if seen is None else seen
    if seen.keeps_constant(tuple(const_key(c.arg) for c in constants)):
        return sink, {}
    return _replaced(sink, [constants[i] for i in sorted(seen.changing)], max(slots) + 1)


def _replaced(sink: UOp, constants: list[UOp], first: int) -> tuple[UOp, dict[int, UOp]]:
    """The kernel with constants read from memory in slots from the first on."""
    slots = dict(enumerate(constants, first))
    return substitute([sink], {c: _element(c, slot) for slot, c in slots.items()})[0], slots


def _constants(order: list[UOp]) -> list[UOp]:
    """The numbers that are computed with (and say nothing of places or loops), in order."""
    used: dict[UOp, bool] = {}
    for node in order:
        for source in node.src:
            if source.op is Ops.CONST:
                used[source] = used.get(source, True) and node.op in USERS
    return [
        n
        for n in order
        if n.op is Ops.CONST and n.dtype in DTYPES and n.arg is not Invalid and used.get(n)
    ]


def _element(constant: UOp, slot: int) -> UOp:
    memory: UOp = UOp.placeholder((1,), constant.dtype, slot)
    return UOp(Ops.INDEX, constant.dtype, (memory, UOp.const(0, dtypes.weakint)))
