"""Imports go down the list of the architecture only, and stand at the top of files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tinyfn"

# each row may import what stands in earlier rows, and its own room; rooms of a row do not know
# each other
ROWS = [
    ["helpers", "errors"],
    ["dtype", "tree"],
    ["device", "mixin"],
    ["uop"],
    ["call"],
    ["gradient"],
    ["attention"],
    ["schedule", "codegen"],
    ["runtime"],
    ["live"],
    ["random"],
    ["tensor"],
    ["jit", "function"],
    ["nn"],
    ["testing"],
    ["__init__"],
]
TOGETHER = {("helpers", "errors"), ("errors", "helpers")}  # in one row, and one may use the other

# inside uop/: opcodes and records know no node, rules know matched nodes only
UOP_ROWS = [
    ["opcodes", "info", "arithmetic", "meaning"],
    ["match", "rewrite"],
    ["infer", "render", "simplify"],
    ["construct"],
    ["node"],
    ["spec", "spec_memory", "spec_values", "interpret", "interpret_kernel"],
    ["ops"],
    ["__init__"],
]

# the only calls that import inside a function: what a cache miss needs, the extras, a user's module
LATE_IMPORTS = {"helpers.py", "codegen/cache.py", "testing/fuzz.py"}


def files():
    return sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py"))


def room_of(file):
    """The room of a file: the first part of its way, without the ending."""
    return file.parts[0].removesuffix(".py")


def imported(file):
    """The modules of tinyfn that a file imports, as dotted names below tinyfn, with the lines."""
    package = ("tinyfn", *file.parts[:-1])
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            names = [(a.name, "") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*up, *([node.module] if node.module else [])])
            names = [(base, a.name) for a in node.names]
        else:
            continue
        for base, name in names:
            if base == "tinyfn" or base.startswith("tinyfn."):
                full = f"{base}.{name}" if is_module(f"{base}.{name}") else base
                yield full.removeprefix("tinyfn").removeprefix("."), node.lineno


def is_module(dotted):
    place = ROOT.joinpath(*dotted.split(".")[1:])
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def rank(rows, room):
    found = [i for i, row in enumerate(rows) if room in row]
    return found[0] if found else None


@pytest.mark.parametrize("file", files(), ids=str)
def test_imports_go_down(file):
    room, wrong = room_of(file), []
    here = rank(ROWS, room)
    assert here is not None, f"{room} stands in no row of the architecture"
    for module, line in imported(file):
        other = module.split(".")[0] or "__init__"
        there = rank(ROWS, other)
        down = there is not None and there < here
        if other != room and not down and (room, other) not in TOGETHER:
            wrong.append(f"{file}:{line} imports {module or 'tinyfn'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", [f for f in files() if f.parts[0] == "uop"], ids=str)
def test_imports_go_down_inside_uop(file):
    here, wrong = rank(UOP_ROWS, file.stem), []
    assert here is not None, f"uop/{file.name} stands in no row"
    for module, line in imported(file):
        if module.startswith("uop."):
            other = module.split(".")[1]
            if other != file.stem and rank(UOP_ROWS, other) > here:
                wrong.append(f"{file}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def imports_of(statement):
    """The imports that a statement consists of: itself, or those for types only."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
        return [n for n in statement.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return [statement] if isinstance(statement, ast.Import | ast.ImportFrom) else []


@pytest.mark.parametrize("file", files(), ids=str)
def test_imports_stand_at_the_top(file):
    tree = ast.parse((ROOT / file).read_text())
    late, body_began, at_top = [], False, set()
    for statement in tree.body:
        found = imports_of(statement)
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if found and not body_began:
            at_top |= set(found)
        body_began = body_began or not (found or is_text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in at_top:
            late.append(node.lineno)
        calls = isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)
        if calls and file.as_posix() not in LATE_IMPORTS:
            late.append(node.lineno)
    assert not late, f"{file}: imports below the top in lines {sorted(set(late))}"


def packages(file):
    """The packages that a file imports, with the lines."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            yield from ((a.name.split(".")[0], node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0], node.lineno


def test_numba_is_imported_in_one_place():
    outside = [f for f in files() if f.parts[:2] != ("codegen", "native")]
    wrong = [f"{f}:{line}" for f in outside for name, line in packages(f) if name == "numba"]
    assert not wrong, f"numba is imported outside of codegen/native: {wrong}"


def test_optional_packages_are_imported_by_name_only():
    extras = {"safetensors", "ml_dtypes", "sklearn", "tqdm", "matplotlib", "hypothesis", "torch"}
    checked = [f for f in files() if f.parts[0] != "testing"]
    wrong = [f"{f}:{line}" for f in checked for name, line in packages(f) if name in extras]
    assert not wrong, f"use helpers.optional(name, extra) instead: {wrong}"


SIDE_EFFECTS = """
import sys, threading
import tinyfn, tinyfn.nn
loaded = {"numba", "safetensors", "sklearn", "matplotlib"} & set(sys.modules)
assert not loaded, f"import tinyfn loads {loaded}"
assert threading.active_count() == 1, "import tinyfn starts threads"
"""


def test_import_has_no_side_effects():
    ran = subprocess.run([sys.executable, "-c", SIDE_EFFECTS], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_checks_see_something():
    """An import up the list is seen, so that a silent check does not pass for a kept rule."""
    assert len(files()) > 60
    modules = {m for m, _ in imported(Path("tensor/handle.py"))}
    assert {"uop.ops", "gradient", "errors"} <= modules
    assert {"nn.optim", "nn.state"} <= {m for m, _ in imported(Path("nn/__init__.py"))}
