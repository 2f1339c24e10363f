"""Read what torch.save wrote without running code from it.

A checkpoint is a zip archive: `data.pkl` describes the objects, `data/<key>` hold the numbers. The
description is a pickle, a list of instructions which may name any Python object and call it. Here
every name stands for one of a few harmless makers in this file; any other name is refused, so
nothing from outside can be called.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyfn.dtype import DType, dtypes, storage_dtype
from tinyfn.errors import ArgumentError, TinyfnError
from tinyfn.tensor import Tensor

STORAGES: dict[str, DType] = {
    "BoolStorage": dtypes.bool,
    "ByteStorage": dtypes.uint8,
    "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16,
    "IntStorage": dtypes.int32,
    "LongStorage": dtypes.int64,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
}


@dataclass(frozen=True)
class _StorageKind:
    """What a torch storage class stands for: the dtype of its elements."""

    dtype: DType


@dataclass(frozen=True)
class _Storage:
    """The bytes of one storage."""

    dtype: DType
    content: bytes


def read_checkpoint(content: bytes, where: str) -> Any:
    """What the checkpoint holds, with tensors of tinyfn.

    Raises:
        ArgumentError: the bytes are no such archive, or hold other objects.
    """
    try:
        if not zipfile.is_zipfile(io.BytesIO(content)):
            raise ArgumentError(
                f"{where}: expected a zip archive as torch.save writes since version 1.6; "
                "save it again with a newer torch"
            )
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read_archive(archive, where)
    except TinyfnError:
        raise
    except Exception as error:
        # wrong bytes make the readers of archives and of pickles raise errors of any kind
        raise ArgumentError(f"{where}: the checkpoint is damaged: {error!r}") from error


def _read_archive(archive: zipfile.ZipFile, where: str) -> Any:
    described = [n for n in archive.namelist() if n.split("/")[-1] == "data.pkl"]
    if len(described) != 1:
        raise ArgumentError(f"{where}: expected one data.pkl in the archive")
    # torch.save never compresses; a small file that unpacks to a huge one is made to harm
    if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
        raise ArgumentError(f"{where}: expected parts without compression in the archive")
    folder = described[0].removesuffix("data.pkl")
    with archive.open(described[0]) as file:
        return _Reader(file, archive, folder, where).load()


class _Reader(pickle.Unpickler):
    """Reads the description; what it may name is listed in `find_class`."""

    def __init__(self, file: Any, archive: zipfile.ZipFile, folder: str, where: str) -> None:
        super().__init__(file)
        self.archive, self.folder, self.where = archive, folder, where

    def find_class(self, module: str, name: str) -> Any:
        """What stands in for an object that the description names."""
        if module in ("torch", "torch.storage") and name in STORAGES:
            return _StorageKind(STORAGES[name])
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        # a new function each time: instructions may set attributes of what they are given
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *parts: _tensor(*parts)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_rest: data
        raise ArgumentError(
            f"{self.where}: the checkpoint names {module}.{name}, which is not read, since that "
            "could run code; save a state_dict of tensors, or a safetensors file"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """The storage that a tensor in the description refers to."""
        what, kind, key, _place, count = pid
        if what != "storage" or not isinstance(kind, _StorageKind):
            raise ArgumentError(f"{self.where}: expected a storage of numbers, got {pid!r}")
        content = self.archive.read(f"{self.folder}data/{key}")
        if len(content) < count * kind.dtype.itemsize:
            raise ArgumentError(f"{self.where}: storage {key} is shorter than {count} elements")
        return _Storage(kind.dtype, content)


def _tensor(
    storage: _Storage,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    *_rest: Any,
) -> Tensor:
    """A tensor with the elements of a storage from an offset, a stride an axis."""
    values = np.frombuffer(storage.content, storage_dtype(storage.dtype))
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    empty = 0 in shape
    if min((offset, *shape, *strides)) < 0 or (not empty and last >= len(values)):
        raise ArgumentError(
            f"a tensor of shape {tuple(shape)} and strides {tuple(strides)} does not fit its "
            f"storage of {len(values)} elements"
        )
    if empty:
        chosen = np.zeros(tuple(shape), values.dtype)
    else:
        steps = tuple(s * values.itemsize for s in strides)
        chosen = np.lib.stride_tricks.as_strided(values[offset:], tuple(shape), steps)
    return Tensor(chosen.tobytes(), dtype=storage.dtype).reshape(tuple(shape))
