"""The operations of the graph, one row each. Every other table over ops is checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


@dataclass(frozen=True)
class OpRow:
    """What is known of an op by itself: its family, its count of sources (-1: any), its meaning."""

    group: str
    arity: int
    help: str


class Ops(Enum):
    """The name of an operation; its value is what is known of it."""

    __hash__ = object.__hash__  # by identity: faster than by name

    # leaves
    CONST = OpRow("leaf", 0, "a scalar; arg is its Python value (or Invalid)")
    BUFFER = OpRow("leaf", 0, "memory with an identity; arg: BufferInfo")
    FULL = OpRow("leaf", -1, "a new tensor filled with src[0]; arg: FullInfo, sizes in src[1:]")
    IOTA = OpRow("leaf", -1, "0, 1, ... n-1; arg: packed shape (n,)")
    PARAM = OpRow("leaf", -1, "an argument of a body or kernel; arg: ParamInfo")
    OUTPUT = OpRow("leaf", -1, "the place of a call's output; arg: ParamInfo")
    VARIABLE = OpRow("leaf", 0, "a symbolic integer; arg: VariableInfo(name, low, high)")
    BIND = OpRow("leaf", 2, "a variable with its value: VARIABLE, CONST")
    # elementwise, one source
    NEG = OpRow("unary", 1, "-x")
    ABS = OpRow("unary", 1, "|x|")
    NOT = OpRow("unary", 1, "bits inverted; logical for bool")
    SQRT = OpRow("unary", 1, "square root")
    RECIP = OpRow("unary", 1, "1/x")
    RSQRT = OpRow("unary", 1, "1/sqrt(x)")
    EXP = OpRow("unary", 1, "e^x")
    EXP2 = OpRow("unary", 1, "2^x")
    EXPM1 = OpRow("unary", 1, "e^x - 1")
    LOG = OpRow("unary", 1, "natural logarithm")
    LOG2 = OpRow("unary", 1, "logarithm to base 2")
    LOG1P = OpRow("unary", 1, "log(1+x)")
    SIN = OpRow("unary", 1, "sine")
    COS = OpRow("unary", 1, "cosine")
    TAN = OpRow("unary", 1, "tangent")
    TANH = OpRow("unary", 1, "hyperbolic tangent")
    SIGMOID = OpRow("unary", 1, "1/(1+e^-x)")
    ERF = OpRow("unary", 1, "error function")
    TRUNC = OpRow("unary", 1, "towards zero")
    FLOOR = OpRow("unary", 1, "down")
    CEIL = OpRow("unary", 1, "up")
    ROUND = OpRow("unary", 1, "to nearest, ties to even")
    CAST = OpRow("cast", 1, "the value in the node's dtype")
    BITCAST = OpRow("cast", 1, "the bits in the node's dtype of the same width")
    # elementwise, two sources
    ADD = OpRow("binary", 2, "x + y")
    SUB = OpRow("binary", 2, "x - y")
    MUL = OpRow("binary", 2, "x * y")
    DIV = OpRow("binary", 2, "x / y of floats")
    IDIV = OpRow("binary", 2, "floor(x / y); integers by zero give 0")
    MOD = OpRow("binary", 2, "x - floor(x / y) * y; integers by zero give 0")
    MAX = OpRow("binary", 2, "larger; NaN where either is")
    MIN = OpRow("binary", 2, "smaller; NaN where either is")
    POW = OpRow("binary", 2, "x to the y, floats")
    AND = OpRow("binary", 2, "bits of both")
    OR = OpRow("binary", 2, "bits of either")
    XOR = OpRow("binary", 2, "bits of one only")
    SHL = OpRow("binary", 2, "shift left; 0 from the width on")
    SHR = OpRow("binary", 2, "shift right; 0 or the sign from the width on")
    CMPLT = OpRow("compare", 2, "x < y")
    CMPLE = OpRow("compare", 2, "x <= y")
    CMPEQ = OpRow("compare", 2, "x == y")
    CMPNE = OpRow("compare", 2, "x != y")
    THREEFRY = OpRow("binary", 2, "threefry2x32 of counter and key, uint64")
    # elementwise, three sources
    WHERE = OpRow("ternary", 3, "y where the bool x holds, else z")
    FMA = OpRow("ternary", 3, "x * y + z rounded once (kernels only)")
    # movement; arg is a packed tuple (see info.pack)
    RESHAPE = OpRow("movement", -1, "same elements in order, another shape")
    EXPAND = OpRow("movement", -1, "size 1 repeated; arg: the new shape")
    PERMUTE = OpRow("movement", 1, "axes in another order; arg: the order")
    PAD = OpRow("movement", -1, "zeros around; arg: before, after of every axis, flat")
    SHRINK = OpRow("movement", -1, "a box out of it; arg: begin, size of every axis, flat")
    FLIP = OpRow("movement", 1, "axes reversed; arg: their numbers")
    # across elements
    REDUCE_AXIS = OpRow("reduce", 1, "reduced axes become 1; arg: ReduceInfo(op, axes)")
    GATHER = OpRow("gather", 2, "x[index] along arg; index out of range reads 0")
    SCATTER = OpRow("gather", 3, "x combined with z at index y, in order; arg: ScatterInfo")
    SCAN = OpRow("scan", -1, "running value along an axis; arg: ScanInfo, see there")
    ARGSORT = OpRow("sort", 1, "numbers of the last axis's elements in order; arg: SortInfo")
    # memory and order
    CONTIGUOUS = OpRow("memory", 1, "stored row-major")
    DETACH = OpRow("memory", 1, "no gradient passes")
    CONTIGUOUS_BACKWARD = OpRow("memory", 1, "its gradient is contiguous")
    COPY = OpRow("memory", 1, "on other devices; arg: device or tuple")
    STORE = OpRow("memory", -1, "write src[1] into the place src[0]; src[2] is a gate")
    AFTER = OpRow("memory", -1, "src[0] once src[1:] have run")
    # devices
    UNSHARD = OpRow("device", 1, "per-slot parts as one tensor along the axis arg")
    SHARD = OpRow("device", 1, "the slot's own part along the axis arg of a replicated tensor")
    MSELECT = OpRow("device", 1, "the part of slot number arg")
    MSTACK = OpRow("device", -1, "parts of several slots as one")
    ALLREDUCE = OpRow("device", 1, "parts combined on every slot; arg: (op, device)")
    # calls
    CALL = OpRow("call", -1, "body src[0] on arguments src[1:]; arg: CallInfo")
    TUPLE = OpRow("call", -1, "several values")
    GETTUPLE = OpRow("call", 1, "value number arg of a tuple")
    # kernels
    RANGE = OpRow("kernel", -1, "a loop counter below src[0]; arg: (number, AxisType)")
    INDEX = OpRow("kernel", -1, "element src[1:] of the memory src[0]")
    LOAD = OpRow("kernel", -1, "the value at an INDEX; src[1] replaces what a gate leaves out")
    REDUCE = OpRow("kernel", -1, "src[0] combined over the ranges src[1:]; arg: op")
    END = OpRow("kernel", -1, "src[0] in loops over the ranges src[1:]")
    GROUP = OpRow("kernel", -1, "several stores as one")
    SINK = OpRow("kernel", -1, "everything that must happen; arg: KernelInfo or None")
    SLOT = OpRow("kernel", 0, "the number of the slot that runs the kernel")
    # programs and their lists
    LINEAR = OpRow("program", -1, "calls in order")
    PROGRAM = OpRow("program", -1, "a kernel in several forms; arg: ProgramInfo")
    SOURCE = OpRow("program", 0, "text of a program")
    BINARY = OpRow("program", 0, "bytes of a program")

    def __repr__(self) -> str:
        return f"Ops.{self.name}"


rows: Final[dict[Ops, OpRow]] = {op: op.value for op in Ops}


def group(*names: str) -> frozenset[Ops]:
    """The ops of these families."""
    return frozenset(op for op, row in rows.items() if row.group in names)


UNARY: Final = group("unary")
COMPARE: Final = group("compare")
BINARY: Final = group("binary", "compare")
TERNARY: Final = group("ternary")
ELEMENTWISE: Final = UNARY | BINARY | TERNARY | group("cast")
MOVEMENT: Final = group("movement")
COMMUTATIVE: Final = frozenset(
    Ops[name] for name in ("ADD", "MUL", "MAX", "MIN", "AND", "OR", "XOR", "CMPEQ", "CMPNE")
)
EXPENSIVE: Final = frozenset(
    Ops[name]
    for name in (
        "EXP EXP2 EXPM1 LOG LOG2 LOG1P SIN COS TAN TANH SIGMOID ERF POW THREEFRY "
        "SQRT RSQRT DIV IDIV MOD RECIP"
    ).split()
)
