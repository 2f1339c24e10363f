"""The dictionary of the generated language: names, types, plain meaning, and its other views."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tinyfn.codegen import simd
from tinyfn.codegen.native import arithmetic, memory, words
from tinyfn.codegen.simd import ALU, MEMORY, REGISTER, TABLE, Word
from tinyfn.codegen.simd_word import BY_SHORT, STORED
from tinyfn.errors import CompileError

CONVERSIONS = ("cast", "bitcast")


def all_words() -> list[Word]:
    found = []
    for op, row in TABLE.items():
        lanes = ([1] if row.scalar else []) + ([2, 4, 8, 16, 32, 64] if row.vector else [])
        for kind, source, n in itertools.product(sorted(row.kinds), sorted(row.kinds), lanes):
            if source == kind or op in CONVERSIONS:
                same = BY_SHORT[kind].itemsize == BY_SHORT[source].itemsize
                if same or op != "bitcast":
                    found.append(Word(op, kind, source, n))
    return found


def test_every_name_is_taken_apart_as_it_was_put_together() -> None:
    found = all_words()
    assert len(found) > 2000
    for word in found:
        assert simd.parse(simd.spelling(word)) == word
    assert len({simd.spelling(word) for word in found}) == len(found)


def test_every_name_has_a_meaning_and_a_type() -> None:
    for word in all_words():
        assert callable(simd.meaning(word))
        result, takes = words.signature(simd.spelling(word))
        assert result is not None and len(takes) == len(TABLE[word.op].takes)


def test_every_op_has_a_lowering() -> None:
    assert set(memory.LOWERINGS) == set(MEMORY)
    assert set(words.REGISTER) == set(REGISTER) - {"quant"}
    assert set(arithmetic.LOWERINGS) == set(ALU) - set(CONVERSIONS)


REFUSED = """
    add f32 add_ add_f32x16 vadd_f32 vadd_f32x1 vadd_f32x3 vadd_f32x128 vadd_f32x016 add_f16 add_b1
    vadd_bf16x8 add_f32_f32 div_i32 exp_i64 and_f32 shl_f64 neg_b1 fma_i32 recip_u8 const_f16
    vgather_f32 hadd_f32 vhadd_f32x4 vhor_x4 hor_b1x4 first_x4 vfirst_x3 vfirst_f32x4 viota_b1x4
    local_f32x4 vlocal_f32x4 threefry_u32 cast_f16_f32 cast_f32 bitcast_f32_u64 quant_f32 load_i128
    iadd range print __import__ vvadd_f32x4 load_f32x_ stream_f32
""".split()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(CompileError, match="expected an op of the generated language, got"):
        simd.parse(name)


def test_a_refusal_says_what_there_is() -> None:
    with pytest.raises(
        CompileError, match="div is a scalar and vector op of f32, f64, written div"
    ):
        simd.parse("div_i32")


SOURCE = """
def kernel(x: f16ptr, out: f32ptr, n: i64, lo: i64, hi: i64):
    top = vconst_f32x4(-INF)
    for i in range(lo, hi, 4):
        m = vfirst_x4(hi - i)
        v = vloadm_f16x4(x, i, m)
        top = vmax_f32x4(top, v)
        vstorem_f32x4(out, min(i, n), vmul_f32x4(v, v), m)
    store_f32(out, n, hmax_f32x4(top))
"""


def test_a_kernel_runs_as_plain_python() -> None:
    x, out = np.arange(6, dtype=np.float16), np.zeros(8, np.float32)
    simd.plain_function(SOURCE)(x, out, 6, 0, 6)
    assert out.tolist() == [0, 1, 4, 9, 16, 25, 5, 0]


def test_the_namespace_holds_what_the_text_names_and_no_more() -> None:
    names = simd.namespace(SOURCE)
    ops = "vconst_f32x4 vfirst_x4 vloadm_f16x4 vmax_f32x4 vstorem_f32x4 vmul_f32x4 store_f32"
    types = "f16ptr f32ptr i64"
    assert set(names) == {*ops.split(), "hmax_f32x4", *types.split(), "INF", "NAN"}
    with pytest.raises(CompileError, match="got 'frob_f32'"):
        simd.namespace("def k(lo: i64, hi: i64):\n    frob_f32(lo)\n")


def run(name: str, *arguments: Any) -> Any:
    return simd.meaning(simd.parse(name))(*arguments)


def test_plain_meaning_of_scalars_keeps_the_type() -> None:
    assert run("add_u8", np.uint8(200), np.uint8(100)) == np.uint8(44)
    assert type(run("add_u8", np.uint8(200), np.uint8(100))) is np.uint8
    assert type(run("mul_f32", np.float32(3), np.float32(0.1))) is np.float32
    assert run("idiv_i32", np.int32(-7), np.int32(2)) == -4
    assert run("idiv_i32", np.int32(7), np.int32(0)) == 0
    assert run("idiv_i8", np.int8(-128), np.int8(-1)) == -128
    assert run("mod_i32", np.int32(-7), np.int32(0)) == 0
    assert run("shl_i32", np.int32(1), np.int32(32)) == 0
    assert run("shr_i32", np.int32(-8), np.int32(99)) == -1
    assert run("shr_i32", np.int32(-8), np.int32(-1)) == -1
    assert run("cast_f32_i64", np.float32("nan")) == np.iinfo(np.int64).min
    assert run("lt_f32", np.float32("nan"), np.float32(1)) == np.False_
    assert type(run("index_u8", 300)) is np.uint8


def test_plain_meaning_says_nothing_aloud() -> None:
    with np.errstate(all="raise"):
        run("div_f32", np.float32(1), np.float32(0))
        run("idiv_i32", np.int32(7), np.int32(0))
        run("const_f32", 1e300)
        run("hmul_f32x2", np.full(2, 1e30, np.float32))
        run("quant_f16", np.float32(1e9))
        run("store_bf16", np.zeros(1, np.uint16), 0, np.float32(3.4e38))
        run("store_f16", np.zeros(1, np.float16), 0, np.float32(3.4e38))


@pytest.mark.parametrize("kind", sorted(STORED))
def test_masked_lanes_of_plain_kernels_read_nothing(kind: str) -> None:
    empty, none = run(f"local_{kind}", 0), np.zeros(4, bool)
    zeros = run(f"vloadm_{kind}x4", empty, 0, none)
    assert (zeros == 0).all()
    assert run(f"loadm_{kind}", empty, 0, np.False_) == 0
    run(f"vstorem_{kind}x4", empty, 0, zeros, none)
    run(f"storem_{kind}", empty, 0, zeros[0], np.False_)


def test_the_dictionary_needs_no_numba() -> None:
    program = "import sys, tinyfn.codegen.simd; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
