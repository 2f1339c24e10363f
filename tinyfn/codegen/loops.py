"""The loop IR: a tree of loops over graph nodes, and the statements it is written out as.

`Block`, `Loop` and what stands in them say what happens inside which loop and in which order;
values are still nodes of the kernel graph. The planning passes set `lanes` and `copies` on loops.
`Let`, `Do`, `For` ... are statements of the generated language; integer expressions in them are
`Sum` and `Binary` records over names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tinyfn.codegen.choice import DEFAULT, Choice
from tinyfn.uop.ops import UOp

# *** the tree ***


@dataclass
class Read:
    """A load of memory that the kernel also writes: it keeps its place in the order."""

    node: UOp


@dataclass
class Write:
    """A STORE."""

    node: UOp


@dataclass
class Update:
    """One value more for the accumulators of a REDUCE."""

    node: UOp


@dataclass
class Block:
    """Items in the order in which they happen."""

    items: list[Item] = field(default_factory=list)


@dataclass
class Closing:
    """A REDUCE that a loop begins: its accumulators live across `loops`, outermost first."""

    node: UOp
    loops: list[Loop] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """A loop over a range.

    `independent`: iterations may run in any order or at once. `ordered`: stores inside depend on
    the order. (Neither: only accumulators are carried.) `lanes` iterations make one vector (0:
    scalars), `copies` of them are written out in one pass of the loop. `unrolled`: written out
    completely. `masked`: what is left over runs in the same text as the rest, with a mask.
    """

    range: UOp
    body: Block
    closings: list[Closing] = field(default_factory=list)
    independent: bool = False
    ordered: bool = False
    lanes: int = 0
    copies: int = 1
    unrolled: bool = False
    masked: bool = False

    @property
    def size(self) -> int | None:
        """How often it runs, where that is known."""
        end = self.range.src[0]
        return end.arg if end.op.name == "CONST" else None

    @property
    def likely_size(self) -> int:
        """How often it runs, guessing the most for symbolic sizes."""
        return max(int(self.range.vmax) + 1, 1)


Item = Read | Write | Update | Loop


@dataclass
class Memory:
    """One parameter or scratch of a kernel: its name in the source."""

    node: UOp
    name: str


@dataclass
class Parallel:
    """How the kernel is split over threads.

    The units are blocks of `block` iterations of the given loops, the last loop fastest.
    `direct`: one loop, and lo and hi count its iterations themselves.
    """

    loops: list[Loop] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    direct: bool = False


@dataclass
class Kernel:
    """A kernel as loops, with what holds for all of it.

    `order` are the outer loops as they are nested inside of a unit. `panels` are nodes that the
    first of them copies into scratch, in `panel_loops`, before the others run; `transposed` are
    those of them that are contiguous along the last of these loops. `streamed` are the slots whose
    memory is larger than the cache, only written, and so stored past the cache. `turned` are loads
    that are neighbours along another loop than the lanes. `choice` are the decisions taken by
    timing instead of by cost, `offers` how many tiles each nest of loops had to choose from.
    """

    name: str
    body: Block
    globals: list[UOp]
    scratch: list[UOp]
    variables: list[UOp]
    written: frozenset[int]
    streamed: frozenset[int] = frozenset()
    about: str = ""
    parallel: Parallel = field(default_factory=Parallel)
    order: list[Loop] = field(default_factory=list)
    panels: list[UOp] = field(default_factory=list)
    panel_loops: list[Loop] = field(default_factory=list)
    transposed: dict[UOp, Loop] = field(default_factory=dict)
    turned: dict[UOp, Loop] = field(default_factory=dict)
    choice: Choice = DEFAULT
    offers: list[int] = field(default_factory=list)


def loops_in(block: Block) -> Iterator[Loop]:
    """Every loop of the block and of the loops in it."""
    stack = [block]
    while stack:
        for item in stack.pop().items:
            if isinstance(item, Loop):
                yield item
                stack.append(item.body)


def leaves_in(block: Block) -> Iterator[Read | Write | Update]:
    """Everything in the block and in its loops that is not a loop."""
    stack = [block]
    while stack:
        for item in stack.pop().items:
            if isinstance(item, Loop):
                stack.append(item.body)
            else:
                yield item


def chain_of(loop: Loop) -> list[Loop]:
    """The independent loops that stand directly in one another, from this one on."""
    found: list[Loop] = []
    while loop.independent and not loop.closings:
        found.append(loop)
        items = loop.body.items
        if len(items) != 1 or not isinstance(items[0], Loop):
            break
        loop = items[0]
    return found


def reduce_nest(block: Block) -> list[Loop]:
    """The loops of the only reduction of a block; none where it has none or several."""
    loops = [i for i in block.items if isinstance(i, Loop)]
    if len(loops) != 1 or not loops[0].closings:
        return []
    return max((c.loops for c in loops[0].closings), key=len)


def outer_chain(kernel: Kernel) -> list[Loop]:
    """The independent loops around everything, none of whose sizes depends on another."""
    items = kernel.body.items
    chain = chain_of(items[0]) if len(items) == 1 and isinstance(items[0], Loop) else []
    sizes = {r for loop in chain for r in loop.range.src[0].ranges}
    return [] if any(loop.range in sizes for loop in chain) else chain


# *** integer expressions ***


@dataclass(frozen=True)
class Sum:
    """A sum of multiples of names, and a constant."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """This and a multiple of another sum."""
        if not other.terms:
            return Sum(self.terms, self.constant + other.constant * factor)
        found = dict(self.terms)
        for name, count in other.terms:
            found[name] = found.get(name, 0) + count * factor
        terms = tuple((n, f) for n, f in found.items() if f)
        return Sum(terms, self.constant + other.constant * factor)

    def times(self, factor: int) -> Sum:
        """A multiple."""
        if factor == 0:
            return Sum()
        return Sum(tuple((n, f * factor) for n, f in self.terms), self.constant * factor)


@dataclass(frozen=True)
class Binary:
    """x op y for one of * // % min max."""

    op: str
    left: Expression
    right: Expression


Expression = Sum | Binary


def number(value: int) -> Sum:
    """A literal."""
    return Sum((), value)


def named(name: str) -> Sum:
    """A name by itself."""
    return Sum(((name, 1),))


# *** statements ***


@dataclass(frozen=True)
class Let:
    """name = op(args)."""

    name: str
    op: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Assign:
    """name = integer expression, or another name."""

    name: str
    value: Expression


@dataclass(frozen=True)
class Do:
    """op(args), for its effect."""

    op: str
    args: tuple[Any, ...]


@dataclass
class For:
    """for name in range(start, stop, step)."""

    name: str
    start: Expression
    stop: Expression
    step: int
    body: list[Statement]
    comment: str = ""


Statement = Let | Assign | Do | For


@dataclass
class Program:
    """A kernel written out: its parameters with their types, its statements, what it does."""

    name: str
    parameters: list[tuple[str, str]]
    body: list[Statement]
    about: str = ""
