"""The training mode: a flag, a block, a decorator, an attribute; each thread has its own."""

import threading

import pytest

from tinyfn import Context, Tensor, nn
from tinyfn.helpers import TRAINING


def test_each_way_sets_the_same_mode():
    assert not Tensor.training
    with Context(TRAINING=1):
        assert Tensor.training
        with Tensor.train(False):
            assert not Tensor.training and not TRAINING
        assert Tensor.training
    with Tensor.train():
        assert TRAINING and Tensor.training
        Tensor.training = False
        assert not TRAINING
    assert not Tensor.training
    Tensor.training = True
    assert TRAINING
    Tensor.training = False


def test_mode_is_restored_after_an_error_and_in_recursion():
    @Tensor.train()
    def deep(n):
        assert Tensor.training
        if n == 0:
            raise ValueError
        deep(n - 1)

    with pytest.raises(ValueError):
        deep(3)
    assert not Tensor.training


def test_an_optimizer_steps_under_the_flag():
    w = Tensor([1.0]).realize()
    optimizer = nn.optim.SGD([w], lr=0.1)
    with Context(TRAINING=1):
        (w * 2).sum().backward()
        optimizer.step()
    assert w.item() == pytest.approx(0.8)
    (kept,) = {float(v) for v in Tensor.ones(8).dropout(0.5).tolist()}
    assert kept == 1


def test_threads_decorated_alike_do_not_meet():
    """Both enter before either leaves: each takes back what it set itself."""
    both, modes = threading.Barrier(2, timeout=10), []

    @Context(TRAINING=1)
    def meet():
        both.wait()
        modes.append(Tensor.training)
        both.wait()

    def run():
        meet()
        modes.append(Tensor.training)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(modes) == [False, False, True, True]
