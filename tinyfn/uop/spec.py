"""What holds of a graph between passes: for every stage its ops, and named rules of its nodes.

`check` raises SpecError with the listing of the graph, the node marked, and the rule's sentence.
"""

from __future__ import annotations

import weakref
from typing import Any

from tinyfn.errors import SpecError
from tinyfn.uop.opcodes import ELEMENTWISE, MOVEMENT, Ops, group
from tinyfn.uop.render import listing
from tinyfn.uop.rewrite import toposort
from tinyfn.uop.spec_memory import LOOPS, MEMORY
from tinyfn.uop.spec_values import VALUES, Rule

Node = Any


class Spec:
    """The ops that a stage may hold, and the rules of their nodes."""

    def __init__(self, name: str, ops: frozenset[Ops], rules: tuple[Rule, ...]) -> None:
        self.name, self.ops, self.rules = name, ops, rules
        self.by_op = {op: [r for r in rules if op in r.ops] for op in ops}
        # nodes never change: what has passed once is not looked at again
        self.passed: weakref.WeakSet[Any] = weakref.WeakSet()

    def complaint(self, node: Node) -> str | None:
        """The first rule that the node breaks, and how."""
        if node.op not in self.ops:
            return f"ops_of_stage: {self.name} may not hold {node.op.name}"
        for rule in self.by_op[node.op]:
            try:
                found = rule.check(node)
            except Exception as error:  # a node so broken that the rule cannot read it
                found = f"{type(error).__name__}: {error}"
            if found is not None:
                return f"{rule.name}: {rule.sentence} Here {found}."
        return None


_TENSOR_OPS = (
    group("leaf", "movement", "reduce", "gather", "scan", "sort", "memory", "device", "call")
    | (ELEMENTWISE - {Ops.FMA})
    | {Ops.SINK, Ops.GROUP, Ops.SLOT}
)
_KERNEL_OPS = (
    (ELEMENTWISE | MOVEMENT | group("kernel"))
    | {Ops.CONST, Ops.PARAM, Ops.VARIABLE, Ops.BIND}
    | {Ops.STORE, Ops.AFTER}
)
TENSOR = Spec("a graph of tensors", _TENSOR_OPS, VALUES + MEMORY)
PER_SLOT = Spec("the graph of a slot", _TENSOR_OPS - {Ops.UNSHARD, Ops.SHARD}, VALUES + MEMORY)
KERNEL = Spec("a kernel", _KERNEL_OPS, VALUES + LOOPS)


def check(root: Node, spec: Spec, stage_name: str) -> None:
    """Raise SpecError unless every rule of the spec holds of every node, bodies of calls included.

    Bodies are graphs of tensors (or kernels) at every stage: they are scheduled on their own.
    """
    todo, seen = [(root, spec)], {root}
    passed: list[tuple[Spec, Node]] = []
    while todo:
        top, rules = todo.pop()
        for node in toposort([top], enter_calls=False, gate=lambda n, s=rules: n not in s.passed):
            if node in rules.passed:
                continue
            complaint = rules.complaint(node)
            if complaint is not None:
                raise SpecError(
                    f"after {stage_name}, {rules.name} breaks the rule {complaint}\n"
                    f"{listing(top, mark=node)}"
                )
            passed.append((rules, node))
            body = node.src[0] if node.op is Ops.CALL else None
            if body is not None and body not in seen and body.op in (Ops.TUPLE, Ops.SINK):
                seen.add(body)
                todo.append((body, KERNEL if body.op is Ops.SINK else TENSOR))
    for rules, node in passed:
        rules.passed.add(node)
