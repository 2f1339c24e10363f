"""The door to the graph: everything public of it under one name."""

from tinyfn.uop.info import (
    AddrSpace,
    AxisType,
    BufferInfo,
    CallInfo,
    KernelInfo,
    ParamInfo,
    ProgramInfo,
    ReduceInfo,
    ScanInfo,
    ScatterInfo,
    SortInfo,
    VariableInfo,
)
from tinyfn.uop.match import Rules
from tinyfn.uop.node import UOp
from tinyfn.uop.opcodes import Ops
from tinyfn.uop.render import listing
from tinyfn.uop.rewrite import rewrite, substitute, toposort

__all__ = [
    "AddrSpace",
    "AxisType",
    "BufferInfo",
    "CallInfo",
    "KernelInfo",
    "Ops",
    "ParamInfo",
    "ProgramInfo",
    "ReduceInfo",
    "Rules",
    "ScanInfo",
    "ScatterInfo",
    "SortInfo",
    "UOp",
    "VariableInfo",
    "listing",
    "rewrite",
    "substitute",
    "toposort",
]
