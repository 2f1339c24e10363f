"""Gradients do not depend on whether values were read before: memory knows where it came from."""

import gc
import weakref

import numpy as np
import pytest

from tinyfn import Tensor, TinyJit, function
from tinyfn.gradient import history

X = np.random.default_rng(0).uniform(0.5, 2, (2, 32, 16)).astype(np.float32)


@function(precompile=True)
def product(x, y):
    return x * y


def assigned(x):
    y = x * 2
    y[0] = x[1] * x[1]
    return y


def assigned_twice(x, read=lambda y: None):
    y = assigned(x)
    read(y)
    y[1, 3:5] = x[0, 3:5].sin()
    return y


def assigned_at(x):
    y = x * x
    y[Tensor([1, 0]), Tensor([3, 4])] = x[0, :2].exp()
    return y


def assigned_after_read(x):
    y = x * 2
    z = y * y
    y[0] = x[1] * x[1]
    y.numpy()
    return z + y


FUNCTIONS = {
    "contiguous": lambda x: x.sin().contiguous().exp(),
    "two outputs": lambda x: x.sin().contiguous() * x.contiguous_backward(),
    "call": lambda x: product(x, x.sin()),
    "call in call": lambda x: product(product(x, x), x) * x,
    "attention": lambda x: (x * 2).scaled_dot_product_attention(x * 3, x.sin()),
    "causal": lambda x: (x * 2).scaled_dot_product_attention(x * 3, x, is_causal=True).exp(),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "qr": lambda x: x[:, :3, :3].qr()[0],
    "svd": lambda x: x[:, :3, :3].svd()[1],
    "assigned": assigned,
    "assigned twice": assigned_twice,
    "assigned at": assigned_at,
    "assigned after a read": assigned_after_read,
}


def gradient_of(f, read):
    x = Tensor(X).realize()
    y = f(x)
    for how in read:
        how(y)
    (y * Tensor(X[:1, :1, :1] + 1)).sum().backward()
    return x.grad.numpy()


def read(y):
    y.numpy()


def read_on_the_way(y):
    (y.sin() + 1).sum().item()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("reads", [(read,), (read_on_the_way,), (read_on_the_way, read)])
def test_reading_before_backward_changes_nothing(name, reads):
    f = FUNCTIONS[name]
    np.testing.assert_allclose(gradient_of(f, reads), gradient_of(f, ()), rtol=1e-5, atol=1e-6)


def test_assigning_after_a_read_goes_on_from_what_was_read():
    found = gradient_of(lambda x: assigned_twice(x, read), ())
    np.testing.assert_allclose(found, gradient_of(assigned_twice, ()), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_sharded(axis):
    def f(x):
        y = x.shard(("CPU:0", "CPU:1"), axis)
        return (product(y, y.sin()).contiguous().exp() * 2).to("CPU")

    np.testing.assert_allclose(gradient_of(f, (read_on_the_way,)), gradient_of(f, ()), rtol=1e-5)


def test_the_mask_that_was_drawn_stays():
    with Tensor.train():
        x = Tensor(X).realize()
        y = (x.dropout(0.5) * 3).contiguous()
        seen = y.numpy()
        Tensor.rand(3).realize()
        y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy() != 0, seen != 0)
    assert 0.3 < (seen == 0).mean() < 0.7


def test_what_was_overwritten_gives_no_gradient_rather_than_a_wrong_one():
    x, weight = Tensor(X).realize(), Tensor(X).realize()
    y = product(x, weight)
    (y + 1).numpy()
    weight.assign(weight * 0).realize()
    y.sum().backward()
    assert x.grad is None
    np.testing.assert_allclose(y.numpy(), X * X, rtol=1e-6)


def test_what_a_replay_overwrote_gives_no_gradient():
    weight = Tensor(X).realize()

    @TinyJit
    def step():
        return weight.assign(weight * 2).sum()

    for _ in range(3):
        step()
    x = Tensor(X).realize()
    y = product(x, weight)
    (y + 1).numpy()
    step()
    y.sum().backward()
    assert x.grad is None


def test_memory_that_is_assigned_to_later_is_a_leaf():
    x = Tensor(X).realize()
    y = x.sin().contiguous()
    (y + 1).numpy()
    y.assign(y.detach() * 3).realize()
    y.exp().sum().backward()
    assert x.grad is None
    np.testing.assert_allclose(y.grad.numpy(), np.exp(3 * np.sin(X)), rtol=1e-5)


def test_realize_releases_what_a_value_came_from():
    x = Tensor(X).realize()
    y = product(x, x).realize()
    y.sum().backward()
    assert x.grad is None
    seen = weakref.ref(x.uop)
    del x
    gc.collect()
    assert seen() is None


def test_a_loop_that_updates_its_weights_holds_no_more_than_its_last_step():
    weight = Tensor(X).realize()
    state = Tensor(X).realize()
    first = None
    for _ in range(4):
        state = product(state, weight)
        (state + 1).sum().item()
        first = first or weakref.ref(state.uop)
        weight.assign(weight * 0.5).realize()
    gc.collect()
    assert first() is None
    assert history.find(state.uop) is None


def test_gradient_of_gradient_after_a_read():
    x = Tensor(X).realize()
    y = x.sin().contiguous() * x
    y.numpy()
    (g,) = y.sum().gradient(x)
    g.numpy()
    (h,) = g.sum().gradient(x)
    np.testing.assert_allclose(h.numpy(), 2 * np.cos(X) - X * np.sin(X), rtol=1e-4, atol=1e-5)
