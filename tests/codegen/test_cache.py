"""The kernel cache: what is read back, what is refused; a second process compiles nothing."""

import os
import subprocess
import sys

import pytest

from tinyfn.codegen import cache

SOURCE = """
def add_one(buf0: f32ptr, lo: i64, hi: i64):
    for i in range(lo, hi):
        store_f32(buf0, i, add_f32(load_f32(buf0, i), const_f32(1.0)))
"""
PROGRAM = """
import sys
import numpy as np
from tinyfn import Tensor
from tinyfn.codegen import cache
x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
assert (x.softmax() @ x.transpose()).numpy().shape == (2, 2)
print(cache.counts.compiled, "numba" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYFN_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def kept(folder, ending):
    return sorted(folder.rglob(f"*{ending}"))


def test_an_object_is_kept_beside_its_source(folder):
    code = cache.compile_object(SOURCE)
    (place,), (text,) = kept(folder, ".o"), kept(folder, ".py")
    assert cache.read(cache.key_of(SOURCE)) == code
    assert text.read_text() == SOURCE
    assert place.with_suffix(".py") == text
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not [p for p in folder.rglob("*") if p.name.startswith(".tmp")]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other key"])
def test_a_damaged_file_is_a_miss(folder, damage):
    code = cache.compile_object(SOURCE)
    key = cache.key_of(SOURCE)
    (place,) = kept(folder, ".o")
    data = bytearray(place.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "cut":
        del data[-7:]
    elif damage == "empty":
        data.clear()
    else:
        cache.write("0" * len(key), code)
        data = bytearray(kept(folder, "0" * len(key) + ".o")[0].read_bytes())
    place.write_bytes(data)
    assert cache.read(key) is None
    assert cache.compile_object(SOURCE) == code
    assert cache.read(key) == code


def test_a_folder_that_others_can_write_is_not_used(folder):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="can be written by others; set TINYFN_CACHE"):
        assert cache.folder() is None
    assert cache.compile_object(SOURCE)
    assert not kept(folder, ".o")


def test_equal_sources_are_one_kernel_in_memory(folder):
    first, second = cache.fetch([SOURCE, SOURCE])
    assert first is second
    assert first.address
    assert first.name == "add_one"


def test_a_second_process_compiles_nothing_and_needs_no_numba(folder):
    environment = {**os.environ, "TINYFN_CACHE": str(folder)}
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    assert [r.returncode for r in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    compiled, with_numba = runs[0].stdout.split()
    assert int(compiled) > 0
    assert with_numba == "True"
    assert runs[1].stdout.split() == ["0", "False"]
