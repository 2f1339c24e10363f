"""The meaning of a kernel graph: its loops run one element after the other, in order, in Python.

Memory is a flat array for each parameter. A node that shows memory evaluates to a `Place`; used as
a value it is loaded. An effect runs once for each assignment of the loops it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinyfn.dtype import Invalid
from tinyfn.errors import ArgumentError
from tinyfn.helpers import prod
from tinyfn.uop.arithmetic import held_dtype
from tinyfn.uop.info import AddrSpace
from tinyfn.uop.meaning import MEANING, MOVEMENT, constant, reduce_values, sizes
from tinyfn.uop.opcodes import Ops

Node = Any
Values = Any
NO_INDEX = -(2**62)
"""Stands for Invalid among many indices: out of range, whatever is added to it."""


def run_kernel(
    sink: Node, memory: dict[int, Values], variables: dict[str, int], slot: int = 0
) -> dict[int, Values]:
    """Run a kernel over flat arrays by parameter slot, in place; which elements it wrote."""
    kernel = Kernel(memory, variables, slot)
    kernel.execute(sink)
    return {number: kernel.written[key] for key, number in kernel.globals.items()}


class Place:
    """Elements of memory by their number from 1; number 0 is nowhere: reads 0, takes nothing."""

    __slots__ = ("key", "loaded", "numbers", "owner")

    def __init__(self, owner: Kernel, key: Any, numbers: Values) -> None:
        self.owner, self.key, self.numbers = owner, key, numbers
        self.loaded: Values = None

    def load(self) -> Values:
        """The values there, as they were when the place was made where it is one element."""
        if self.loaded is not None:
            return self.loaded
        flat = self.owner.memory[self.key]
        if not flat.size:
            return np.zeros(np.shape(self.numbers), flat.dtype)
        found = flat[np.maximum(self.numbers, 1) - 1]
        return np.where(np.greater(self.numbers, 0), found, flat.dtype.type(0))

    def at(self, indices: Sequence[Values]) -> Place:
        """One element (or row) of it; nowhere where an index is out of range or Invalid."""
        if any(np.ndim(index) for index in indices):
            return Place(self.owner, self.key, self.numbers_at(indices))
        for size, index in zip(self.numbers.shape, indices, strict=False):
            if index is Invalid or not 0 <= index < size:
                left = self.numbers.shape[len(indices) :]
                return Place(self.owner, self.key, np.zeros(left, np.int64))
        return Place(self.owner, self.key, self.numbers[tuple(int(i) for i in indices)])

    def numbers_at(self, indices: Sequence[Values]) -> Values:
        """The numbers of many elements (or rows) at once."""
        known = [np.asarray(NO_INDEX if index is Invalid else index) for index in indices]
        inside = np.array(True)
        for size, index in zip(self.numbers.shape, known, strict=False):
            inside = inside & (index >= 0) & (index < size)
        left = self.numbers.shape[len(known) :]
        if not self.numbers.size:
            return np.zeros((*inside.shape, *left), np.int64)
        found = self.numbers[tuple(np.where(inside, index, 0) for index in known)]
        return np.where(inside.reshape(inside.shape + (1,) * len(left)), found, 0)


def below(node: Node) -> tuple[Node, ...]:
    """The sources whose values a node's value is made of, inside one pass through the loops."""
    if node.op in (Ops.RANGE, Ops.REDUCE):
        return ()
    found: tuple[Node, ...] = node.src[:1] if node.op is Ops.AFTER else node.src
    return found


class Kernel:
    """One run of a kernel: its memory, where its loops stand, and what ran already."""

    def __init__(self, memory: dict[int, Values], variables: dict[str, int], slot: int) -> None:
        self.variables, self.slot = variables, slot
        self.memory: dict[Any, Values] = dict(memory)
        self.globals: dict[Any, int] = {}
        self.written: dict[Any, Values] = {}
        self.places: dict[Node, Place] = {}
        self.loops: dict[Node, Any] = {}
        self.done: dict[Node, tuple[int, ...]] = {}
        self.plans: dict[tuple[Node, ...], list[Node]] = {}
        self.versions: dict[Any, int] = {}
        self.reduced: dict[Node, tuple[Any, Values]] = {}

    # *** effects ***

    def execute(self, node: Node) -> None:
        """Run an effect, unless it ran already where the loops now stand."""
        if node.op in (Ops.SINK, Ops.GROUP, Ops.AFTER):
            for source in node.src:
                self.execute(source)
        elif node.op in (Ops.STORE, Ops.END):
            standing = self.standing(node)
            if self.done.get(node) == standing:
                return
            if node.op is Ops.STORE:
                self.store(node)
            else:
                for _ in self.iterate(node.src[1:]):
                    self.forget(node.src[0])
                    self.execute(node.src[0])
            self.done[node] = standing

    def standing(self, node: Node) -> tuple[int, ...]:
        """The counters of the loops a node stands in."""
        for loop in node.ranges:
            if loop not in self.loops:
                raise ArgumentError(
                    f"expected the range r{loop.arg[0]} closed by an END around {node!r}: "
                    "end the store with .end(range)"
                )
        return tuple(self.loops[loop] for loop in node.ranges)

    def forget(self, node: Node) -> None:
        """What a loop runs itself runs in every iteration."""
        stack = [node]
        while stack:
            top = stack.pop()
            self.done.pop(top, None)
            if top.op is Ops.GROUP:
                stack.extend(top.src)

    def iterate(self, ranges: Sequence[Node]) -> Iterator[None]:
        """Pass through nested loops; the one with the lowest number is the outermost."""
        if not ranges:
            yield
            return
        first, *rest = sorted(ranges, key=lambda r: r.arg[0])
        for count in range(int(self.value(first.src[0]))):
            self.loops[first] = count
            yield from self.iterate(rest)
        self.loops.pop(first, None)

    def store(self, node: Node) -> None:
        """Write a value into its place."""
        place, value, *gate = self.values_of(node.src)
        if not isinstance(place, Place):
            raise ArgumentError(f"expected memory to store into, got {node.src[0]!r}")
        value = value.load() if isinstance(value, Place) else value
        if value is Invalid or (gate and not self.plain(gate[0])):
            return
        numbers = np.asarray(place.numbers)
        chosen = numbers > 0
        at = numbers[chosen] - 1
        self.memory[place.key][at] = np.broadcast_to(value, numbers.shape)[chosen]
        self.written[place.key][at] = True
        self.versions[place.key] += 1

    # *** values ***

    def value(self, node: Node) -> Values:
        """The value of a node where the loops now stand."""
        return self.plain(self.values_of((node,))[0])

    @staticmethod
    def plain(value: Values) -> Values:
        """A value, loaded where it is a place."""
        return value.load() if isinstance(value, Place) else value

    def values_of(self, roots: tuple[Node, ...]) -> list[Values]:
        """The values of several nodes that belong to one statement."""
        found: dict[Node, Values] = {}
        for node in self.order(roots):
            found[node] = self.step(node, [found[s] for s in below(node)])
        return [found[root] for root in roots]

    def order(self, roots: tuple[Node, ...]) -> list[Node]:
        """The nodes of a statement in the order in which they are evaluated."""
        if roots not in self.plans:
            self.plans[roots] = statement_order(roots)
        return self.plans[roots]

    def step(self, node: Node, sources: list[Values]) -> Values:
        """The value of one node from those of its sources."""
        rule = STEPS.get(node.op)
        if rule is not None:
            return rule(self, node, sources)
        if node.op in MOVEMENT and isinstance(sources[0], Place):
            moved = MOVEMENT[node.op](node, sources[0].numbers, *map(self.plain, sources[1:]))
            return self.place(sources[0].key, moved)
        values = [self.plain(v) for v in sources]
        if any(v is Invalid for v in values):
            return Invalid
        if node.op not in MEANING:
            raise ArgumentError(f"{node.op.name} has no meaning inside of a kernel: {node!r}")
        return MEANING[node.op](node, *values)

    def place(self, key: Any, numbers: Values) -> Place:
        """A place; the value of a single element is read at once."""
        found = Place(self, key, numbers)
        if not np.ndim(numbers):
            found.loaded = found.load()
        return found

    def parameter(self, node: Node, symbols: list[Values]) -> Place:
        """The memory of a parameter: given, or scratch of the kernel's own."""
        if node not in self.places:
            shape = sizes(node.arg.shape, symbols)
            given = node.arg.addrspace in (AddrSpace.GLOBAL, None)
            key = node.arg.slot if given else ("scratch", node.arg.slot)
            if key not in self.memory:
                if given:
                    raise ArgumentError(f"the kernel was given no memory for parameter {key}")
                self.memory[key] = np.zeros(prod(shape), held_dtype(node.dtype))
            if given:
                self.globals[key] = node.arg.slot
            self.written.setdefault(key, np.zeros(self.memory[key].size, bool))
            self.versions.setdefault(key, 0)
            numbers = np.arange(1, prod(shape) + 1).reshape(shape)
            self.places[node] = self.place(key, numbers) if shape else Place(self, key, numbers)
        return self.places[node]

    def reduce(self, node: Node) -> Values:
        """A value combined over ranges; known already where neither loops nor memory moved."""
        now = (self.standing(node), tuple(self.versions.items()))
        known = self.reduced.get(node)
        if known is not None and known[0] == now:
            return known[1]
        if self.is_plain(node):
            values = self.values_over(node)
        else:
            found = [self.value(node.src[0]) for _ in self.iterate(node.src[1:])]
            values = np.array(found, held_dtype(node.dtype))
        result = reduce_values(node.arg, node.dtype, values, (0,))[0]
        self.reduced[node] = (self.standing(node), tuple(self.versions.items())), result
        return result

    def is_plain(self, node: Node) -> bool:
        """Whether a reduction only reads: then all its values can be computed at once."""
        own = set(node.src[1:])
        return node.src[0].shape == () and not any(
            inner.op in (Ops.REDUCE, Ops.AFTER) or (inner in own and own & set(inner.src[0].ranges))
            for inner in self.order((node.src[0],))
        )

    def values_over(self, node: Node) -> Values:
        """The values that a reduction combines, flat; its loops count in arrays."""
        ranges = sorted(node.src[1:], key=lambda r: r.arg[0])
        ends = [int(self.value(r.src[0])) for r in ranges]
        for axis, (loop, end) in enumerate(zip(ranges, ends, strict=True)):
            counts = [end if a == axis else 1 for a in range(len(ends))]
            self.loops[loop] = np.arange(end).reshape(counts)
        value = np.broadcast_to(self.value(node.src[0]), ends)
        for loop in ranges:
            del self.loops[loop]
        return value.reshape(-1)


def statement_order(roots: tuple[Node, ...]) -> list[Node]:
    """The nodes of a statement, sources first; what waits for nothing is read before the rest."""
    order: dict[Node, bool] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = node.op is Ops.AFTER or any(order[s] for s in below(node))
            continue
        stack.append((node, True))
        stack.extend((s, False) for s in reversed(below(node)))
    return sorted(order, key=lambda node: order[node])


def _after(kernel: Kernel, node: Node, sources: list[Values]) -> Values:
    for effect in node.src[1:]:
        kernel.execute(effect)
    place = sources[0]
    return kernel.place(place.key, place.numbers) if isinstance(place, Place) else place


def _index(kernel: Kernel, node: Node, sources: list[Values]) -> Values:
    indices = [kernel.plain(v) for v in sources[1:]]
    found = sources[0].at(indices)
    return kernel.place(found.key, found.numbers)


def _load(kernel: Kernel, node: Node, sources: list[Values]) -> Values:
    place = sources[0]
    value = kernel.plain(place)
    if len(sources) > 1:
        return np.where(np.greater(place.numbers, 0), value, kernel.plain(sources[1]))
    return value


def _where(kernel: Kernel, node: Node, sources: list[Values]) -> Values:
    condition, yes, no = (kernel.plain(v) for v in sources)
    if condition is Invalid:
        return Invalid
    if not np.ndim(condition) and (yes is Invalid or no is Invalid):
        return yes if condition else no
    yes, no = (np.array(NO_INDEX) if v is Invalid else v for v in (yes, no))
    return MEANING[Ops.WHERE](node, condition, yes, no)


STEPS: dict[Ops, Any] = {
    Ops.CONST: lambda kernel, node, _: (
        Invalid if node.arg is Invalid else constant(node.arg, node.dtype)
    ),
    Ops.PARAM: lambda kernel, node, sources: kernel.parameter(node, sources),
    Ops.VARIABLE: lambda kernel, node, _: np.array(kernel.variables[node.arg.name]),
    Ops.SLOT: lambda kernel, node, _: np.array(kernel.slot),
    Ops.RANGE: lambda kernel, node, _: np.array(kernel.loops[node]),
    Ops.REDUCE: lambda kernel, node, _: kernel.reduce(node),
    Ops.AFTER: _after,
    Ops.INDEX: _index,
    Ops.LOAD: _load,
    Ops.WHERE: _where,
}
"""Ops of kernels that need memory or loops."""

EFFECTS = frozenset({Ops.STORE, Ops.END, Ops.GROUP, Ops.SINK})
"""Ops that a kernel executes."""
