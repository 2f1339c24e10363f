"""Lines about whole rows: normalisation, running values, orders."""

from __future__ import annotations

from tinyfn.dtype import dtypes as known
from tinyfn.dtype import sum_acc_dtype
from tinyfn.testing.lines import Draw, Line, Scope
from tinyfn.testing.strategies import st


def rows(draw: Draw, scope: Scope) -> Line | None:
    """Rows that are normalised."""
    x = scope.last()
    if not x.shape or not x.value.size or not x.is_float:
        return None
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    if draw(st.booleans()):
        top = f"np.exp({n} - {n}.max({axis}, keepdims=True))"
        return scope.expression(
            f"{n}.softmax({axis})", f"{top} / {top}.sum({axis}, keepdims=True)", x.dtype
        )
    return scope.expression(
        f"{n} - {n}.mean({axis}, keepdim=True)", f"{n} - {n}.mean({axis}, keepdims=True)", x.dtype
    )


RUNNING_PLACES = """def running_places(x, axis, extreme):
    values = extreme.accumulate(x, axis)
    here = (x == values) | ((x != x) & (values != values))
    numbers = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - axis - 1))
    return np.maximum.accumulate(np.where(here, numbers, 0), axis).astype(np.int32)"""


def scan(draw: Draw, scope: Scope) -> Line | None:
    """What has run so far: sums, products, extremes and their places."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    kind = draw(st.sampled_from(["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]))
    if kind == "logcumsumexp":
        given = n if x.is_float else f"{n}.astype(np.float64)"
        return scope.expression(
            f"{n}.logcumsumexp({axis})",
            f"np.logaddexp.accumulate({given}, {axis})",
            x.dtype if x.is_float else known.float32,
        )
    if kind in ("cumsum", "cumprod"):
        wide = sum_acc_dtype(x.dtype)
        as_wide = "" if x.is_float else f", dtype=np.{wide.name}"
        return scope.expression(f"{n}.{kind}({axis})", f"np.{kind}({n}, {axis}{as_wide})", wide)
    extreme = "np.maximum" if kind == "cummax" else "np.minimum"
    if draw(st.booleans()):
        return scope.expression(
            f"{n}.{kind}({axis})[0]", f"{extreme}.accumulate({n}, {axis})", x.dtype
        )
    return scope.expression(
        f"{n}.{kind}({axis})[1]",
        f"running_places({n}, {axis}, {extreme})",
        known.int32,
        RUNNING_PLACES,
    )


ORDER = '''def order(x, axis, descending=False):
    """Stable, with NaN as the largest."""
    if not descending:
        return np.argsort(x, axis, kind="stable").astype(np.int32)
    last = x.shape[axis] - 1
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return (last - np.flip(backwards, axis)).astype(np.int32)'''


def order(draw: Draw, scope: Scope) -> Line | None:
    """Rows in order: the elements or their numbers, all or the first few."""
    x = scope.last()
    if not x.shape or not x.value.size:
        return None
    n, axis = x.name, draw(st.integers(0, len(x.shape) - 1))
    down, numbers = draw(st.booleans()), draw(st.booleans())
    found, tiny = f"order({n}, {axis}, {down})", f"{n}.sort({axis}, {down})"
    if draw(st.booleans()):
        count = draw(st.integers(0, x.shape[axis]))
        cut = ", ".join([":"] * axis + [f":{count}"])
        found, tiny = f"{found}[{cut}]", f"{n}.topk({count}, {axis}, {down})"
    if numbers:
        tiny = f"{tiny}[1]" if "topk" in tiny else f"{n}.argsort({axis}, {down})"
        return scope.expression(tiny, found, known.int32, ORDER)
    return scope.expression(
        f"{tiny}[0]", f"np.take_along_axis({n}, {found}, {axis})", x.dtype, ORDER
    )
