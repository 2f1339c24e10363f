"""From the text of a kernel to object code: syntax, control flow, what is refused, other CPUs."""

from __future__ import annotations

import ast
import gc
import inspect
import textwrap
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from codegen.native_kernels import REGISTERS, both
from codegen.test_native_casts import conversions
from codegen.test_native_memory import STORED, moves
from codegen.test_native_ops import kernel

from tinyfn.codegen import native
from tinyfn.codegen.native import pipeline, syntax, target
from tinyfn.codegen.native.object import object_code, undefined_symbols
from tinyfn.device import Device
from tinyfn.errors import CompileError


def body(text: str) -> str:
    return f"def kernel(x: f32ptr, n: i64, lo: i64, hi: i64):\n{textwrap.indent(text, '    ')}\n"


def test_the_pass_over_the_syntax_tree() -> None:
    text = body("for i in range(lo, hi, 4):\n    store_f32(x, i * 8 + 1, load_f32(x, i // n))")
    lowered = ast.unparse(syntax.lowered(syntax.kernel_definition(text)))
    assert (
        lowered
        == textwrap.dedent("""
        def kernel(x, n, lo, hi):
            i = ihold(lo)
            while ilt(i, hi):
                store_f32(x, iadd(imul(i, 8), 1), load_f32(x, ifloordiv(i, n)))
                i = iadd(i, 4)""").strip()
    )


CONTROL = """
def control(out: i64ptr, n: i64, lo: i64, hi: i64):
    at = 0
    for i in range(lo, hi, 3):
        for j in range(i, n - 2):
            store_i64(out, at, index_i64(i * 100 + j))
            at = at + 1
        for j in range(5, 5):
            at = at + 1000000
        if at < 20:
            if i != 3:
                store_i64(out, at, index_i64(0 - i))
            else:
                store_i64(out, at, index_i64(-77))
            at = at + 1
        else:
            at = at + 2
    if at >= hi:
        pass
    total = const_i64(0)
    for k in range(0, n):
        total = add_i64(total, load_i64(out, k))
        step = total
        total = step
    store_i64(out, 60, total)
    store_i64(out, 61, index_i64(at))
"""


@pytest.mark.parametrize("n", [0, 3, 9])
@pytest.mark.parametrize("units", [(0, 10), (3, 9), (5, 5), (7, 2)])
def test_control_flow(n: int, units: tuple[int, int]) -> None:
    native_run, plain = both(CONTROL, np.zeros(64, np.int64), n, units=units)
    assert (native_run[0] == plain[0]).all()


def test_integer_expressions() -> None:
    forms = ["a + b", "a - b", "a * b", "a // 7", "a % 7", "a // c", "a % c", "min(a, b)"]
    forms += ["max(a, b * 2)", "-(a + 1)", "max(min(a, 9), 0 - 9) * 3 % 5"]
    lines = ["def integers(out: i64ptr, lo: i64, hi: i64):", "    at = 0"]
    lines += [
        "    for a in range(lo, hi):",
        "        for b in range(0 - 3, 4):",
        "            c = b + 4",
    ]
    for form in forms:
        lines += [f"            store_i64(out, at, index_i64({form}))", "            at = at + 1"]
    room = 20 * 7 * len(forms)
    native_run, plain = both("\n".join(lines) + "\n", np.zeros(room, np.int64), units=(-10, 10))
    assert (native_run[0] == plain[0]).all()


WRONG = {
    "return 1": "got return 1",
    "while lo < hi:\n    pass": "got while lo < hi",
    "i = 1\ni += 1": "got i \\+= 1",
    "i = lo / hi": "got lo / hi",
    "i = x.size": "got x.size",
    "i, j = 1, 2": "got i, j = ",
    "f = load_f32(x, i=0)": "got load_f32\\(x, i=0\\)",
    "store_f32(x, q, const_f32(1.0))": "the name q of a kernel is used and never assigned",
    "f = frob_f32(x)": "expected an op of the generated language, got 'frob_f32'",
    "f = div_i32(lo, hi)": "div is a scalar and vector op of f32, f64, written div_f32",
    "f = const_f32(1)\ng = add_f64(f, f)": "add_f64 takes \\(f64x1, f64x1\\), got \\(f32x1, f32x1",
    "f = load_f32(x)": "load_f32 takes \\(f32ptr, int64\\), got \\(f32ptr\\)",
    "f = load_f64(x, 0)": "load_f64 takes \\(f64ptr, int64\\), got \\(f32ptr, int64\\)",
    "for i in range(0, 9, -1):\n    pass": "a positive literal as the step",
    "for i in range(0, 9, n):\n    pass": "a positive literal as the step",
    "for i in lo:\n    pass": "expected `for name in range",
    "if lo:\n    pass": "a comparison of two integers after `if`",
    "if lo < hi < n:\n    pass": "a comparison of two integers after `if`",
    "f = const_f32(lo)": "expected a literal as the argument of const_f32",
    "m = local_f32(n)": "expected a literal from 0 on as the last argument of local_f32",
    "v = vload_f32x4(x, 0)\nf = vextract_f32x4(v, 4)": "a literal from 0 to 3",
    "f = load_f32(x, 0)\nfor i in range(lo, hi):\n    f = const_f64(1)": "never changes its type",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_the_language_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match=WRONG[text]):
        native.compile_objects([body(text)])


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("def k(x, lo: i64, hi: i64): pass", "parameter x needs a type"),
        ("def k(x: f33ptr, lo: i64, hi: i64): pass", "got f33ptr"),
        ("def k(x: f32ptr, n: i64): pass", "lo: i64, hi: i64 as the last parameters of k"),
        ("def k(x: f32ptr", "the text of one function: "),
        ("x = 1", "the text of one function, got 0"),
    ],
)
def test_heads_that_are_no_kernels(head: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        native.compile_objects([head])


def generated_form(x: f32ptr, lo: i64, hi: i64):  # type: ignore[name-defined]  # noqa: F821
    """A docstring, and names of the language that this module does not have."""
    for i in range(lo, hi):
        store_f32(x, i, neg_f32(load_f32(x, i)))  # type: ignore[name-defined]  # noqa: F821


def test_a_python_function_compiles() -> None:
    code = Device["CPU"].compiler.compile(generated_form)
    assert code == Device["CPU"].compiler.compile(inspect.getsource(generated_form))
    assert not undefined_symbols(code)


FILLS = """
def fills(x: f32ptr, y: u8ptr, lo: i64, hi: i64):
    s = local_u8(5000)
    for i in range(lo, hi):
        store_f32(x, i, const_f32(0.0))
    for i in range(0, 5000):
        store_u8(s, i, load_u8(y, i))
    for i in range(0, 5000):
        store_u8(y, i, load_u8(s, 4999 - i))
    for i in range(0, 5000):
        store_u8(s, i, load_u8(y, i))
    for i in range(0, 5000):
        store_u8(y, i + 5000, load_u8(s, i))
"""


def test_loops_that_fill_and_copy_call_nothing() -> None:
    """LLVM likes to make calls of memset and memcpy of such loops."""
    assert undefined_symbols(native.compile_objects([FILLS])[0]) == []
    y = np.arange(10000).astype(np.uint8)
    native_run, plain = both(FILLS, np.ones(300, np.float32), y, units=(0, 300))
    assert (native_run[0] == plain[0]).all() and (native_run[1] == plain[1]).all()


def test_undefined_symbols_are_seen() -> None:
    text = """
define float @own(float %x) {
  %y = call float @elsewhere(float %x)
  %z = call float @llvm.sin.f32(float %y)
  ret float %z
}
declare float @elsewhere(float)
declare float @llvm.sin.f32(float)
"""
    assert sorted(undefined_symbols(object_code(text, target.machine()))) == ["elsewhere", "sinf"]


@pytest.fixture(scope="module")
def all_targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


CPUS = [("x86_64-unknown-linux-gnu", c) for c in ("x86-64", "haswell", "skylake-avx512", "znver5")]
CPUS += [("aarch64-unknown-linux-gnu", c) for c in ("generic", "neoverse-v1")]
SOME = ("f32", "f64", "u64", "i8", "f16", "bf16")


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(("triple", "cpu"), CPUS)
def test_kernels_for_other_processors_call_nothing(
    all_targets: Any, monkeypatch: Any, triple: str, cpu: str, lanes: int
) -> None:
    check_calls_nothing(monkeypatch, triple, cpu, lanes, SOME)


@pytest.mark.deep
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("triple", "cpu"), CPUS)
def test_all_kernels_for_other_processors_call_nothing(
    all_targets: Any, monkeypatch: Any, triple: str, cpu: str, lanes: int
) -> None:
    check_calls_nothing(monkeypatch, triple, cpu, lanes, STORED)


def check_calls_nothing(
    monkeypatch: Any, triple: str, cpu: str, lanes: int, kinds: Sequence[str]
) -> None:
    machine = target.machine_for(triple, cpu)
    abilities = target.abilities(machine)
    monkeypatch.setattr(pipeline, "machine", lambda: machine)
    monkeypatch.setattr(pipeline, "processor", lambda: abilities)
    registers = [kind for kind in kinds if kind in REGISTERS]
    sources = [kernel(kind, lanes) for kind in registers]
    sources += [conversions("cast", kind, REGISTERS, lanes) for kind in registers]
    if lanes > 1:
        sources += [moves(kind, lanes) for kind in kinds]
    codes = native.compile_objects(sources)
    assert [undefined_symbols(code) for code in codes] == [[]] * len(sources)


def test_what_processors_can_do(all_targets: Any) -> None:
    def able(triple: str, cpu: str) -> list[str]:
        found = target.abilities(target.machine_for(triple, cpu))
        return [name for name, has in vars(found).items() if has]

    x86 = "x86_64-unknown-linux-gnu"
    assert able(x86, "x86-64") == []
    assert able(x86, "nehalem") == ["has_rounding"]
    for cpu in ("x86-64-v3", "haswell", "broadwell", "znver1"):
        assert able(x86, cpu) == ["has_fma", "has_half", "has_rounding", "is_avx2"]
    for cpu in ("znver5", "skylake-avx512"):
        assert able(x86, cpu)[:3] == ["has_fma", "has_half", "has_rounding"]
    assert len(able("aarch64-unknown-linux-gnu", "generic")) == 3


def test_compiling_leaves_garbage_collection_as_it_was() -> None:
    assert gc.isenabled()
    with pytest.raises(CompileError):
        native.compile_objects([body("x = frob(1)")])
    assert gc.isenabled()
