"""All workloads, in the order of the table."""

from workload import Workload

from . import contraction, elementwise, movement, odd, reduction, training

__all__ = ["all_workloads"]


def all_workloads() -> list[Workload]:
    """Every line of the table."""
    rooms = (elementwise, reduction, contraction, movement, training, odd)
    return [workload for room in rooms for workload in room.WORKLOADS]
