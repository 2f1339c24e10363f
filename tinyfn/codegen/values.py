"""Nodes of the graph as registers: one op a statement, vectors where a lane axis is open.

Before: ADD(INDEX(p0, r0), CONST 1.0), r0 in lanes. After: `v0 = vload_f32x16(buf0, i0)`,
`v1 = vconst_f32x16(1.0)`, `v2 = vadd_f32x16(v0, v1)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tinyfn.codegen import gate
from tinyfn.codegen.access import Access, Coordinate, Packed, Pick
from tinyfn.codegen.hoist import Value, Writer
from tinyfn.codegen.loops import Binary, Loop, Sum, named
from tinyfn.codegen.ops import EXACT, NAMES, SMALL, WHOLE, op_name, register
from tinyfn.codegen.position import ZERO, Arithmetic, Position
from tinyfn.dtype import Invalid, dtypes
from tinyfn.errors import CompileError
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops, UOp
from tinyfn.uop.simplify import is_const


def wrapped(value: int, kind: str) -> int | float:
    """A known integer as a register type holds it."""
    if kind[0] == "f":
        return float(value)
    bits = int(kind[1:])
    low = value % (1 << bits)
    return low - (1 << bits) if kind[0] == "i" and low >> (bits - 1) else low


class Values:
    """Writes the values of nodes, each once in a scope."""

    def __init__(self, writer: Writer, names: dict[Any, str], written: frozenset[int]) -> None:
        self.writer = writer
        self.arithmetic = Arithmetic(writer)
        self.access = Access(self)
        self.names = names
        self.written = written
        self.coordinates: dict[UOp, list[Coordinate]] = {}
        self.orders: dict[UOp, list[UOp]] = {}
        self.packed: dict[UOp, Packed] = {}
        self.literals: dict[str, tuple[Any, str]] = {}

    # *** picks ***

    def key(self, node: UOp, pick: Pick) -> Any:
        """The node and the copies of loops it belongs to."""
        if not pick:
            return node
        chosen = frozenset((r, i) for r, i in pick.items() if r in node.ranges)
        return (node, chosen) if chosen else node

    def coordinate(self, loop: UOp, pick: Pick) -> Coordinate:
        """Where the picked copy of a loop is."""
        found = self.coordinates.get(loop)
        if found is None:
            raise CompileError(f"a kernel uses the counter of loop {loop.arg} outside of it")
        return found[pick.get(loop, 0)]

    def mask_of(self, ranges: Any, pick: Pick) -> Value | None:
        """The lanes that exist, of the lane axis among these loops (None: all)."""
        for loop in ranges:
            coordinates = self.coordinates.get(loop)
            if coordinates and coordinates[0].lanes:
                return coordinates[pick.get(loop, 0)].mask
        return None

    def picks(self, ranges: Any) -> Iterator[Pick]:
        """Every choice of copies of these loops; vectors that lie together follow each other.

        So a tile keeps its few vectors of columns in registers and takes row by row to them.
        """
        several = [r for r, c in self.coordinates.items() if len(c) > 1 and r in ranges]
        several.sort(key=lambda r: self.coordinates[r][0].lanes)
        counts = [range(len(self.coordinates[r])) for r in several]
        for choice in itertools.product(*counts):
            yield dict(zip(several, choice, strict=True))

    def size(self, loop: Loop) -> Sum:
        """How often a loop runs."""
        return self.arithmetic.short(self.position(loop.range.src[0], {}).base)

    # *** evaluation ***

    def order(self, root: UOp) -> list[UOp]:
        """The data nodes below a node that values are written for, sources first."""
        if root not in self.orders:
            found: dict[UOp, None] = {}
            stack: list[tuple[UOp, bool]] = [(root, False)]
            while stack:
                node, ready = stack.pop()
                if node in found:
                    continue
                if ready:
                    found[node] = None
                    continue
                if node.op is Ops.REDUCE or (node.op is Ops.AFTER and node is not root):
                    continue
                if node in self.packed:
                    found[node] = None
                    continue
                stack.append((node, True))
                stack += [(s, False) for s in reversed(node.src) if s not in found]
            self.orders[root] = [n for n in found if self.is_data(n)]
        return self.orders[root]

    @staticmethod
    def is_data(node: UOp) -> bool:
        """Whether a register is written for the node before it is asked for."""
        if node.op is Ops.INDEX:
            return True
        return node.op in opcodes.ELEMENTWISE and node.dtype is not dtypes.weakint

    def value(self, node: UOp, pick: Pick) -> Value:
        """The register of a data node; all it needs is written first."""
        for inner in self.order(node):
            self.known(inner, pick)
        return self.known(node, pick)

    def known(self, node: UOp, pick: Pick) -> Value:
        """The register of a node whose sources have theirs."""
        key = self.key(node, pick)
        found = self.writer.recall(key)
        if found is None:
            found = self.compute(node, pick)
            self.writer.remember(key, found)
        return found  # type: ignore[no-any-return]

    def compute(self, node: UOp, pick: Pick, rounded: bool = True) -> Value:
        """Write one node."""
        if node in self.packed:
            return self.access.load_packed(node, pick)
        if node.op is Ops.CONST:
            return self.constant(node)
        if node.op is Ops.INDEX:
            return self.access.load(node, pick)
        if node.dtype is dtypes.weakint and node.op is not Ops.REDUCE:
            return self.integer_value(self.position(node, pick), "i64")
        if node.op is Ops.CAST:
            return self.cast(node, pick, rounded)
        if node.op is Ops.BITCAST:
            return self.bitcast(node, pick)
        if node.op in gate.NAMES and all(s.dtype is dtypes.weakint for s in node.src):
            x, y = (self.position(s, pick) for s in node.src)
            return gate.compare(self.arithmetic, node.op, x, y)
        if node.op not in opcodes.ELEMENTWISE:
            raise CompileError(f"{node.op.name} has no value where a kernel uses one: {node!r}")
        args = [self.known(s, pick) for s in node.src]
        if node.op is Ops.AND and node.dtype is dtypes.bool:
            found = gate.both_masks(self.arithmetic, args[0], args[1])
            assert found is not None
            return found
        if node.op in WHOLE and node.dtype.kind != "float":
            return args[0]
        found = self.operate(node.op, args)
        if rounded and node.dtype in SMALL and node.op not in EXACT:
            return self.rounded(found, node)
        return found

    def operate(self, op: Ops, args: list[Value]) -> Value:
        """An elementwise op on registers; scalars beside vectors are spread over the lanes."""
        lanes = max(a.lanes for a in args)
        if lanes:
            args = [self.splat(a, lanes) for a in args]
        kind = args[-1].kind
        suffix = f"{kind}x{lanes}" if lanes else kind
        name = f"{'v' if lanes else ''}{op_name(op, kind)}_{suffix}"
        result = "b1" if op in opcodes.COMPARE else kind
        prefix = "m" if result == "b1" else "v"
        return Value(self.writer.let(prefix, name, *(a.name for a in args)), result, lanes)

    def rounded(self, value: Value, node: UOp) -> Value:
        """A value of a small float type, rounded to it."""
        short = node.dtype.short
        name = f"vquant_{short}x{value.lanes}" if value.lanes else f"quant_{short}"
        return Value(self.writer.let("v", name, value.name), "f32", value.lanes)

    # *** leaves ***

    def constant(self, node: UOp) -> Value:
        """A constant."""
        kind = register(node.dtype)
        literal = 0 if node.arg is Invalid else node.arg
        if node.dtype.kind == "float":
            literal = float(literal)
        return self.literal(literal, kind)

    def literal(self, literal: Any, kind: str) -> Value:
        """A scalar register with a known value."""
        prefix = "m" if kind == "b1" else "v"
        name = self.writer.let(prefix, f"const_{kind}", literal)
        self.literals[name] = (literal, kind)
        return Value(name, kind)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if value.lanes:
            return value
        prefix = "m" if value.kind == "b1" else "v"
        op = f"{value.kind}x{lanes}"
        if value.name in self.literals:
            literal, _ = self.literals[value.name]
            return Value(self.writer.let(prefix, f"vconst_{op}", literal), value.kind, lanes)
        return Value(self.writer.let(prefix, f"vsplat_{op}", value.name), value.kind, lanes)

    # *** casts ***

    def cast(self, node: UOp, pick: Pick, rounded: bool) -> Value:
        """CAST: between register types, rounded where the target is small."""
        source = node.src[0]
        kind = register(node.dtype)
        if source.dtype is dtypes.weakint:
            found = self.integer_value(self.position(source, pick), kind)
        else:
            found = self.cast_value(self.known(source, pick), kind)
        exact = source.dtype is node.dtype or source.dtype.kind == "bool"
        if rounded and node.dtype in SMALL and not exact:
            return self.rounded(found, node)
        return found

    def cast_value(self, value: Value, kind: str) -> Value:
        """A register as another type."""
        if value.kind == kind:
            return value
        name = f"cast_{value.kind}_{kind}"
        name = f"v{name}x{value.lanes}" if value.lanes else name
        prefix = "m" if kind == "b1" else "v"
        return Value(self.writer.let(prefix, name, value.name), kind, value.lanes)

    def bitcast(self, node: UOp, pick: Pick) -> Value:
        """BITCAST, named by storage types."""
        value = self.known(node.src[0], pick)
        name = f"bitcast_{node.src[0].dtype.short}_{node.dtype.short}"
        name = f"v{name}x{value.lanes}" if value.lanes else name
        return Value(self.writer.let("v", name, value.name), register(node.dtype), value.lanes)

    def integer_value(self, x: Position, kind: str) -> Value:
        """An index as data."""
        if x.uniform:
            if not x.base.terms and kind != "b1":
                return self.literal(wrapped(x.base.constant, kind), kind)
            wide = self.arithmetic.value(x.base)
            return wide if kind == "i64" else self.cast_value(wide, kind)
        if kind in ("i32", "i16", "i8", "u32", "u16", "u8") and x.linear:
            return self.narrow_lanes(x, kind)
        return self.cast_value(self.arithmetic.vector(x, x.lanes), kind)

    def narrow_lanes(self, x: Position, kind: str) -> Value:
        """base + lane * stride in a narrow type, where it wraps the same."""
        lanes, writer = x.lanes, self.writer
        found = Value(writer.let("v", f"viota_{kind}x{lanes}"), kind, lanes)
        if x.stride != 1:
            found = self.operate(Ops.MUL, [found, self.literal(wrapped(x.stride, kind), kind)])
        if not x.base.terms and not x.base.constant:
            return found
        base = self.integer_value(Position(x.base), kind)
        return self.operate(Ops.ADD, [found, base])

    # *** indices ***

    def position(self, node: UOp, pick: Pick) -> Position:
        """A weakint node as a position."""
        key = ("position", self.key(node, pick))
        found = self.writer.recall(key)
        if found is None:
            found = self._position(node, pick)
            self.writer.remember(key, found)
        return found  # type: ignore[no-any-return]

    def _position(self, node: UOp, pick: Pick) -> Position:
        if node.op is Ops.CONST:
            return Position(Sum((), 0 if node.arg is Invalid else node.arg))
        if node.op is Ops.RANGE:
            at = self.coordinate(node, pick)
            return Position(at.base, 1 if at.lanes else 0, None, at.lanes)
        if node.op in (Ops.VARIABLE, Ops.SLOT):
            return Position(named(self.names[node]))
        if node.op is Ops.CAST and node.src[0].dtype is dtypes.weakint:
            return self.position(node.src[0], pick)
        if node.op in (Ops.ADD, Ops.SUB, Ops.NEG):
            x = self.position(node.src[0], pick)
            if node.op is Ops.NEG:
                return self.arithmetic.add(ZERO, x, -1)
            sign = 1 if node.op is Ops.ADD else -1
            return self.arithmetic.add(x, self.position(node.src[1], pick), sign)
        if node.op is Ops.MUL:
            x, y = (self.position(s, pick) for s in node.src)
            return self.arithmetic.times(x, y)
        if node.op in (Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN):
            return self._quotient_or_extreme(node, pick)
        return self._loaded_position(node, pick)

    def _quotient_or_extreme(self, node: UOp, pick: Pick) -> Position:
        x, y = (self.position(s, pick) for s in node.src)
        divides = node.op in (Ops.IDIV, Ops.MOD)
        if divides and is_const(node.src[1]) and node.src[1].arg > 0:
            step = self.arithmetic.divide if node.op is Ops.IDIV else self.arithmetic.remainder
            return step(x, node.src[1].arg)
        if x.uniform and y.uniform and (not divides or node.src[1].vmin > 0):
            symbol = {Ops.IDIV: "//", Ops.MOD: "%", Ops.MAX: "max", Ops.MIN: "min"}[node.op]
            short = self.arithmetic.short
            return self.arithmetic.scalar(Binary(symbol, short(x.base), short(y.base)))
        return self._from_value(
            self.operate(node.op, [self.integer_value(x, "i64"), self.integer_value(y, "i64")])
        )

    def _loaded_position(self, node: UOp, pick: Pick) -> Position:
        """An index that is data: loaded, cast from another type, or chosen."""
        if node.op is Ops.INDEX or node.op is Ops.REDUCE:
            return self._from_value(self.known(node, pick))
        if node.op is Ops.CAST:
            return self._from_value(self.cast_value(self.value(node.src[0], pick), "i64"))
        if node.op not in NAMES:
            raise CompileError(f"{node.op.name} cannot stand in an index: {node!r}")
        args = [
            self.integer_value(self.position(s, pick), "i64")
            if s.dtype is dtypes.weakint
            else self.value(s, pick)
            for s in node.src
        ]
        return self._from_value(self.operate(node.op, args))

    @staticmethod
    def _from_value(value: Value) -> Position:
        if value.lanes:
            return Position(Sum(), 0, value, value.lanes)
        return Position(named(value.name))

    def condition(self, node: UOp | None, pick: Pick) -> Value | None:
        """The gate of an INDEX as a mask."""
        if node is None:
            return None
        return self.value(node, pick)
