"""Writing into memory: what is written, who sees it, and who still sees what was before."""

import gc
import itertools

import numpy as np
import pytest

from tinyfn import Tensor, Variable, live
from tinyfn.errors import DTypeError, IndexingError, ShapeError
from tinyfn.runtime import cpu


def ints(*shape):
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


ALL = slice(None)
TURNED = slice(None, None, -1)
INDICES = {
    "row": (1, 7),
    "last": (-1, 7),
    "element": ((2, 3), 99),
    "slice": (slice(1, 3), 7),
    "every other": (slice(None, None, 2), ints(3, 6)),
    "turned": (TURNED, ints(5, 6)),
    "columns backwards": ((ALL, slice(None, None, -2)), ints(5, 3)),
    "a row to rows": (slice(1, 3), ints(6)),
    "a column to a box": ((slice(1, 3), slice(2, 4)), ints(2, 1)),
    "leading ones": (slice(1, 3), ints(1, 2, 6)),
    "ellipsis": ((..., 0), ints(5)),
    "new axis": ((None, 1), ints(1, 6)),
    "nothing": (slice(3, 3), 5),
    "all": (ALL, 3),
    "dots": (..., 3),
    "list": ([0, 2], 7),
    "lists": (([0, 2], [1, 1]), np.array([5, 6], np.int32)),
    "list and slice": (([0, 2], slice(1, 3)), ints(2, 2)),
    "equal places": ([1, 1, 2], ints(3, 6)),
}


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "lazy"])
@pytest.mark.parametrize("name", INDICES)
def test_items(name, stored):
    index, value = INDICES[name]
    expected = ints(5, 6)
    x = Tensor(expected)
    x = x.realize() if stored else x + 0
    expected[index] = value
    x[index] = Tensor(value) if isinstance(value, np.ndarray) else value
    np.testing.assert_array_equal(x.numpy(), expected)


def test_items_at_tensors():
    x = Tensor.arange(6).realize()
    x[Tensor([1, -1])] = 9
    assert x.tolist() == [0, 9, 2, 3, 4, 9]
    x[Tensor([100, -7])] = 7  # out of range: writes nothing
    assert x.tolist() == [0, 9, 2, 3, 4, 9]
    x[x > 3] = 0
    assert x.tolist() == [0, 0, 2, 3, 0, 0]
    y = Tensor.ones(3, 2).contiguous()
    y[Tensor([True, False, True])] = -1
    assert y.tolist() == [[-1, -1], [1, 1], [-1, -1]]


SHIFTS = {
    "up": (slice(1, None), slice(None, -1)),
    "down": (slice(None, -1), slice(1, None)),
    "turned": (ALL, TURNED),
    "halves": (slice(None, 4), slice(-4, None)),
}


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("shape", [(8,), (8, 5), (64, 3)])
def test_overlapping_views_read_what_was_before(name, shape):
    to, at = SHIFTS[name]
    x, expected = Tensor(ints(*shape)).realize(), ints(*shape)
    expected[to] = expected[at].copy()
    x[to] = x[at]
    np.testing.assert_array_equal(x.numpy(), expected)


FROM_ITSELF = {
    "transposed": lambda t: t.T,
    "mixed": lambda t: t.T + t + t[::-1],
    "sums": lambda t: t.cumsum(0) if isinstance(t, Tensor) else np.cumsum(t, 0),
    "product": lambda t: t @ t,
    "less the mean of columns": lambda t: t - t.mean(0),
    "less the mean": lambda t: t - t.mean(),
    "largest": lambda t: (
        t / t.max(1, keepdim=True) if isinstance(t, Tensor) else t / t.max(1, keepdims=True)
    ),
}


@pytest.mark.parametrize("name", FROM_ITSELF)
def test_assigned_from_itself(name):
    values = ints(4, 4).astype(np.float32) + 1
    x = Tensor(values).realize()
    x.assign(FROM_ITSELF[name](x))
    np.testing.assert_allclose(x.numpy(), FROM_ITSELF[name](values), rtol=1e-6)


def test_in_place_operators():
    x = Tensor([5, 6, 7]).realize()
    same = x
    x += 1
    x -= Tensor([1, 0, 0])
    x *= 3
    x //= 2
    x %= 5
    x **= 2
    x <<= 1
    x >>= 1
    x |= 16
    x &= 24
    x ^= 1
    expected = np.array([5, 6, 7], np.int32)
    expected = (((expected + 1 - [1, 0, 0]) * 3 // 2 % 5) ** 2 | 16) & 24 ^ 1
    assert same is x and x.tolist() == expected.tolist()
    y = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    y /= 2
    y @= y
    assert y.tolist() == [[1.75, 2.5], [3.75, 5.5]]


def test_views_see_what_is_assigned():
    x = Tensor.arange(6).realize()
    part, square, value = x[2:4], x.reshape(2, 3), x[2:4] + 0
    x.assign(Tensor.full((6,), 7))
    assert (part.tolist(), square.tolist()) == ([7, 7], [[7] * 3] * 2)
    assert value.tolist() == [2, 3]


def test_views_are_assigned():
    x = Tensor.arange(6).realize()
    part, turned, table = x[2:4], x.flip(0)[:2], x.reshape(2, 3).T
    part += 5
    assert x.tolist() == [0, 1, 7, 8, 4, 5] and part.tolist() == [7, 8]
    turned.assign(Tensor([10, 20]))
    assert x.tolist() == [0, 1, 7, 8, 20, 10]
    table[1] = 0
    assert x.tolist() == [0, 0, 7, 8, 0, 10]
    assert table.tolist() == [[0, 8], [0, 0], [7, 10]]


def test_readers_see_what_was_before():
    for order in itertools.permutations(range(3)):
        x = Tensor([1, 2, 3]).realize()
        before = x * 2
        x += 1
        between = x * 2
        x *= 10
        found = {i: (before, between, x)[i].tolist() for i in order}
        assert found == {0: [2, 4, 6], 1: [4, 6, 8], 2: [20, 30, 40]}


@pytest.mark.parametrize("held", [True, False], ids=["held", "dropped"])
@pytest.mark.parametrize("order", ["a b", "b a", "ab", "ba"])
def test_two_tensors_are_swapped(order, held):
    a, b = Tensor([1, 2]).realize(), Tensor([3, 4]).realize()
    old = [a + 0, b + 0]
    a.assign(old[1])
    b.assign(old[0])
    if not held:
        del old
    for names in order.split():
        Tensor.realize(*({"a": a, "b": b}[name] for name in names))
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])


def test_three_tensors_go_round():
    a, b, c, free = (Tensor([i]).realize() for i in range(4))
    x, y, z = a + 0, b + 0, c + 0
    a.assign(y)
    b.assign(z)
    c.assign(x)
    free += 1
    Tensor.realize(a, b, c, free)
    assert [t.item() for t in (a, b, c, free)] == [1, 2, 0, 4]


def test_readers_of_what_a_reader_writes_see_what_was_before():
    a, b, c = (Tensor([i]).realize() for i in (1, 2, 3))
    old = [a * 10, b * 10, c * 10]
    a.assign(a + b)
    b.assign(b + c)
    c += 1
    c.realize()  # b has to be written before, and a before that
    assert [t.item() for t in (a, b, c, *old)] == [3, 5, 4, 10, 20, 30]


def test_what_a_reader_writes_is_written_once():
    a, b = Tensor([1]).realize(), Tensor([5]).realize()
    a += 1
    product = a * b
    b += 1
    b.realize()  # the product is computed before, and with it the new a
    assert [t.item() for t in (product, a, b)] == [10, 2, 6]


def test_pending_writers_of_other_memory_see_what_was_before():
    for first in (0, 1, 2):
        weight, momentum = Tensor([1.0]).realize(), Tensor([1.0]).realize()
        momentum.assign(momentum * 2 + weight)
        weight.assign(weight * 10 - momentum)
        if first == 2:
            Tensor.realize(weight, momentum)
        (weight, momentum)[first % 2].realize()
        assert (weight.item(), momentum.item()) == (7.0, 3.0)


def test_many_steps():
    x = Tensor([1.0, 2.0]).realize()
    y = x
    for _ in range(3000):
        y = y + 1
    assert y.tolist() == [3001, 3002]
    for _ in range(1100):
        x += 1
    assert x.tolist() == [1101, 1102]
    z = Tensor.zeros(40).contiguous().realize()
    for i in range(40):
        z[i] = i
    assert z.tolist() == list(range(40))


@pytest.mark.parametrize("every", [1, 3])
def test_long_loops_do_not_grow(every):
    def size():
        gc.collect()
        nodes = sum(1 for o in gc.get_objects() if type(o).__name__ == "UOp")
        return nodes, len(list(live.tensors()))

    x = Tensor.zeros(4).contiguous().realize()
    sizes = []
    for i in range(12):
        x.assign(x * 0.5 + 1)
        if i % every == 0:
            x.realize()
            (x + 1).numpy()
            sizes.append(size())
    assert sizes[-1] == sizes[len(sizes) // 2]


def test_assigning_to_a_value_replaces_it():
    x = Tensor([1, 2]) + 1
    x.assign(Tensor([5, 6]))
    assert x.tolist() == [5, 6]
    source = Tensor([7, 8]).realize()
    x = Tensor([1, 2]) + 1
    x.assign(source)
    source += 1
    assert x.tolist() == [7, 8]


def test_a_clone_is_memory_of_its_own():
    x = Tensor([1, 2]).realize()
    y = x.clone()
    y += 1
    x *= 10
    assert (x.tolist(), y.tolist()) == ([10, 20], [2, 3])


@pytest.mark.parametrize(
    ("write", "error", "said"),
    [
        (lambda t: t.assign(Tensor.zeros(4)), ShapeError, r"\(4,\) to \(3,\)"),
        (lambda t: t.assign(Tensor([1, 2, 3])), DTypeError, "float32 to assign, got dtypes.int32"),
        (lambda t: t.__setitem__(slice(0, 2), Tensor.zeros(3)), ShapeError, r"\(3,\) to \(2,\)"),
        (lambda t: t.__setitem__(5, 1), IndexingError, "index 5 is out of range"),
        (lambda t: t.__setitem__((0, 0), 1), IndexingError, "at most 1 entries"),
        (lambda t: t.__setitem__(Tensor([True, False]), 1), IndexingError, "a mask of 3 places"),
        (lambda t: t.__setitem__(0, "a"), DTypeError, "expected"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(write, error, said):
    x = Tensor.full((3,), 2.0).contiguous().realize()
    with pytest.raises(error, match=said):
        write(x)
    assert x.tolist() == [2, 2, 2]


def test_rows_at_a_variable():
    cache = Tensor.zeros(6, 2).contiguous().realize()
    for i in range(4):
        at = Variable("at", 0, 5).bind(i)
        cache[at : at + 1] = Tensor([[i + 1.0, i + 2.0]])
        assert cache[: at + 1].sum().item() == sum(2 * k + 3 for k in range(i + 1))
    expected = [[1, 2], [2, 3], [3, 4], [4, 5], [0, 0], [0, 0]]
    assert cache.tolist() == expected


def test_readers_computed_on_the_way_see_what_was_before():
    x = Tensor([1.0, 2.0]).realize()
    double = x * 2
    x.assign(double + 1)
    x.realize()
    assert (x.tolist(), double.tolist()) == ([3, 5], [2, 4])


def test_memory_is_free_as_soon_as_nobody_holds_it():
    x = Tensor.ones(4096).contiguous().realize()
    (x @ x + (x * 2).sum()).realize()
    gc.disable()
    try:
        before = cpu.allocator().used_bytes
        for _ in range(3):
            y = (x * 2 + 1).realize()
            (y.sum() * y).numpy()
            del y
        assert cpu.allocator().used_bytes == before
    finally:
        gc.enable()
