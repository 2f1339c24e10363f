"""Rules by op: small named functions, tried in order until one answers.

A rule takes a node (and the context of its run, if it asks for one) and returns the node that
replaces it, or None where it does not apply.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


class Rules:
    """A set of rewrite rules, found by the op of the node."""

    def __init__(self, name: str, *includes: Rules) -> None:
        self.name = name
        self.by_op: dict[Any, list[tuple[Rule, bool]]] = {}
        for other in includes:
            for op, listed in other.by_op.items():
                self.by_op.setdefault(op, []).extend(listed)

    def on(self, *ops: Any) -> Callable[[Rule], Rule]:
        """Decorator: try this function on nodes of these ops."""

        def add(rule: Rule) -> Rule:
            wants_context = len(inspect.signature(rule).parameters) > 1
            for op in ops:
                self.by_op.setdefault(op, []).append((rule, wants_context))
            return rule

        return add

    def apply(self, node: Any, context: Any = None) -> Any:
        """What the first rule that applies makes of the node; None where none does."""
        for rule, wants_context in self.by_op.get(node.op, ()):
            found = rule(node, context) if wants_context else rule(node)
            if found is not None and found is not node:
                return found
        return None
