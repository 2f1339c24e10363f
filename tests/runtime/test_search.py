"""BEAM: which plan is taken, that its results are right, and that it is kept."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, Variable
from tinyfn.codegen import cache
from tinyfn.codegen.choice import DEFAULT, Choice
from tinyfn.device import Device
from tinyfn.runtime import search


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYFN_CACHE", str(tmp_path / "kernels"))
    return tmp_path


def values(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def kernel_of(tensor):
    return tensor.linear_with_vars()[0].src[0].src[0]


def product():
    return Tensor(values(40, 50)) @ Tensor(values(50, 60))


def large_product():
    """One whose units can be others."""
    return Tensor.empty(8192, 16) @ Tensor.empty(16, 256)


def prefer(monkeypatch, wanted):
    """Let the clock prefer the plans that `wanted` holds for."""
    texts = {}
    generate = search.codegen.generate

    def noted(sink, target, choice=DEFAULT):
        made = generate(sink, target, choice)
        texts[made.name] = choice
        return made

    def seconds(self, generated, address):
        return 1.0 if wanted(texts[generated.name]) else 2.0

    monkeypatch.setattr(search.codegen, "generate", noted)
    monkeypatch.setattr(search._Search, "time_one", seconds)
    return texts


def test_the_fastest_plan_is_taken_and_kept(folder, monkeypatch):
    sink, target = kernel_of(product()), Device["CPU"].target
    prefer(monkeypatch, lambda choice: choice.tile(0) == 3)
    assert search.chosen(sink, target, 1) == Choice((3,))
    # known from now on: nothing is timed
    monkeypatch.setattr(search._Search, "run", lambda self, width: pytest.fail("searched again"))
    assert search.chosen(sink, target, 1) == Choice((3,))
    assert search.chosen(sink, target, 0) == DEFAULT


def test_steps_go_on_from_what_was_faster(folder, monkeypatch):
    def seconds(self, generated, address):
        choice = plans[generated.name]
        return 4.0 - (choice.tile(0) == 2) - 2 * (choice.tile(0) == 2 and choice.units == 16)

    plans = prefer(monkeypatch, lambda choice: True)
    monkeypatch.setattr(search._Search, "time_one", seconds)
    sink, target = kernel_of(large_product()), Device["CPU"].target
    assert search.chosen(sink, target, 1) == Choice((2,), units=16)


def test_a_plan_that_is_no_faster_is_not_taken(folder, monkeypatch):
    prefer(monkeypatch, lambda choice: True)
    assert search.chosen(kernel_of(product()), Device["CPU"].target, 2) == DEFAULT


def test_a_broken_file_is_searched_anew(folder, monkeypatch):
    sink, target = kernel_of(large_product()), Device["CPU"].target
    prefer(monkeypatch, lambda choice: choice.units == 4)
    assert search.chosen(sink, target, 1) == Choice(units=4)
    key = cache.key_of(f"{search.codegen.generate(sink, target).source}\0beam 1")
    cache.write(key, b"[[-1], 0]")
    assert search.chosen(sink, target, 1) == Choice(units=4)


def test_results_are_right(folder):
    with Context(BEAM=1):
        found = (product().relu() + 1).numpy()
        rows = Tensor(values(30, 70)).softmax().numpy()
    right = np.maximum(values(40, 50).astype(np.float64) @ values(50, 60), 0) + 1
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
    powers = np.exp(values(30, 70).astype(np.float64))
    np.testing.assert_allclose(rows, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_memory_of_the_tensors_is_not_touched(folder):
    total, one = Tensor.zeros(50).contiguous().realize(), Tensor.ones(50).contiguous().realize()
    with Context(BEAM=1):
        total.assign(total + one).realize()  # timed many times, run once
    assert total.tolist() == [1.0] * 50


def test_sizes_that_are_variables(folder):
    n = Variable("n", 1, 40)
    x = Tensor(values(40, 30)).realize()
    with Context(BEAM=1):
        for size in (7, 40):
            found = x[: n.bind(size)].sum(0).numpy()
            np.testing.assert_allclose(found, values(40, 30)[:size].sum(0), rtol=1e-4, atol=1e-5)


def test_memory_that_is_too_large_is_not_made(folder, monkeypatch):
    monkeypatch.setattr(search, "LARGEST", 1000)
    monkeypatch.setattr(search._Search, "run", lambda self, width: pytest.fail("searched"))
    assert search.chosen(kernel_of(product()), Device["CPU"].target, 2) == DEFAULT
