"""Load the binary of a program and call its function with plain arguments."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import tempfile
import threading
from array import array
from typing import Any

from tinyfn.errors import CompileError
from tinyfn.runtime import native
from tinyfn.runtime.pool import failure

ELF, ELF_TYPE, RELOCATABLE = b"\x7fELF", slice(16, 18), 1
PLAIN = ctypes.c_int64
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

_lock = threading.Lock()
_programs: dict[tuple[str, bytes], Program] = {}


class Program:
    """A function of a loaded binary; called with addresses and ints in order.

    One from a shared object (C) gets them as they are. One from a relocatable object is a kernel:
    the last two are its lo and hi, the others go into its block of arguments.
    """

    def __init__(self, name: str, function: Any, is_kernel: bool, keep: Any) -> None:
        self.name, self._function, self.is_kernel, self._keep = name, function, is_kernel, keep

    def __call__(self, *arguments: int) -> None:
        """Run the program on this thread."""
        if not self.is_kernel:
            self._function(*map(PLAIN, arguments))
            return
        words = array("q", arguments[:-2])
        status = self._function(words.buffer_info()[0], *arguments[-2:])
        if status:
            raise failure(self.name, status)


def load_program(name: str, binary: bytes) -> Program:
    """The function `name` of a binary; loaded once for equal bytes, and kept."""
    key = name, hashlib.blake2b(binary, digest_size=20).digest()
    with _lock:
        found = _programs.get(key)
        if found is None:
            found = _programs[key] = _load(name, binary)
    return found


def _load(name: str, binary: bytes) -> Program:
    is_object = int.from_bytes(binary[ELF_TYPE], "little") == RELOCATABLE
    if binary.startswith(ELF) and is_object:
        try:
            library = native.link(binary, (name,), {})
        except RuntimeError as error:
            raise _no_function(name) from error
        return Program(name, KERNEL(library[name]), True, library)
    shared = open_shared_object(binary)
    try:
        function = getattr(shared, name)
    except AttributeError as error:
        raise _no_function(name) from error
    function.restype = None
    return Program(name, function, False, shared)


def _no_function(name: str) -> CompileError:
    return CompileError(
        f"expected a binary with a function {name}, found none of that name; "
        "the name in ProgramInfo and in the source have to be the same"
    )


@functools.cache
def open_shared_object(binary: bytes) -> ctypes.CDLL:
    """Load a shared object from its bytes; it stays loaded."""
    try:
        if not hasattr(os, "memfd_create"):
            return _open_from_disk(binary)
        # The loader knows libraries by path: the descriptor stays open, so that its number, and
        # with it the path, is never used for another library.
        descriptor = os.memfd_create("tinyfn", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(binary)
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    except OSError as error:
        raise CompileError(
            f"expected a shared object for this machine, got {len(binary)} bytes that the loader "
            f"refuses: {error}; build it with Device[...].compiler.compile"
        ) from error


def _open_from_disk(binary: bytes) -> ctypes.CDLL:
    descriptor, path = tempfile.mkstemp(suffix=".so")
    with open(descriptor, "wb") as file:
        file.write(binary)
    library = ctypes.CDLL(path)
    if os.name == "posix":  # elsewhere a loaded file cannot be removed
        os.unlink(path)
    return library
