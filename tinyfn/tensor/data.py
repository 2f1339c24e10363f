"""Values in and out: Python numbers, lists, arrays and bytes as nodes; memory as arrays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyfn.device import Buffer, Device
from tinyfn.dtype import (
    DType,
    Invalid,
    dtypes,
    encode_small,
    from_numpy_dtype,
    storage_dtype,
)
from tinyfn.errors import DTypeError, ShapeError
from tinyfn.uop.meaning import MOVEMENT
from tinyfn.uop.ops import Ops, UOp, toposort

SMALL_FLOATS = (dtypes.bfloat16, *dtypes.fp8s)


def checked_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape of ints (or symbolic sizes), none of them negative."""
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int | np.integer | UOp):
            raise ShapeError(f"expected ints as sizes, got {size!r} in {tuple(shape)}")
        if not isinstance(size, UOp) and size < 0:
            raise ShapeError(f"expected sizes of 0 or more, got {tuple(shape)}")
    return tuple(s if isinstance(s, UOp) else int(s) for s in shape)


def views_of(node: UOp) -> list[UOp]:
    """The movement nodes between a value and what it is a view of."""
    found = []
    while node is not node.base:
        found.append(node)
        node = node.src[0]
    return found


def size_value(size: Any) -> int:
    """A size as a number: what its variables are bound to."""
    if isinstance(size, int):
        return size
    table = {n: n.src[1] for n in toposort([size]) if n.op is Ops.BIND}
    return int(size.substitute(table).simplify().val)


def stored_whole(node: UOp) -> UOp:
    """The node as something that memory holds whole and in order."""
    views = views_of(node)
    if node.base.op in (Ops.BUFFER, Ops.AFTER) and all(
        v.op in (Ops.RESHAPE, Ops.UNSHARD, Ops.DETACH) for v in views
    ):
        return node
    return node.contiguous()


def host_array(node: UOp) -> Any:
    """The memory of a stored node as an array of its (largest) shape; parts are put together."""
    chain = [n for n in itertools.chain([node], views_of(node)) if n.op is Ops.UNSHARD]
    memory = node.base.buffer
    if isinstance(memory, tuple):
        part_shape = chain[0].src[0].max_shape if chain else node.base.max_shape
        parts = [m.array().reshape(part_shape) for m in memory]
        whole = np.concatenate(parts, axis=chain[0].arg) if chain else parts[0]
        return whole.reshape(node.max_shape)
    shape = node.base.max_shape if not all(isinstance(s, int) for s in node.shape) else node.shape
    return memory.array().reshape(shape)


def memory_view(node: UOp) -> Any:
    """What a stored node sees of its memory as an array in the storage dtype, no copy.

    None where it is spread over slots, or strides cannot say it; or where several elements are
    one place of the memory, which nobody can write to.
    """
    memory = node.base.buffer
    if isinstance(memory, tuple):
        return None
    array = memory.array().reshape(node.base.shape)
    for view in reversed(views_of(node)):
        seen = MOVEMENT[view.op](view, array) if view.op in MOVEMENT else array
        if seen.size and not np.may_share_memory(seen, array):
            return None
        array = seen
    return array if array.flags.writeable else None


def node_from(data: Any, device: Any, dtype: DType | None) -> UOp:
    """The node of a value handed to Tensor()."""
    if isinstance(data, UOp):
        node = data
        if node.dtype is dtypes.weakint:
            node = node.cast(dtypes.default_int())
        if device is not None and node.device is not None and node.device != device:
            node = node.copy_to_device(device)
        return node if dtype is None else node.cast(dtype)
    if hasattr(data, "uop"):
        return node_from(data.uop, device, dtype)
    if data is None:
        return data_node(np.zeros((0,), np.float32), device, dtype or dtypes.default_float())
    if isinstance(data, bool | int | float) or data is Invalid:
        kind = _kind_of([data]) if dtype is None else dtype
        return UOp.full((), data, kind, device)
    if isinstance(data, bytes | bytearray | memoryview):
        raw = np.frombuffer(data, dtype=storage_dtype(dtype or dtypes.uint8))
        return data_node(raw, device, dtype or dtypes.uint8, stored=True)
    if isinstance(data, list | tuple):
        return _node_from_list(data, device, dtype)
    if isinstance(data, np.ndarray | np.generic) or hasattr(data, "__array__"):
        array = np.asarray(data)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        source = from_numpy_dtype(array.dtype)
        bits = source in SMALL_FLOATS
        array = array.view(storage_dtype(source)) if bits else array
        node = data_node(array, device, source, stored=True)
        return node if dtype is None else node.cast(dtype)
    raise DTypeError(
        f"expected a number, nested lists of numbers, a numpy array or bytes, "
        f"got {type(data).__name__}"
    )


def _node_from_list(data: Any, device: Any, dtype: DType | None) -> UOp:
    data = _without_arrays(data)
    shape = _shape_of_list(data)
    flat = list(data)
    for _ in shape[1:]:
        flat = [item for sub in flat for item in sub]
    kind = _kind_of(flat) if dtype is None else dtype
    if kind.kind in ("int", "uint"):
        array = np.array([dtypes.as_const(v, kind) for v in flat], storage_dtype(kind))
    else:
        array = np.array(flat, np.float64 if kind.kind == "float" else np.bool_)
    return data_node(array.reshape(shape), device, kind)


def _without_arrays(item: Any) -> Any:
    """Nested lists with arrays and tensors in them as lists, too."""
    if isinstance(item, list | tuple):
        return [_without_arrays(part) for part in item]
    if isinstance(item, np.ndarray | np.generic) or hasattr(item, "uop"):
        return item.tolist()
    return item


def _kind_of(flat: list[Any]) -> DType:
    """The dtype for Python values: the default one, wider where an int does not fit."""
    kind = dtypes.from_py(flat)
    if kind.kind not in ("int", "uint") or not flat:
        return kind
    low, high = min(flat), max(flat)
    kinds = [k for k in (kind, dtypes.int64, dtypes.uint64) if k.min <= low and high <= k.max]
    if not kinds:
        raise DTypeError(
            f"expected ints that fit in 64 bits, got {low if low < -(2**63) else high}; give a "
            "dtype to wrap them, or use floats"
        )
    return kinds[0]


def _shape_of_list(data: Any) -> tuple[int, ...]:
    if not isinstance(data, list):
        return ()
    shapes = {_shape_of_list(item) for item in data}
    if len(shapes) > 1:
        listed = " and ".join(str(s) for s in sorted(shapes))
        raise ShapeError(f"expected nested lists of equal lengths, got parts of shapes {listed}")
    return (len(data), *(shapes.pop() if shapes else ()))


def data_node(array: Any, device: Any, dtype: DType, stored: bool = False) -> UOp:
    """A buffer with a copy of the array's values."""
    where = Device.DEFAULT if device is None else device
    if not stored and dtype in SMALL_FLOATS:
        array = encode_small(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(array, dtype=storage_dtype(dtype))
    node: UOp = UOp.new_memory(where, tuple(array.shape), dtype, kind="data")
    slots = where if isinstance(where, tuple) else (where,)
    memory = []
    for slot in slots:
        buffer = Buffer(slot, values.size, dtype)
        buffer.copyin(values)
        memory.append(buffer)
    node.set_buffer(tuple(memory) if isinstance(where, tuple) else memory[0])
    return node
