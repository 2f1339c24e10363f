"""How many kernels programs become, and that a program is scheduled once."""

import numpy as np
import pytest

from tinyfn import GlobalCounters, Tensor, Variable, function, nn, schedule
from tinyfn.nn import optim


def stored(*shape):
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32)).realize()


X, W, B = stored(16, 32), stored(32, 8), stored(8)
PICTURES, FILTERS, ROWS = stored(2, 3, 8, 8), stored(4, 3, 3, 3), stored(2, 4, 8, 8)
LABELS = Tensor(np.arange(16, dtype=np.int32) % 8).realize()

ONE_KERNEL = {
    "elementwise": lambda: ((X * 2 + 1).exp() - X).relu(),
    "softmax": lambda: X.softmax(),
    "log softmax": lambda: X.log_softmax(),
    "cross entropy": lambda: (X @ W).detach().contiguous().realize().cross_entropy(LABELS),
    "layer norm": lambda: nn.LayerNorm(32)(X),
    "rms norm": lambda: nn.RMSNorm(32)(X),
    "norm of columns": lambda: (X - X.mean(0)) / X.std(0),
    "product": lambda: X @ W,
    "product, bias, activation": lambda: (X @ W + B).gelu(),
    "product of half, scaled, turned": lambda: (
        (X.half().float() * 2) @ W.T.contiguous().realize().T
    ),
    "convolution": lambda: PICTURES.conv2d(FILTERS, stored(4)).relu(),
    "padded convolution": lambda: PICTURES.conv2d(FILTERS, padding=1),
    "pooling": lambda: PICTURES.max_pool2d(2).relu(),
    "sum of rows": lambda: X.sum(1),
    "sum of columns": lambda: X.sum(0),
    "small mean": lambda: X.mean(),
    "variance": lambda: X.var(1),
    "argmax": lambda: X.argmax(1),
    "turned": lambda: X.T.contiguous(),
    "joined": lambda: X.cat(X * 2, dim=1),
    "numbers": lambda: Tensor.arange(100) * 2,
    "rows at numbers": lambda: X[LABELS] * 2,
    "function": lambda: function(lambda x: x * 2 + 1)(X).relu(),
}


def kernels_of(*tensors):
    linear, _ = tensors[0].linear_with_vars(*tensors[1:])
    return len(linear.src)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    assert kernels_of(ONE_KERNEL[name]()) == 1


def test_some_kernels():
    assert kernels_of(stored(300, 300).mean()) == 2  # parts first, then their sum
    assert kernels_of(X + 1, X * 2) == 1  # results of one loop share a kernel
    assert kernels_of((X @ W).relu() @ W.T) == 2
    assert kernels_of(X.contiguous()) == 0  # it is memory already
    Tensor.manual_seed(1)
    assert kernels_of(Tensor.rand(4)) == 2  # the state moves on
    attention = ROWS.scaled_dot_product_attention(ROWS, ROWS)
    assert kernels_of(attention) == 2


def test_nothing_is_compiled_or_run_by_scheduling():
    x = X + 5
    GlobalCounters.reset()
    linear, variables = x.linear_with_vars()
    assert (GlobalCounters.kernel_count, len(linear.src), variables) == (0, 1, {})
    assert x.realize().uop is not None and GlobalCounters.kernel_count == 1


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda p: optim.SGD(p, lr=0.1), 1),
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: optim.Adam(p, lr=0.1), 3),  # two of them for the powers of b1 and b2
    ],
)
def test_the_update_of_a_parameter_is_one_kernel(make, count):
    with Tensor.train():
        weight = stored(8, 8).clone().realize()
        optimizer = make([weight])
        for _ in range(2):
            weight.grad = stored(8, 8)
            GlobalCounters.reset()
            optimizer.step()
            assert GlobalCounters.kernel_count == count


def test_the_same_program_is_scheduled_once():
    def program(values):
        return (Tensor(values).realize() * 2 + 1).max()

    program(np.ones((7, 3), np.float32)).item()
    before = schedule._templates.added
    found = [program(np.full((7, 3), i, np.float32)).item() for i in range(4)]
    assert found == [1, 3, 5, 7] and schedule._templates.added == before
    program(np.ones((7, 4), np.float32)).item()
    assert schedule._templates.added > before


def test_one_schedule_for_every_value_of_a_variable():
    rows = Variable("rows", 1, 16)
    counts = []
    for n in (3, 16, 1, 7):
        found = (X[: rows.bind(n)] * 2).sum(0)
        np.testing.assert_allclose(found.numpy(), X.numpy()[:n].sum(0) * 2, rtol=1e-5, atol=1e-5)
        counts.append(schedule._templates.added)
    assert len(set(counts[1:])) == 1


def test_a_body_is_scheduled_once_for_all_its_calls():
    def layer(x, w):
        return (x @ w).tanh()

    kept = function(layer, precompile=True)
    x = X
    w = stored(32, 32)
    for _ in range(4):
        x = kept(x, w)
    linear, _ = x.linear_with_vars()
    assert len(linear.src) == 4 and len({c.src[0] for c in linear.src}) == 1


def test_values_that_are_cheap_are_computed_again():
    shared = X + 1
    assert kernels_of(shared.sum(), (shared * 2).T.contiguous()) == 2
    costly = X.exp().sin()
    assert kernels_of(costly.sum(), (costly * 2).T.contiguous()) == 3


@pytest.mark.parametrize("power", [14, 15, 16, 18, 19, 20])
@pytest.mark.parametrize("rows", [1, 16, 17])
def test_long_sums_come_to_an_end(power, rows):
    x = Tensor.ones(rows, 2**power // rows).contiguous()
    assert kernels_of(x.realize().sum(1)) <= 2
    assert x.max(1).tolist() == [1] * rows
    assert x.sum().item() == 2**power // rows * rows


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: (X.max(1), X.sum(1)), 1),
        (lambda: (X.max(0), X.sum(0), X.min(0)), 1),
        (lambda: (X.mean(1), X.var(1)), 1),
        (lambda: (X.max(1), W.sum(1)), 2),  # other memory
        (lambda: (X.max(1), X.max(0)), 2),  # other loops
    ],
)
def test_reductions_of_the_same_rows_are_one_pass(make, count):
    assert kernels_of(*make()) == count
    alone = [tensor.numpy() for tensor in make()]
    together = make()
    together[0].realize(*together[1:])
    for found, right in zip(together, alone, strict=True):
        # lanes may be others, and so the order of a sum
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-6)
