"""The one engine that rewrites graphs: sources first, each node to a fixed point, no recursion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tinyfn.errors import ScheduleError
from tinyfn.uop.match import Rules
from tinyfn.uop.opcodes import Ops

# replacements one after the other that lead to one node: a view pushed down a chain of ten thousand
# operations takes that many, rules that go in circles or grow for ever take more
LIMIT = 100_000


def toposort(roots: Iterable[Any], enter_calls: bool = True, gate: Any = None) -> list[Any]:
    """Every node below the roots, sources before users.

    `enter_calls=False` does not go into the bodies of calls; `gate(node)` false stops below it.
    """
    order: dict[Any, None] = {}
    begun: set[Any] = set()  # a node comes up again when all below it is in order
    stack = list(roots)
    stack.reverse()
    while stack:
        node = stack[-1]
        if node in begun:
            order[node] = None  # (a second time for one that was waiting more than once)
            stack.pop()
            continue
        begun.add(node)
        if gate is not None and not gate(node):
            continue
        src = node.src[1:] if not enter_calls and node.op is Ops.CALL else node.src
        if src:
            stack += src[::-1]
    return list(order)


def rewrite(
    root: Any,
    rules: Rules,
    context: Any = None,
    enter_calls: bool = False,
    memo: dict[Any, Any] | None = None,
) -> Any:
    """The graph with every rule applied wherever it applies; `memo` is kept between runs."""
    done: dict[Any, Any] = {} if memo is None else memo
    replaced: dict[Any, Any] = {}
    generation: dict[Any, int] = {}  # how many replacements led to a node; most have none
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in replaced:
            target = replaced[node]
            if target in done:
                done[node] = done[target]
                stack.pop()
            else:
                generation[target] = _next_generation(generation.get(node, 0), target, rules)
                stack.append(target)
            continue
        keep_body = node.op is Ops.CALL and not enter_calls
        below = node.src[1:] if keep_body else node.src
        missing = [s for s in below if s not in done]
        if missing:
            if node in generation:
                for s in missing:
                    generation.setdefault(s, generation[node])
            stack.extend(reversed(missing))
            continue
        src = tuple(done[s] for s in below)
        new = node.with_src((node.src[0], *src) if keep_body else src)
        found = rules.apply(new, context)
        if found is not None:
            replaced[node] = found
            continue
        done[node] = done[new] = new
        stack.pop()
    return done[root]


def _next_generation(number: int, node: Any, rules: Rules) -> int:
    if number >= LIMIT:
        raise ScheduleError(f"the rules {rules.name!r} never come to rest at {node!r}")
    return number + 1


def substitute(roots: Iterable[Any], table: Mapping[Any, Any], enter_calls: bool = False) -> Any:
    """The roots with nodes replaced by the table; what replaces a node is not searched again."""
    done: dict[Any, Any] = dict(table)
    order = toposort(roots, enter_calls, gate=lambda node: node not in table)
    for node in order:
        if node in done:
            continue
        if not enter_calls and node.op is Ops.CALL:
            src = (node.src[0], *(done[s] for s in node.src[1:]))
        else:
            src = tuple(done[s] for s in node.src)
        done[node] = node.with_src(src)
    return [done[root] for root in roots]
