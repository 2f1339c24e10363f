"""Lines that make one value out of many."""

from __future__ import annotations

from tinyfn.dtype import dtypes as known
from tinyfn.dtype import sum_acc_dtype
from tinyfn.testing.lines import LARGEST, Draw, Line, Scope
from tinyfn.testing.strategies import st


def reduce(draw: Draw, scope: Scope) -> Line | None:
    """One value out of many along an axis or all."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    axis = draw(st.sampled_from([*range(len(x.shape)), None, -1]))
    keep = draw(st.booleans()) and axis is not None
    n, tiny, numpy = x.name, f"{axis}, keepdim={keep}", f"axis={axis}, keepdims={keep}"
    kind = draw(st.sampled_from(["sum", "max", "min", "mean", "argmax", "any", "var"]))
    if kind == "sum":
        wide = sum_acc_dtype(x.dtype)
        as_wide = "" if x.is_float else f", dtype=np.{wide.name}"
        return scope.expression(f"{n}.sum({tiny})", f"{n}.sum({numpy}{as_wide})", wide)
    if kind == "argmax":
        return scope.expression(
            f"{n}.argmax({tiny})", f"{n}.argmax({numpy}).astype(np.int32)", known.int32
        )
    if kind == "any":
        return scope.expression(f"({n} != 0).any({tiny})", f"({n} != 0).any({numpy})", known.bool)
    if kind in ("max", "min") or not x.is_float:
        kind = kind if kind in ("max", "min") else "max"
        return scope.expression(f"{n}.{kind}({tiny})", f"{n}.{kind}({numpy})", x.dtype)
    more = ", correction=0" if kind == "var" else ""
    return scope.expression(f"{n}.{kind}({tiny}{more})", f"{n}.{kind}({numpy})", x.dtype)


def contraction(draw: Draw, scope: Scope) -> Line | None:
    """Products of matrices."""
    x = scope.last()
    if len(x.shape) < 2 or x.dtype is known.bool:
        return None
    if x.value.size * x.shape[-2] > 16 * LARGEST or x.value.size // max(x.shape[-1], 1) > 200:
        return None
    kind = draw(st.sampled_from(["gram", "einsum", "vector"]))
    if kind == "vector" and x.value.size:
        return scope.expression(
            f"{x.name} @ {x.name}[..., 0, :].flatten()[:{x.shape[-1]}]",
            f"{x.name} @ {x.name}[..., 0, :].reshape(-1)[:{x.shape[-1]}]",
            x.dtype,
        )
    if kind == "einsum" and len(x.shape) == 2:
        return scope.expression(
            f'Tensor.einsum("ij,ik->jk", {x.name}, {x.name})',
            f'np.einsum("ij,ik->jk", {x.name}, {x.name})',
            x.dtype,
        )
    return scope.expression(
        f"{x.name} @ {x.name}.transpose(-1, -2)",
        f"{x.name} @ np.swapaxes({x.name}, -1, -2)",
        x.dtype,
    )
