"""Kernels as users write them, in the one form that the rest of codegen reads.

Before: STORE(INDEX(C, i, j), LOAD(INDEX(RESHAPE(A), j))) with n-D parameters, gates and movement.
After: STORE(INDEX(C, i*n+j), INDEX(A, WHERE(valid, offset, Invalid))): one flat offset each,
loops of one iteration gone.
"""

from __future__ import annotations

from typing import Any

from tinyfn.codegen.movement import ZERO, both, flat_index, source_index
from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import CompileError
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp, listing, toposort
from tinyfn.uop.simplify import RULES, is_const

INVALID = UOp.const(Invalid, dtypes.weakint)
SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)
PLACES = opcodes.MOVEMENT | {Ops.PARAM, Ops.INDEX, Ops.AFTER}


def normalise(sink: UOp) -> UOp:
    """The kernel with flat offsets only; see the module."""
    return Normaliser().run(sink)


def is_invalid(node: UOp) -> bool:
    """Whether the node is the constant Invalid."""
    return node.op is Ops.CONST and node.arg is Invalid


def rounded_to_odd(x: UOp) -> UOp:
    """A float64 as the float32 beside it whose last bit is 1, or the float32 that it is.

    A second rounding, to fewer bits, then gives what one rounding would
    (Boldo and Melquiond, 2008).
    """
    near = x.cast(dtypes.float32)
    back, bits = near.cast(dtypes.float64), near.bitcast(dtypes.int32)
    zero = UOp.const(0.0, dtypes.float64)
    positive = zero._alu("CMPLT", x)
    away = positive._alu("WHERE", x._alu("CMPLT", back), back._alu("CMPLT", x))
    step = away._alu("WHERE", UOp.const(-1, dtypes.int32), UOp.const(1, dtypes.int32))
    even = bits._alu("AND", UOp.const(1, dtypes.int32))._alu("CMPEQ", UOp.const(0, dtypes.int32))
    changes = back._alu("CMPNE", x)._alu("AND", even)
    odd = changes._alu("WHERE", bits._alu("ADD", step), bits)
    return odd.bitcast(dtypes.float32)


class Normaliser:
    """Maps every node to its normal form, sources first."""

    def __init__(self) -> None:
        self.done: dict[UOp, UOp] = {}
        self.places: set[UOp] = set()

    def run(self, sink: UOp) -> UOp:
        """The normal form of a kernel."""
        for node in toposort([sink]):
            if self.is_place(node):
                self.places.add(node)
                if node.shape == ():
                    self.done[node] = self.element(node)[0]
            else:
                self.done[node] = self.rebuilt(node)
        return self.done[sink]

    def is_place(self, node: UOp) -> bool:
        """Whether the node is memory or a part of it."""
        if node.op is Ops.PARAM:
            return True
        return node.op in PLACES and node.src[0] in self.places

    def rebuilt(self, node: UOp) -> UOp:
        """A node that is not memory, on normal sources."""
        if node.op is Ops.LOAD:
            return self.loaded(node)
        if node.op is Ops.STORE:
            return self.stored(node)
        if node.op is Ops.BIND:
            return self.done[node.src[0]]
        if node.op is Ops.AFTER:
            return self.done[node.src[0]]
        if node.op is Ops.RANGE:
            return self.counted(node)
        if node.op in (Ops.SINK, Ops.GROUP, Ops.END) and any(s in self.places for s in node.src):
            node = node.with_src(tuple(self.run_before(s) for s in node.src))
        missing = [s for s in node.src if s not in self.done]
        if missing:
            raise CompileError(
                f"a kernel computes single elements: {node.op.name} got a whole tensor of shape "
                f"{missing[0].shape}; index it first\n{listing(node, missing[0])}"
            )
        src = tuple(self.done[s] for s in node.src)
        if node.op in (Ops.END, Ops.REDUCE):
            loops = tuple(s for s in src[1:] if s.op is Ops.RANGE)
            return src[0] if not loops else UOp(node.op, node.dtype, (src[0], *loops), node.arg)
        if node.op is Ops.CAST and src[0].dtype is dtypes.float64 and node.dtype in SMALL_FLOATS:
            src = (rounded_to_odd(src[0]),)
        new = node.with_src(src)
        found: UOp | None = RULES.apply(new) if node.op in opcodes.ELEMENTWISE else None
        return new if found is None else found

    def run_before(self, node: UOp) -> UOp:
        """What must have run before memory is read, in the place of that memory."""
        if node not in self.places:
            return node
        needs: list[UOp] = []
        while node.op is not Ops.PARAM:
            if node.op is Ops.AFTER:
                needs += [self.done[s] for s in node.src[1:] if s in self.done]
            node = node.src[0]
        group = UOp(Ops.GROUP, dtypes.void, tuple(needs))
        self.done[group] = group
        return group

    def counted(self, node: UOp) -> UOp:
        """A loop; of one iteration it is 0. Counters are weakints."""
        end = self.done[node.src[0]]
        if is_const(end) and end.arg == 1:
            return UOp.const(0, node.dtype)
        loop = UOp(Ops.RANGE, dtypes.weakint, (end,), node.arg)
        return loop if node.dtype is dtypes.weakint else UOp(Ops.CAST, node.dtype, (loop,))

    # *** memory ***

    def element(self, place: UOp) -> tuple[UOp, UOp | None]:
        """The INDEX of a place that is one element, and the condition under which it is one."""
        index: tuple[UOp, ...] = ()
        valid: UOp | None = None
        needs: list[UOp] = []
        node = place
        while node.op is not Ops.PARAM:
            if node.op is Ops.INDEX:
                pairs = [ungated(self.counter(s)) for s in node.src[1:]]
                index = (*(position for _, position in pairs), *index)
                for condition, _ in pairs:
                    valid = both(valid, condition)
            elif node.op is Ops.AFTER:
                needs += [self.done[s] for s in node.src[1:] if s in self.done]
            else:
                index, more = source_index(node, index, [self.done[s] for s in node.src[1:]])
                valid = both(valid, more)
            node = node.src[0]
        offset = flat_index(index, node.shape)
        memory = node if not needs else UOp(Ops.AFTER, node.dtype, (node, *needs))
        if valid is not None:
            offset = UOp(Ops.WHERE, dtypes.weakint, (valid, offset, INVALID))
        return UOp(Ops.INDEX, place.dtype, (memory, offset)), valid

    def counter(self, node: UOp) -> UOp:
        """An index as a weakint."""
        found = self.done[node]
        if found.dtype is dtypes.weakint:
            return found
        return UOp(Ops.CAST, dtypes.weakint, (found,))

    def loaded(self, node: UOp) -> UOp:
        """LOAD is the INDEX itself; what replaces elements that are not valid is a WHERE."""
        found = self.done[node.src[0]]
        others = [s for s in node.src[1:] if s.dtype is not dtypes.void and s in self.done]
        if not others or found.op is not Ops.INDEX:
            return found
        valid = self.element(node.src[0])[1]
        if valid is None:
            return found
        return UOp(Ops.WHERE, node.dtype, (valid, found, self.done[others[0]].cast(node.dtype)))

    def stored(self, node: UOp) -> UOp:
        """A gate of a STORE, or Invalid as its value, is a condition of its offset."""
        place, value = node.src[:2]
        if place not in self.places or place.shape != () or value not in self.done:
            raise CompileError(
                "a kernel stores single elements: expected an indexed parameter and a scalar "
                f"value, got shapes {place.shape} and {value.shape}\n{listing(node, place)}"
            )
        target, what = self.done[place], self.done[value]
        gate = None if len(node.src) < 3 else self.done[node.src[2]]
        if is_invalid(what):
            return UOp(Ops.GROUP, dtypes.void)
        if what.op is Ops.WHERE and any(is_invalid(s) for s in what.src[1:]):
            condition, what = ungated(what)
            gate = both(gate, condition)
        if gate is not None:
            memory, (condition, offset) = target.src[0], ungated(target.src[1])
            gated = both(gate, condition)
            assert gated is not None
            offset = UOp(Ops.WHERE, dtypes.weakint, (gated, offset, INVALID))
            target = target.with_src((memory, offset))
        return UOp(Ops.STORE, dtypes.void, (target, what))


def gate_of(index: UOp) -> tuple[UOp | None, UOp]:
    """The condition of an INDEX (None: always) and its plain offset."""
    return ungated(index.src[1] if len(index.src) > 1 else ZERO)


def ungated(offset: UOp) -> tuple[UOp | None, UOp]:
    """The condition of an offset or value (None: always), and what it is where that holds."""
    if is_invalid(offset):
        return UOp.const(False, dtypes.bool), ZERO
    if offset.op is Ops.WHERE and is_invalid(offset.src[2]):
        condition = offset.src[0]
        if is_const(condition):
            return (None, offset.src[1]) if condition.arg else (condition, ZERO)
        return condition, offset.src[1]
    if offset.op is Ops.WHERE and is_invalid(offset.src[1]):
        return UOp(Ops.NOT, dtypes.bool, (offset.src[0],)), offset.src[2]
    return None, offset


def memory_of(index: UOp) -> UOp:
    """The PARAM of an INDEX."""
    node: Any = index.src[0]
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node  # type: ignore[no-any-return]
