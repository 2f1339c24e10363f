"""Ten steps of small models end where torch's do; the file holds what torch 2.13 computes."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.nn.models import MODELS, OPTIMIZERS, digest, waves
from tinyfn import Tensor, TinyJit, nn

RECORDED = json.loads(Path(__file__).with_name("torch_weights.json").read_text())


class Functions:
    """torch's functions of these names, as methods of tinyfn's tensors."""

    max_pool2d = staticmethod(Tensor.max_pool2d)
    silu = staticmethod(Tensor.silu)
    scaled_dot_product_attention = staticmethod(Tensor.scaled_dot_product_attention)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps(name, optimizer, jitted):
    recorded = RECORDED[f"{name} {optimizer}"]
    kind = MODELS[name]
    model = kind(nn)
    state = nn.state.get_state_dict(model)
    assert set(state) == set(recorded["weights"])
    weights = [key for key in state if "running" not in key and "num_batches" not in key]
    for key in weights:
        state[key].assign(Tensor(waves(*state[key].shape, scale=0.5)))
    moves = getattr(nn.optim, optimizer.split()[0])
    steps = moves([state[key] for key in weights], **OPTIMIZERS[optimizer])

    def step(x, y):
        steps.zero_grad()
        loss = model.forward(x, Functions).sparse_categorical_crossentropy(y).backward()
        steps.step()
        return loss.realize()

    step = TinyJit(step) if jitted else step
    with Tensor.train():
        data = zip(kind.inputs, kind.answers, strict=True)
        losses = [step(Tensor(x).realize(), Tensor(y).realize()).item() for x, y in data]
    np.testing.assert_allclose(losses, recorded["losses"], rtol=1e-5)
    for key, value in state.items():
        expected = recorded["weights"][key]
        np.testing.assert_allclose(
            digest(value.numpy()), expected, rtol=2e-5, atol=2e-6, err_msg=key
        )
