"""The mechanical pass over a kernel's syntax tree: what reads well becomes what compiles fast.

Before: `for i in range(lo, hi, 4): x = load_f32(buf0, i * 8 + 1)`. After: `i = ihold(lo)`,
`while ilt(i, hi):`, `x = load_f32(buf0, iadd(imul(i, 8), 1))`, `i = iadd(i, 4)`.
"""

from __future__ import annotations

import ast
from typing import Any

from tinyfn.codegen.simd_word import STORED
from tinyfn.errors import CompileError

OPERATORS: dict[type, str] = {
    ast.Add: "iadd",
    ast.Sub: "isub",
    ast.Mult: "imul",
    ast.FloorDiv: "ifloordiv",
    ast.Mod: "imod",
}
COMPARISONS: dict[type, str] = {
    ast.Lt: "ilt",
    ast.LtE: "ile",
    ast.Gt: "igt",
    ast.GtE: "ige",
    ast.Eq: "ieq",
    ast.NotEq: "ine",
}
BUILTINS = {"min": "imin", "max": "imax"}


def kernel_definition(source: str) -> ast.FunctionDef:
    """The one function of a kernel's text."""
    try:
        found = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    except SyntaxError as error:
        raise CompileError(f"expected the text of one function: {error}") from error
    if len(found) != 1:
        raise CompileError(f"expected the text of one function, got {len(found)}")
    return found[0]


def parameters(definition: ast.FunctionDef) -> list[tuple[str, str]]:
    """Names and types of a kernel's parameters, from their annotations."""
    listed = []
    for argument in definition.args.args:
        if not isinstance(argument.annotation, ast.Name):
            raise CompileError(f"parameter {argument.arg} needs a type such as f32ptr or i64")
        kind = argument.annotation.id
        if kind != "i64" and kind.removesuffix("ptr") not in STORED:
            raise CompileError(f"expected f32ptr, i64 or the like for {argument.arg}, got {kind}")
        listed.append((argument.arg, kind))
    if listed[-2:] != [("lo", "i64"), ("hi", "i64")]:
        raise CompileError(
            f"expected lo: i64, hi: i64 as the last parameters of {definition.name}, the units of "
            f"work to do, got {ast.unparse(definition.args)}"
        )
    return listed


class Lowered(ast.NodeTransformer):
    """Rewrites the body of a kernel; what the language does not have is an error."""

    def generic_visit(self, node: ast.AST) -> Any:
        """Literals and `pass` stay as they are, and nothing else does."""
        if isinstance(node, ast.Constant | ast.Pass):
            return node
        text = ast.unparse(node).splitlines()[0]
        raise CompileError(
            f"expected assignments of calls and integers, calls, for and if in a kernel, got {text}"
        )

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A call for its effect, or the docstring."""
        if isinstance(node.value, ast.Constant):
            return ast.Pass()
        return ast.Expr(self.visit(node.value))

    def visit_For(self, node: ast.For) -> Any:
        """A counted loop as a while loop."""
        call, counter = node.iter, node.target
        if not isinstance(call, ast.Call) or not isinstance(counter, ast.Name) or node.orelse:
            raise CompileError("expected `for name in range(...)` in a kernel")
        if ast.unparse(call.func) != "range" or not 1 <= len(call.args) <= 3:
            raise CompileError("expected `for name in range(...)` in a kernel")
        start, stop, step = _range([self.visit(a) for a in call.args])
        body = [s for part in node.body for s in _as_list(self.visit(part))]
        first = _assign(counter.id, _call("ihold", start))
        again = _assign(counter.id, _call("iadd", ast.Name(counter.id, ast.Load()), step))
        test = _call("ilt", ast.Name(counter.id, ast.Load()), stop)
        return [first, ast.While(test=test, body=[*body, again], orelse=[])]

    def visit_If(self, node: ast.If) -> Any:
        """A condition on integers."""
        test = node.test
        if not isinstance(test, ast.Compare) or [type(o) in COMPARISONS for o in test.ops] != [
            True
        ]:
            raise CompileError("expected a comparison of two integers after `if` in a kernel")
        name = COMPARISONS[type(test.ops[0])]
        node.test = _call(name, self.visit(test.left), self.visit(test.comparators[0]))
        node.body = [s for part in node.body for s in _as_list(self.visit(part))]
        node.orelse = [s for part in node.orelse for s in _as_list(self.visit(part))]
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """A literal becomes a typed one."""
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return self.generic_visit(node)
        node.value = self.visit(node.value)
        if isinstance(node.value, ast.Constant):
            node.value = _call("ihold", node.value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """Integer arithmetic by typed ops."""
        if type(node.op) not in OPERATORS:
            return self.generic_visit(node)
        left, right = self.visit(node.left), self.visit(node.right)
        return _call(OPERATORS[type(node.op)], left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """A negative literal."""
        if not isinstance(node.op, ast.USub):
            return self.generic_visit(node)
        value = self.visit(node.operand)
        if isinstance(value, ast.Constant):
            return ast.Constant(-value.value)  # type: ignore[operator]
        return _call("isub", ast.Constant(0), value)

    def visit_Name(self, node: ast.Name) -> Any:
        """INF and NAN are values."""
        named = {"INF": float("inf"), "NAN": float("nan")}
        return ast.Constant(named[node.id]) if node.id in named else node

    def visit_Call(self, node: ast.Call) -> Any:
        """Arguments are rewritten; literals of const ops get the type of the op."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            return self.generic_visit(node)
        name = BUILTINS.get(node.func.id, node.func.id)
        args = [self.visit(a) for a in node.args]
        if "const_" in name:
            args = [_typed_literal(name, a) for a in args]
        return _call(name, *args)


def _typed_literal(name: str, value: ast.expr) -> ast.Constant:
    if not isinstance(value, ast.Constant):
        raise CompileError(f"expected a literal as the argument of {name}")
    number: Any = value.value
    if "_f32" in name or "_f64" in name:
        return ast.Constant(float(number))
    number = int(number) & (2**64 - 1)
    return ast.Constant(number - 2**64 if number >= 2**63 else number)


def _range(bounds: list[Any]) -> tuple[Any, Any, Any]:
    if len(bounds) == 1:
        return ast.Constant(0), bounds[0], ast.Constant(1)
    if len(bounds) == 2:
        return bounds[0], bounds[1], ast.Constant(1)
    step = getattr(bounds[2], "value", None)
    if not isinstance(step, int) or step < 1:
        raise CompileError("expected a positive literal as the step of a range in a kernel")
    return bounds[0], bounds[1], bounds[2]


def _call(name: str, *args: Any) -> ast.Call:
    return ast.Call(func=ast.Name(name, ast.Load()), args=list(args), keywords=[])


def _assign(name: str, value: Any) -> ast.Assign:
    return ast.Assign(targets=[ast.Name(name, ast.Store())], value=value)


def _as_list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def lowered(definition: ast.FunctionDef) -> ast.Module:
    """The kernel as a module that numba compiles fast."""
    for argument in definition.args.args:
        argument.annotation = None
    definition.returns = None
    rewrite = Lowered()
    definition.body = [s for part in definition.body for s in _as_list(rewrite.visit(part))]
    return ast.fix_missing_locations(ast.Module(body=[definition], type_ignores=[]))
