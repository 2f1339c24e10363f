"""Kernels by their source: from memory, from the user's cache folder, else compiled in one batch.

A cache file holds a magic, a checksum, its key and an object; what does not check is a miss. The
key covers the source, the processor, numba and llvmlite, and the code of `codegen/` itself. Nothing
is unpickled, and a warm start needs no numba.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import os
import platform
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from tinyfn.codegen import simd
from tinyfn.errors import CompileError

MAGIC = b"TFN1"
DIGEST = 32


@dataclass
class Counts:
    """What happened to the kernels that were asked for."""

    memory: int = 0
    disk: int = 0
    compiled: int = 0


counts = Counts()
_lock = threading.RLock()
_numbers = itertools.count()


@dataclass(eq=False)
class Kernel:
    """A kernel ready to run; its code stays as long as the object lives."""

    name: str
    source: str
    address: int
    file: str
    _code: Any = field(repr=False)

    @functools.cached_property
    def python(self) -> Callable[..., None]:
        """The kernel as a plain Python function on numpy arrays."""
        return simd.plain_function(self.source, self.file)


_kernels: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()


def fetch(sources: Sequence[str]) -> list[Kernel]:
    """The kernels of these texts."""
    with _lock:
        found: dict[str, Kernel] = {}
        missing: list[str] = []
        for source in dict.fromkeys(sources):
            kernel = _kernels.get(source)
            if kernel is None:
                missing.append(source)
            else:
                counts.memory += 1
                found[source] = kernel
        for source, code in zip(missing, _objects(missing), strict=True):
            found[source] = _kernels[source] = _load(source, code)
        return [found[source] for source in sources]


def compile_object(source: str) -> bytes:
    """The object of one kernel's text, from the cache where it is there."""
    with _lock:
        return _objects([source])[0]


def _objects(sources: Sequence[str]) -> list[bytes]:
    """Object code from disk; all that is not there is compiled in one batch."""
    keys = [key_of(source) for source in sources]
    codes = {key: read(key) for key in keys}
    missing = [(k, s) for k, s in zip(keys, sources, strict=True) if codes[k] is None]
    counts.disk += len(sources) - len(missing)
    if missing:
        native = importlib.import_module("tinyfn.codegen.native")
        made = native.compile_objects([s for _, s in missing])
        counts.compiled += len(missing)
        for (key, source), code in zip(missing, made, strict=True):
            codes[key] = code
            write(key, code)
            write_text(key, source)
    return [bytes(codes[key] or b"") for key in keys]


# *** loading ***


@functools.cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=0, reloc="pic", codemodel="default")
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


def _load(source: str, code: bytes) -> Kernel:
    name = name_of(source)
    library = llvm.JITLibraryBuilder().add_object_img(code)
    library.export_symbol(name)
    try:
        loaded = library.link(_linker(), f"tinyfn_kernel_{next(_numbers)}")
    except RuntimeError as error:
        raise CompileError(f"the code of kernel {name} could not be loaded: {error}") from error
    return Kernel(name, source, loaded[name], str(_text_path(key_of(source))), loaded)


def name_of(source: str) -> str:
    """The name of the function in a kernel's text."""
    start = source.index("def ") + 4
    return source[start : source.index("(", start)].strip()


# *** keys ***


@functools.cache
def _fingerprint() -> str:
    """All that the code depends on besides the source."""
    installed = importlib.import_module("importlib.metadata")  # which imports a mail parser
    versions = [f"{p} {installed.version(p)}" for p in ("numba", "llvmlite")]
    wanted = os.environ.get("TINYFN_CPU", "")
    cpu = [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    own = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        own.update(file.read_bytes())
    return "|".join([platform.machine(), *cpu, wanted, *versions, own.hexdigest()])


def key_of(source: str) -> str:
    """The name under which the code of a text is kept."""
    text = f"{_fingerprint()}\0{source}"
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


# *** the folder ***


@functools.cache
def _folder_for(root: str) -> Path | None:
    """The folder, made if need be; None where it cannot be trusted or written."""
    path = Path(root)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as error:
        warnings.warn(f"kernels are not cached on disk: {error}", stacklevel=2)
        return None
    if hasattr(os, "getuid") and (info.st_uid != os.getuid() or info.st_mode & 0o022):
        warnings.warn(
            f"kernels are not cached on disk: {path} belongs to another user or can be written "
            "by others; set TINYFN_CACHE to a folder of your own",
            stacklevel=2,
        )
        return None
    return path


def folder() -> Path | None:
    """The cache folder: the variable TINYFN_CACHE, else the platform's place for caches."""
    return _folder_for(os.environ.get("TINYFN_CACHE") or _default_folder())


def _default_folder() -> str:
    home = Path.home()
    if sys.platform == "darwin":
        return str(home / "Library" / "Caches" / "tinyfn")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", str(home)), "tinyfn")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or str(home / ".cache"), "tinyfn")


def _path(key: str, ending: str) -> Path | None:
    root = folder()
    return None if root is None else root / key[:2] / f"{key}{ending}"


def _text_path(key: str) -> Path:
    return _path(key, ".py") or Path(f"<kernel {key}>")


def read(key: str) -> bytes | None:
    """The code kept under a key; None where there is none that checks."""
    path = _path(key, ".o")
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = data[len(MAGIC) + DIGEST :]
    head = MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest()
    name = key.encode()
    return body[len(name) :] if data.startswith(head) and body.startswith(name) else None


def write(key: str, code: bytes) -> None:
    """Keep code under a key. A disk that is full or read-only is no error: it is only a cache."""
    body = key.encode() + code
    _put(_path(key, ".o"), MAGIC + hashlib.blake2b(body, digest_size=DIGEST).digest() + body)


def write_text(key: str, source: str) -> None:
    """Keep the text of a kernel beside its code, for people and debuggers."""
    _put(_path(key, ".py"), source.encode())


def _put(path: Path | None, data: bytes) -> None:
    """All of a file or nothing: written beside its place, then moved."""
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        return
