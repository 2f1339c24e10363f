"""Each optimizer against its formula written out in numpy, step by step."""

import numpy as np
import pytest

from tinyfn import Context, Tensor, TinyJit, dtypes
from tinyfn.errors import ArgumentError, GradientError
from tinyfn.nn import optim

RNG = np.random.default_rng(5)
STEPS = 6


def norm(x):
    return np.sqrt((x * x).sum())


def ratio(a, b):
    return a / b if a > 0 and b > 0 else 1.0


class Sgd:
    def __init__(self, lr, momentum=0.0, wd=0.0, nesterov=False, classic=False):
        self.__dict__.update(locals())
        self.kept = 0.0

    def step(self, w, g):
        g = g + self.wd * w
        if self.classic:
            g = g * self.lr
        if self.momentum:
            self.kept = self.momentum * self.kept + g
            g = g + self.momentum * self.kept if self.nesterov else self.kept
        return w - (g if self.classic else self.lr * g)


class Lars(Sgd):
    def __init__(self, lr, momentum, wd, tcoef):
        super().__init__(lr, momentum, wd, classic=True)
        self.tcoef, self.base = tcoef, lr

    def step(self, w, g):
        size, steep = norm(w), norm(g)
        trust = self.tcoef * size / (steep + self.wd * size) if size > 0 and steep > 0 else 1.0
        self.lr = self.base * trust
        return super().step(w, g)


class AdamLike:
    def __init__(self, lr, b1, b2, eps, wd=0.0, lamb=False):
        self.__dict__.update(locals())
        self.m = self.v = 0.0
        self.t = 0

    def step(self, w, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        step = m / (np.sqrt(v) + self.eps) + self.wd * w
        return w - self.lr * (ratio(norm(w), norm(step)) if self.lamb else 1.0) * step


class MuonLike:
    def __init__(self, lr, momentum, wd, steps, coefficients, nesterov):
        self.__dict__.update(locals())
        self.kept = 0.0

    def step(self, w, g):
        self.kept = self.momentum * self.kept + g
        g = g + self.momentum * self.kept if self.nesterov else self.kept
        x = g.reshape(len(g), -1)
        wide = x.shape[0] > x.shape[1]
        x = x.T if wide else x
        x = x / (norm(x) + 1e-7)
        a, b, c = self.coefficients
        for _ in range(self.steps):
            square = x @ x.T
            x = a * x + (b * square + c * square @ square) @ x
        x = (x.T if wide else x).reshape(w.shape)
        return w * (1 - self.lr * self.wd) - self.lr * x


NEWTON = (3.4445, -4.775, 2.0315)
CASES = {
    "sgd": (optim.SGD, {"lr": 0.1}, lambda: Sgd(0.1)),
    "sgd decay": (optim.SGD, {"lr": 0.1, "weight_decay": 0.2}, lambda: Sgd(0.1, wd=0.2)),
    "sgd momentum": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        lambda: Sgd(0.1, 0.9, 0.01),
    ),
    "sgd nesterov": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        lambda: Sgd(0.1, 0.9, nesterov=True),
    ),
    "sgd classic": (
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "classic": True},
        lambda: Sgd(0.1, 0.9, classic=True),
    ),
    "lars": (
        optim.LARS,
        {"lr": 10.0, "momentum": 0.9, "weight_decay": 1e-2, "tcoef": 0.01},
        lambda: Lars(10.0, 0.9, 1e-2, 0.01),
    ),
    "adam": (optim.Adam, {"lr": 0.1}, lambda: AdamLike(0.1, 0.9, 0.999, 1e-8)),
    "adamw": (
        optim.AdamW,
        {"lr": 0.1, "b1": 0.8, "b2": 0.99, "weight_decay": 0.1},
        lambda: AdamLike(0.1, 0.8, 0.99, 1e-8, 0.1),
    ),
    "lamb": (
        optim.LAMB,
        {"lr": 0.1, "weight_decay": 0.1},
        lambda: AdamLike(0.1, 0.9, 0.999, 1e-6, 0.1, lamb=True),
    ),
    "muon": (
        optim.Muon,
        {"lr": 0.1, "weight_decay": 0.05},
        lambda: MuonLike(0.1, 0.95, 0.05, 5, NEWTON, True),
    ),
}


def loss_of(w, target):
    """A loss whose gradient numpy finds easily: w - target + w^3."""
    return ((w - target).square() * 0.5 + w.square().square() * 0.25).sum()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jitted", [False, True])
def test_steps_are_those_of_the_formula(name, jitted):
    kind, options, reference = CASES[name]
    shapes = [(5, 3), (3, 2, 2)]
    starts = [RNG.uniform(-1, 1, size=s) for s in shapes]  # w^3 makes larger ones diverge
    targets = [RNG.normal(size=s) for s in shapes]
    tensors = [Tensor(s.astype(np.float32)) for s in starts]
    goals = [Tensor(t.astype(np.float32)) for t in targets]
    optimizer = kind(tensors, **options)
    rules = [reference() for _ in shapes]

    def step():
        optimizer.zero_grad()
        loss = loss_of(tensors[0], goals[0]) + loss_of(tensors[1], goals[1])
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jitted else step
    values = [s.copy() for s in starts]
    with Tensor.train():
        for _ in range(STEPS):
            step()
            values = [
                r.step(w, w - t + w**3) for r, w, t in zip(rules, values, targets, strict=True)
            ]
            for tensor, value in zip(tensors, values, strict=True):
                # ten operations of relative error 2^-24 a step, and the loss may enlarge them
                np.testing.assert_allclose(tensor.numpy(), value, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes_keep_theirs(dtype):
    w = Tensor([1.0, -2.0], dtype=dtype)
    optimizer = optim.Adam([w], lr=0.25)
    with Tensor.train():
        w.square().sum().backward()
        optimizer.step()
    assert w.dtype is dtypes.__dict__[dtype]
    assert optimizer.m[0].dtype is (dtypes.float64 if dtype == "float64" else dtypes.float32)
    # the first step of Adam is lr * sign(gradient)
    np.testing.assert_allclose(w.float().numpy(), [0.75, -1.75], rtol=1e-6)


def test_scalar_parameters_stay_scalars():
    w = Tensor(2.0)
    optimizer = optim.SGD([w], lr=0.25, momentum=0.5)
    with Tensor.train():
        w.square().backward()
        optimizer.step()
    assert w.shape == () and w.item() == 1.0


def test_without_a_gradient_parameters_stay():
    used, unused, number = Tensor([1.0]), Tensor([2.0]), Tensor([3])
    optimizer = optim.SGD([used, unused, number, used], lr=1.0, momentum=0.9)
    assert optimizer.params == [used, unused] and optimizer.buffers == [number]
    with Tensor.train():
        used.sum().backward()
        optimizer.step()
    assert (used.tolist(), unused.tolist(), number.tolist()) == ([0.0], [2.0], [3])


def test_gradients_add_up_until_zero_grad():
    w = Tensor([1.0])
    optimizer = optim.SGD([w], lr=1.0)
    with Tensor.train():
        w.sum().backward()
        w.sum().backward()
        optimizer.step()
        assert w.tolist() == [-1.0]
        optimizer.zero_grad()
        assert w.grad is None
        w.sum().backward()
        optimizer.step()
    assert w.tolist() == [-2.0]


def test_the_learning_rate_can_be_changed_in_a_replayed_step():
    w = Tensor([0.0]).realize()
    optimizer = optim.SGD([w], lr=1.0)

    @TinyJit
    def step():
        optimizer.zero_grad()
        w.sum().backward()
        return w.realize(*optimizer.schedule_step())

    with Tensor.train():
        for _ in range(3):
            step()
        assert w.tolist() == [-3.0]
        optimizer.lr.assign([0.5]).realize()
        step()
    assert w.tolist() == [-3.5]


def test_a_group_moves_all():
    a, b = Tensor([1.0]), Tensor([1.0])
    group = optim.OptimizerGroup(optim.SGD([a], lr=1.0), optim.SGD([b], lr=0.5))
    with Tensor.train():
        (a + b).sum().backward()
        group.step()
    assert (a.tolist(), b.tolist()) == ([0.0], [0.5])
    assert group[1].lr.tolist() == [0.5] and group.params == [a, b]
    group.zero_grad()
    assert a.grad is None and b.grad is None


@pytest.mark.parametrize("axis", [None, 0])
def test_parameters_on_several_slots(axis):
    slots = ("CPU:0", "CPU:1")
    start, target = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3))
    w = Tensor(start.astype(np.float32)).shard(slots, axis)
    goal = Tensor(target.astype(np.float32)).shard(slots, axis)
    optimizer, rule = optim.AdamW([w], lr=0.1), AdamLike(0.1, 0.9, 0.999, 1e-8, 0.01)
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(w, goal).backward()
            optimizer.step()
            start = rule.step(start, start - target + start**3)
    assert w.device == ("CPU", "CPU:1")
    np.testing.assert_allclose(w.numpy(), start, rtol=2e-4, atol=2e-5)


def test_a_loss_may_be_read_before_the_step():
    Tensor.manual_seed(3)
    w = Tensor.uniform(3)
    optimizer = optim.SGD([w], lr=1.0)
    with Tensor.train():
        loss = w.sum().backward()
        before = w.numpy()
        assert np.isclose(loss.item(), before.sum())
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), before - 1, rtol=1e-6, atol=1e-6)


def test_mistakes_are_told():
    w = Tensor([1.0])
    with pytest.raises(ArgumentError, match="float tensor"):
        optim.SGD([Tensor([1])])
    with pytest.raises(ArgumentError, match="takes tensors as parameters, got list"):
        optim.SGD([[1.0]])
    with pytest.raises(ArgumentError, match="lr of 0 or more, got -1"):
        optim.Adam([w], lr=-1)
    with pytest.raises(ArgumentError, match="b2 of at least 0 and below 1"):
        optim.Adam([w], b2=1.0)
    with pytest.raises(ArgumentError, match="momentum above 0"):
        optim.SGD([w], nesterov=True)
    with pytest.raises(ArgumentError, match="optimizer or more"):
        optim.OptimizerGroup()
    optimizer = optim.SGD([w])
    with Tensor.train(), pytest.raises(GradientError, match="call backward"):
        optimizer.step()
    w.sum().backward()
    with Tensor.train(False), pytest.raises(GradientError, match="Tensor.training"):
        optimizer.step()


def test_without_recording_too():
    with Context(JIT=0):
        test_the_learning_rate_can_be_changed_in_a_replayed_step()
