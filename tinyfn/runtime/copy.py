"""Move and fill bytes: few on the caller, many by all threads, very many past the caches.

GB/s, read and written counted both, one and two threads (AMD Zen 4, huge pages): 1 MiB plain 81 and
131; 16 MiB plain 38 and 65, streaming 51 and 55; 256 MiB plain 27 and 32, streaming 38 and 45
(`python benchmarks/runtime.py copy` measures what is chosen).
Streaming stores do not help a fill, whose plain stores reach what memory takes.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from typing import Any

import numpy as np

from tinyfn.device import Buffer, Device
from tinyfn.errors import ShapeError
from tinyfn.helpers import ceildiv
from tinyfn.runtime import copy_ir, native
from tinyfn.runtime.machine import cache_bytes
from tinyfn.runtime.pool import helper_count, shared_pool

LINE = 64
SHARED_FROM = 512 << 10  # bytes from which a second thread pays
KEEP_GIL_BELOW = 256 << 10  # bytes that are moved in well under 20 microseconds


def copy(dst: Buffer, src: Buffer) -> None:
    """Copy the contents of a buffer into another one, of the same or of another slot."""
    if dst.nbytes != src.nbytes:
        raise ShapeError(
            f"expected buffers of the same size to copy, got {dst.nbytes} bytes on {dst.device} "
            f"and {src.nbytes} bytes on {src.device}"
        )
    if dst.nbytes:
        Device[dst.device].copy_between(dst.address, src.address, dst.nbytes)


def move(destination: int, source: int, nbytes: int) -> None:
    """Copy bytes between two addresses; the ranges may overlap."""
    if nbytes < SHARED_FROM or abs(destination - source) < nbytes:
        ctypes.memmove(destination, source, nbytes)
        return
    head = 0
    stream = nbytes >= stream_from()
    if stream:  # streaming stores begin on a line
        head = -destination % LINE
        ctypes.memmove(destination, source, head)
    kernel = _kernels()["copy_stream" if stream else "copy_plain"]
    _launch(kernel, destination + head, source + head, nbytes - head)


def fill(destination: int, element: bytes, count: int) -> None:
    """Repeat an element of 1, 2, 4 or 8 bytes `count` times."""
    pattern = int.from_bytes(element * (8 // len(element)), "little", signed=True)
    _launch(_kernels()["fill"], destination, pattern, count * len(element))


def address_of(view: memoryview) -> int:
    """Where the bytes of a contiguous memoryview lie."""
    start: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return start


def stream_from() -> int:
    """Bytes from which source and destination do not fit in the caches together."""
    return cache_bytes(3) // 2


@functools.cache
def _kernels() -> Any:
    return native.load(copy_ir.TEXT, copy_ir.EXPORTS, copy_ir.IMPORTS)


def _launch(kernel: int, destination: int, second: int, nbytes: int) -> None:
    """Run a kernel over bytes, in chunks of whole lines."""
    words = array("q", (0, destination, second))
    start, _ = words.buffer_info()
    words[0] = start + 8
    helpers = helper_count() if nbytes >= SHARED_FROM else 0
    pieces = 4 * (helpers + 1)
    chunk = ceildiv(nbytes, pieces * LINE) * LINE
    keep_gil = nbytes < KEEP_GIL_BELOW
    shared_pool().launch(kernel, start, 1, nbytes, chunk, helpers, keep_gil, "copy")
