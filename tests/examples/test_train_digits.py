"""The first example learns, on one slot and on two, and its weights come back from a file."""

import re

import numpy as np
import pytest

from tinyfn.nn.state import get_state_dict, safe_load


def test_quick_form_learns_and_keeps_what_it_learned(example, tmp_path, capsys):
    weights, picture = tmp_path / "w.safetensors", tmp_path / "curves.png"
    accuracy = example.main(["--quick", "--save", str(weights), "--plot", str(picture)])
    assert accuracy > 0.8
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert set(safe_load(weights)) == set(get_state_dict(example.Net()))
    assert example.main(["--load", str(weights), "--steps", "0"]) == accuracy
    said = capsys.readouterr().out
    assert re.search(r"\d\d\.\d\d% of the test images right after 66 steps, [\d.]+ s", said)


def test_slots_share_a_batch(example):
    """Two slots with half of the batch each take the same steps as one with all of it."""
    random = np.random.default_rng(0)
    images = random.random((8, 1, 8, 8), np.float32)
    labels = random.integers(0, 10, 8).astype(np.int32)
    losses = {}
    for devices in (1, 2):
        example.Tensor.manual_seed(0)
        trainer = example.Trainer(devices, rate=0.01)
        losses[devices] = [trainer.learn(images, labels) for _ in range(4)]
    assert losses[1][-1] < losses[1][0]
    np.testing.assert_allclose(losses[2], losses[1], rtol=1e-3)


def test_every_image_is_seen_once_an_epoch(example):
    chosen = list(example.batches(10, 5, 4, seed=0))
    for epoch in (chosen[:2], chosen[2:]):
        assert sorted(np.concatenate(epoch)) == list(range(10))


def test_a_batch_that_cannot_be_shared_is_refused(example, capsys):
    with pytest.raises(SystemExit):
        example.main(["--devices", "3"])
    assert "has to be between 1 and 64 and to divide --batch" in capsys.readouterr().err
