"""Code generation: a kernel graph becomes source text in the generated language.

`generate` is the table of contents. The graph is normalised, turned into a tree of loops, the
loops are planned (threads, lanes, copies), and the tree is written out as statements, which
`python` formats.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from tinyfn.codegen import estimate, python
from tinyfn.codegen.choice import DEFAULT, Choice
from tinyfn.codegen.columns import turn_columns
from tinyfn.codegen.cost import Profile
from tinyfn.codegen.divide import divide_loops
from tinyfn.codegen.emit import emit
from tinyfn.codegen.loops import Kernel
from tinyfn.codegen.lower import lower
from tinyfn.codegen.normalise import normalise
from tinyfn.codegen.parallel import about, split_over_threads, units
from tinyfn.codegen.stage import stage_rows
from tinyfn.codegen.stream import streamed_slots
from tinyfn.codegen.tile import choose_copies
from tinyfn.codegen.vectorize import choose_lanes
from tinyfn.device import Target
from tinyfn.uop.ops import UOp


@dataclass(frozen=True)
class Generated:
    """A kernel as source, and what is needed to run it.

    `buffers` are the slots of its parameters in order, then come `variables` (names), then lo and
    hi: the units to run, of `extent` in all; multiples of `step`, but for hi at the end. `ops` and
    `memory` are arithmetic operations and bytes of one run. Sizes are ints, or nodes of variables.
    `offers`: how many tiles each nest of loops had to choose from.
    """

    name: str
    source: str
    buffers: tuple[int, ...]
    variables: tuple[str, ...]
    extent: Any
    step: int
    ops: Any
    memory: Any
    offers: tuple[int, ...] = ()


def generate(sink: UOp, target: Target, choice: Choice = DEFAULT) -> Generated:
    """The source of a kernel graph for a processor."""
    name = kernel_name(sink, target, choice)
    sink = normalise(sink)  # one flat offset an access
    turned = turn_columns(divide_loops(sink), target)  # columns: rows after one another
    kernel = lower(stage_rows(turned), name)  # the tree of loops
    kernel.choice = choice
    plan(kernel, target)  # lanes, copies, units
    program = emit(kernel)  # statements
    extent, step = units(kernel)
    return Generated(
        name=name,
        source=python.source(program),
        buffers=tuple(p.arg.slot for p in kernel.globals),
        variables=tuple(variable_name(v) for v in kernel.variables),
        extent=extent,
        step=step,
        ops=estimate.operations(sink),
        memory=estimate.moved_bytes(sink),
        offers=tuple(kernel.offers),
    )


def plan(kernel: Kernel, target: Target) -> None:
    """Decide how the loops run on a processor."""
    profile = Profile(kernel, target)
    if target.vector_bytes:
        choose_lanes(kernel, profile, target)  # one vector axis in every nest
    choose_copies(kernel, profile, target)  # register tiles, several accumulators
    split_over_threads(kernel, profile, target)  # what lo..hi counts
    kernel.streamed = streamed_slots(kernel, profile, target)
    kernel.about = about(kernel)


def kernel_name(sink: UOp, target: Target, choice: Choice = DEFAULT) -> str:
    """A name that is a plain identifier and belongs to this graph and processor only."""
    wanted = getattr(sink.arg, "name", None) or "kernel"
    plain = re.sub(r"[^A-Za-z0-9_]", "_", str(wanted))[:60].strip("_") or "kernel"
    if not plain[0].isalpha():
        plain = f"k_{plain}"
    made_for = repr(target) + (choice.text() if choice != DEFAULT else "")
    digest = hashlib.blake2b(sink.key + made_for.encode(), digest_size=6).hexdigest()
    return f"{plain}_{digest}"


def variable_name(node: UOp) -> str:
    """The name under which the value of a parameter is looked up."""
    return "slot" if node.op.name == "SLOT" else str(node.arg.name)


__all__ = ["Generated", "generate", "plan"]
