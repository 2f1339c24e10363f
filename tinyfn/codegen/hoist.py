"""Where statements go: each pure one into the outermost loop that has its operands, and once only.

Before: `v = vsplat(c)` asked for inside a loop. After: it stands before the loop that does not
change `c`, and asking again gives the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tinyfn.codegen.loops import (
    Assign,
    Binary,
    Do,
    Expression,
    For,
    Let,
    Statement,
    Sum,
    named,
)


@dataclass(frozen=True)
class Value:
    """A register: its name, the type of an element, its lanes (0: a scalar)."""

    name: str
    kind: str
    lanes: int = 0

    @property
    def type(self) -> str:
        """The suffix of ops on it: f32, f32x16."""
        return f"{self.kind}x{self.lanes}" if self.lanes else self.kind


@dataclass
class Scope:
    """The body of a loop that is being written."""

    statements: list[Statement] = field(default_factory=list)
    known: dict[Any, Any] = field(default_factory=dict)
    nodes: dict[Any, Any] = field(default_factory=dict)


class Writer:
    """Writes statements into nested scopes."""

    def __init__(self) -> None:
        self.scopes = [Scope()]
        self.level: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.size = 0

    # *** names ***

    def name(self, prefix: str, level: int | None = None) -> str:
        """A new name that belongs to a scope (the current one)."""
        made = f"{prefix}{self.counts[prefix]}"
        self.counts[prefix] += 1
        self.level[made] = len(self.scopes) - 1 if level is None else level
        return made

    def level_of(self, argument: Any) -> int:
        """The scope in which an argument becomes known."""
        if isinstance(argument, str):
            return self.level[argument]
        if isinstance(argument, Sum):
            return max((self.level[n] for n, _ in argument.terms), default=0)
        if isinstance(argument, Binary):
            return max(self.level_of(argument.left), self.level_of(argument.right))
        return 0

    # *** statements ***

    def let(self, prefix: str, op: str, *args: Any) -> str:
        """The result of a pure op, as far out as its arguments allow."""
        level = max((self.level_of(a) for a in args), default=0)
        scope = self.scopes[level]
        key = (op, *((type(a), repr(a)) if isinstance(a, float) else a for a in args))
        if key not in scope.known:
            name = self.name(prefix, level)
            scope.statements.append(Let(name, op, args))
            scope.known[key] = name
            self.size += 1
        return str(scope.known[key])

    def integer(self, value: Expression) -> str:
        """A name for an integer expression, as far out as it can be."""
        if isinstance(value, Sum) and value.terms == ((value.terms or (("", 0),))[0],):
            (name, factor), constant = value.terms[0], value.constant
            if factor == 1 and not constant:
                return name
        level = self.level_of(value)
        scope = self.scopes[level]
        if value not in scope.known:
            name = self.name("i", level)
            scope.statements.append(Assign(name, value))
            scope.known[value] = name
            self.size += 1
        return str(scope.known[value])

    def offset(self, value: Sum) -> Sum:
        """A sum as one name and a constant: what outer loops know of it is added up there."""
        if not value.terms:
            return value
        levels = sorted({self.level[n] for n, _ in value.terms})
        total = Sum()
        for level in levels:
            part = tuple(t for t in value.terms if self.level[t[0]] == level)
            total = named(self.integer(total.plus(Sum(part))))
        return total.plus(Sum((), value.constant))

    def here(self, prefix: str, op: str, *args: Any) -> str:
        """The result of an op that keeps its place."""
        name = self.name(prefix)
        self.add(Let(name, op, args))
        return name

    def add(self, statement: Statement) -> None:
        """A statement at the end of the current scope."""
        self.scopes[-1].statements.append(statement)
        self.size += 1

    def do(self, op: str, *args: Any) -> None:
        """An op for its effect."""
        self.add(Do(op, args))

    # *** scopes ***

    @contextmanager
    def loop(
        self, start: Expression, stop: Expression, step: int, comment: str = ""
    ) -> Iterator[str]:
        """A loop; what is written meanwhile is its body. Gives the name of the counter."""
        self.scopes.append(Scope())
        counter = self.name("i")
        yield counter
        body = self.scopes.pop().statements
        self.add(For(counter, start, stop, step, body, comment))

    @contextmanager
    def section(self) -> Iterator[None]:
        """Straight-line code with its own knowledge of nodes, at the end of the current scope."""
        self.scopes.append(Scope(self.scopes[-1].statements))
        yield
        self.scopes.pop()

    def finished(self) -> list[Statement]:
        """The statements of the whole kernel, without those whose result nothing uses."""
        body = self.scopes[0].statements
        while True:
            used = set(names_in(body))
            trimmed = without_unused(body, used)
            if trimmed == body:
                return body
            body = trimmed

    # *** what is known of nodes ***

    def recall(self, key: Any) -> Any:
        """What a node was found to be in this scope or one around it."""
        for scope in reversed(self.scopes):
            if key in scope.nodes:
                return scope.nodes[key]
        return None

    def remember(self, key: Any, value: Any) -> None:
        """Keep what a node is until the current scope ends."""
        self.scopes[-1].nodes[key] = value


def names_in(statements: list[Statement]) -> Iterator[str]:
    """The names that statements use."""
    for statement in statements:
        if isinstance(statement, For):
            yield from _names(statement.start)
            yield from _names(statement.stop)
            yield from names_in(statement.body)
        elif isinstance(statement, Assign):
            yield from _names(statement.value)
        else:
            for argument in statement.args:
                yield from _names(argument)


def _names(argument: Any) -> Iterator[str]:
    if isinstance(argument, str):
        yield argument
    elif isinstance(argument, Sum):
        yield from (name for name, _ in argument.terms)
    elif isinstance(argument, Binary):
        yield from _names(argument.left)
        yield from _names(argument.right)


def without_unused(statements: list[Statement], used: set[str]) -> list[Statement]:
    """The statements that name something used, or have an effect."""
    kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, For):
            body = without_unused(statement.body, used)
            same = body == statement.body
            parts = (statement.name, statement.start, statement.stop, statement.step, body)
            kept.append(statement if same else For(*parts, statement.comment))
        elif isinstance(statement, Do) or statement.name in used:
            kept.append(statement)
    return kept
