"""What the machine offers: threads the process may use, vectors, caches, memory."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable
from pathlib import Path

from tinyfn.device import Target
from tinyfn.errors import FlagError
from tinyfn.helpers import NATIVE, THREADS, ceildiv, getenv

HOST = "host"
CACHE_DEFAULTS = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}

# vector bytes, registers, fused multiply-add: of CPUs as LLVM names them, by family
AVX512, AVX2, SSE, NEON = (64, 32, True), (32, 16, True), (16, 16, False), (16, 32, True)
KNOWN_CPUS = {
    **dict.fromkeys(("generic", "x86-64", "x86-64-v2", "nehalem"), SSE),
    **dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake"), AVX2),
    **dict.fromkeys(("znver1", "znver2", "znver3"), AVX2),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "cascadelake", "icelake-server"), AVX512),
    **dict.fromkeys(("sapphirerapids", "graniterapids", "znver4", "znver5"), AVX512),
}
KNOWN_ARM_CPUS = dict.fromkeys(
    ("generic", "neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2", "apple-m1"), NEON
)


def is_arm() -> bool:
    """Whether the process runs on a 64-bit ARM."""
    return platform.machine().lower() in ("aarch64", "arm64")


@functools.cache
def host_target(cpu: str, threads: int) -> Target:
    """The target for a CPU's name ("host": this one)."""
    vector_bytes, registers, has_fma = _host_vectors() if cpu == HOST else _named_vectors(cpu)
    l1, l2, l3 = (cache_bytes(level) for level in (1, 2, 3))
    return Target(cpu, vector_bytes, registers, l1, l2, l3, has_fma, threads)


def target() -> Target:
    """The target in force: TINYFN_CPU, else this machine; threads by the flag THREADS."""
    found = host_target(getenv("TINYFN_CPU", HOST) or HOST, thread_count())
    if NATIVE and found.vector_bytes > _host_vectors()[0]:
        raise FlagError(
            "TINYFN_CPU", "a CPU whose vectors this machine has, unless NATIVE=0", repr(found.name)
        )
    return found


def _named_vectors(cpu: str) -> tuple[int, int, bool]:
    known = KNOWN_ARM_CPUS if is_arm() else KNOWN_CPUS
    if cpu not in known:
        raise FlagError("TINYFN_CPU", f"a CPU name ({HOST}, {', '.join(known)})", repr(cpu))
    return known[cpu]


def _host_vectors() -> tuple[int, int, bool]:
    if is_arm():
        return NEON
    flags = cpu_flags()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return AVX512
    return AVX2 if {"avx2", "fma"} <= flags else SSE


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The feature names that the kernel lists for the first CPU; empty where it lists none."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


@functools.cache
def cache_bytes(level: int) -> int:
    """Size of the data cache of that level, as one core sees it."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, found = _first_line(folder / "type"), _first_line(folder / "level")
        size = _first_line(folder / "size")
        if kind != "Instruction" and found == str(level) and size[:-1].isdigit():
            return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    return CACHE_DEFAULTS[level]


def thread_count() -> int:
    """Threads a kernel may use: the flag THREADS, else what the process may run on."""
    wanted = int(THREADS)
    return wanted if wanted > 0 else available_threads()


@functools.cache
def available_threads() -> int:
    """CPUs in the affinity mask, or the control group's quota where that is less."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cpus = os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, cpus if quota is None else min(cpus, quota))


def cgroup_quota() -> int | None:
    """The CPUs that the control groups of the process allow, rounded up; None: no limit."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        words = _first_line(folder / "cpu.max").split()
        if not words:
            limit, period = _first_line(folder / "cpu.cfs_quota_us"), "cpu.cfs_period_us"
            words = [limit, _first_line(folder / period)]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            quotas.append(max(1, ceildiv(int(words[0]), int(words[1]))))
    return min(quotas, default=None)


def after_fork(action: Callable[[], None]) -> None:
    """Run `action` in every child that this process forks, where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


@functools.cache
def memory_bytes() -> int:
    """Memory that the process may use at most: the machine's, or its control group's limit."""
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # no such question on this platform
        limits = [1 << 46]
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _first_line(folder / name)
            if text.isdigit() and int(text):
                limits.append(int(text))
    return min(limits)


def _cgroup_folders(controller: str) -> list[Path]:
    """The folders of the process's control groups (v2 and v1) for a controller, and above."""
    folders = []
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers and controller not in names:
            continue
        root = Path("/sys/fs/cgroup") / (controllers if controllers else "")
        if controllers and not root.is_dir():
            root = root.parent / controller
        own = root / path.lstrip("/")
        folders += [own, *(p for p in own.parents if p == root or root in p.parents)]
    return folders


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _first_line(path: Path) -> str:
    """The first line of a file; empty where it cannot be read."""
    try:
        return path.read_text().partition("\n")[0].strip()
    except OSError:
        return ""
