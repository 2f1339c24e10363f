"""The benchmarks run, check before they time, and say what they found in each form."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    """The modules of the folder, as its scripts see them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("workload", "libraries", "measure", "report", "workloads")
    before = set(sys.modules)
    yield {name: importlib.import_module(name) for name in names}
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(FOLDER)):
            del sys.modules[name]


def test_a_run_writes_table_json_and_picture(tmp_path):
    figures, picture = tmp_path / "f.json", tmp_path / "f.png"
    command = [sys.executable, str(FOLDER / "run.py"), "--only", "8 elements,7x1013x3"]
    command += ["--libs", "numpy", "--turns", "2", "--rounds", "3", "--budget", "0.05"]
    command += ["--json", str(figures), "--plot", str(picture)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "| a*b+1 on 8 elements, replayed | calls/s |" in ran.stdout
    assert "geometric mean of tinyfn / best peer" in ran.stdout
    lines = json.loads(figures.read_text())["lines"]
    assert [line["name"].split()[0] for line in lines] == ["a*b+1", "matmul"]
    for line in lines:
        assert line["errors"] == {}
        assert line["ratio"] == line["rates"]["tinyfn"] / line["rates"]["numpy"]
        assert line["cold"]["tinyfn"] > 0 and line["warm"]["tinyfn"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_wrong_result_is_not_timed(benchmarks, capsys, tmp_path):
    one, measure = benchmarks["workload"], benchmarks["measure"]

    def work(name, tensor):
        return one.Workload(
            name, "calls/s", 1, (one.Input((8,)),), lambda _, a: a + 1, tensor=tensor
        )

    lines = [
        work("wrong", lambda _, a: a + 1.001),
        work("undefined", lambda _, a: a * float("nan")),
        work("another shape", lambda _, a: (a + 1).sum()),
        work("right", lambda _, a: a + 1),
    ]
    options = argparse.Namespace(rounds=1, budget=0.01, best=True, folder=tmp_path)
    measure.measure("tinyfn", lines, options)
    found = {f["name"]: f for f in map(json.loads, capsys.readouterr().out.splitlines())}
    assert "off by 0.001" in found["wrong"]["error"]
    assert "off by nan" in found["undefined"]["error"]
    assert "shape () instead of (8,)" in found["another shape"]["error"]
    assert found["right"]["rate"] > 0


def test_a_training_that_goes_elsewhere_is_taken_out(benchmarks):
    line = benchmarks["report"].Line("training", "steps/s", rates={"a": 1, "b": 2, "c": 3})
    line.losses = {"a": [2.0, 1.0], "b": [2.0, 1.005], "c": [2.0, 1.2]}
    importlib.import_module("run").compare_losses(line)
    assert set(line.rates) == {"a", "b"} and "its losses" in line.errors["c"]


def test_every_workload_names_its_work_and_has_a_line_in_tinyfn(benchmarks):
    lines = benchmarks["workloads"].all_workloads()
    assert len({line.name for line in lines}) == len(lines)
    for line in lines:
        assert line.unit in benchmarks["workload"].SCALE and line.work > 0
        assert {"tinyfn", "tinygrad", "torch", "jax"} <= set(line.functions())


def test_inputs_are_the_same_in_each_library(benchmarks):
    given = benchmarks["workload"].Input((5,), positive=True)
    first, second = (given.make(np.random.default_rng(0)) for _ in "ab")
    assert (first == second).all() and (first > 0).all() and first.dtype == np.float32
