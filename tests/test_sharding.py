"""Tensors over several slots: the same values as on one, in parts or copies."""

import itertools

import numpy as np
import pytest

from tinyfn import Context, Tensor, function
from tinyfn.errors import ArgumentError, DeviceError, ShapeError

SLOTS = {n: tuple(f"CPU:{i}" if i else "CPU" for i in range(n)) for n in (2, 3, 4)}
LAYOUTS = [(2, 0), (2, 1), (2, None), (3, 0), (3, 1), (4, 0)]
RNG = np.random.default_rng(7)
X = RNG.integers(0, 17, (12, 12)).astype(np.int32)
FLOATS = RNG.normal(size=(12, 12)).astype(np.float32)
INPUTS = {"x": FLOATS, "w": RNG.normal(size=(12, 24)), "b": RNG.normal(size=24)}


def over(values, count, axis):
    return Tensor(values).shard(SLOTS[count], axis)


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    else:
        np.testing.assert_array_equal(found, expected)


def parts_of(x):
    """The memory of every slot."""
    return [m.array() for m in x.contiguous().realize().uop.base.buffer]


PROGRAMS = {
    "elementwise": lambda x: x * x - x,
    "numbers beside": lambda x: (x + Tensor.arange(12)) * Tensor(3),
    "a column beside": lambda x: x * Tensor.arange(12).reshape(12, 1),
    "itself turned": lambda x: x.T + x,
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum 1": lambda x: x.sum(1),
    "max 0": lambda x: x.max(0),
    "min 1": lambda x: x.min(1),
    "prod": lambda x: (x % 2 + 1).prod(0),
    "argmax": lambda x: x.argmax(0),
    "argmax of all": lambda x: x.argmax(),
    "variance": lambda x: x.float().var(0),
    "softmax": lambda x: x.float().softmax(1),
    "softmax 0": lambda x: x.float().softmax(0),
    "norm": lambda x: x.float().layernorm(),
    "transposed": lambda x: x.T,
    "split axis": lambda x: x.reshape(4, 3, 12),
    "split other axis": lambda x: x.reshape(12, 4, 3),
    "joined": lambda x: x.reshape(-1),
    "across": lambda x: x.reshape(16, 9),
    "expanded": lambda x: x.reshape(12, 1, 12).expand(12, 3, 12),
    "padded": lambda x: x.pad(((1, 2), (0, 0))),
    "padded 1": lambda x: x.pad(((0, 0), (1, 2))),
    "cut": lambda x: x[2:7],
    "cut 1": lambda x: x[:, 2:7],
    "row": lambda x: x[3],
    "turned": lambda x: x.flip(0),
    "steps": lambda x: x[::-3, 1],
    "joined with": lambda x: x.cat(x + 1, dim=0),
    "stacked": lambda x: Tensor.stack(x, x + 1),
    "rows": lambda x: x[[1, 5, 2]],
    "columns": lambda x: x[:, [1, 5, 2]],
    "where": lambda x: (x > 5).where(x, 0),
    "product": lambda x: x @ x,
    "product with turned": lambda x: x @ x.T,
    "sums": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort(1)[0],
    "sorted 0": lambda x: x.sort(0)[0],
    "triangle": lambda x: x.tril(),
    "rolled": lambda x: x.roll(1, 0),
    "bytes": lambda x: x.cast("uint8"),
    "stored": lambda x: x.T.contiguous() * 2,
    "convolved": lambda x: x.reshape(12, 1, 3, 4).float().max_pool2d(2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_on_one_slot(name):
    expected = PROGRAMS[name](Tensor(X)).numpy()
    for count, axis in LAYOUTS:
        found = PROGRAMS[name](over(X, count, axis))
        assert found.device == SLOTS[count]
        same(found.numpy(), expected)
        if found.uop.axis is None:
            first, *others = parts_of(found)
            assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize(("count", "axis"), LAYOUTS)
def test_where_parts_are(count, axis):
    x = over(X, count, axis)
    assert (x.shape, x.device, x.uop.axis) == ((12, 12), SLOTS[count], axis)
    for number, part in enumerate(parts_of(x)):
        size = 12 // count
        box = [slice(None)] * 2
        if axis is not None:
            box[axis] = slice(number * size, number * size + size)
        np.testing.assert_array_equal(part.ravel(), X[tuple(box)].ravel())


@pytest.mark.parametrize(("count", "axis"), LAYOUTS)
def test_moved(count, axis):
    x = over(X, count, axis)
    alone = x.to("CPU:1")
    assert alone.device == "CPU:1" and alone.uop.axis is None
    same((alone + 1).numpy(), X + 1)
    for other in (0, 1, None):
        again = x.shard(SLOTS[count], other)
        assert again.uop.axis == other
        same(again.numpy(), X)
    for elsewhere in SLOTS.values():
        same(x.to("CPU").shard(elsewhere, 0).numpy(), X)


def test_what_a_movement_keeps():
    x = over(X, 2, 0)
    kept = {
        "T": (x.T, 1),
        "reshape": (x.reshape(4, 3, 12), 0),
        "sum": (x.sum(1), 0),
        "sum 0": (x.sum(0), None),
        "product": (x @ Tensor(X).shard(SLOTS[2]), 0),
        "columns": (x[:, 2:5], 0),
        "rows": (x[2:5], None),
        "first of two": (x.T + x, 1),
    }
    for name, (value, axis) in kept.items():
        assert value.uop.axis == axis, name


LAYOUTS_OF_THREE = [(0, None, None), (None, 1, 0), (1, 0, None), (None, None, None), (0, 1, 0)]
LOSSES = {
    "layer": lambda x, w, b: ((x @ w + b).relu() ** 2).mean(),
    "entropy": lambda x, w, b: (x @ w + b).log_softmax()[:, [1, 2, 3]].sum(),
    "norm": lambda x, w, b: ((x.layernorm() @ w).softmax() * b).sum(),
    "rows": lambda x, w, b: (w[[0, 3, 5, 0]] * b).sum() + x.sum(),
}
LOSSES["function"] = function(LOSSES["layer"])
LOSSES["precompiled"] = function(LOSSES["layer"], precompile=True, precompile_backward=True)


def loss_and_gradients(name, place):
    inputs = [place(i, values.astype(np.float32)) for i, values in enumerate(INPUTS.values())]
    loss = LOSSES[name](*inputs)
    loss.backward()
    return [loss.numpy(), *(t.grad.numpy() for t in inputs)]


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    expected = loss_and_gradients(name, lambda i, values: Tensor(values))
    for count, layout in itertools.product((2, 3), LAYOUTS_OF_THREE):

        def place(i, values, count=count, layout=layout):
            return over(values, count, layout[i])

        found = loss_and_gradients(name, place)
        for ours, theirs in zip(found, expected, strict=True):
            same(ours, theirs)


@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_functions(count, precompile):
    @function(precompile=precompile)
    def rows_and_total(x, *, beside):
        return x * 2 + beside, (x * beside).sum()

    for axis, other in ((0, 0), (1, None), (None, 0)):
        rows, total = rows_and_total(over(X, count, axis), beside=over(X[::-1], count, other))
        same(rows.numpy(), X * 2 + X[::-1])
        assert total.item() == (X * X[::-1]).sum()


@pytest.mark.parametrize(("count", "axis"), LAYOUTS)
def test_assignment(count, axis):
    x, expected = over(X, count, axis).realize(), X.copy()
    x += 1
    expected += 1
    x[:, 0] = 5
    expected[:, 0] = 5
    x[2:5] = Tensor([7] * 12)
    expected[2:5] = 7
    x[[1, 8]] = 9
    expected[[1, 8]] = 9
    x[:, -1] *= 2
    expected[:, -1] *= 2
    assert x.uop.axis == axis
    same(x.numpy(), expected)
    x.assign(x.T)
    same(x.numpy(), expected.T)
    x.assign(Tensor(X))
    y = x.clone()
    y += 1
    same(x.numpy(), X)
    same(y.numpy(), X + 1)


@pytest.mark.parametrize(("count", "axis"), LAYOUTS)
def test_tensors_like_it(count, axis):
    x = over(FLOATS, count, axis)
    for like in (x.zeros_like(), x.ones_like(), x.full_like(2.0), x.rand_like(), x.empty_like()):
        assert (like.device, like.uop.axis, like.shape) == (x.device, axis, x.shape)
    same((x + x.full_like(2.0)).numpy(), FLOATS + 2)
    drawn = x.rand_like().numpy()
    assert len(np.unique(drawn)) > 140 and drawn.min() >= 0 and drawn.max() < 1


def test_random_numbers_are_those_of_one_slot():
    Tensor.manual_seed(3)
    alone = Tensor.rand(12, 4).numpy()
    Tensor.manual_seed(3)
    same(Tensor.rand(12, 4).shard(SLOTS[2], 0).numpy(), alone)


def test_plain_python_gives_the_same():
    for count, axis in LAYOUTS[:4]:
        with Context(NATIVE=0):
            x = over(X, count, axis)
            same((x @ x + x.sum(0)).numpy(), X @ X + X.sum(0).astype(np.int32))


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: over(np.ones((5, 2)), 2, 0), ShapeError, "2 slots divide along axis 0"),
        (lambda: Tensor(X) + over(X, 2, 0), DeviceError, "same device"),
        (lambda: over(X, 2, 0) + over(X, 3, 0), DeviceError, "same device"),
        (lambda: over(X, 2, 5), ArgumentError, "axis of a tensor of 2 axes, got 5"),
        (lambda: Tensor(X).shard((), 0), DeviceError, "at least one"),
    ],
)
def test_what_does_not_fit_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()
