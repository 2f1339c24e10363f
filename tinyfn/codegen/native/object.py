"""The text of an LLVM module to object code that stands alone: optimised, and with no externals."""

from __future__ import annotations

import struct
from typing import Any

import llvmlite.binding as llvm

ELF64 = b"\x7fELF\x02\x01"
SYMBOL_TABLE = 2  # the type of the section, sh_type
ENTRY = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
SECTION = struct.Struct("<IIQQQQIIQQ")
# what a linker makes by itself
LINKER_MADE = frozenset({"_GLOBAL_OFFSET_TABLE_"})


def object_code(text: str, machine: Any) -> bytes:
    """The relocatable object of a module's text."""
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    module.triple = machine.triple
    _optimize(module, machine)
    return bytes(machine.emit_object(module))


def _optimize(module: Any, machine: Any) -> None:
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    # llvmlite's own dispose does nothing for this class, and a pass manager runs only once
    llvm.newpassmanagers.NewPassManager._dispose(manager)
    manager.detach()


def undefined_symbols(code: bytes) -> list[str]:
    """What an object calls that it does not hold (ELF; nothing is known of other formats)."""
    if not code.startswith(ELF64):
        return []
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [SECTION.unpack_from(code, start + size * i) for i in range(count)]
    found = []
    for _, kind, _, _, offset, length, link, _, _, _ in sections:
        if kind == SYMBOL_TABLE:
            names = sections[link][4]
            for place in range(offset, offset + length, ENTRY.size):
                name, _, _, section, _, _ = ENTRY.unpack_from(code, place)
                if name and not section:
                    found.append(code[names + name : code.index(b"\0", names + name)].decode())
    return [name for name in found if name not in LINKER_MADE]
