"""The command: what it finds in a module, what it writes, and what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinyfn.errors import ArgumentError
from tinyfn.testing.__main__ import main
from tinyfn.testing.fuzz import module_functions
from tinyfn.testing.regression import write_test

WRONG = """
from tinyfn import Tensor, function


def half(g, call):
    return (g * 0.5,)


@function(grad_fxn=half)
def wrong(x: Tensor) -> Tensor:
    return x * x


def with_a_number(x: Tensor, power: int) -> Tensor:
    return x**power
"""


def test_a_wrong_gradient_is_found_shrunk_and_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "wrong_module.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    found = ["fuzz", "--module", "wrong_module", "--examples", "20", "--quiet", "--out", "found"]
    assert main(found) == 1
    said = capsys.readouterr().out
    assert "differences say" in said
    (test,) = Path("found").iterdir()
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    ran = subprocess.run(again, capture_output=True, text=True, env=_environment(tmp_path))
    assert "1 failed" in ran.stdout and "differences say" in ran.stdout, ran.stdout + ran.stderr


def _environment(folder):
    return {**os.environ, "PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}"}


def test_programs_that_agree_end_with_status_0(capsys):
    assert main(["fuzz", "--examples", "5", "--ops", "unary,binary", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "5 examples, nothing found" in said
    assert re.search(r"\d+ examples/s(; \d+ MB resident at first, \d+ at the end)?", said)


def test_unknown_ops_and_modules_without_functions_are_sentences(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match="expected ops of unary"):
        main(["fuzz", "--ops", "unary,nothing", "--quiet"])
    (tmp_path / "bare_module.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="expected functions in bare_module"):
        module_functions("bare_module")


def test_a_test_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tinyfn.testing.regression.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_test(tmp_path, "text")
    assert not list(tmp_path.iterdir())
