"""tinyfn: a tensor library for CPUs. Lazy graphs in Python, kernels compiled by numba."""

from tinyfn import nn
from tinyfn.device import Device
from tinyfn.dtype import dtypes
from tinyfn.function import function
from tinyfn.helpers import Context, GlobalCounters, fetch, getenv
from tinyfn.jit import TinyJit
from tinyfn.tensor import Tensor
from tinyfn.uop.ops import UOp

Variable = UOp.variable

__all__ = [
    "Context",
    "Device",
    "GlobalCounters",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "dtypes",
    "fetch",
    "function",
    "getenv",
    "nn",
]
