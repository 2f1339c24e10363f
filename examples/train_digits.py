"""Train a small convolutional net on scikit-learn's handwritten digits.

    python examples/train_digits.py                        # about 98 % of the test images right
    python examples/train_digits.py --devices 2            # data-parallel over two slots
    python examples/train_digits.py --plot curves.png --save digits.safetensors
    python examples/train_digits.py --load digits.safetensors --steps 0   # only test

Needs the extra `examples`: pip install 'tinyfn[examples]'
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyfn import Tensor, TinyJit, function
from tinyfn.helpers import optional, tqdm
from tinyfn.nn import Conv2d, Linear, datasets
from tinyfn.nn.optim import Adam
from tinyfn.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save


class Net:
    """Two convolutions, a pooling, one linear layer: from 8 x 8 pixels to ten scores."""

    def __init__(self) -> None:
        self.near = Conv2d(1, 16, 3, padding=1)
        self.far = Conv2d(16, 32, 3, padding=1)
        self.score = Linear(32 * 4 * 4, 10)

    @function
    def __call__(self, images: Tensor) -> Tensor:
        x = self.near(images).relu()
        x = self.far(x).relu().max_pool2d(2)
        return self.score(x.flatten(1))


@function
def loss_of(model: Net, images: Tensor, labels: Tensor) -> Tensor:
    return model(images).sparse_categorical_crossentropy(labels)


@function
def right_answers(model: Net, images: Tensor, labels: Tensor) -> Tensor:
    return (model(images).argmax(1) == labels).sum()


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[Any]:
    """Numbers of images for each step: all in a new order, then all in another."""
    random = np.random.default_rng(seed)
    order = np.array([], int)
    for _ in range(steps):
        if len(order) < size:
            order = random.permutation(count)
        batch, order = order[:size], order[size:]
        yield batch


class Trainer:
    """A model on one or several slots, with what is measured while it learns."""

    def __init__(self, devices: int, rate: float) -> None:
        self.slots = tuple(f"CPU:{i}" for i in range(devices))
        self.model = Net()
        for tensor in get_parameters(self.model):
            tensor.shard_(self.slots)  # the weights are on each slot
        self.optimizer = Adam(get_parameters(self.model), lr=rate)
        self.step = TinyJit(self._step)
        self.count = TinyJit(self._count)
        self.losses: list[float] = []
        self.accuracies: list[tuple[int, float]] = []

    def _step(self, images: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, images, labels).backward()
        return loss.realize(*self.optimizer.schedule_step())

    def _count(self, images: Tensor, labels: Tensor) -> Tensor:
        return right_answers(self.model, images, labels).realize()

    def learn(self, images: Any, labels: Any) -> float:
        """One step on a batch, whose parts go to the slots."""
        parts = (Tensor(a).shard(self.slots, 0) for a in (images, labels))
        with Tensor.train():
            self.losses.append(self.step(*parts).item())
        return self.losses[-1]

    def test(self, images: Tensor, labels: Tensor) -> float:
        """The share of the images that the model reads right."""
        whole = (t.shard(self.slots) for t in (images, labels))
        share: float = self.count(*whole).item() / images.shape[0]
        self.accuracies.append((len(self.losses), share))
        return share


def plot(trainer: Trainer, file: Path) -> None:
    """Loss and test accuracy over the steps, as a picture."""
    matplotlib = optional("matplotlib", "examples")
    matplotlib.use("Agg")
    pyplot = optional("matplotlib.pyplot", "examples")
    figure, left = pyplot.subplots(figsize=(7, 4), layout="constrained")
    left.plot(trainer.losses, color="tab:blue", linewidth=1)
    left.set(xlabel="step", ylabel="loss", yscale="log")
    right = left.twinx()
    right.plot(*zip(*trainer.accuracies, strict=True), color="tab:orange", marker=".")
    right.set(ylabel="test accuracy", ylim=(None, 1))
    figure.savefig(file, dpi=120)
    print(f"curves in {file}")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=20, help="times through the images")
    parser.add_argument("--steps", type=int, help="number of batches, instead of --epochs")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--rate", type=float, default=0.002, help="learning rate")
    parser.add_argument("--devices", type=int, default=1, help="slots that share each batch")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the batches")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the curves as a picture")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the weights")
    parser.add_argument("--load", type=Path, metavar="FILE", help="start with these weights")
    parser.add_argument("--quick", action="store_true", help="three epochs, to see that it runs")
    options = parser.parse_args(given)
    if not 1 <= options.devices <= 64 or options.batch % options.devices:
        parser.error("--devices has to be between 1 and 64 and to divide --batch")
    return options


def main(given: Sequence[str] | None = None) -> float:
    """Train, test and report; returns the share of test images that is read right."""
    options = arguments(given)
    started = time.perf_counter()
    Tensor.manual_seed(options.seed)
    train_images, train_labels, *test = datasets.digits()
    images, labels = train_images.numpy(), train_labels.numpy()
    trainer = Trainer(options.devices, options.rate)
    if options.load:
        load_state_dict(trainer.model, safe_load(options.load))
    epoch = len(images) // options.batch
    steps = (3 if options.quick else options.epochs) * epoch
    steps = steps if options.steps is None else options.steps
    accuracy = trainer.test(*test)
    bar = tqdm(batches(len(images), options.batch, steps, options.seed), total=steps, unit="step")
    for number, chosen in enumerate(bar, 1):
        loss = trainer.learn(images[chosen], labels[chosen])
        if number % epoch == 0 or number == steps:
            accuracy = trainer.test(*test)
        bar.set_postfix_str(f"loss {loss:.4f}, test accuracy {accuracy:.1%}", refresh=False)
    seconds = time.perf_counter() - started
    print(f"{accuracy:.2%} of the test images right after {steps} steps, {seconds:.1f} s")
    if options.plot:
        plot(trainer, options.plot)
    if options.save:
        safe_save(get_state_dict(trainer.model), options.save)
        print(f"weights in {options.save}")
    return accuracy


if __name__ == "__main__":
    main()
