"""Random numbers have the distributions that they are said to have.

A test fails by chance with a probability of at most `RARE`, over seeds; the seed is that of the
test (tests/conftest.py), so what holds once holds always.
"""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from tinyfn import Context, Tensor, dtypes
from tinyfn.errors import ArgumentError, ShapeError

RARE = 1e-6
COUNT = 50_000
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
FLOATS = list(DIGITS)


def uniform(low, high):
    return lambda x: np.clip((x - low) / (high - low), 0, 1)


def normal(mean, deviation):
    erf = np.vectorize(math.erf)
    return lambda x: (1 + erf((x - mean) / (deviation * math.sqrt(2)))) / 2


def numbers(tensor):
    wide = tensor if tensor.dtype is dtypes.float64 else tensor.float()
    return wide.numpy().ravel().astype(np.float64)


def assert_distributed(values, distribution, digits=24):
    """Kolmogorov and Smirnov's distance is within the bound of Dvoretzky, Kiefer and Wolfowitz.

    A value of few digits stands for all that round to it, so it is compared at their ends.
    """
    ordered, count = np.sort(values), len(values)
    step = 2.0**-digits * np.maximum(np.abs(ordered), np.std(ordered))
    rank = np.arange(count) / count
    above = np.max(rank + 1 / count - distribution(ordered + step))
    below = np.max(distribution(ordered - step) - rank)
    assert max(above, below) <= math.sqrt(math.log(2 / RARE) / (2 * count))


def assert_counts(counts, shares):
    """Pearson's chi-square is within Laurent and Massart's bound of its distribution's tail."""
    counts, shares = np.ravel(counts), np.ravel(shares)
    assert not counts[shares == 0].any()
    counts, expected = counts[shares > 0], counts.sum() * shares[shares > 0]
    free, rare = len(counts) - 1, -math.log(RARE)
    limit = free + 2 * math.sqrt(free * rare) + 2 * rare
    assert np.sum((counts - expected) ** 2 / expected) <= limit


def assert_equally_often(values, kinds):
    assert_counts(np.bincount(values.astype(np.int64), minlength=kinds), np.full(kinds, 1 / kinds))


def assert_uncorrelated(x, y):
    limit = NormalDist().inv_cdf(1 - RARE / 2) / math.sqrt(len(x))
    assert abs(np.corrcoef(x, y)[0, 1]) <= limit


# *** floats ***


@pytest.mark.parametrize("dtype", FLOATS)
def test_rand(dtype):
    drawn = numbers(Tensor.rand(COUNT, dtype=dtype))
    assert drawn.min() >= 0 and drawn.max() < 1
    assert_distributed(drawn + 2.0 ** -DIGITS[dtype] / 2, uniform(0, 1), DIGITS[dtype])


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
def test_rand_of_a_byte_takes_each_of_its_steps_equally_often(dtype):
    steps = {"fp8e4m3": 16, "fp8e5m2": 8}[dtype]
    assert_equally_often(numbers(Tensor.rand(COUNT, dtype=dtype)) * steps, steps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("low, high", [(-3, 5), (1, 2), (-2, 0), (-60000, 60000)])
def test_uniform(dtype, low, high):
    drawn = numbers(Tensor.uniform(COUNT, low=low, high=high, dtype=dtype))
    rounded = float(Tensor(low, dtype=dtype).float().item())
    assert rounded <= drawn.min() and drawn.max() < high
    assert_distributed(drawn, uniform(low, high), DIGITS[dtype] - 1)


def test_uniform_without_a_number_between_is_low():
    assert Tensor.uniform(3, low=1.0, high=1.0).tolist() == [1.0, 1.0, 1.0]
    assert Tensor.uniform(3, low=1.0, high=1.00001, dtype="half").tolist() == [1.0, 1.0, 1.0]


def test_uniform_whole_numbers_are_equally_likely():
    drawn = Tensor.uniform(COUNT, low=-3, high=3, dtype="int8")
    assert drawn.dtype is dtypes.int8
    assert_equally_often(drawn.numpy() + 3, 6)
    assert set(Tensor.uniform(100, low=0.5, high=2.5, dtype="int").tolist()) == {1, 2}


@pytest.mark.parametrize("dtype", FLOATS)
def test_randn(dtype):
    drawn = numbers(Tensor.randn(COUNT, dtype=dtype))
    assert_distributed(drawn, normal(0, 1), DIGITS[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype):
    drawn = Tensor.normal(COUNT, mean=-2.0, std=3.0, dtype=dtype)
    assert drawn.dtype is getattr(dtypes, dtype)
    assert_distributed(numbers(drawn), normal(-2, 3), DIGITS[dtype])


SHAPE = (20, 50, 5, 10)
FAN_IN = 50 * 5 * 10


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name, bound",
    [
        ("scaled_uniform", math.prod(SHAPE) ** -0.5),
        ("glorot_uniform", math.sqrt(6 / (20 + FAN_IN))),
        ("kaiming_uniform", math.sqrt(6 / (1 + 0.01**2) / FAN_IN)),
    ],
)
def test_uniform_weights(name, bound, dtype):
    drawn = numbers(getattr(Tensor, name)(*SHAPE, dtype=dtype))
    assert np.abs(drawn).max() <= bound * (1 + 2.0 ** -DIGITS[dtype])
    assert_distributed(drawn, uniform(-bound, bound), DIGITS[dtype] - 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_normal_weights(dtype):
    drawn = numbers(Tensor.kaiming_normal(*SHAPE, a=0.5, dtype=dtype))
    assert_distributed(drawn, normal(0, math.sqrt(2 / (1 + 0.5**2) / FAN_IN)), DIGITS[dtype])


def test_weights_of_no_elements():
    for name in ("scaled_uniform", "glorot_uniform", "kaiming_uniform", "kaiming_normal"):
        for shape in ((0,), (0, 0), (3, 0)):
            assert getattr(Tensor, name)(*shape).numpy().shape == shape
    with pytest.raises(ShapeError, match="1 axis or more"):
        Tensor.glorot_uniform()


# *** whole numbers ***

RANGES = [
    (0, 10, "int32"),
    (-7, 6, "int32"),
    (-128, 128, "int8"),
    (0, 3 * 2**29, "int32"),
    (-(2**31), 2**31, "int32"),
    (-5, 3 * 2**40, "int64"),
    (-(2**63), 2**62, "int64"),
    (2**62, 2**64, "uint64"),
    (-(2**63), 2**63, "int64"),
]


@pytest.mark.parametrize("low, high, dtype", RANGES)
def test_randint(low, high, dtype):
    drawn = Tensor.randint(COUNT, low=low, high=high, dtype=dtype).numpy()
    offsets = drawn.astype(object) - low
    span = high - low
    assert min(offsets) >= 0 and max(offsets) < span
    if span < 1000:
        assert_equally_often(offsets, span)
    else:
        assert_equally_often(offsets * 12 // span, 12)
        # words of too few bits fall on some remainders more often
        assert_equally_often(offsets % 3, 3)


def test_randint_within_its_dtype():
    with pytest.raises(ArgumentError, match="within 0 to 255"):
        Tensor.randint(3, low=0, high=257, dtype="uint8")
    assert Tensor.randint(2, low=255, high=256, dtype="uint8").tolist() == [255, 255]


def test_randperm_places():
    places = np.stack([Tensor.randperm(7).numpy() for _ in range(700)])
    assert (np.sort(places, 1) == np.arange(7)).all()
    for place in range(7):
        assert_equally_often(places[:, place], 7)


def assert_without_ties(order):
    """The number of ascents of a permutation (Euler's numbers): keys that tie make more."""
    count = len(order)
    ascents = np.sum(order[1:] > order[:-1])
    limit = NormalDist().inv_cdf(1 - RARE / 2) * math.sqrt((count + 1) / 12)
    assert abs(ascents - (count - 1) / 2) <= limit


@pytest.mark.parametrize("default", ["FLOAT", "HALF"])
def test_randperm_orders(default):
    with Context(DEFAULT_FLOAT=default):
        assert_without_ties(Tensor.randperm(2**20).numpy())


# *** draws from weights ***

WEIGHTS = np.array([[1.0, 0.0, 3.0, 6.0], [0.0, 5.0, 5.0, 0.0]])


def test_multinomial_with_replacement():
    drawn = Tensor(WEIGHTS).multinomial(COUNT, replacement=True).numpy()
    for row, weights in zip(drawn, WEIGHTS, strict=True):
        assert_counts(np.bincount(row, minlength=4), weights / weights.sum())


def test_multinomial_without_replacement():
    weights = np.array([1.0, 0.0, 3.0, 6.0])
    drawn = Tensor(weights).expand(20_000, 4).multinomial(2).numpy()
    first = weights / weights.sum()
    rest = np.broadcast_to(weights, (4, 4)) * (1 - np.eye(4))
    pairs = first[:, None] * rest / rest.sum(1, keepdims=True)
    assert_counts(np.bincount(drawn[:, 0] * 4 + drawn[:, 1], minlength=16), pairs)


def test_multinomial_of_many_classes():
    assert_without_ties(Tensor.ones(2**20).multinomial(2**20).numpy())


@pytest.mark.parametrize("default", ["FLOAT", "BFLOAT16"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("p", [0.001, 0.3, 0.9])
def test_dropout(p, dtype, default):
    ones = Tensor.ones(COUNT, dtype=dtype)
    with Tensor.train(), Context(DEFAULT_FLOAT=default):
        left = numbers(ones.dropout(p))
    np.testing.assert_allclose(left[left > 0], 1 / (1 - p), rtol=2 * 2.0 ** -DIGITS[dtype])
    kept = np.count_nonzero(left)
    assert_counts([COUNT - kept, kept], [p, 1 - p])


# *** independence ***


def test_successive_numbers():
    drawn = Tensor.rand(COUNT).numpy()
    assert_uncorrelated(drawn[1:], drawn[:-1])
    cells = (drawn * 8).astype(np.int64)
    assert_equally_often(cells[::2] * 8 + cells[1::2], 64)


def test_successive_draws():
    draws = [Tensor.rand(COUNT).numpy() for _ in range(4)]
    for later in draws[1:]:
        assert_uncorrelated(draws[0], later)
    assert_uncorrelated(Tensor.randn(COUNT).numpy(), Tensor.randn(COUNT).numpy())
    pairs = [Tensor.randint(COUNT, high=8).numpy() for _ in range(2)]
    assert_equally_often(pairs[0] * 8 + pairs[1], 64)


def test_seeds():
    draws = []
    for seed in (0, 1, 2, 3, 2**31, 2**63, -1):
        Tensor.manual_seed(seed)
        draws.append(Tensor.rand(COUNT).numpy())
    for earlier, later in itertools.pairwise(draws):
        assert_uncorrelated(earlier, later)
        assert_uncorrelated(earlier[1:], later[:-1])
    first = [d[0] for d in draws]
    assert len(set(first)) == len(first)


def test_the_same_seed_gives_the_same_numbers():
    draws = []
    for _ in range(2):
        Tensor.manual_seed(7)
        draws.append([Tensor.rand(5).tolist(), Tensor.randn(5).tolist()])
    assert draws[0] == draws[1]
