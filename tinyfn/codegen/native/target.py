"""The processor that code is generated for: LLVM's name and features of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from tinyfn.helpers import getenv


@dataclass(frozen=True)
class Processor:
    """What LLVM generates code for, and what the lowerings ask of it."""

    name: str
    features: str
    has_fma: bool
    has_half: bool


@functools.cache
def processor() -> Processor:
    """The host, or the CPU that the variable TINYFN_CPU names."""
    wanted = getenv("TINYFN_CPU", "")
    if wanted and wanted != "host":
        modern = any(w in wanted for w in ("haswell", "skylake", "znver", "icelake", "sapphire"))
        return Processor(wanted, "", modern or "neoverse" in wanted, modern)
    features = llvm.get_host_cpu_features()
    arm = llvm.get_process_triple().startswith("aarch64")
    return Processor(
        llvm.get_host_cpu_name(),
        features.flatten(),
        arm or bool(features.get("fma")),
        arm or bool(features.get("f16c")),
    )


@functools.cache
def machine() -> Any:
    """LLVM's target machine for the processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    wanted = processor()
    return target.create_target_machine(
        cpu=wanted.name, features=wanted.features, opt=2, reloc="pic", codemodel="default"
    )
