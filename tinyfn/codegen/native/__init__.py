"""numba and LLVM: kernels in the generated language to object code. Loaded on a cache miss only."""

from __future__ import annotations

from collections.abc import Sequence

from tinyfn.codegen.native.pipeline import compile_kernel, quiet


def compile_objects(sources: Sequence[str]) -> list[bytes]:
    """One relocatable object a kernel, compiled as one batch; the symbol is the function's name."""
    with quiet():
        return [compile_kernel(source) for source in sources]


__all__ = ["compile_objects"]
