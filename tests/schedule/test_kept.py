"""What is kept of what was scheduled and compiled does not grow without end."""

import numpy as np

from tinyfn import Tensor, TinyJit, schedule
from tinyfn.helpers import Recent
from tinyfn.runtime import execute


def program(n):
    return (Tensor(np.arange(n, dtype=np.float32)) * 2).sum().item()


def test_old_schedules_and_programs_go(monkeypatch):
    monkeypatch.setattr(schedule, "_templates", Recent(4))
    monkeypatch.setattr(execute, "_programs", Recent(4))
    assert [program(n) for n in range(3, 13)] == [n * (n - 1) for n in range(3, 13)]
    assert len(schedule._templates._entries) <= 4 and len(execute._programs._entries) <= 4
    assert program(3) == 6  # again, after it was forgotten


def test_a_schedule_of_more_kernels_than_are_kept_runs(monkeypatch):
    monkeypatch.setattr(execute, "_programs", Recent(2))
    parts = [Tensor(np.arange(n, dtype=np.float32)).realize().cumsum() for n in range(3, 9)]
    Tensor.realize(*parts)
    assert [p.tolist()[-1] for p in parts] == [n * (n - 1) / 2 for n in range(3, 9)]


def test_a_recording_keeps_its_own(monkeypatch):
    monkeypatch.setattr(execute, "_programs", Recent(2))
    double = TinyJit(lambda x: (x * 2).realize())
    x = Tensor([1.0, 2.0]).realize()
    for n in range(6):
        program(n + 2)
        assert double(x).tolist() == [2.0, 4.0]
