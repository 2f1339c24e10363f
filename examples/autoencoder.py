"""Squeeze images of digits through eight numbers and draw what comes out again.

    python examples/autoencoder.py                     # writes autoencoder.png
    python examples/autoencoder.py --picture mine.png --code 3

Needs the extra `examples`: pip install 'tinyfn[examples]'
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyfn import Tensor, TinyJit, function
from tinyfn.helpers import optional, tqdm
from tinyfn.nn import Linear, datasets
from tinyfn.nn.optim import AdamW
from tinyfn.nn.state import get_parameters


class Autoencoder:
    """64 pixels, a hidden layer, the code, and the same way back."""

    def __init__(self, code: int, hidden: int = 128) -> None:
        self.into = [Linear(64, hidden), Tensor.relu, Linear(hidden, code)]
        self.back = [Linear(code, hidden), Tensor.relu, Linear(hidden, 64), Tensor.sigmoid]

    def encode(self, images: Tensor) -> Tensor:
        """The code of each image: (n, 1, 8, 8) to (n, code)."""
        return images.flatten(1).sequential(self.into)

    @function
    def __call__(self, images: Tensor) -> Tensor:
        """The images as the code tells them."""
        return self.encode(images).sequential(self.back).reshape(images.shape)


@function
def error_of(model: Autoencoder, images: Tensor) -> Tensor:
    """The mean squared error of a pixel."""
    return (model(images) - images).square().mean()


def linear_error(train: Any, test: Any, code: int) -> float:
    """The error of the best linear code of that size (principal components), to compare with."""
    train, test = (a.reshape(len(a), 64).astype(np.float64) for a in (train, test))
    middle = train.mean(0)
    directions = np.linalg.svd(train - middle, full_matrices=False)[2][:code]
    away = test - middle
    return float(np.square(away - away @ directions.T @ directions).mean())


def draw(images: Any, copies: Any, file: Path) -> None:
    """Write a picture: a row of images, and below it what the code made of them."""
    matplotlib = optional("matplotlib", "examples")
    matplotlib.use("Agg")
    pyplot = optional("matplotlib.pyplot", "examples")
    rows = np.concatenate([np.concatenate(list(part[:, 0]), 1) for part in (images, copies)])
    figure, axes = pyplot.subplots(figsize=(len(images) * 0.7, 1.6), layout="constrained")
    axes.imshow(rows, cmap="gray_r", vmin=0, vmax=1)
    axes.axis("off")
    figure.savefig(file, dpi=120)
    print(f"{len(images)} test images and their copies in {file}")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--code", type=int, default=8, help="numbers that an image becomes")
    parser.add_argument("--steps", type=int, default=6000, help="batches to learn from")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the batches")
    parser.add_argument("--picture", type=Path, help="where the picture goes")
    parser.add_argument("--quick", action="store_true", help="600 steps, picture thrown away")
    options = parser.parse_args(given)
    options.steps = min(options.steps, 600) if options.quick else options.steps
    return options


def learn(model: Autoencoder, images: Any, options: argparse.Namespace) -> None:
    """Train on batches that are drawn by chance."""
    optimizer = AdamW(get_parameters(model), lr=0.002, weight_decay=0.0)

    @TinyJit
    @Tensor.train()
    def step(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        error = error_of(model, batch).backward()
        return error.realize(*optimizer.schedule_step())

    random = np.random.default_rng(options.seed)
    for _ in tqdm(range(options.steps), unit="step"):
        step(Tensor(images[random.integers(0, len(images), options.batch)]))


def main(given: Sequence[str] | None = None) -> tuple[float, float]:
    """Train, draw and report; returns the error on test images, and that of a linear code."""
    options = arguments(given)
    started = time.perf_counter()
    Tensor.manual_seed(options.seed)
    train, _, test, _ = datasets.digits()
    model = Autoencoder(options.code)
    learn(model, train.numpy(), options)
    error = error_of(model, test).item()
    linear = linear_error(train.numpy(), test.numpy(), options.code)
    seconds = time.perf_counter() - started
    print(f"test error {error:.4f}, linear code {linear:.4f}, {seconds:.1f} s")
    shown = test[:12]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "quick.png" if options.quick else Path("autoencoder.png")
        draw(shown.numpy(), model(shown).numpy(), options.picture or file)
    return error, linear


if __name__ == "__main__":
    main()
