"""The transformer learns, and writing with a cache says what the whole text at once says."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def model(example):
    example.Tensor.manual_seed(3)
    return example.GPT(letters=11, context=9, width=16, heads=2, blocks=2)


def test_cache_gives_the_scores_of_the_whole_text(example, model):
    text = np.random.default_rng(0).integers(0, 11, 9).astype(np.int32)
    whole = model(example.Tensor(text[None])).numpy()[0]
    writer = example.Writer(model)
    for place, letter in enumerate(text):
        given = example.Tensor(text[None, place : place + 1]).realize()
        found = writer.scores(given, writer.position.bind(place)).numpy()
        np.testing.assert_allclose(found, whole[place], rtol=2e-4, atol=2e-5)
        assert letter == given.item()


def test_no_letter_sees_those_after_it(example, model):
    text = np.zeros((1, 9), np.int32)
    changed = text.copy()
    changed[0, 6] = 5
    before, after = (model(example.Tensor(t)).numpy()[0] for t in (text, changed))
    np.testing.assert_array_equal(before[:6], after[:6])
    assert (np.abs(before[6:] - after[6:]).max(1) > 1e-4).all()


def test_writing_keeps_the_prompt_and_is_the_same_for_a_seed(example, model):
    first, again, other = (
        example.Writer(model).write([1, 2, 3], 20, warmth, seed)
        for warmth, seed in ((1.0, 0), (1.0, 0), (1.0, 1))
    )
    assert len(first) == 9 and first[:3] == [1, 2, 3]
    assert first == again != other
    scores = model(example.Tensor(np.array([first[:-1]], np.int32))).numpy()[0]
    coldest = example.Writer(model).write(first[:8], 1, 1e-6, 0)
    assert coldest[8] == scores[7].argmax()


def test_quick_form_learns(example, capsys):
    loss = example.main(["--quick", "--steps", "60", "--letters", "10"])
    assert loss < 3.0  # from log(93 letters) = 4.5
    said = capsys.readouterr().out
    assert "The " in said and "letter after 60 steps" in said
