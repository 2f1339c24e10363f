"""The records that nodes carry in `arg`, and the packing of sizes that may be symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Device = str | tuple[str, ...] | None
Packed = tuple[int | None, ...]


class AddrSpace(Enum):
    """Where the memory of a parameter of a kernel lives."""

    GLOBAL = "global"
    LOCAL = "local"
    REG = "reg"


class AxisType(Enum):
    """What a loop of a kernel is for."""

    WEAK = "weak"
    LOOP = "loop"
    REDUCE = "reduce"
    GLOBAL = "global"
    LOCAL = "local"
    THREAD = "thread"
    WARP = "warp"
    UPCAST = "upcast"
    UNROLL = "unroll"
    GROUP_REDUCE = "group_reduce"
    OUTER = "outer"


@dataclass(frozen=True)
class BufferInfo:
    """A buffer: identity, where it lives (a tuple: one part a slot), shape of a part, and origin.

    `kind` is data (has contents), empty (contents undefined) or scratch (`invalids`: never an
    input of a function).
    """

    num: int
    device: Device
    shape: tuple[int, ...]
    kind: str = "data"


@dataclass(frozen=True)
class FullInfo:
    """A filled tensor with an identity of its own."""

    num: int
    device: Device
    shape: Packed


@dataclass(frozen=True)
class VariableInfo:
    """A symbolic integer between `low` and `high`, both included."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class ParamInfo:
    """A numbered place: a parameter of a body (addrspace None) or kernel, or an output."""

    slot: int
    shape: Packed
    device: Device = None
    addrspace: AddrSpace | None = None
    name: str | None = None
    vmin_vmax: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReduceInfo:
    """A reduction of whole axes."""

    op: Any
    axes: tuple[int, ...]


@dataclass(frozen=True)
class ScanInfo:
    """A running value along an axis, from its end if `reverse`.

    `op` is ADD, MUL, MAX or MIN of the value so far and an element; or FMA, then there is a second
    source: the value so far times its element, plus the first source's element.
    """

    op: Any
    axis: int
    reverse: bool = False


@dataclass(frozen=True)
class ScatterInfo:
    """How values are put at places along an axis: the op (ADD, MUL, MAX, MIN) of old and new."""

    op: Any
    axis: int


@dataclass(frozen=True)
class SortInfo:
    """An order along the last axis: the largest first, or not; how many are wanted (None: all)."""

    descending: bool = False
    count: int | None = None


@dataclass(frozen=True)
class CallInfo:
    """What a call is: its name, its gradient, and when its body is compiled."""

    name: str = "call"
    grad_fxn: Callable[..., Any] | None = None
    precompile: bool = False
    precompile_backward: bool = False
    aux: Any = None


@dataclass(frozen=True)
class KernelInfo:
    """What is said of a kernel: its name and wishes about its loops."""

    name: str = "kernel"
    axis_types: tuple[AxisType, ...] = ()
    dont_use_locals: bool = False
    applied_opts: tuple[Any, ...] = ()
    opts_to_apply: tuple[Any, ...] | None = None
    estimates: Any = None


@dataclass(frozen=True)
class ProgramInfo:
    """How a program handed over as source and binary is called: its symbol and its arguments."""

    name: str = "program"
    global_size: tuple[Any, ...] = (1, 1, 1)
    local_size: tuple[Any, ...] | None = (1, 1, 1)
    vars: tuple[Any, ...] = ()
    globals: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()
    ins: tuple[int, ...] = ()
    aux: Any = field(default=None, compare=False)


def pack(sizes: Sequence[Any]) -> tuple[Packed, tuple[Any, ...]]:
    """Split sizes into plain ints, with None in the place of symbolic ones, and those nodes.

    Nodes belong in `src`, where rewrites see them: (3, n) becomes (3, None) and (n,).
    """
    if all(type(size) is int for size in sizes):
        return tuple(sizes), ()
    plain = tuple(s if isinstance(s, int) else None for s in sizes)
    return plain, tuple(s for s in sizes if not isinstance(s, int))


def unpack(packed: Packed, nodes: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes again: every None is the next node."""
    if not nodes:
        return packed
    rest = iter(nodes)
    return tuple(next(rest) if size is None else size for size in packed)
