"""Known bugs, put into tinyfn on purpose: the command finds each within a stated number.

Each runs in a process of its own with a cache of its own, since a wrong kernel stays in both.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import sys
from tinyfn import Tensor
from tinyfn.testing.__main__ import main
from tinyfn.uop.ops import Ops, UOp
"""
END = """
sys.exit(main([*sys.argv[1:], "--quiet"]))
"""

TABLE_RULE = """
from tinyfn.codegen import ops
ops.NAMES[Ops.MIN] = "max"
"""
SIMPLIFICATION = """
from tinyfn.mixin.reduce import ReduceMixin
ReduceMixin.min = lambda self, axis=None, keepdim=False: -(-self).max(axis, keepdim)  # of ints
"""
GRADIENT_RULE = """
from tinyfn.gradient import GRADIENT
GRADIENT[Ops.MUL] = lambda node, g: (g * node.src[1], g * node.src[1])
"""
MASK = """
from tinyfn.schedule import indexing
right = indexing.inside
indexing.inside = lambda index, size: right(index, size - 1)
"""
COPY = """
Tensor.clone = lambda self, device=None: self
"""
SHARDING_PASS = """
from tinyfn.schedule import collective
def first_parts_only(node):
    op, device = node.arg
    return node.src[0].mselect(0).copy_to_device(device)
collective.COLLECTIVE.by_op[Ops.ALLREDUCE] = [(first_parts_only, False)]
"""
WRONG_CODE = """
import re
from tinyfn.codegen import native
right = native.compile_objects
wrong = lambda source: re.sub(r"\\b(v?)add_f32", r"\\1sub_f32", source)
native.compile_objects = lambda sources: right([wrong(s) for s in sources])
"""

# name: the fault, the arguments, within how many examples it is found
FAULTS = {
    "table rule": (TABLE_RULE, ["--ops", "binary,unary"], 100),
    "rewrite of integers": (SIMPLIFICATION, ["--ops", "reduce"], 200),
    "gradient rule": (GRADIENT_RULE, ["--module", "products"], 10),
    "mask": (MASK, ["--ops", "movement,unary"], 100),
    "copy": (COPY, ["--ops", "assign,binary"], 200),
    "sharding pass": (SHARDING_PASS, ["--ops", "reduce", "--ways", "sharded"], 30),
    "cache file": ("", ["--ops", "binary", "--length", "2"], 100),
}


def command(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-c", START + code + END, "fuzz", *arguments]
    places = {"PYTHONPATH": str(ROOT), "TINYFN_CACHE": str(folder / "cache")}
    environment = {**os.environ, **places}
    return subprocess.run(given, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.parametrize("name", FAULTS)
def test_an_injected_fault_is_found(name: str, tmp_path: Path) -> None:
    fault, arguments, within = FAULTS[name]
    text = "from tinyfn import Tensor\n\ndef product(x: Tensor, y: Tensor):\n    return x * y\n"
    (tmp_path / "products.py").write_text(text)
    counted = [*arguments, "--examples", str(within), "--seconds", "60"]
    if name == "cache file":  # an earlier process left code there that is not the kernel's
        assert command(WRONG_CODE, tmp_path, *counted).returncode == 1
    ran = command(fault, tmp_path, *counted)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    first = re.search(r"found by example (\d+)", ran.stdout)
    assert first and int(first[1]) <= within, ran.stdout + ran.stderr
    assert list(tmp_path.glob("test_found_*.py"))
