"""Layers that normalise, against numpy."""

import numpy as np
import pytest

from tinyfn import Tensor, TinyJit, dtypes, nn
from tinyfn.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(7)
EPS = 1e-5


def close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=2e-5)


def normal(x, axes, eps=EPS):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def learned(layer):
    """Weights other than the ones and zeros they start with."""
    for name in ("weight", "bias"):
        if getattr(layer, name, None) is not None:
            start = getattr(layer, name)
            start.assign(Tensor(RNG.normal(size=start.shape).astype(np.float32)))
    return layer


def spread(value, ndim):
    return value.numpy().reshape(1, -1, *(1,) * (ndim - 2))


def data(*shape):
    return (RNG.normal(size=shape) * 3 + 1).astype(np.float32)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_batchnorm_trains_and_tracks(shape):
    layer = learned(nn.BatchNorm(3, momentum=0.2))
    axes = tuple(i for i in range(len(shape)) if i != 1)
    mean, variance = np.zeros(3), np.ones(3)
    weight, bias = spread(layer.weight, len(shape)), spread(layer.bias, len(shape))
    with Tensor.train():
        for _ in range(4):
            x = data(*shape)
            close(layer(Tensor(x)), normal(x, axes) * weight + bias)
            mean = 0.8 * mean + 0.2 * x.mean(axes)
            variance = 0.8 * variance + 0.2 * x.var(axes, ddof=1)
    close(layer.running_mean, mean)
    close(layer.running_var, variance)
    assert layer.num_batches_tracked.item() == 4
    x = data(*shape)
    ready = [v.reshape(1, -1, *(1,) * (len(shape) - 2)) for v in (mean, variance)]
    close(layer(Tensor(x)), (x - ready[0]) / np.sqrt(ready[1] + EPS) * weight + bias)
    assert layer.num_batches_tracked.item() == 4


def test_batchnorm_without_weights_or_tracking():
    layer = nn.BatchNorm2d(3, affine=False, track_running_stats=False, eps=0.1)
    assert layer.weight is None and layer.bias is None
    x = data(2, 3, 4, 4)
    close(layer(Tensor(x)), normal(x, (0, 2, 3), 0.1))
    assert not hasattr(layer, "running_mean")


def test_batchnorm_inside_a_replayed_step():
    layer = nn.BatchNorm(2)
    optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)

    @TinyJit
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    mean = np.zeros(2)
    with Tensor.train():
        for _ in range(5):
            x = data(8, 2)
            step(Tensor(x))
            mean = 0.9 * mean + 0.1 * x.mean(0)
    close(layer.running_mean, mean)
    assert layer.num_batches_tracked.item() == 5


def test_batchnorm_gradients():
    x, w, b = data(5, 2), data(2), data(2)
    seen = Tensor(x)
    layer = nn.BatchNorm(2)
    layer.weight.assign(Tensor(w))
    layer.bias.assign(Tensor(b))
    pull = data(5, 2)
    with Tensor.train():
        (layer(seen) * Tensor(pull)).sum().backward()
    y = normal(x, 0)
    close(layer.weight.grad, (pull * y).sum(0))
    close(layer.bias.grad, pull.sum(0))
    inner = pull * w
    wanted = (inner - inner.mean(0) - y * (inner * y).mean(0)) / np.sqrt(x.var(0) + EPS)
    close(seen.grad, wanted)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_groupnorm(groups, affine):
    layer = learned(nn.GroupNorm(groups, 6, affine=affine))
    x = data(3, 6, 4, 2)
    wanted = normal(x.reshape(3, groups, -1), -1).reshape(x.shape)
    if affine:
        wanted = wanted * spread(layer.weight, 4) + spread(layer.bias, 4)
    close(layer(Tensor(x)), wanted)


def test_instancenorm():
    layer = learned(nn.InstanceNorm(3))
    x = data(2, 3, 7)
    wanted = normal(x, 2) * spread(layer.weight, 3) + spread(layer.bias, 3)
    close(layer(Tensor(x)), wanted)


@pytest.mark.parametrize("shape", [5, (4, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_layernorm(shape, affine):
    layer = learned(nn.LayerNorm(shape, elementwise_affine=affine))
    x = data(3, 4, 5)
    wanted = normal(x, -1 if shape == 5 else (-2, -1))
    if affine:
        wanted = wanted * layer.weight.numpy() + layer.bias.numpy()
    close(layer(Tensor(x)), wanted)


def test_layernorm2d_is_over_channels():
    layer = learned(nn.LayerNorm2d(3))
    x = data(2, 3, 4, 5)
    wanted = normal(x, 1) * spread(layer.weight, 4) + spread(layer.bias, 4)
    close(layer(Tensor(x)), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rmsnorm(dtype):
    layer = learned(nn.RMSNorm(6, eps=1e-3))
    x = data(4, 6)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * layer.weight.numpy()
    found = layer(Tensor(x, dtype=dtype))
    assert found.dtype is dtypes.float32  # that of the weight, which is wider
    np.testing.assert_allclose(
        found.numpy(), wanted, rtol=2e-3 if dtype == "float16" else 1e-5, atol=2e-3
    )


def test_mistakes_are_told():
    with pytest.raises(ArgumentError, match="groups that divide the channels, got 4 groups"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ShapeError, match=r"BatchNorm expects .*\(batch, 3, ...\), got \(2, 4\)"):
        nn.BatchNorm(3)(Tensor.ones(2, 4))
    with pytest.raises(ShapeError, match=r"last axes of shape \(5,\), got .* \(2, 4\)"):
        nn.LayerNorm(5)(Tensor.ones(2, 4))
