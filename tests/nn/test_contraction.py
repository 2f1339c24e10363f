"""Linear and convolutions against sums written out in numpy."""

import itertools

import numpy as np
import pytest

from tinyfn import Tensor, nn
from tinyfn.errors import ArgumentError

RNG = np.random.default_rng(6)


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)


def pair(value, n):
    return (value,) * n if isinstance(value, int) else value


def convolve(x, w, bias, stride, padding, dilation, groups):
    """Every output by itself: the sum over channels of its group and over the kernel."""
    n = w.ndim - 2
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    sizes = [(s - r) // t + 1 for s, r, t in zip(x.shape[2:], reach, stride, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    inner = w.shape[1]
    per_group = w.shape[0] // groups
    for o, at in itertools.product(range(w.shape[0]), np.ndindex(*sizes)):
        first = o // per_group * inner
        window = [
            slice(a * t, a * t + r, d)
            for a, t, r, d in zip(at, stride, reach, dilation, strict=True)
        ]
        part = x[(slice(None), slice(first, first + inner), *window)]
        out[(slice(None), o, *at)] = (part * w[o]).sum(axis=tuple(range(1, n + 2)))
    return out if bias is None else out + bias.reshape(1, -1, *(1,) * n)


def transposed(x, w, bias, stride, padding, output_padding, dilation, groups):
    """Every input adds its multiple of the kernel to the output."""
    n = w.ndim - 2
    stride, padding, dilation = pair(stride, n), pair(padding, n), pair(dilation, n)
    more = pair(output_padding, n)
    per_group, inner = w.shape[1], x.shape[1] // groups
    full = [
        (s - 1) * t + d * (k - 1) + 1 + m
        for s, t, d, k, m in zip(x.shape[2:], stride, dilation, w.shape[2:], more, strict=True)
    ]
    out = np.zeros((x.shape[0], per_group * groups, *full))
    for c, at in itertools.product(range(x.shape[1]), np.ndindex(*x.shape[2:])):
        first = c // inner * per_group
        window = [
            slice(a * t, a * t + d * (k - 1) + 1, d)
            for a, t, d, k in zip(at, stride, dilation, w.shape[2:], strict=True)
        ]
        value = x[(slice(None), c, *at)].reshape(-1, 1, *(1,) * n)
        out[(slice(None), slice(first, first + per_group), *window)] += value * w[c]
    cut = [slice(p, f - p) for p, f in zip(padding, full, strict=True)]
    out = out[(slice(None), slice(None), *cut)]
    return out if bias is None else out + bias.reshape(1, -1, *(1,) * n)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_linear(bias, lead):
    layer = nn.Linear(7, 4, bias=bias)
    x = RNG.normal(size=(*lead, 7)).astype(np.float32)
    wanted = x @ layer.weight.numpy().T + (layer.bias.numpy() if bias else 0)
    close(layer(Tensor(x)), wanted)
    assert (layer.bias is not None) == bias


CONVOLUTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)},
    {"groups": 2, "padding": 1, "bias": False},
    {"groups": 4},
]


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_conv2d(options):
    layer = nn.Conv2d(4, 8, (3, 2), **options)
    x = RNG.normal(size=(2, 4, 7, 6)).astype(np.float32)
    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, **options}
    with_bias = plain.pop("bias", True)
    bias = layer.bias.numpy() if with_bias else None
    close(layer(Tensor(x)), convolve(x, layer.weight.numpy(), bias, **plain))


def test_conv1d():
    layer = nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)
    x = RNG.normal(size=(2, 4, 9)).astype(np.float32)
    close(layer(Tensor(x)), convolve(x, layer.weight.numpy(), layer.bias.numpy(), 2, 1, 1, 2))


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (4, 1), ((2, 3), (3, 1))])
def test_padding_same_keeps_the_size(kernel, dilation):
    layer = nn.Conv2d(1, 1, kernel, padding="same", dilation=dilation, bias=False)
    x = RNG.normal(size=(1, 1, 9, 8)).astype(np.float32)
    sizes, steps = layer.kernel_size, pair(dilation, 2)
    total = [d * (k - 1) for d, k in zip(steps, sizes, strict=True)]
    around = np.pad(x, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in total)])
    wanted = convolve(around, layer.weight.numpy(), None, 1, 0, dilation, 1)
    assert wanted.shape == x.shape
    close(layer(Tensor(x)), wanted)


TRANSPOSED = [
    {},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": (1, 3), "dilation": (2, 1), "output_padding": (0, 2)},
    {"groups": 2, "stride": 2, "bias": False},
]


@pytest.mark.parametrize("options", TRANSPOSED)
def test_conv_transpose2d(options):
    layer = nn.ConvTranspose2d(4, 6, 3, **options)
    x = RNG.normal(size=(2, 4, 5, 4)).astype(np.float32)
    plain = {
        "stride": 1,
        "padding": 0,
        "output_padding": 0,
        "dilation": 1,
        "groups": 1,
        **options,
    }
    bias = layer.bias.numpy() if plain.pop("bias", True) else None
    close(layer(Tensor(x)), transposed(x, layer.weight.numpy(), bias, **plain))


def test_conv_transpose1d():
    layer = nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1)
    x = RNG.normal(size=(2, 3, 5)).astype(np.float32)
    wanted = transposed(x, layer.weight.numpy(), layer.bias.numpy(), 2, 1, 0, 1, 1)
    close(layer(Tensor(x)), wanted)


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (lambda: nn.Linear(64, 50), 64),
        (lambda: nn.Conv2d(8, 32, 3, groups=2), 36),
        (lambda: nn.ConvTranspose2d(16, 32, 3), 288),
    ],
)
def test_the_start_is_uniform_within_a_bound(layer, fan_in):
    Tensor.manual_seed(0)
    made = layer()
    for values in (made.weight.numpy(), made.bias.numpy()):
        assert np.abs(values).max() <= fan_in**-0.5
    weight = made.weight.numpy() * fan_in**0.5
    # uniform in [-1, 1]: mean 0, variance 1/3; 5 deviations of the mean of n numbers
    assert abs(weight.mean()) < 5 / (3 * weight.size) ** 0.5
    assert abs(weight.var() - 1 / 3) < 0.05


def test_mistakes_are_told():
    with pytest.raises(ArgumentError, match="groups that divide the channels, got 2 groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ArgumentError, match="stride of 1"):
        nn.Conv2d(3, 4, 3, stride=2, padding="same")
    with pytest.raises(ArgumentError, match="'same', 'valid' or ints, got 'full'"):
        nn.Conv2d(3, 4, 3, padding="full")
    with pytest.raises(ArgumentError, match="kernel_size as an int or 1 ints"):
        nn.Conv1d(3, 4, (3, 3))
    with pytest.raises(ArgumentError, match="groups"):
        nn.ConvTranspose2d(3, 4, 3, groups=2)
