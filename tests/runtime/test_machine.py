"""What is read from the machine, and how it can be overruled."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tinyfn.device import Device
from tinyfn.errors import FlagError
from tinyfn.helpers import Context
from tinyfn.runtime import machine


def test_the_target_describes_this_machine():
    target = Device["CPU"].target
    assert target.name == os.environ.get("TINYFN_CPU", "host")
    assert (target.vector_bytes, target.registers) in {(64, 32), (32, 16), (16, 16), (16, 32)}
    assert 1 << 12 <= target.l1_bytes <= target.l2_bytes <= target.l3_bytes
    assert target.threads >= 1
    assert hash(target) == hash(Device["CPU:1"].target)
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.threads = 3


@pytest.mark.skipif(machine.is_arm(), reason="names of x86-64 CPUs")
@pytest.mark.parametrize(
    ("cpu", "vectors"),
    [("haswell", (32, 16, True)), ("x86-64", (16, 16, False)), ("znver4", (64, 32, True))],
)
def test_a_named_cpu(cpu, vectors):
    target = machine.host_target(cpu, 5)
    assert (target.vector_bytes, target.registers, target.has_fma) == vectors
    assert (target.name, target.threads) == (cpu, 5)


def test_an_unknown_cpu_is_a_sentence():
    with pytest.raises(FlagError, match=r"TINYFN_CPU takes .*haswell.*got 'pentium'|neoverse"):
        machine.host_target("pentium", 1)


def test_a_cpu_with_wider_vectors_runs_nothing_natively(monkeypatch):
    monkeypatch.setattr(machine, "_host_vectors", lambda: machine.SSE)
    monkeypatch.setattr(machine, "getenv", lambda name, default: "haswell")
    monkeypatch.setattr(machine, "is_arm", lambda: False)
    with pytest.raises(FlagError, match="a CPU whose vectors this machine has.*got 'haswell'"):
        machine.target()
    with Context(NATIVE=0):
        assert machine.target().name == "haswell"


def test_threads_follow_the_flag():
    with Context(THREADS=3):
        assert Device["CPU"].target.threads == 3
    with Context(THREADS=0):
        assert machine.thread_count() == machine.available_threads()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"sse2"}, machine.SSE),
        ({"avx2"}, machine.SSE),
        ({"avx2", "fma"}, machine.AVX2),
        ({"avx2", "fma", "avx512f"}, machine.AVX2),
        ({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}, machine.AVX512),
    ],
)
def test_vectors_follow_the_flags_of_the_cpu(monkeypatch, flags, expected):
    monkeypatch.setattr(machine, "is_arm", lambda: False)
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset(flags))
    assert machine._host_vectors() == expected


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"a/b/cpu.max": "max 100000"}, None),
        ({"a/b/cpu.max": "150000 100000"}, 2),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, 1),
        ({"a/cpu.cfs_quota_us": "-1", "a/cpu.cfs_period_us": "100000"}, None),
        ({"a/b/cpu.cfs_quota_us": "400000", "a/b/cpu.cfs_period_us": "100000"}, 4),
        ({"a/b/cpu.max": "garbage"}, None),
        ({"a/b/cpu.max": "0 0"}, None),
    ],
)
def test_the_quota_of_control_groups(monkeypatch, tmp_path, files, quota):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    folders = [tmp_path / "a/b", tmp_path / "a", tmp_path]
    monkeypatch.setattr(machine, "_cgroup_folders", lambda controller: folders)
    assert machine.cgroup_quota() == quota


def test_folders_of_both_versions_of_control_groups(monkeypatch):
    lines = ["4:memory:/one/two", "2:cpu,cpuacct:/x", "0::/y/z", "9:name=systemd:/q"]
    monkeypatch.setattr(machine, "_lines", lambda path: lines)
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    root = Path("/sys/fs/cgroup")
    both = [root / "y/z", root / "y", root]
    assert machine._cgroup_folders("cpu") == [root / "cpu,cpuacct/x", root / "cpu,cpuacct", *both]
    memory = [root / "memory/one/two", root / "memory/one", root / "memory"]
    assert machine._cgroup_folders("memory") == [*memory, *both]


def test_affinity_limits_threads():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("no affinity on this platform")
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
        "from tinyfn.runtime import machine; print(machine.available_threads())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == "1"
