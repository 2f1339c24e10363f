"""What stands between two products: how often it is computed, and what is kept for its gradient."""

import numpy as np
import pytest

from tinyfn import Tensor
from tinyfn.uop.ops import Ops, toposort


def values(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def kernels_of(*tensors):
    return [call.src[0] for call in tensors[0].linear_with_vars(*tensors[1:])[0].src]


def loads(kernel):
    return {n.src[0].arg.slot for n in toposort([kernel]) if n.op is Ops.INDEX}


def test_an_activation_is_the_end_of_the_first_kernel():
    a, b, c = (Tensor(values(24, 24)).realize() for _ in range(3))
    first, second = kernels_of(((a @ b).relu() * 2) @ c)
    assert any(n.op is Ops.WHERE for n in toposort([first]))
    assert not any(n.op is Ops.WHERE for n in toposort([second]))


def test_the_gradient_of_relu_reads_its_result():
    a, b, c = (Tensor(values(24, 24)).realize() for _ in range(3))
    hidden = (a @ b).relu()
    grads = (hidden @ c).gradient(a, b, c, gradient=Tensor(values(24, 24)).realize())
    found = kernels_of(*grads)
    assert len(found) == 5  # hidden; c's; relu's; a's; b's
    assert sum(any(n.op is Ops.WHERE for n in toposort([k])) for k in found) == 2
    wide = [t.numpy().astype(np.float64) for t in (a, b, c)]
    seed = values(24, 24)
    kept = np.maximum(wide[0] @ wide[1], 0)
    inner = np.where(kept > 0, seed @ wide[2].T, 0)
    for got, want in zip(grads, (inner @ wide[1].T, wide[0].T @ inner, kept.T @ seed), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("write", "passes"),
    [
        (lambda x: x.relu(), lambda h: ~(h <= 0)),
        (lambda x: (x > 0).where(x, 0), lambda h: h > 0),
    ],
)
def test_the_mask_of_relu_is_the_same_where_there_is_nan(write, passes):
    data = values(16, 16)
    data[3, 4], data[5] = np.nan, -0.0
    x, one, c = (
        Tensor(data).realize(),
        Tensor(np.eye(16, dtype=np.float32)).realize(),
        values(16, 9),
    )
    result = write(x @ one) @ Tensor(c).realize()
    (grad,) = result.sum().gradient(x)
    result.realize(grad)
    hidden = data @ np.eye(16, dtype=np.float32)
    mask = passes(hidden)
    np.testing.assert_allclose(grad.numpy(), mask * c.sum(1), rtol=1e-5)
    np.testing.assert_allclose(result.numpy(), np.where(mask, hidden, 0) @ c, rtol=1e-4, atol=1e-5)


def test_cheap_work_on_small_inputs_is_done_in_place():
    a, c = Tensor(values(24, 24)).realize(), Tensor(values(24, 24)).realize()
    assert len(kernels_of(a.relu() @ c)) == 1


def test_work_on_large_inputs_is_done_once():
    a, c = Tensor(values(512, 512)).realize(), Tensor(values(512, 512)).realize()
    assert len(kernels_of(a.relu() @ c)) == 2
    np.testing.assert_allclose(
        (a.relu() @ c).numpy(), np.maximum(a.numpy(), 0) @ c.numpy(), rtol=1e-3, atol=1e-3
    )
