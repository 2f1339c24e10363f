"""The dictionary of the generated language: each op with its types, its signature and its meaning.

A scalar op is `add_f32`, a vector op `vadd_f32x16`. `parse` splits and checks a name; `namespace`
gives each name that a kernel uses a function on numpy scalars and arrays, so that the file runs as
plain Python. numba is not needed here; `native/` lowers the same names.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tinyfn.codegen import simd_meaning as plain
from tinyfn.codegen.simd_word import (
    BOOL,
    BY_SHORT,
    FLOATS,
    INTEGERS,
    LOGICAL,
    NUMBERS,
    REGISTERS,
    STORAGE_ONLY,
    STORED,
    Word,
    register_type,
)
from tinyfn.errors import CompileError

BUILTINS: Final = frozenset({"range", "min", "max"})
LANES: Final = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Row:
    """One op. `takes` and `gives` are words of these: what they stand for depends on the name.

    value: a register of the type and lanes; source: of the type cast from; scalar: of one lane;
    mask: b1 of the lanes; flag: one b1; memory: a buffer; places: i64 of the lanes; index: an
    int64; literal: a number of the type; count: a literal int64.
    """

    kinds: frozenset[str]
    takes: tuple[str, ...]
    gives: str
    meaning: Callable[[Word], Callable[..., Any]]
    scalar: bool = True
    vector: bool = True
    untyped: bool = False  # the name has lanes only: `vfirst_x16`
    bare: bool = False  # no `v` before the name of the vector op: `hadd_f32x16`


def _row(
    kinds: frozenset[str],
    signature: str,
    meaning: Callable[[Word], Callable[..., Any]] = plain.elementwise_op,
    **options: bool,
) -> Row:
    takes, gives = signature.split("->")
    return Row(kinds, tuple(takes.split()), gives.strip(), meaning, **options)


def _rows(names: str, kinds: frozenset[str], signature: str) -> dict[str, Row]:
    """Elementwise ops of one kind."""
    return dict.fromkeys(names.split(), _row(kinds, signature))


MEMORY: Final[dict[str, Row]] = {
    "load": _row(STORED, "memory index -> value", plain.load),
    "store": _row(STORED, "memory index value ->", plain.store),
    "loadm": _row(STORED, "memory index mask -> value", plain.load_masked),
    "storem": _row(STORED, "memory index value mask ->", plain.store_masked),
    "stream": _row(STORED, "memory index value ->", plain.store, scalar=False),
    "gather": _row(STORED, "memory places mask -> value", plain.gather, scalar=False),
    "scatter": _row(STORED, "memory places value mask ->", plain.scatter, scalar=False),
    "strided": _row(STORED, "memory index index -> value", plain.strided, scalar=False),
    "stridedm": _row(
        STORED, "memory index index mask -> value", plain.strided_masked, scalar=False
    ),
    "local": _row(STORED, "count -> memory", plain.local, vector=False),
}
REGISTER: Final[dict[str, Row]] = {
    "const": _row(REGISTERS, "literal -> value", plain.const),
    "splat": _row(REGISTERS, "scalar -> value", plain.splat, scalar=False),
    "iota": _row(NUMBERS, "-> value", plain.iota, scalar=False),
    "index": _row(REGISTERS, "index -> value", plain.index, vector=False),
    "extract": _row(REGISTERS, "value count -> scalar", plain.extract, scalar=False),
    "quant": _row(STORAGE_ONLY, "value -> value", plain.quant),
    "first": _row(BOOL, "index -> mask", plain.first, scalar=False, untyped=True),
    "hor": _row(BOOL, "mask -> flag", plain.any_lane, scalar=False, untyped=True, bare=True),
    "hand": _row(BOOL, "mask -> flag", plain.all_lanes, scalar=False, untyped=True, bare=True),
    **dict.fromkeys(
        ("hadd", "hmul", "hmax", "hmin"),
        _row(NUMBERS, "value -> scalar", plain.horizontal, scalar=False, bare=True),
    ),
}
ALU: Final[dict[str, Row]] = {
    **_rows("neg abs trunc floor ceil round", NUMBERS, "value -> value"),
    **_rows("sqrt recip rsqrt", FLOATS, "value -> value"),
    **_rows("exp exp2 expm1 log log2 log1p", FLOATS, "value -> value"),
    **_rows("sin cos tan tanh sigmoid erf", FLOATS, "value -> value"),
    **_rows("not", LOGICAL, "value -> value"),
    **_rows("add sub mul idiv mod", NUMBERS, "value value -> value"),
    **_rows("max min", REGISTERS, "value value -> value"),
    **_rows("div pow", FLOATS, "value value -> value"),
    **_rows("and or xor", LOGICAL, "value value -> value"),
    **_rows("shl shr", INTEGERS, "value value -> value"),
    **_rows("threefry", frozenset({"u64"}), "value value -> value"),
    **_rows("lt le eq ne", REGISTERS, "value value -> mask"),
    **_rows("where", REGISTERS, "mask value value -> value"),
    **_rows("fma", FLOATS, "value value value -> value"),
    **_rows("cast", REGISTERS, "source -> value"),
    **_rows("bitcast", STORED, "source -> value"),
}
TABLE: Final[dict[str, Row]] = {**MEMORY, **REGISTER, **ALU}


@functools.cache
def parse(name: str) -> Word:
    """The parts of a name such as `vcast_f32_i32x16`.

    Raises:
        CompileError: the name is not one of the language.
    """
    head, *rest = name.split("_")
    kind, _, count = rest[-1].partition("x") if rest else ("", "", "")
    lanes = int(count) if count.isdecimal() else 1
    op = head.removeprefix("v") if head not in TABLE else head
    row = TABLE.get(op)
    if row is None:
        raise CompileError(f"expected an op of the generated language, got {name!r}")
    if row.untyped:
        kind = "b1"
    word = Word(op, kind, rest[0] if op in ("cast", "bitcast") else kind, lanes)
    if spelling(word) != name or lanes not in (1, *LANES) or not _exists(word, row):
        shapes = " and ".join(s for s in ("scalar", "vector") if getattr(row, s))
        raise CompileError(
            f"expected an op of the generated language, got {name!r}: {op} is a {shapes} op of "
            f"{', '.join(sorted(row.kinds))}, written {spelling(_example(op, row))}"
        )
    return word


def spelling(word: Word) -> str:
    """The name of an op: what `parse` takes apart."""
    row = TABLE[word.op]
    lanes = f"x{word.lanes}" if word.lanes > 1 else ""
    kind = "" if row.untyped else word.kind
    source = f"{word.source}_" if word.op in ("cast", "bitcast") else ""
    return f"{'v' if lanes and not row.bare else ''}{word.op}_{source}{kind}{lanes}"


def _exists(word: Word, row: Row) -> bool:
    """Whether the op is there for these types and lanes."""
    if not (row.scalar if word.lanes == 1 else row.vector):
        return False
    if word.kind not in row.kinds or word.source not in row.kinds:
        return False
    same_width = BY_SHORT[word.kind].itemsize == BY_SHORT[word.source].itemsize
    return word.op != "bitcast" or same_width


def _example(op: str, row: Row) -> Word:
    kind = sorted(row.kinds)[0]
    return Word(op, kind, kind, 1 if row.scalar else 8)


def meaning(word: Word) -> Callable[..., Any]:
    """The op as a function on numpy values."""
    return TABLE[word.op].meaning(word)


# *** running a file as plain Python ***


def names_in(tree: ast.AST) -> list[str]:
    """The names that a kernel calls."""
    calls = [
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    ]
    return list(dict.fromkeys(calls))


def namespace(source: str) -> dict[str, Any]:
    """The globals under which the text of a kernel runs as plain Python."""
    tree = ast.parse(source)
    found: dict[str, Any] = {"INF": float("inf"), "NAN": float("nan")}
    for name in names_in(tree):
        if name not in BUILTINS:
            found[name] = meaning(parse(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
            found.setdefault(node.annotation.id, None)
    return found


def plain_function(source: str, file: str = "<kernel>") -> Callable[..., None]:
    """The kernel as a Python function on numpy arrays."""
    names = namespace(source)
    exec(compile(source, file, "exec"), names)
    (definition,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    found: Callable[..., None] = names[definition.name]
    return found


__all__ = [
    "ALU",
    "MEMORY",
    "REGISTER",
    "STORAGE_ONLY",
    "TABLE",
    "Row",
    "Word",
    "meaning",
    "names_in",
    "namespace",
    "parse",
    "plain_function",
    "register_type",
    "spelling",
]
