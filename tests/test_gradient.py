"""Gradients of programs that run: through memory, calls and indices, at ties, and of gradients."""

import math

import numpy as np
import pytest

from tinyfn import Tensor, function
from tinyfn.errors import GradientError, ShapeError

RNG = np.random.default_rng(11)
X, Y = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
PLACES = [[1, 0], [2, 3], [0, 3]]


def differences(program, *arrays, step=1e-5):
    """Central differences of a program in float64."""
    found = []
    for number, array in enumerate(arrays):
        slopes = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[number][place] += sign * step
                values.append(program(*map(Tensor, moved)))
            Tensor.realize(*values)
            slopes[place] = (values[0].item() - values[1].item()) / (2 * step)
        found.append(slopes)
    return found


def gradients(program, *arrays):
    tensors = [Tensor(np.asarray(a, np.float64)) for a in arrays]
    program(*tensors).backward()
    return [t.grad.numpy() for t in tensors]


def written_row(x, y):
    z = x.clone()
    z[1] = y[0] * 2
    return (z * z * x).sum()


def written_steps(x, y):
    z = x.contiguous()
    z[:, ::2] = y[:, ::-2] * x[:, 1::2]
    return (z**3).sum()


def added_in_place(x, y):
    z = x.clone()
    z += y
    z *= x
    z[0] += y[1]
    return (z**2).sum()


def assigned(x, y):
    z = Tensor.zeros(3, 4, dtype="float64").contiguous()
    z.assign(x * y)
    return (z * x).sum()


def written_at_places(x, y):
    z = x.clone()
    z[[0, 2]] = y[:2]
    z[[0, 1], [3, 3]] = y[0, :2] * x[0, :2]
    return (z**2 * x).sum()


def written_over_itself(x, y):
    z = x.clone()
    z[1:] = z[:-1]
    return (z**2 * y).sum()


def written_through_a_view(x, y):
    z = x.clone()
    row = z[0]
    row += y[0]
    return (z**2).sum()


def masked(x, y):
    z = x.clone()
    z[x > 0] = 2.0
    return (z * y * x).sum()


def product_plus(x, y):
    return (x * y).sin() + x.sum()


def two_results(x, y):
    return (x * y).sin() + x.sum(), x.exp() * y


def changed_inside(x, y):
    x = x.clone()
    x += y
    return x * y


def twice(one):
    def program(x, y):
        p, q = one(x, y)
        r, s = one(q, y)
        return (p * r + s).sum()

    return program


whole = {"precompile": True, "precompile_backward": True}
PROGRAMS = {
    "written row": written_row,
    "written steps": written_steps,
    "added in place": added_in_place,
    "assigned": assigned,
    "written at places": written_at_places,
    "written over itself": written_over_itself,
    "written through a view": written_through_a_view,
    "masked": masked,
    "function": lambda x, y: (function(product_plus)(x, y) ** 2).sum(),
    "two results": twice(function(two_results)),
    "precompiled": twice(function(two_results, **whole)),
    "precompiled forward": twice(function(two_results, precompile=True)),
    "precompiled backward": twice(function(two_results, precompile_backward=True)),
    "changed inside": lambda x, y: (function(changed_inside)(x, y) ** 2).sum(),
    "nested": lambda x, y: function(lambda a, b: function(product_plus)(a * b, a).exp())(
        x, y
    ).mean(),
    "rows": lambda x, y: (x[[0, 0, 2]] * y).sum(),
    "places": lambda x, y: (x.gather(1, Tensor(PLACES)) ** 2 * y[:, :2]).sum(),
    "scattered": lambda x, y: (x.scatter(1, Tensor(PLACES), y[:, :2]) ** 2).sum(),
    "sums": lambda x, y: (x.scatter_reduce(1, Tensor(PLACES), y[:, :2], "sum") ** 2).sum(),
    "means": lambda x, y: (x.scatter_reduce(1, Tensor(PLACES), y[:, :2], "mean") ** 2).sum(),
    "products": lambda x, y: (x.scatter_reduce(1, Tensor(PLACES), y[:, :2], "prod") ** 2).sum(),
    "largest": lambda x, y: (x.max(0) * y).sum() + x.min() * y.max(),
    "product": lambda x, y: (x.prod(1) * y[:, 0]).sum(),
    "sorted": lambda x, y: (x.sort(1)[0] * y).sum() + (x.topk(2, 1)[0] * y[:, :2]).sum(),
    "running": lambda x, y: (x.cumsum(0) ** 2 * y).sum() + (x.cumprod(1) * y).sum(),
    "powers": lambda x, y: ((x.abs() + 0.1) ** y).sum() + (x**3 + 2**x).sum(),
    "remainder": lambda x, y: ((x * 3) % (y.abs() + 0.5)).sum(),
    "matrices": lambda x, y: ((x @ y.T).tanh() ** 2).sum(),
    "where": lambda x, y: (x > y).where(x * y, y.exp()).sum(),
    "moved": lambda x, y: (
        (x.T.flip(0).pad(((1, 0), (0, 2))).reshape(5, 5)[::2] ** 3).sum() + y.sum()
    ),
    "joined": lambda x, y: (x.cat(y, x, dim=1) ** 2).sum() + (Tensor.stack(x, y, x) ** 3).sum(),
    "rounded": lambda x, y: (x.floor() * y + x.round() + x.sign() * x).sum(),
    "stored": lambda x, y: (x.contiguous() * y.contiguous_backward()).sum(),
    "there and back": lambda x, y: (x.to("CPU:1") * y.to("CPU:1")).to("CPU").sin().sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_differences(name):
    found = gradients(PROGRAMS[name], X, Y)
    for ours, slopes in zip(found, differences(PROGRAMS[name], X, Y), strict=True):
        np.testing.assert_allclose(ours, slopes, rtol=1e-4, atol=1e-6)


def penalty(x, y):
    loss = (x.sin() * y * x.exp() + function(product_plus)(x, y)).sum()
    (slope,) = loss.gradient(x)
    return (slope * slope).sum()


def test_gradients_of_gradients():
    for ours, slopes in zip(gradients(penalty, X, Y), differences(penalty, X, Y), strict=True):
        np.testing.assert_allclose(ours, slopes, rtol=1e-4, atol=1e-5)
    x = Tensor([0.5], dtype="float64")
    y = x.sin()
    for expected in (math.cos(0.5), -math.sin(0.5), -math.cos(0.5), math.sin(0.5)):
        (y,) = y.sum().gradient(x)
        assert y.item() == pytest.approx(expected)


INF, NAN = math.inf, math.nan
EDGES = {
    "max": (lambda x: x.max(), [1, 3, 3], [0, 0.5, 0.5]),
    "min of rows": (lambda x: x.reshape(2, 2).min(1).sum(), [1, 1, 3, 2], [0.5, 0.5, 0, 1]),
    "maximum": (lambda x: x.maximum(1).sum(), [1, 2, 0], [0.5, 1, 0]),
    "minimum of itself": (lambda x: x.minimum(x * 1).sum(), [2, 1], [1, 1]),
    "relu": (lambda x: x.relu().sum(), [0, 1, -1], [0, 1, 0]),
    "abs": (lambda x: x.abs().sum(), [0, 1, -1], [0, 1, -1]),
    "sqrt": (lambda x: x.sqrt().sum(), [0, 4], [INF, 0.25]),
    "norm of zeros": (lambda x: x.square().sum().sqrt(), [0, 0], [NAN, NAN]),
    "to the 0": (lambda x: (x**0).sum() + x.sum() * 0, [0, 2], [0, 0]),
    "to the 1": (lambda x: (x**1).sum(), [0, 2], [1, 1]),
    "to the 2": (lambda x: (x**2).sum(), [0, -2], [0, -4]),
    "to a half": (lambda x: (x**0.5).sum(), [0, 4], [INF, 0.25]),
    "to the -1": (lambda x: (x**-1).sum(), [2, -4], [-0.25, -1 / 16]),
    "0 to it": (lambda x: (0**x).sum(), [0, 2], [0, 0]),
    "product with a 0": (lambda x: x.prod(), [2, 0, 3], [0, 6, 0]),
    "product with two": (lambda x: x.prod(), [0, 0, 3], [0, 0, 0]),
    "clip": (lambda x: x.clip(0, 1).sum(), [-1, 0, 0.5, 1, 2], [0, 1, 1, 1, 0]),
    "where": (lambda x: (x > 0).where(x, 0).sum(), [-1, 1, NAN], [0, 1, 0]),
    "where of undefined": (lambda x: (x > 0).where(x.sqrt(), 0).sum(), [-1, 4], [NAN, 0.25]),
    "where inside": (lambda x: (x > 0).where(x, 1).sqrt().sum(), [-1, 4], [0, 0.25]),
    "sigmoid": (lambda x: x.sigmoid().sum(), [800, -800], [0, 0]),
    "logsigmoid": (lambda x: x.logsigmoid().sum(), [800, -800], [0, 1]),
    "softplus": (lambda x: x.softplus().sum(), [800, -800], [1, 0]),
    "log softmax": (lambda x: x.log_softmax()[0], [900, -900], [0, 0]),
    "detached": (lambda x: (x * x.detach()).sum(), [2, 3], [2, 3]),
    "cast": (lambda x: (x.float() * 2).cast("float64").sum() + x.int().sum(), [2, 3], [2, 2]),
    "overwritten": (
        lambda x: x.clone().assign(Tensor([1.0, 2.0], dtype="float64")).sum() + x.sum() * 0,
        [2, 3],
        [0, 0],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_where_there_is_no_derivative(name):
    program, x, expected = EDGES[name]
    np.testing.assert_allclose(gradients(program, x)[0], expected, atol=1e-7)


def test_equal_tensors_have_gradients_of_their_own():
    for make in (Tensor.ones, Tensor.zeros, lambda n: Tensor.full((n,), 2.0), Tensor.rand):
        a, b = make(3), make(3)
        (a * 2 + b * 3).sum().backward()
        assert (a.grad.tolist(), b.grad.tolist()) == ([2] * 3, [3] * 3)


def test_gradients_add_up_until_they_are_cleared():
    x = Tensor([1.0, 2.0]).realize()
    for count in (1, 2, 3):
        loss = (x * x).sum()
        assert loss.backward() is loss
        assert x.grad.tolist() == [2 * count, 4 * count]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_every_float_tensor_on_the_way_gets_one():
    x, number, aside = Tensor([1.0, 2.0]), Tensor([1, 2]), Tensor([1.0])
    y = x * number
    (y * y).sum().backward(), (aside * 2).realize()
    assert x.grad.tolist() == [2, 16] and y.grad.tolist() == [2, 8]
    assert number.grad is None and aside.grad is None


def test_gradients_given_for_the_result():
    x = Tensor([1.0, 2.0])
    (x * x).backward(Tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]
    assert (x * 3).gradient(x, gradient=Tensor([1.0, 2.0]))[0].tolist() == [3, 6]
    half = Tensor([1.0], dtype="float16")
    (half.float() * 2).sum().backward()
    assert half.grad.dtype.name == "float16"


def test_arguments_that_are_not_used_get_zeros():
    for options in ({}, whole):
        one_of_two = function(lambda x, y, n: x * n, **options)
        x, y, n = Tensor([1.0, 2.0]), Tensor([3.0, 4.0]), Tensor([2, 3])
        one_of_two(x, y, n).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist(), n.grad) == ([2, 3], [0, 0], None)


def test_a_gradient_function_of_the_user():
    def twice_as_steep(g, call):
        return g * 2, None

    steep = function(lambda x, y: x * y, grad_fxn=twice_as_steep)
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    steep(x, y).sum().backward()
    assert x.grad.tolist() == [2, 2] and y.grad is None


@pytest.mark.parametrize(
    ("run", "error", "said"),
    [
        (lambda x: x.backward(), GradientError, r"shape \(2,\) needs gradient="),
        (lambda x: x.int().sum().backward(), GradientError, "float tensor"),
        (lambda x: x.backward(Tensor([1.0])), ShapeError, r"\(2,\), got \(1,\)"),
        (lambda x: x.sum().gradient(Tensor([1.0])), GradientError, "does not depend"),
        (lambda x: setattr(x, "grad", Tensor([1.0])), ShapeError, r"\(2,\), got \(1,\)"),
    ],
)
def test_what_has_no_gradient(run, error, said):
    with pytest.raises(error, match=said):
        run(Tensor([1.0, 2.0]))


def test_a_gradient_is_that_of_its_time():
    w, x = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
    (w * w * x).sum().backward()
    kept = w.grad
    w.assign(w - 0.5 * w.grad).realize()
    assert kept.tolist() == [6, 16]
    assert w.tolist() == [-2, -6]
    with pytest.raises(GradientError, match=r"call \.grad\.realize\(\) before"):
        _ = x.grad


def test_a_constant_that_a_live_tensor_holds_takes_no_gradient():
    loss = (Tensor([2.0, 3.0]) * 2).sum().backward()
    assert loss.grad.item() == 1.0  # the constant 1, which is one node in every graph
    x = Tensor([1.0, 2.0])
    (x * 1.0 + loss.grad).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert loss.grad.grad is None
