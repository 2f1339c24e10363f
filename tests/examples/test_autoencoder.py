"""The code learns more than a linear one, and the picture shows it."""

import numpy as np


def test_quick_form_beats_a_linear_code(example, tmp_path):
    picture = tmp_path / "copies.png"
    error, linear = example.main(["--quick", "--picture", str(picture)])
    assert error < 0.8 * linear
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_linear_code_of_images_that_are_linear_loses_nothing(example):
    random = np.random.default_rng(0)
    images = (random.random((50, 3)) @ random.random((3, 64))).reshape(50, 1, 8, 8)
    assert example.linear_error(images[:40], images[40:], 3) < 1e-20
    assert example.linear_error(images[:40], images[40:], 1) > 1e-4


def test_code_has_the_size_asked_for(example):
    model = example.Autoencoder(3)
    images = example.Tensor(np.ones((5, 1, 8, 8), np.float32))
    assert model.encode(images).shape == (5, 3)
    assert model(images).shape == (5, 1, 8, 8)
    found = example.error_of(model, images).item()
    np.testing.assert_allclose(found, np.square(model(images).numpy() - 1).mean(), rtol=1e-5)
