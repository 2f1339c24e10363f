"""Devices by name, buffers in their memory, and what a backend has to offer; no graphs here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np

from tinyfn.dtype import DType, storage_dtype
from tinyfn.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from tinyfn.helpers import getenv

MAX_SLOTS = 64  # "CPU", "CPU:1" ... "CPU:63"
NAME = re.compile(r"([A-Za-z]+)(?::([0-9]+))?")


@dataclass(frozen=True)
class Target:
    """The processor that kernels are made for."""

    name: str  # "host", or the CPU that the variable TINYFN_CPU names
    vector_bytes: int  # width of a vector register: 64, 32 or 16
    registers: int  # how many vector registers: 32 or 16
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    has_fma: bool
    threads: int


class Compiler(Protocol):
    """Turns source into a program's binary."""

    def compile(self, source: Any) -> bytes:
        """The binary of C text, of a kernel's Python text, or of a Python function."""


class Program(Protocol):
    """A loaded binary; called with addresses and ints in the order of its parameters.

    A kernel (`is_kernel`) takes two more, lo and hi: the units of its work to do.
    """

    is_kernel: bool

    def __call__(self, *arguments: int) -> None:
        """Run the program."""


class Backend(Protocol):
    """What runs kernels and holds memory behind one device name."""

    name: str

    @property
    def target(self) -> Target:
        """The processor that kernels are made for."""

    @property
    def compiler(self) -> Compiler:
        """The compiler of programs for this device."""

    def allocate(self, nbytes: int) -> int:
        """The address of fresh memory, aligned to 64 bytes, contents undefined."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def copy_in(self, address: int, source: memoryview) -> None:
        """Copy the bytes of `source` (contiguous) into memory of the device."""

    def copy_out(self, destination: memoryview, address: int) -> None:
        """Copy memory of the device into `destination` (contiguous, writable)."""

    def copy_between(self, destination: int, source: int, nbytes: int) -> None:
        """Copy bytes from a memory of this kind of device to this device's memory."""

    def load(self, name: str, binary: bytes) -> Program:
        """The function `name` of a binary that `compiler.compile` made."""

    def run_binary(
        self, binary: bytes, name: str, buffers: Sequence[Buffer], values: Sequence[int]
    ) -> None:
        """Load and run a program once: the buffers' addresses, then the values."""

    def launch(
        self,
        address: int,
        blocks: Sequence[Sequence[int]],
        n: int,
        step: int,
        nbytes: int,
        operations: int = 0,
        name: str = "kernel",
    ) -> None:
        """Run a kernel over [0, n) of every slot, in multiples of `step`.

        One block of arguments a slot; `nbytes` and `operations` are the work of all slots.
        """

    def synchronize(self) -> None:
        """Wait until everything launched has finished."""


class DeviceRegistry:
    """The devices of the process: `Device["CPU:1"]` is the backend behind that name."""

    def __init__(self) -> None:
        self._factories: dict[str, Callable[[str], Backend]] = {}
        self._opened: dict[str, Backend] = {}
        self._default: str | None = None
        self._spellings: dict[str, str] = {}

    def register(self, kind: str, factory: Callable[[str], Backend]) -> None:
        """Let names that begin with `kind` be opened by `factory(canonical name)`."""
        self._factories[kind.upper()] = factory

    def __getitem__(self, name: str) -> Backend:
        backend = self._opened.get(name)
        if backend is None:
            canonical = self.canonicalize(name)
            backend = self._opened.get(canonical)
            if backend is None:
                factory = self._factories[canonical.partition(":")[0]]
                backend = self._opened.setdefault(canonical, factory(canonical))
        return backend

    @property
    def DEFAULT(self) -> str:  # noqa: N802
        """The device of what is made without one: the variable DEV, else CPU; may be set."""
        if self._default is None:
            self._default = self.canonicalize(getenv("DEV", "CPU"))
        return self._default

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:  # noqa: N802
        self._default = self.canonicalize(name)

    @overload
    def canonicalize(self, device: str) -> str: ...
    @overload
    def canonicalize(self, device: tuple[str, ...] | list[str]) -> tuple[str, ...]: ...
    @overload
    def canonicalize(self, device: None) -> None: ...
    def canonicalize(self, device: Any) -> Any:
        """The one spelling of a name ("cpu:0" is "CPU"), or of several; None stays None."""
        if device is None:
            return None
        if isinstance(device, str):
            return self._canonical_name(device)
        if not isinstance(device, tuple | list) or not device:
            raise DeviceError(
                f"expected a device name, or a tuple of at least one, got {device!r}; "
                'write "CPU", "CPU:1" or ("CPU:0", "CPU:1")'
            )
        return tuple(self._canonical_name(name) for name in device)

    def _canonical_name(self, name: Any) -> str:
        known = self._spellings.get(name) if isinstance(name, str) else None
        if known is None:
            known = self._spellings[name] = self._parse_name(name)
        return known

    def _parse_name(self, name: Any) -> str:
        found = NAME.fullmatch(name) if isinstance(name, str) else None
        kind = found[1].upper() if found else ""
        if found is None or kind not in self._factories:
            known = ", ".join(sorted(self._factories)) or "none (import tinyfn registers CPU)"
            raise DeviceError(
                f"expected a device name such as CPU or CPU:1, got {name!r}; "
                f"the kinds of devices are: {known}"
            )
        slot = int(found[2] or 0)
        if slot >= MAX_SLOTS:
            raise DeviceError(
                f"expected a slot from {kind}:0 to {kind}:{MAX_SLOTS - 1}, got {name!r}"
            )
        return f"{kind}:{slot}" if slot else kind


Device = DeviceRegistry()


class Storage:
    """Memory of a backend, or somebody else's; given back when nothing refers to it."""

    __slots__ = ("_free", "address", "owner")

    def __init__(self, address: int, free: Callable[[int], None] | None, owner: Any) -> None:
        self.address, self._free, self.owner = address, free, owner

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # when the interpreter exits, the parts of the allocator go in any order
        if self._free is not None and not ending():
            self._free(self.address)


class ArrayHandle:
    """What numpy makes an array over a part of a storage from; the array keeps it alive."""

    __slots__ = ("__array_interface__", "storage")

    def __init__(self, storage: Storage, address: int, size: int, kind: Any) -> None:
        self.storage = storage
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (size,),
            "typestr": kind.str,
        }


class Buffer:
    """`size` elements of one dtype in the memory of one device, allocated when first needed."""

    __slots__ = (
        *("__weakref__", "_address", "_cell", "_offset", "_whole"),
        *("device", "dtype", "size"),
    )

    def __init__(self, device: str, size: int, dtype: DType) -> None:
        if size < 0:
            raise ArgumentError(f"expected a size of 0 or more elements, got {size}")
        self.device, self.size, self.dtype = Device.canonicalize(device), int(size), dtype
        self._address: int | None = None
        # A buffer and its views share the cell that their storage is put into, by `setdefault`:
        # of two threads that allocate at once the second takes what the first has put there.
        self._cell: dict[str, Storage] = {}
        self._whole, self._offset = self.nbytes, 0

    @classmethod
    def view_of(cls, base: Buffer, byte_offset: int, size: int, dtype: DType) -> Buffer:
        """A part of another buffer: shares its memory and keeps it alive."""
        view = cls(base.device, size, dtype)
        if byte_offset < 0 or byte_offset + view.nbytes > base.nbytes:
            raise ShapeError(
                f"expected a view inside a buffer of {base.nbytes} bytes, "
                f"got {view.nbytes} bytes at offset {byte_offset}"
            )
        view._cell, view._whole, view._offset = base._cell, base._whole, base._offset + byte_offset
        return view

    @classmethod
    def from_address(
        cls, address: int, device: str, size: int, dtype: DType, owner: Any = None
    ) -> Buffer:
        """Memory that somebody else owns; `owner` is kept alive with the buffer."""
        buffer = cls(device, size, dtype)
        if not address and buffer.nbytes:
            raise ArgumentError(f"expected an address for {buffer.nbytes} bytes, got {address}")
        buffer._cell["storage"] = Storage(int(address), None, owner)
        return buffer

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def is_allocated(self) -> bool:
        """Whether there is memory behind the buffer yet."""
        return bool(self._cell)

    @property
    def is_seen(self) -> bool:
        """Whether an array over the memory is alive (which keeps it, but owns no buffer)."""
        # the references: the cell, and the argument of getrefcount
        return bool(self._cell) and sys.getrefcount(self._cell["storage"]) > 2

    @property
    def address(self) -> int:
        """Where the first element lies; allocates."""
        if self._address is None:
            self._address = self.storage.address + self._offset
        return self._address

    def ensure(self) -> Buffer:
        """Allocate unless that has happened; returns the buffer itself."""
        _ = self.storage
        return self

    @property
    def storage(self) -> Storage:
        """The memory that the buffer is a part of; allocates."""
        storage = self._cell.get("storage")
        if storage is None:
            backend = Device[self.device]
            fresh = Storage(backend.allocate(self._whole), backend.free, None)
            storage = self._cell.setdefault("storage", fresh)
        return storage

    def array(self) -> Any:
        """The memory as a 1-D numpy array in the storage dtype; shared, and kept alive by it."""
        kind = storage_dtype(self.dtype)
        return np.asarray(ArrayHandle(self.storage, self.address, self.size, kind))

    def copyin(self, data: Any) -> Buffer:
        """Copy an array of the storage dtype, or raw bytes, into the buffer."""
        if isinstance(data, np.ndarray):
            kind = storage_dtype(self.dtype)
            if data.dtype != kind:
                raise DTypeError(
                    f"expected an array of {kind} for a buffer of {self.dtype}, got {data.dtype}"
                )
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        source = memoryview(data)
        source = source if source.c_contiguous else memoryview(source.tobytes())
        if source.nbytes != self.nbytes:
            raise ShapeError(
                f"expected {self.nbytes} bytes ({self.size} of {self.dtype}), got {source.nbytes}"
            )
        if source.nbytes:
            Device[self.device].copy_in(self.address, source)
        return self

    def copyout(self) -> Any:
        """A 1-D numpy array of its own with the contents, in the storage dtype."""
        values = np.empty(self.size, storage_dtype(self.dtype))
        if self.nbytes:
            Device[self.device].copy_out(values.view(np.uint8).data, self.address)
        return values

    def __repr__(self) -> str:
        where = "no memory yet" if not self.is_allocated else f"at {self.address:#x}"
        return f"<Buffer {self.device} {self.size} x {self.dtype.name}, {where}>"
