"""Attention in kernels that hold a tile of scores, against numpy in float64."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit, Variable, attention, dtypes, function
from tinyfn.uop.ops import Ops, toposort

RNG = np.random.default_rng(0)


@pytest.fixture(params=["tiles", "held"])
def backward(request, monkeypatch):
    """Gradients in tiles, or of the composed form."""
    monkeypatch.setattr(attention, "HELD", 0 if request.param == "tiles" else 1 << 24)


def expected(q, k, v, mask=None, causal=False):
    """The composed form; a row that sees nothing is 0."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    groups = q.shape[-3] // k.shape[-3]
    k, v = np.repeat(k, groups, -3), np.repeat(v, groups, -3)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        seen = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None]
        scores = np.where(seen, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def inputs(heads=2, key_heads=None, rows=17, keys=23, size=4, width=3, dtype=np.float32):
    """Queries, keys and values of two examples."""
    q = RNG.normal(size=(2, heads, rows, size))
    k = RNG.normal(size=(2, key_heads or heads, keys, size))
    v = RNG.normal(size=(2, key_heads or heads, keys, width))
    return [x.astype(dtype) for x in (q, k, v)]


def calls(tensor):
    """The names of attention's calls below a tensor."""
    nodes = [x for x in toposort(tensor.uop) if x.op is Ops.CALL]
    return [x.arg.name for x in nodes if x.arg.name.startswith("attention")]


def check(q, k, v, mask=None, causal=False, rtol=1e-5):
    """The fused result is numpy's."""
    given = [Tensor(x) for x in (q, k, v)]
    other = None if mask is None else Tensor(mask)
    grouped = q.shape[-3] != k.shape[-3]
    found = given[0].scaled_dot_product_attention(
        *given[1:], attn_mask=other, is_causal=causal, enable_gqa=grouped
    )
    assert calls(found) == ["attention"]
    np.testing.assert_allclose(found.numpy(), expected(q, k, v, mask, causal), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"rows": 70, "keys": 16},
        {"rows": 16, "keys": 130},
        {"rows": 33, "keys": 1, "size": 1, "width": 1},
        {"heads": 6, "key_heads": 2, "rows": 20, "keys": 65},
    ],
    ids=str,
)
def test_outputs_are_numpy_s(sizes, causal):
    check(*inputs(**sizes), causal=causal)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(
    "shape", [(2, 2, 17, 23), (1, 2, 1, 23), (2, 1, 17, 1), (17, 23), (23,), (1, 1, 1, 1)], ids=str
)
def test_masks_spread_over_each_axis(shape, kind):
    mask = RNG.normal(size=shape).astype(np.float32)
    if kind == "bool":
        mask = mask > -0.5
    check(*inputs(), mask=mask)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_that_see_nothing_are_zero(kind, backward):
    mask = RNG.random((17, 23)) > 0.5
    mask[3], mask[:, 5] = False, False
    if kind == "float":
        mask = np.where(mask, np.float32(0), np.float32(-np.inf))
    q, k, v = inputs()
    check(q, k, v, mask=mask)
    tensors = [Tensor(x) for x in (q, k, v)]
    found = tensors[0].scaled_dot_product_attention(*tensors[1:], attn_mask=Tensor(mask))
    of_q, of_k, of_v = found.sum().gradient(*tensors)
    assert (found.numpy()[:, :, 3] == 0).all() and (of_q.numpy()[:, :, 3] == 0).all()
    assert (of_k.numpy()[:, :, 5] == 0).all() and (of_v.numpy()[:, :, 5] == 0).all()
    assert all(np.isfinite(x.numpy()).all() for x in (of_q, of_k, of_v))


def test_huge_scores_do_not_overflow():
    q, k, v = inputs(keys=70)
    check(q * 1000, k * 1000, v, rtol=1e-3)


def test_a_nan_among_keys_spreads_to_the_rows_that_see_it():
    q, k, v = inputs(keys=17)
    k[:, :, 9] = np.nan
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True).numpy()
    assert np.isnan(found[:, :, 9:]).all() and not np.isnan(found[:, :, :9]).any()


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [(dtypes.float64, 1e-12), (dtypes.float16, 2e-3), (dtypes.bfloat16, 2e-2)],
    ids=str,
)
def test_other_floats(dtype, rtol):
    given = [Tensor(x).cast(dtype).realize() for x in inputs(keys=70, dtype=np.float64)]
    found = given[0].scaled_dot_product_attention(*given[1:], is_causal=True)
    assert found.dtype is dtype and calls(found) == ["attention"]
    exact = [x.cast(dtypes.float64).numpy() for x in given]
    np.testing.assert_allclose(
        found.cast(dtypes.float64).numpy(), expected(*exact, causal=True), rtol=rtol, atol=rtol
    )


def test_the_same_as_plain_python():
    q, k, v = inputs(keys=3, width=2)
    with Context(NATIVE=0):
        check(q[:1, :1], k[:1, :1], v[:1, :1], causal=True)


def test_what_has_no_kernel_of_its_own_is_composed():
    q, k, v = (Tensor(x) for x in inputs(rows=4))
    assert calls(q.scaled_dot_product_attention(k, v)) == []
    size = Variable("size", 1, 23).bind(7)
    q, k, v = inputs()
    part = Tensor(k)[:, :, :size], Tensor(v)[:, :, :size]
    found = Tensor(q).scaled_dot_product_attention(*part)
    assert calls(found) == []
    np.testing.assert_allclose(found.numpy(), expected(q, k[:, :, :7], v[:, :, :7]), rtol=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_each_slot_computes_its_own_part(axis, backward):
    q, k, v = inputs()
    given = [Tensor(x).shard(("CPU", "CPU:1"), axis) for x in (q, k, v)]
    plain = [Tensor(x) for x in (q, k, v)]
    results, gradients = [], []
    for tensors in (given, plain):
        found = tensors[0].scaled_dot_product_attention(*tensors[1:], is_causal=True)
        assert calls(found) == ["attention"]
        gradients.append([x.numpy() for x in found.square().sum().gradient(*tensors)])
        results.append(found.numpy())
    wanted = expected(q, k, v, causal=True)
    for result in results:
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    for spread, alone in zip(*gradients, strict=True):
        np.testing.assert_allclose(spread, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precompile", [False, True])
def test_in_functions_and_recorded_runs(precompile, backward):
    @function(precompile=precompile)
    def inside(q, k, v):
        return q.scaled_dot_product_attention(k, v, is_causal=True) * 2

    @TinyJit
    def step(q, k, v):
        return inside(q, k, v).realize()

    for _ in range(3):
        q, k, v = inputs()
        found = step(*(Tensor(x).realize() for x in (q, k, v)))
        wanted = 2 * expected(q, k, v, causal=True)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


# *** gradients ***

KINDS = {
    "plain": {"rows": 17, "keys": 5},
    "causal": {"rows": 17, "keys": 18, "causal": True},
    "grouped": {"heads": 4, "key_heads": 2, "rows": 16, "keys": 3},
    "bool": {"rows": 16, "keys": 5, "mask": "bool"},
    "float": {"rows": 16, "keys": 5, "mask": "float"},
}


def problem(kind):
    """A function of arrays that are tensors, and the arrays."""
    sizes = dict(KINDS[kind])
    causal, mask = sizes.pop("causal", False), sizes.pop("mask", None)
    arrays = inputs(**sizes, size=2, width=2, dtype=np.float64)
    if mask == "float":
        arrays.append(RNG.normal(size=(1, 2, sizes["rows"], 1)))
    bools = RNG.random((sizes["rows"], sizes["keys"])) > 0.3

    def run(q, k, v, *more):
        other = more[0] if more else (Tensor(bools) if mask == "bool" else None)
        found = q.scaled_dot_product_attention(
            k, v, attn_mask=other, is_causal=causal, enable_gqa=q.shape[-3] != k.shape[-3]
        )
        assert calls(found)
        return (found.square() * found.exp()).sum()

    return run, arrays


def slopes(value, arrays, directions, step=1e-5):
    """The change of a number along directions, by central differences."""
    moved = [
        value(*(x + sign * step * d for x, d in zip(arrays, directions, strict=True)))
        for sign in (1, -1)
    ]
    return (moved[0] - moved[1]) / (2 * step)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_differences(kind, backward):
    run, arrays = problem(kind)
    tensors = [Tensor(x) for x in arrays]
    found = [x.numpy() for x in run(*tensors).gradient(*tensors)]

    def value(*moved):
        return run(*map(Tensor, moved)).item()

    for place, gradient in enumerate(found):
        directions = [
            RNG.normal(size=x.shape) if i == place else np.zeros(x.shape)
            for i, x in enumerate(arrays)
        ]
        assert slopes(value, arrays, directions) == pytest.approx(
            float((gradient * directions[place]).sum()), rel=1e-6, abs=1e-7
        )


@pytest.mark.parametrize("kind", ["plain", "causal", "grouped", "float"])
def test_gradients_of_gradients_are_differences(kind, backward):
    run, arrays = problem(kind)
    weights = [Tensor(RNG.normal(size=x.shape)) for x in arrays]

    def slope(*tensors):
        found = run(*tensors).gradient(*tensors)
        return sum((g * w).sum() for g, w in zip(found, weights, strict=True))

    tensors = [Tensor(x) for x in arrays]
    found = [x.numpy() for x in slope(*tensors).gradient(*tensors)]
    directions = [RNG.normal(size=x.shape) for x in arrays]
    wanted = sum(float((g * d).sum()) for g, d in zip(found, directions, strict=True))

    def value(*moved):
        return slope(*map(Tensor, moved)).item()

    assert slopes(value, arrays, directions) == pytest.approx(wanted, rel=1e-5, abs=1e-6)
