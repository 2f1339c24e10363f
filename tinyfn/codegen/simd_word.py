"""Type names of the generated language, and what a name such as `vcast_f32_i32x16` consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tinyfn.dtype import DType, dtypes

BY_SHORT: Final[dict[str, DType]] = {d.short: d for d in dtypes.all}
STORAGE_ONLY: Final = frozenset({"f16", "bf16", "fp8e4m3", "fp8e5m2"})
STORED: Final = frozenset(BY_SHORT)
REGISTERS: Final = STORED - STORAGE_ONLY
FLOATS: Final = frozenset({"f32", "f64"})
INTEGERS: Final = REGISTERS - FLOATS - {"b1"}
NUMBERS: Final = FLOATS | INTEGERS
LOGICAL: Final = INTEGERS | {"b1"}
BOOL: Final = frozenset({"b1"})


@dataclass(frozen=True)
class Word:
    """An op of the generated language: its name, the types it is for, and its lanes (1: scalar)."""

    op: str
    kind: str
    source: str
    lanes: int


def register_type(short: str) -> str:
    """The register type of a value of a type: small floats are f32."""
    return "f32" if short in STORAGE_ONLY else short
