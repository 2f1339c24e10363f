"""Graphs as text: an expression in Python's syntax, and a numbered listing of nodes."""

from __future__ import annotations

from typing import Any

from tinyfn.uop.opcodes import Ops
from tinyfn.uop.rewrite import toposort

INFIX = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.DIV: "/",
    Ops.IDIV: "//",
    Ops.MOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.CMPLT: "<",
    Ops.CMPLE: "<=",
    Ops.CMPEQ: "==",
    Ops.CMPNE: "!=",
}


def _leaf(node: Any) -> str:
    if node.op is Ops.CONST:
        return str(node.arg)
    if node.op is Ops.VARIABLE:
        return str(node.arg.name)
    if node.op is Ops.RANGE:
        return f"r{node.arg[0]}"
    if node.op is Ops.SLOT:
        return "slot"
    if node.op is Ops.PARAM:
        return f"p{node.arg.slot}"
    if node.op is Ops.BUFFER:
        return f"b{node.arg.num}"
    return str(node.op.name.lower())


def expression(root: Any) -> str:
    """The node as an expression: `(r0*4+r1)`, `where(r0<3, 1, 0)`."""
    text: dict[Any, str] = {}
    for node in toposort([root]):
        below = [text[s] for s in node.src]
        if node.op is Ops.BIND:
            text[node] = below[0]
        elif node.op is Ops.RANGE or not node.src:
            text[node] = _leaf(node)
        elif node.op in INFIX:
            text[node] = f"({below[0]}{INFIX[node.op]}{below[1]})"
        elif node.op is Ops.NEG:
            text[node] = f"(-{below[0]})"
        elif node.op is Ops.INDEX:
            text[node] = f"{below[0]}[{', '.join(below[1:])}]"
        else:
            text[node] = f"{node.op.name.lower()}({', '.join(below)})"
    return text[root]


def _shape(node: Any) -> str:
    """The shape; unknown where the node is too broken to have one."""
    try:
        return "" if node.shape is None else f" {list(node.shape)}".replace("'", "")
    except Exception:
        return " [shape unknown]"


def listing(root: Any, mark: Any = None, enter_calls: bool = False) -> str:
    """One line a node, sources by number; the marked node has an arrow."""
    order = toposort([root], enter_calls)
    number = {node: i for i, node in enumerate(order)}
    lines = []
    for node in order:
        src = ", ".join(f"%{number[s]}" if s in number else "body" for s in node.src)
        arrow = "->" if node is mark else "  "
        arg = "" if node.arg is None else f" {node.arg!r}"
        shape = _shape(node)
        lines.append(
            f"{arrow} %{number[node]} = {node.op.name}({src}){arg} : {node.dtype.name}{shape}"
        )
    return "\n".join(lines)
