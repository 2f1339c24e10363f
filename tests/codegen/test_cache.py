"""The kernel cache: what is read back, what is refused; a second process compiles nothing."""

import gc
import os
import random
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tinyfn.codegen import cache, host_c
from tinyfn.errors import CompileError

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


BUSY = """
import random, sys
from tinyfn.codegen import cache
rng = random.Random(int(sys.argv[1]))
keys = [f"{i:02d}" * 20 for i in range(8)]
right = {k: k.encode() * (50 + 400 * i) for i, k in enumerate(keys)}
found = 0
for _ in range(1500):
    key = rng.choice(keys)
    what = rng.random()
    if what < 0.4:
        cache.write(key, right[key])
    elif what < 0.5:
        cache._path(key, ".o").unlink(missing_ok=True)
    else:
        code = cache.read(key)
        assert code in (None, right[key]), len(code)
        found += code is not None
assert found > 100, found
"""


def test_processes_that_write_read_and_remove_at_once(folder):
    environment = {**os.environ, "TINYFN_CACHE": str(folder)}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", BUSY, str(seed)], env=environment, stderr=subprocess.PIPE
        )
        for seed in range(3)
    ]
    errors = [run.communicate()[1].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], "\n".join(errors)
    assert not [p for p in folder.rglob("*") if p.name.startswith(".tmp")]


def test_damage_of_any_kind_is_never_accepted(folder):
    rng, key, code = random.Random(0), "ab" * 20, bytes(range(256)) * 4
    cache.write(key, code)
    (place,) = kept(folder, ".o")
    good = place.read_bytes()
    for _ in range(500):
        data = bytearray(good)
        if rng.random() < 0.5:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        place.write_bytes(data)
        assert cache.read(key) is None or data == good


def test_threads_that_ask_for_one_kernel_share_it(folder):
    source = SOURCE.replace("add_one", "add_one_shared")
    before = cache.counts.compiled
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cache.fetch([source])[0], range(8)))
    assert len({id(kernel) for kernel in found}) == 1
    assert cache.counts.compiled == before + 1


def test_code_is_given_back_with_its_kernel(folder):
    source = SOURCE.replace("add_one", "add_one_dropped")
    (kernel,) = cache.fetch([source])
    code = weakref.ref(kernel._code)
    del kernel
    gc.collect()
    assert code() is None
    before = cache.counts.disk
    assert cache.fetch([source])[0].address
    assert cache.counts.disk == before + 1


def test_a_folder_that_cannot_be_written_is_only_slower(folder, monkeypatch):
    cache.write("cd" * 20, b"code")
    monkeypatch.setattr(os, "replace", failing)
    cache.write("cd" * 20, b"other")
    assert cache.read("cd" * 20) == b"code"
    assert not [p for p in folder.rglob("*") if p.name.startswith(".tmp")]
    monkeypatch.setenv("TINYFN_CACHE", "/proc/nothing/here")
    with pytest.warns(UserWarning, match="kernels are not cached on disk"):
        assert cache.compile_object(SOURCE)


def failing(*_, **__):
    raise OSError("no space left on device")


C_TEXT = "int twice(int x) { return 2 * x; }\n"


def test_a_program_in_c_is_built_once(folder, monkeypatch):
    first = host_c.compile_c(C_TEXT)
    monkeypatch.setattr(host_c.subprocess, "run", failing)
    assert host_c.compile_c(C_TEXT) == first
    with pytest.raises(CompileError, match=r"cannot be run: no space left.*set CC"):
        host_c.compile_c(C_TEXT + "/* another */")


def test_what_is_wrong_with_a_c_program_is_said(folder, monkeypatch):
    with pytest.raises(CompileError, match="the C compiler refused the program"):
        host_c.compile_c("int twice(int x) { return")
    monkeypatch.setenv("CC", "/nonexistent/compiler")
    with pytest.raises(CompileError, match=r"/nonexistent/compiler \(from \$CC or PATH\)"):
        host_c.compile_c("int x;")


def test_where_there_is_no_c_compiler_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(host_c.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="install one, or `pip install ziglang`"):
        host_c.compile_c("int y;")
