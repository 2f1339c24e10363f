"""Lines that put the same elements at other places."""

from __future__ import annotations

from typing import Any

from tinyfn.testing.lines import LARGEST, Draw, Line, OfOperand, Operand, Scope
from tinyfn.testing.strategies import st


def movement(draw: Draw, scope: Scope) -> Line | None:
    """The same elements at other places."""
    x = scope.last()
    if not x.shape:
        return scope.expression(f"{x.name}.reshape(1)", f"{x.name}.reshape(1)", x.dtype)
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    size = x.shape[axis]
    kind = draw(
        st.sampled_from(["permute", "flip", "flatten", "shrink", "pad", "expand", "cat", "split"])
    )
    if kind == "permute":
        order = tuple(draw(st.permutations(range(len(x.shape)))))
        return scope.expression(f"{n}.permute({order})", f"{n}.transpose({order})", x.dtype)
    if kind == "flip":
        return scope.expression(f"{n}.flip({axis})", f"np.flip({n}, {axis})", x.dtype)
    if kind == "flatten":
        return scope.expression(f"{n}.flatten()", f"{n}.reshape(-1)", x.dtype)
    if kind == "split":
        if size % 2 or not size:
            return None
        shape = (*x.shape[:axis], 2, size // 2, *x.shape[axis + 1 :])
        return scope.expression(f"{n}.reshape({shape})", f"{n}.reshape({shape})", x.dtype)
    return _resized(draw, scope, kind, axis)


def _resized(draw: Draw, scope: Scope, kind: str, axis: int) -> Line | None:
    """Movement that changes the count of elements."""
    x = scope.last()
    n, size, rank = x.name, x.shape[axis], len(x.shape)
    if kind == "shrink":
        begin = draw(st.integers(0, max(size - 1, 0)))
        box = tuple((begin, s) if a == axis else (0, s) for a, s in enumerate(x.shape))
        cut = f"{n}[{', '.join([':'] * axis + [f'{begin}:'])}]"
        return scope.expression(f"{n}.shrink({box})", cut, x.dtype)
    if x.value.size * 3 > LARGEST:
        return None
    if kind == "pad":
        around = (draw(st.integers(0, 2)), draw(st.integers(0, 3)))
        pads = tuple(around if a == axis else (0, 0) for a in range(rank))
        return scope.expression(f"{n}.pad({pads})", f"np.pad({n}, {pads})", x.dtype)
    if kind == "expand":
        shape = (2, *x.shape)
        return scope.expression(f"{n}.expand({shape})", f"np.broadcast_to({n}, {shape})", x.dtype)
    joined = f"{n}, {n}.flip({axis})"
    return scope.expression(
        f"Tensor.cat({joined}, dim={axis})",
        f"np.concatenate([{n}, np.flip({n}, {axis})], {axis})",
        x.dtype,
    )


def arrange(draw: Draw, scope: Scope) -> Line | None:
    """Copies, windows, diagonals and triangles."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    kinds = [repeat, roll, unfold, *([diagonal, triangle] if len(x.shape) > 1 else [])]
    kind: OfOperand = draw(st.sampled_from(kinds))
    return kind(draw, scope, x)


def repeat(draw: Draw, scope: Scope, x: Operand) -> Line | None:
    """The whole several times, or each element."""
    if x.value.size * 4 > LARGEST:
        return None
    if draw(st.booleans()):
        axis, times = draw(st.integers(0, len(x.shape) - 1)), draw(st.integers(0, 3))
        return scope.expression(
            f"{x.name}.repeat_interleave({times}, {axis})",
            f"np.repeat({x.name}, {times}, {axis})",
            x.dtype,
        )
    times_each = [1] * len(x.shape)
    times_each[draw(st.integers(0, len(x.shape) - 1))] = draw(st.integers(0, 2))
    whole = (*([2] if draw(st.booleans()) else []), *times_each)
    return scope.expression(f"{x.name}.repeat{whole}", f"np.tile({x.name}, {whole})", x.dtype)


def roll(draw: Draw, scope: Scope, x: Operand) -> Line:
    """Moved on along several axes, or as one row."""
    axes: Any = None
    by: Any = draw(st.integers(-5, 5))
    if draw(st.booleans()):
        axes = tuple(range(len(x.shape)))[-2:]
        by = (by, draw(st.integers(-9, 9)))[: len(axes)]
    return scope.expression(
        f"{x.name}.roll({by}, {axes})", f"np.roll({x.name}, {by}, {axes})", x.dtype
    )


def unfold(draw: Draw, scope: Scope, x: Operand) -> Line | None:
    """Windows along an axis."""
    axis = draw(st.integers(0, len(x.shape) - 1))
    size, step = draw(st.integers(1, min(x.shape[axis], 4))), draw(st.integers(1, 3))
    if x.value.size * size > LARGEST:
        return None
    cut = ", ".join([":"] * axis + [f"::{step}"])
    numpy = f"np.lib.stride_tricks.sliding_window_view({x.name}, {size}, {axis})[{cut}]"
    return scope.expression(f"{x.name}.unfold({axis}, {size}, {step})", numpy, x.dtype)


def diagonal(draw: Draw, scope: Scope, x: Operand) -> Line:
    """One diagonal of two axes."""
    axes = draw(st.permutations(range(len(x.shape))))[:2]
    given = f"{draw(st.integers(-3, 3))}, {axes[0]}, {axes[1]}"
    return scope.expression(
        f"{x.name}.diagonal({given})", f"np.diagonal({x.name}, {given})", x.dtype
    )


def triangle(draw: Draw, scope: Scope, x: Operand) -> Line:
    """What is above or below a diagonal."""
    name, number = draw(st.sampled_from(["triu", "tril"])), draw(st.integers(-3, 3))
    return scope.expression(f"{x.name}.{name}({number})", f"np.{name}({x.name}, {number})", x.dtype)
