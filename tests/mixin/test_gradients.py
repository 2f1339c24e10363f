"""Gradients through the vocabulary: the graph's, by the oracle, against differences of Eager."""

import math

import numpy as np
import pytest
from mixin.reference import Eager

from tinyfn import Tensor
from tinyfn.gradient import compute_gradient
from tinyfn.uop.interpret import interpret

RNG = np.random.default_rng(0)


def gradient_of(function, array):
    """d sum(function(x)) / dx by the graph."""
    x = Tensor(np.asarray(array, np.float64))
    y = function(x).sum()
    found = compute_gradient(y.uop, Tensor(1.0, dtype=y.dtype).uop, [x.uop])
    return interpret([found[x.uop]])[0]


def difference_of(function, array, step=1e-6):
    """The same by central differences."""
    found = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        ahead, behind = array.copy(), array.copy()
        ahead[place] += step
        behind[place] -= step
        up, down = (function(Eager(v)).sum().item() for v in (ahead, behind))
        found[place] = (up - down) / (2 * step)
    return found


def like(x, array):
    """A constant of the kind of x."""
    return type(x)(np.asarray(array))


SMOOTH = """
    sqrt exp exp2 log log2 log10 sin cos tan tanh sinh cosh asinh atan erf sigmoid rsqrt reciprocal
    square relu relu6 leaky_relu elu celu selu silu gelu quick_gelu softplus logsigmoid mish
    softsign hardtanh hardsigmoid hardswish abs
"""


@pytest.mark.parametrize("name", SMOOTH.split())
def test_functions_of_one_operand(name):
    x = np.array([0.3, 0.7, 1.3, 2.1])
    x = x if name in ("sqrt", "log", "log2", "log10", "rsqrt") else np.concatenate([x, -x])
    function = lambda t: getattr(t, name)()  # noqa: E731
    found = gradient_of(function, x)
    np.testing.assert_allclose(found, difference_of(function, x), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "x"), [("acos", 0.3), ("asin", -0.6), ("atanh", 0.4), ("acosh", 1.7)]
)
def test_functions_with_a_narrow_domain(name, x):
    function = lambda t: getattr(t, name)()  # noqa: E731
    x = np.array([x])
    np.testing.assert_allclose(gradient_of(function, x), difference_of(function, x), rtol=1e-5)


W = RNG.normal(size=(2, 3, 2, 2))
INDEX = np.array([[1, 0, 1], [0, 0, 1]])

FUNCTIONS = {
    "matmul": lambda x: (
        x @ like(x, W[0, 0, :, :1] * np.ones((1, 3))) if x.shape[-1] == 2 else x @ x.T
    ),
    "einsum": lambda x: type(x).einsum("ij,kj->ik", x, x),
    "softmax": lambda x: x.softmax().square(),
    "softmax over all": lambda x: x.softmax((0, 1)) * like(x, np.arange(12.0).reshape(3, 4)),
    "log_softmax": lambda x: x.log_softmax(0).square(),
    "logsumexp": lambda x: x.logsumexp(1).square(),
    "layernorm": lambda x: x.layernorm() * like(x, np.arange(4.0)),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0),
    "mean": lambda x: x.mean().square(),
    "max": lambda x: x.max(1).square(),
    "min": lambda x: x.min().square(),
    "prod": lambda x: x.prod(1),
    "normalize": lambda x: x.normalize() * like(x, np.arange(4.0)),
    "cumsum": lambda x: x.cumsum(1).square(),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1)[0].square(),
    "logcumsumexp": lambda x: x.logcumsumexp(1).square(),
    "index": lambda x: x[1:, ::-2].square(),
    "index by numbers": lambda x: x[[0, 0, 2], [1, 1, 3]].square(),
    "gather": lambda x: x.gather(1, like(x, INDEX)).square(),
    "scatter": lambda x: x.scatter(1, like(x, INDEX), x[:2, :3] * 2).square(),
    "scatter add": lambda x: x.scatter(1, like(x, INDEX), x[:2, :3] * 2, "add").square(),
    "scatter amax": lambda x: x.scatter_reduce(1, like(x, INDEX), x[:2, :3] * 2, "amax").square(),
    "scatter amin": lambda x: x.scatter_reduce(
        1, like(x, INDEX), x[:2, :3] * 2, "amin", include_self=False
    ).square(),
    "scatter mean": lambda x: x.scatter_reduce(1, like(x, INDEX), x[:2, :3] * 2, "mean").square(),
    "scatter prod": lambda x: x.scatter(1, like(x, INDEX), x[:2, :3] * 2, "multiply").square(),
    "sort": lambda x: x.sort(1)[0] * like(x, np.arange(4.0)),
    "cat": lambda x: x.cat(x * 2, x[:1], dim=0).square(),
    "stack": lambda x: x.stack(x * 3, dim=1).square(),
    "pad": lambda x: x.pad((1, 2), value=3.0).square(),
    "reflect": lambda x: x.pad((2, 2), mode="reflect").square(),
    "roll": lambda x: x.roll(1, 1) * x,
    "unfold": lambda x: x.unfold(1, 3, 1).square(),
    "diagonal": lambda x: x.diagonal().square(),
    "tril": lambda x: x.tril().square(),
    "conv": lambda x: x.reshape(1, 1, 3, 4).conv2d(like(x, W[:, :1]), padding=1).square(),
    "conv transpose": lambda x: (
        x.reshape(1, 1, 3, 4).conv_transpose2d(like(x, W[:1]), stride=2).square()
    ),
    "max pool": lambda x: x.max_pool2d((2, 2), 1).square(),
    "avg pool": lambda x: x.avg_pool2d((2, 2), 1, padding=1).square(),
    "interpolate": lambda x: x.interpolate((5, 7)).square(),
    "cross entropy": lambda x: x.cross_entropy(like(x, np.array([0, 3, 1])), label_smoothing=0.1),
    "sparse": lambda x: x.sparse_categorical_crossentropy(like(x, np.array([0, -1, 1]))),
    "bce": lambda x: x.binary_crossentropy_logits(like(x, np.ones((3, 4)) * 0.3)),
    "power": lambda x: (x.abs() + 1) ** 2.7 + 1.5**x + (x.abs() + 1) ** x,
    "small powers": lambda x: x**3 + x**-2,
    "clip": lambda x: x.clip(-0.5, 0.5).square(),
    "where": lambda x: (x > 0).where(x.square(), x * 3),
    "fmod": lambda x: (x * 5).fmod(0.7),
    "div": lambda x: x / (x.square() + 1),
    "logaddexp": lambda x: x.logaddexp(x * 2 - 1),
    "lerp": lambda x: x.lerp(x * 2, 0.3),
    "attention": lambda x: x.reshape(1, 3, 4).scaled_dot_product_attention(
        x.reshape(1, 3, 4), x.reshape(1, 3, 4), is_causal=True
    ),
    "qr": lambda x: x.qr()[1].square() * like(x, np.arange(12.0).reshape(3, 4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_differences(name):
    x = RNG.normal(size=(3, 4)) + 0.05
    function = FUNCTIONS[name]
    found, expected = gradient_of(function, x), difference_of(function, x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda t: t.relu(), 0.0, 0.0),
        (lambda t: t.abs(), 0.0, 0.0),
        (lambda t: t.sqrt(), 0.0, math.inf),
        (lambda t: t.clip(0, 1), 0.0, 1.0),
        (lambda t: t.relu6(), 6.0, 0.0),
        (lambda t: t.hardtanh(), 1.0, 0.0),
        (lambda t: t.softplus(), 0.0, 0.5),
        (lambda t: t.softplus(), 1000.0, 1.0),
        (lambda t: t.elu(), 1000.0, 1.0),
        (lambda t: t.celu(), 1000.0, 1.0),
        (lambda t: t.logsigmoid(), -1000.0, 1.0),
        (lambda t: t.asinh(), 0.0, 1.0),
        (lambda t: t.asinh(), 1e20, 1e-20),
        (lambda t: t.atan(), 0.0, 1.0),
        (lambda t: t.atan(), 1e5, 1e-10),
        (lambda t: t.sinh(), 0.0, 1.0),
        (lambda t: t.maximum(0.0), 0.0, 0.5),
        (lambda t: t.square().sqrt(), 2.0, 1.0),
        (lambda t: t**2, 0.0, 0.0),
        (lambda t: t**0.5, 4.0, 0.25),
        (lambda t: t.logaddexp(-math.inf), 1.0, 1.0),
        (lambda t: t.fmod(2.0), 0.0, 1.0),
        (lambda t: t.softplus(), math.nan, math.nan),
    ],
)
def test_gradients_at_the_edges_are_torchs(function, x, expected):
    np.testing.assert_allclose(gradient_of(function, np.array([x])), [expected], rtol=1e-6)


INF, NAN = math.inf, math.nan
EDGES = {
    "asin": ([-0.0, 1.0, -1.0], [-0.0, math.pi / 2, -math.pi / 2], [1.0, INF, INF]),
    "acos": ([1.0, -1.0], [0.0, math.pi], [-INF, -INF]),
    "atan": ([-0.0, INF, -INF], [-0.0, math.pi / 2, -math.pi / 2], [1.0, 0.0, 0.0]),
    "asinh": ([-0.0, INF, 3e38], [-0.0, INF, 89.28999], [1.0, 0.0, 0.0]),
    "acosh": ([1.0, 3e38, INF], [0.0, 89.28999, INF], [INF, 0.0, 0.0]),
    "sinh": (
        [-0.0, -89.0, 1e4, -INF],
        [-0.0, -2.2448062e38, INF, -INF],
        [1, 2.2448062e38, INF, INF],
    ),
    "cosh": (
        [0.0, -89.0, 1e4, -INF],
        [1.0, 2.2448062e38, INF, INF],
        [0, -2.2448062e38, INF, -INF],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_values_and_gradients_at_the_edges_of_a_domain(name):
    values, expected, slopes = EDGES[name]
    x = Tensor(values)
    y = getattr(x, name)()
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(y.numpy()), np.signbit(np.float32(expected)))
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-6, atol=1e-37)


def slopes(function, *values):
    tensors = [Tensor(v) for v in values]
    function(*tensors).sum().backward()
    return [t.grad.numpy() for t in tensors]


def test_a_negative_power_has_its_gradient_at_zero_and_infinity():
    (g,) = slopes(lambda x: x**-2, [0.0, -0.0, INF, 2.0])
    np.testing.assert_array_equal(g, [-INF, INF, 0.0, -0.25])
    assert (Tensor([1e20]) ** -2).numpy() == np.float32(1e-40)


def test_standard_deviation_of_equal_elements_has_gradient_0():
    rows = [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]
    (g,) = slopes(lambda x: x.std(1), rows)
    np.testing.assert_allclose(g, [[0, 0, 0], [-0.5, 0, 0.5]], atol=1e-6)
    (g,) = slopes(lambda x: x.std_mean(1)[0], rows)
    np.testing.assert_allclose(g, [[0, 0, 0], [-0.5, 0, 0.5]], atol=1e-6)


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_that_is_nan_has_gradient_nan(name):
    (g,) = slopes(lambda x: getattr(x, name)(1), [[1.0, NAN, 2.0], [3.0, 3.0, 3.0]])
    np.testing.assert_allclose(g, [[NAN] * 3, [1 / 3] * 3], rtol=1e-6)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_both_sides_of_an_extreme_beside_nan_have_gradient_1(name):
    found = slopes(lambda x, y: getattr(x, name)(y), [NAN, 1.0, NAN, 1.0], [1.0, NAN, NAN, 1.0])
    np.testing.assert_array_equal(found, [[1, 1, 1, 0.5]] * 2)


def test_logcumsumexp_of_minus_infinity_is_the_identity_of_its_first_element():
    (g,) = slopes(lambda x: x.logcumsumexp(0)[0], [-INF, 1.0, 2.0])
    np.testing.assert_array_equal(g, [1, 0, 0])
    (g,) = slopes(lambda x: x.logcumsumexp(0), [3e38, -3e38, 0.0])
    np.testing.assert_array_equal(g, [3, 0, 0])


def test_a_scattered_product_divides_by_no_zero():
    index = Tensor([0, 0, 1, 1, 2, 7])
    table, values = slopes(
        lambda x, y: x.scatter_reduce(0, index, y, "prod"),
        [2.0, 0.0, 0.0, 5.0],
        [3.0, 0.0, 4.0, 5.0, 0.0, 6.0],
    )
    np.testing.assert_array_equal(table, [0, 20, 0, 1])
    np.testing.assert_array_equal(values, [0, 6, 0, 0, 0, 0])


def test_equal_scattered_extremes_share_the_gradient():
    table, values = slopes(
        lambda x, y: x.scatter_reduce(0, Tensor([0, 0, 1]), y, "amax"), [4.0, 1.0], [4.0, 4.0, 2.0]
    )
    np.testing.assert_allclose(table, [1 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(values, [1 / 3, 1 / 3, 1], rtol=1e-6)
