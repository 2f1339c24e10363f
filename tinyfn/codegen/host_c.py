"""C programs that users hand over: built by the host's C compiler into a shared object."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tinyfn.codegen import cache
from tinyfn.errors import CompileError

FLAGS = ("-O2", "-shared", "-fPIC", "-x", "c")


def c_compiler() -> tuple[str, ...]:
    """The command of a C compiler: $CC, cc, gcc, clang, or the ziglang package.

    Raises:
        CompileError: there is none.
    """
    if os.environ.get("CC"):
        return tuple(shlex.split(os.environ["CC"]))
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise CompileError(
        "a program in C needs a C compiler, and none was found ($CC, cc, gcc, clang): install one, "
        "or `pip install ziglang`"
    )


def compile_c(source: str) -> bytes:
    """The shared object of a C text.

    Raises:
        CompileError: the compiler refuses the text, or there is none.
    """
    command = c_compiler()
    key = cache.key_of("\0".join([*command, *FLAGS, source]))
    known = cache.read(key)
    if known is not None:
        return known
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder) / "program.c", Path(folder) / "program.so"
        text.write_text(source)
        whole = [*command, *FLAGS, str(text), "-o", str(out), "-lm"]
        try:
            run = subprocess.run(whole, capture_output=True, text=True)
        except OSError as error:
            raise CompileError(
                f"the C compiler {command[0]} (from $CC or PATH) cannot be run: {error}; "
                "set CC to one that can, or `pip install ziglang` and unset CC"
            ) from error
        if run.returncode:
            raise CompileError(f"the C compiler refused the program:\n{run.stderr.strip()}")
        built = out.read_bytes()
    cache.write(key, built)
    return built
