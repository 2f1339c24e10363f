"""The processor that code is generated for: LLVM's name and features of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from tinyfn.codegen.native.object import object_code, undefined_symbols
from tinyfn.helpers import getenv

PROBES = {
    "fma": """
define float @probe(float %x) {
  %y = call float @llvm.fma.f32(float %x, float %x, float %x)
  ret float %y
}
declare float @llvm.fma.f32(float, float, float)
""",
    "half": """
define i16 @probe(i16 %x) {
  %half = bitcast i16 %x to half
  %wide = fpext half %half to float
  %more = fmul float %wide, %wide
  %back = fptrunc float %more to half
  %bits = bitcast half %back to i16
  ret i16 %bits
}
""",
    "rounding": """
define float @probe(float %x) {
  %y = call float @llvm.roundeven.f32(float %x)
  ret float %y
}
declare float @llvm.roundeven.f32(float)
""",
}

WIDE_PROBE = """
define void @probe(ptr %x) {
  %y = load <16 x float>, ptr %x
  %z = fadd <16 x float> %y, %y
  store <16 x float> %z, ptr %x
  ret void
}
"""


@dataclass(frozen=True)
class Processor:
    """What the lowerings ask of a processor: whether it has instructions, or LLVM makes calls."""

    has_fma: bool = True
    has_half: bool = True
    has_rounding: bool = True
    is_avx2: bool = False  # x86 with vectors of 32 bytes at most


@functools.cache
def processor() -> Processor:
    """The abilities of the processor in force."""
    return abilities(machine())


def abilities(of: Any) -> Processor:
    """The abilities of a target machine: what it compiles without a call into a library."""
    made = {name: object_code(text, of) for name, text in PROBES.items()}
    found = {f"has_{name}": not undefined_symbols(code) for name, code in made.items()}
    wide = of.emit_assembly(llvm.parse_assembly(WIDE_PROBE))
    return Processor(**found, is_avx2="ymm" in wide and "zmm" not in wide)


@functools.cache
def machine() -> Any:
    """LLVM's target machine: of the host, or of the CPU that the variable TINYFN_CPU names."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    wanted = getenv("TINYFN_CPU", "")
    if wanted and wanted != "host":
        return machine_for(llvm.get_process_triple(), wanted)
    features = llvm.get_host_cpu_features().flatten()
    return machine_for(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def machine_for(triple: str, cpu: str, features: str = "") -> Any:
    """A target machine for position-independent code."""
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default"
    )
