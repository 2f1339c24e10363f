"""Lines about windows of the last axes: pooling, convolutions, interpolation."""

from __future__ import annotations

import math

from tinyfn.dtype import dtypes as known
from tinyfn.testing.lines import LARGEST, Draw, Line, OfOperand, Operand, Scope
from tinyfn.testing.strategies import st


def window(draw: Draw, scope: Scope) -> Line | None:
    """Something of every window."""
    x = scope.last()
    if not x.value.size or not x.shape or x.value.size > LARGEST // 4:
        return None
    kinds = [interpolate, *([pool, conv2d] if len(x.shape) > 1 else [])]
    kind: OfOperand = draw(st.sampled_from(kinds))
    return kind(draw, scope, x)


POOLED = '''def begins(size, k, step, pad, ceil_mode):
    """Where windows begin; none does in the padding after."""
    found = [*range(-pad, size + pad - k + 1, step)]
    more = found[-1] + step
    return [*found, more] if ceil_mode and found[-1] + k < size + pad and more < size else found


def pooled(x, kernel, step, pad, ceil_mode, of_window):
    """of_window gets what each window has of x, and how much it has with the padding."""
    (rows, columns), (k, m) = x.shape[-2:], kernel
    return np.stack([
        np.stack([
            of_window(
                x[..., max(i, 0) : i + k, max(j, 0) : j + m],
                (min(i + k, rows + pad) - i) * (min(j + m, columns + pad) - j),
            )
            for j in begins(columns, m, step, pad, ceil_mode)
        ], -1)
        for i in begins(rows, k, step, pad, ceil_mode)
    ], -2)'''


def pool(draw: Draw, scope: Scope, x: Operand) -> Line:
    """The largest element or the mean of every window of the last two axes."""
    kernel = tuple(draw(st.integers(1, min(3, size))) for size in x.shape[-2:])
    step, pad = draw(st.integers(1, 3)), draw(st.integers(0, min(kernel) // 2))
    up, inside_only = draw(st.booleans()), draw(st.booleans())
    head = f"({kernel}, stride={step}, padding={pad}, ceil_mode={up}"
    body = f"pooled({x.name}, {kernel}, {step}, {pad}, {up}, lambda part, count: part"
    if draw(st.booleans()):
        return scope.expression(
            f"{x.name}.max_pool2d{head})", f"{body}.max((-2, -1)))", x.dtype, POOLED
        )
    mean = ".mean((-2, -1)))" if inside_only else ".sum((-2, -1), dtype=np.float64) / count)"
    return scope.expression(
        f"{x.name}.avg_pool2d{head}, count_include_pad={not inside_only})",
        body + mean,
        x.dtype if x.is_float else known.float32,
        POOLED,
    )


CONV2D = """def conv2d(x, weight, groups, step, spread, pad):
    batch, inner, (out, _, k, m) = x.shape[0], weight.shape[1], weight.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    reach = ((k - 1) * spread + 1, (m - 1) * spread + 1)
    x = np.lib.stride_tricks.sliding_window_view(x, reach, (-2, -1))
    x = x[:, :, ::step, ::step, ::spread, ::spread]
    x = x.reshape(batch, groups, inner, *x.shape[2:])
    weight = weight.reshape(groups, out // groups, inner, k, m)
    found = np.einsum("bgirckm,goikm->bgorc", x, weight)
    return found.reshape(batch, out, *found.shape[-2:])"""


def conv2d(draw: Draw, scope: Scope, x: Operand) -> Line | None:
    """A convolution with the corner of each plane as weight: (groups, channels / groups, k, m)."""
    whole = (1, *x.shape) if len(x.shape) == 3 else (1, 1, *x.shape)
    if x.dtype is known.bool or len(whole) != 4:
        return None
    channels = whole[1]
    groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
    k, m = (draw(st.integers(1, min(3, size))) for size in whole[2:])
    step, spread, pad = (draw(st.integers(low, 2)) for low in (1, 1, 0))
    if any((s - 1) * spread >= n + 2 * pad for s, n in zip((k, m), whole[2:], strict=True)):
        return None
    out = groups * draw(st.integers(1, 2))
    texts = []
    for repeat in (".repeat({}, 1, 1, 1)", "*{}"):
        weight = f"{x.name}[..., :{k}, :{m}].reshape{(groups, channels // groups, k, m)}"
        if out > groups:
            twice = repeat.format(2)
            weight = f"np.tile({weight}, (2, 1, 1, 1))" if "*" in twice else weight + twice
        texts.append((f"{x.name}.reshape{whole}", weight))
    (tiny, tiny_weight), (numpy, numpy_weight) = texts
    return scope.expression(
        f"{tiny}.conv2d({tiny_weight}, None, {groups}, {step}, {spread}, {pad})",
        f"conv2d({numpy}, {numpy_weight}, {groups}, {step}, {spread}, {pad})",
        x.dtype,
        CONV2D,
    )


INTERPOLATED = """def interpolated(x, axis, new, mode, corners):
    old, number = x.shape[axis], np.arange(new)
    if mode == "nearest":
        return np.take(x, number * old // new, axis)
    if mode == "nearest-exact":
        return np.take(x, (2 * number + 1) * old // (2 * new), axis)
    place = np.clip((number + 0.5) * (old / new) - 0.5, 0, old - 1)
    if corners:
        place = number * ((old - 1) / max(new - 1, 1))
    low = np.floor(place).astype(np.int64)
    weight = (place - low).reshape((new,) + (1,) * (x.ndim - axis - 1))
    near, far = np.take(x, low, axis), np.take(x, np.minimum(low + 1, old - 1), axis)
    return np.where(weight > 0, near * (1 - weight) + far * weight, near)"""


def interpolate(draw: Draw, scope: Scope, x: Operand) -> Line | None:
    """The last one or two axes brought to another size."""
    mode = draw(st.sampled_from(["nearest", "nearest-exact", "linear"]))
    wide = x.dtype.itemsize == 8 and not x.is_float  # numbers that float32 does not hold
    if mode == "linear" and (wide or x.dtype is known.bool):
        return None
    corners = mode == "linear" and draw(st.booleans())
    count = draw(st.integers(1, min(2, len(x.shape))))
    sizes = tuple(draw(st.integers(1, 9)) for _ in range(count))
    if math.prod(x.shape[: len(x.shape) - count]) * math.prod(sizes) > LARGEST:
        return None
    whole = mode == "linear" and not x.is_float  # rounded at the end, not for each axis
    numpy = f"{x.name}.astype(np.float64)" if whole else x.name
    for i, size in enumerate(sizes):
        axis = len(x.shape) - count + i
        numpy = f'interpolated({numpy}, {axis}, {size}, "{mode}", {corners})'
    if whole:
        up = " + 0.5" if x.dtype is known.uint8 else ""
        numpy = f"({numpy}{up}).astype(np.int64).astype(np.{x.dtype.name})"
    return scope.expression(
        f'{x.name}.interpolate({sizes}, "{mode}", {corners})', numpy, x.dtype, INTERPOLATED
    )
