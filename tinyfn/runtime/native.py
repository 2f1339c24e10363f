"""LLVM IR text to addresses that can be called, for the runtime's own native functions."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from tinyfn.codegen import cache

BUILD = "; LLVM IR of the runtime: baseline CPU, level 2, no unrolling"  # part of the cache's key
_numbers = itertools.count()


def _machine() -> Any:
    """A target machine for the baseline CPU: the objects run on every CPU of the platform."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found = llvm.Target.from_triple(llvm.get_process_triple())
    return found.create_target_machine(cpu="", opt=2, reloc="pic", codemodel="default")


@functools.cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(_machine(), use_jit_link=True)


def compile_ir(text: str) -> bytes:
    """A relocatable object with the functions of an IR module."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(2)
    tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def link(code: bytes, exports: Sequence[str], imports: Mapping[str, int]) -> Any:
    """Load an object; `result[name]` is an address that is valid while the result lives."""
    library = llvm.JITLibraryBuilder().add_object_img(code)
    for name in exports:
        library.export_symbol(name)
    for name, address in imports.items():
        library.import_symbol(name, address)
    return library.link(_linker(), f"tinyfn_runtime_{next(_numbers)}")


def libc_address(name: str) -> int:
    """The address of a function of the C library."""
    # ctypes has memmove everywhere; the rest is looked up on POSIX systems only
    function = ctypes.memmove if name == "memmove" else getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def load(text: str, exports: Sequence[str], libc: Sequence[str]) -> Any:
    """Load an IR module that calls these functions of the C library; compiled once, then kept."""
    key = cache.key_of(f"{BUILD}\n{text}")
    code = cache.read(key)
    if code is None:
        code = compile_ir(text)
        cache.write(key, code)
    return link(code, exports, {name: libc_address(name) for name in libc})
