"""What each op of the graph is called in the generated language, and the register types."""

from __future__ import annotations

from typing import Any, Final

from tinyfn.dtype import DType, dtypes
from tinyfn.uop import opcodes
from tinyfn.uop.ops import Ops

NAMES: Final[dict[Ops, str]] = {
    **{
        Ops[name]: name.lower()
        for name in (
            "NEG ABS NOT SQRT RECIP RSQRT EXP EXP2 EXPM1 LOG LOG2 LOG1P SIN COS TAN TANH SIGMOID "
            "ERF TRUNC FLOOR CEIL ROUND ADD SUB MUL DIV IDIV MOD MAX MIN POW AND OR XOR SHL SHR "
            "THREEFRY WHERE FMA CAST BITCAST"
        ).split()
    },
    Ops.CMPLT: "lt",
    Ops.CMPLE: "le",
    Ops.CMPEQ: "eq",
    Ops.CMPNE: "ne",
}
DOES_NOT_APPLY: Final = frozenset(Ops) - opcodes.ELEMENTWISE

# arithmetic of bools is logic
LOGIC: Final = {Ops.ADD: "or", Ops.MUL: "and", Ops.SUB: "xor"}
# results that need no rounding when the operands are values of the small type
EXACT: Final = frozenset(
    {Ops.NEG, Ops.ABS, Ops.MAX, Ops.MIN, Ops.WHERE, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND}
)
# roundings to whole numbers, which leave integers as they are
WHOLE: Final = frozenset({Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.ROUND})
SMALL: Final = frozenset({dtypes.float16, dtypes.bfloat16, *dtypes.fp8s})

HORIZONTAL: Final = {Ops.ADD: "hadd", Ops.MUL: "hmul", Ops.MAX: "hmax", Ops.MIN: "hmin"}
HORIZONTAL_BOOL: Final = {Ops.ADD: "hor", Ops.MAX: "hor", Ops.MUL: "hand", Ops.MIN: "hand"}
COMBINE_BOOL: Final = {Ops.ADD: "or", Ops.MAX: "or", Ops.MUL: "and", Ops.MIN: "and"}


def register(dtype: DType) -> str:
    """The register type of values of a dtype: small floats compute as f32."""
    return "f32" if dtype in SMALL else dtype.short


def register_bytes(dtype: DType) -> int:
    """The width of an element in a register."""
    return 4 if dtype in SMALL else max(dtype.itemsize, 1)


def op_name(op: Ops, kind: str) -> str:
    """The name of an op on values of a register type."""
    return LOGIC.get(op, NAMES[op]) if kind == "b1" else NAMES[op]


def identity(op: Ops, dtype: DType) -> Any:
    """What an accumulator begins with."""
    if dtype.kind == "bool":
        return op in (Ops.MUL, Ops.MIN)
    if op is Ops.ADD:
        return 0.0 if dtype.kind == "float" else 0
    if op is Ops.MUL:
        return 1.0 if dtype.kind == "float" else 1
    return dtype.min if op is Ops.MAX else dtype.max
