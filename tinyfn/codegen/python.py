"""Programs as text of the generated language. Only formats: everything is decided before.

Before: Let("v0", "vadd_f32x16", ("v1", "v2")). After: `v0 = vadd_f32x16(v1, v2)`.
"""

from __future__ import annotations

import math
from typing import Any

from tinyfn.codegen.loops import Assign, Binary, Do, Expression, For, Let, Program, Statement, Sum

TIGHT = {"*": 2, "//": 2, "%": 2}


def source(program: Program) -> str:
    """The whole function."""
    parameters = ", ".join(f"{name}: {kind}" for name, kind in program.parameters)
    head = f"def {program.name}({parameters}):"
    if program.about:
        head += f"  # {program.about}"
    body = _lines(program.body, 1) or ["    pass"]
    return "\n".join([head, *body]) + "\n"


def _lines(statements: list[Statement], depth: int) -> list[str]:
    pad = "    " * depth
    lines: list[str] = []
    for statement in statements:
        if isinstance(statement, For):
            lines.append(pad + _header(statement))
            lines += _lines(statement.body, depth + 1) or [pad + "    pass"]
        else:
            lines.append(pad + _line(statement))
    return lines


def _header(loop: For) -> str:
    start, stop = expression(loop.start), expression(loop.stop)
    if loop.step != 1:
        inside = f"{start}, {stop}, {loop.step}"
    else:
        inside = stop if start == "0" else f"{start}, {stop}"
    comment = f"  # {loop.comment}" if loop.comment else ""
    return f"for {loop.name} in range({inside}):{comment}"


def _line(statement: Let | Assign | Do) -> str:
    if isinstance(statement, Assign):
        return f"{statement.name} = {expression(statement.value)}"
    args = ", ".join(argument(a) for a in statement.args)
    call = f"{statement.op}({args})"
    return f"{statement.name} = {call}" if isinstance(statement, Let) else call


def argument(value: Any) -> str:
    """An argument of an op: a name, an integer expression or a literal."""
    if isinstance(value, Sum | Binary):
        return expression(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INF" if value > 0 else "-INF"
        return repr(value)
    return str(value)


def expression(value: Expression) -> str:
    """An integer expression."""
    if isinstance(value, Sum):
        return _sum(value)
    if value.op in ("min", "max"):
        return f"{value.op}({expression(value.left)}, {expression(value.right)})"
    return f"{_factor(value.left)} {value.op} {_factor(value.right)}"


def _factor(value: Expression) -> str:
    text = expression(value)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _sum(value: Sum) -> str:
    text = ""
    for name, factor in sorted(value.terms, key=lambda term: term[1] < 0):
        part = name if abs(factor) == 1 else f"{name} * {abs(factor)}"
        if not text:
            text = part if factor > 0 else f"{name} * -{abs(factor)}"
        else:
            text += f" + {part}" if factor > 0 else f" - {part}"
    if not text:
        return str(value.constant)
    if value.constant:
        text += f" + {value.constant}" if value.constant > 0 else f" - {-value.constant}"
    return text
