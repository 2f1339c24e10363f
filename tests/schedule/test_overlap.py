"""Convolutions and both of their gradients are single sums of products, and right."""

import numpy as np
import pytest

from tinyfn import Tensor
from tinyfn.schedule.inline import inline_calls
from tinyfn.schedule.overlap import join_overlapping_sums
from tinyfn.schedule.prepare import prepare
from tinyfn.uop.interpret import interpret
from tinyfn.uop.ops import Ops, UOp

# kernel, stride, dilation, padding, groups
GRID = [
    ((3, 3), 1, 1, 1, 1),
    ((3, 3), 2, 1, 1, 1),
    ((3, 2), (1, 2), (2, 1), (2, 0), 1),
    ((3, 3), 2, 2, 2, 1),
    ((1, 1), 1, 1, 0, 1),
    ((1, 1), 2, 1, 0, 1),
    ((5, 5), 1, 1, 2, 1),
    ((5, 4), 3, 1, 2, 2),
    ((2, 2), 2, 1, 0, 1),
    ((3, 3), 1, 1, 1, 4),
]


def convolution(kernel, stride, dilation, padding, groups):
    generator = np.random.default_rng(3)
    x = Tensor(generator.normal(size=(2, 4, 9, 8))).realize()
    w = Tensor(generator.normal(size=(8, 4 // groups, *kernel))).realize()
    y = x.conv2d(w, None, groups, stride, dilation, padding)
    g = Tensor(generator.normal(size=y.shape)).realize()
    return x, w, y, g


def offsets(y, kernel, stride, dilation, padding):
    """Where each window element lies in the input: numbers along both axes, and whether inside."""
    stride, dilation, padding = (
        v if isinstance(v, tuple) else (v, v) for v in (stride, dilation, padding)
    )
    for i, j in np.ndindex(*kernel):
        rows = np.arange(y.shape[2]) * stride[0] + i * dilation[0] - padding[0]
        columns = np.arange(y.shape[3]) * stride[1] + j * dilation[1] - padding[1]
        yield i, j, rows, columns


def gradients_by_hand(x, w, g, kernel, stride, dilation, padding, groups):
    """The transpose of a convolution in each of its arguments, one kernel offset after another."""
    dx, dw = np.zeros(x.shape), np.zeros(w.shape)
    images, channels, height, width = x.shape
    split = (images, groups, channels // groups, height, width)
    xs, dxs = x.reshape(split), dx.reshape(split)
    gs = g.reshape(images, groups, -1, *g.shape[2:])
    ws, dws = (v.reshape(groups, -1, *w.shape[1:]) for v in (w, dw))
    for i, j, rows, columns in offsets(g, kernel, stride, dilation, padding):
        r, c = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        part = gs[:, :, :, r][..., c]
        place = np.ix_(*(range(n) for n in split[:3]), rows[r], columns[c])
        dxs[place] += np.einsum("ngoyx,goc->ngcyx", part, ws[..., i, j])
        dws[..., i, j] = np.einsum("ngoyx,ngcyx->goc", part, xs[place])
    return dx, dw


@pytest.mark.parametrize("case", GRID, ids=str)
def test_gradients_of_a_convolution(case):
    x, w, y, g = convolution(*case)
    found = (y * g).sum().gradient(x, w)
    expected = gradients_by_hand(x.numpy(), w.numpy(), g.numpy(), *case)
    for one, right in zip(found, expected, strict=True):
        joined = join_overlapping_sums(prepare(inline_calls(UOp(Ops.SINK, src=(one.uop,)))))
        (value,) = interpret([joined.src[0]])
        np.testing.assert_allclose(value, right, atol=1e-10)


@pytest.mark.parametrize("case", [GRID[0], GRID[2], GRID[7]], ids=str)
def test_gradients_natively(case):
    x, w, y, g = convolution(*case)
    found = (y * g).sum().gradient(x, w)
    expected = gradients_by_hand(x.numpy(), w.numpy(), g.numpy(), *case)
    for one, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), right, atol=1e-10)


@pytest.mark.parametrize("case", GRID, ids=str)
def test_no_kernel_stores_the_columns(case):
    x, w, y, g = convolution(*case)
    dx, dw = (y * g).sum().gradient(x, w)
    for result in (y, dx, dw):
        linear, _ = result.linear_with_vars()
        largest = max(int(np.prod(b.max_shape)) for c in linear.src for b in c.src[1:])
        assert largest <= max(int(np.prod(t.shape)) for t in (x, w, y))
        assert len(linear.src) <= 2


def test_sums_that_do_not_overlap_stay_as_they_are():
    """Summing what a product gives is cheaper than a longer sum of products."""
    a, b = Tensor.ones(8, 16).contiguous().realize(), Tensor.ones(16, 32).contiguous().realize()
    root = UOp(Ops.SINK, src=((a @ b).sum(0).uop,))
    assert join_overlapping_sums(root) is root
    assert join_overlapping_sums(prepare(inline_calls(root))).key == prepare(root).key
