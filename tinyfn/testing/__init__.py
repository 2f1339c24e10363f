"""Fuzz functions of tensors and their gradients: strategies, checks, a command.

Needs the extra `testing` (hypothesis). `docs/fuzzing.md` is the tutorial.
"""

from tinyfn.testing.bounds import bounds
from tinyfn.testing.checks import (
    assert_matches_numpy,
    check_deterministic,
    check_function,
    check_program,
)
from tinyfn.testing.compare import Disagreement
from tinyfn.testing.gradients import GradientReport, check_gradients
from tinyfn.testing.programs import Program, programs
from tinyfn.testing.strategies import (
    broadcastable_shapes,
    dtypes,
    elements,
    indices,
    shapes,
    shardings,
    tensors,
)

__all__ = [
    "Disagreement",
    "GradientReport",
    "Program",
    "assert_matches_numpy",
    "bounds",
    "broadcastable_shapes",
    "check_deterministic",
    "check_function",
    "check_gradients",
    "check_program",
    "dtypes",
    "elements",
    "indices",
    "programs",
    "shapes",
    "shardings",
    "tensors",
]
