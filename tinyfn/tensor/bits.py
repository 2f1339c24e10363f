"""The bits of a tensor as elements of another width, along the last axis."""

from __future__ import annotations

from typing import Any

from tinyfn.dtype import DType, dtypes
from tinyfn.errors import ShapeError
from tinyfn.mixin.core import show

UNSIGNED = {d.itemsize: d for d in dtypes.uints}


def bitcast_regrouped(x: Any, dtype: DType) -> Any:
    """Elements joined to wider ones, or cut into narrower ones: the low bits first.

    Raises:
        ShapeError: no last axis, or one whose bytes do not make whole elements.
    """
    before, after = x.dtype.itemsize, dtype.itemsize
    size = x.shape[-1] if x.shape else None
    if not isinstance(size, int) or size * before % after:
        raise ShapeError(
            f"expected a last axis of a whole number of {dtype} of {after} bytes to bitcast "
            f"{x.dtype} of {before} bytes, got shape {show(x.shape)}"
        )
    bits = x.bitcast(UNSIGNED[before])
    if before < after:
        parts = bits.reshape(*x.shape[:-1], size * before // after, after // before)
        return _joined(parts.cast(UNSIGNED[after]), 8 * before).bitcast(dtype)
    parts = bits.unsqueeze(-1).expand(*x.shape, before // after)
    found = (parts >> _shifts(parts, 8 * after)).cast(UNSIGNED[after])
    return found.reshape(*x.shape[:-1], size * before // after).bitcast(dtype)


def _joined(parts: Any, width: int) -> Any:
    return (parts << _shifts(parts, width)).sum(-1).cast(parts.dtype)


def _shifts(parts: Any, width: int) -> Any:
    """How far each part of the last axis stands from the low end, in bits."""
    return (type(parts).arange(parts.shape[-1], dtype=dtypes.int32) * width).cast(parts.dtype)
