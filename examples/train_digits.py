"""Train a small convolutional net on scikit-learn's handwritten digits, on one slot or several.

python examples/train_digits.py                    # about 98 % on the test images
python examples/train_digits.py --devices 2        # the batch is split over two slots
python examples/train_digits.py --plot curves.png --save digits.safetensors
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tinyfn import Tensor, TinyJit, function, nn
from tinyfn.helpers import optional, trange


class Net:
    """Two convolutions and a linear layer: 8x8 images to scores of ten digits."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 64, 3, padding=1)
        self.last = nn.Linear(256, 10)

    @function
    def __call__(self, images: Tensor) -> Tensor:
        """Scores of shape (n, 10) for images of shape (n, 1, 8, 8)."""
        hidden = self.first(images).relu().max_pool2d()
        hidden = self.second(hidden).relu().max_pool2d()
        return self.last(hidden.flatten(1))


@function
def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy."""
    return scores.sparse_categorical_crossentropy(labels)


def batches(count: int, size: int, steps: int, seed: int = 0) -> list[np.ndarray]:
    """The numbers of the images of each step: every image once an epoch, in random order."""
    rng = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    while len(rows) < steps:
        order = rng.permutation(count)
        rows += [order[i : i + size] for i in range(0, count - size + 1, size)]
    return rows[:steps]


def accuracy(net: Net, images: Tensor, labels: np.ndarray) -> float:
    """The share of the images whose highest score is at their label."""
    return float((net(images).argmax(axis=1).numpy() == labels).mean())


def plot(losses: list[float], accuracies: list[tuple[int, float]], file: str) -> None:
    """The curves of loss and accuracy as a picture."""
    pyplot = optional("matplotlib.pyplot", "examples")
    pyplot.switch_backend("Agg")
    figure, left = pyplot.subplots(figsize=(7, 4))
    left.plot(losses, color="tab:blue")
    left.set_xlabel("step")
    left.set_ylabel("training loss", color="tab:blue")
    right = left.twinx()
    right.plot(*zip(*accuracies, strict=True), color="tab:orange", marker="o")
    right.set_ylabel("test accuracy", color="tab:orange")
    figure.tight_layout()
    figure.savefig(file)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="slots to train on")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it runs")
    parser.add_argument("--plot", metavar="FILE", help="write the curves as a picture")
    parser.add_argument("--save", metavar="FILE", help="write the weights (safetensors)")
    parser.add_argument("--load", metavar="FILE", help="begin with these weights")
    options = parser.parse_args()
    if options.batch % options.devices:
        parser.error(f"{options.devices} slots do not divide a batch of {options.batch}")
    return options


def main() -> None:
    """Train, print loss and accuracy, and write what was asked for."""
    options = arguments()
    steps = 60 if options.quick else options.steps
    started = time.perf_counter()
    Tensor.manual_seed(0)
    train_images, train_labels, test_images, test_labels = nn.datasets.digits()
    images, labels, truth = train_images.numpy(), train_labels.numpy(), test_labels.numpy()

    net = Net()
    parameters = nn.state.get_parameters(net)
    if options.load:
        nn.state.load_state_dict(net, nn.state.safe_load(options.load), verbose=False)
    slots = tuple(f"CPU:{i}" for i in range(options.devices))
    if options.devices > 1:
        for parameter in parameters:
            parameter.shard_(slots)
        test_images = test_images.shard(slots)
    optimizer = nn.optim.Adam(parameters, lr=options.lr)

    @TinyJit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = loss_of(net(images), labels).backward()
            optimizer.step()
            return loss.realize()

    def on_slots(array: np.ndarray) -> Tensor:
        tensor = Tensor(array)
        return (tensor.shard(slots, axis=0) if options.devices > 1 else tensor).realize()

    losses: list[float] = []
    accuracies: list[tuple[int, float]] = []
    bar = trange(steps, unit="step")
    for number, chosen in zip(bar, batches(len(images), options.batch, steps), strict=True):
        losses.append(step(on_slots(images[chosen]), on_slots(labels[chosen])).item())
        if number % 100 == 99 or number == steps - 1:
            accuracies.append((number, accuracy(net, test_images, truth)))
            bar.set_postfix(loss=f"{losses[-1]:.4f}", accuracy=f"{accuracies[-1][1]:.2%}")
    seconds = time.perf_counter() - started
    print(
        f"loss {np.mean(losses[-10:]):.4f}, test accuracy {accuracies[-1][1]:.2%} "
        f"after {steps} steps on {options.devices} slot(s) in {seconds:.1f} s"
    )
    if options.plot:
        plot(losses, accuracies, options.plot)
    if options.save:
        nn.state.safe_save(nn.state.get_state_dict(net), options.save)


if __name__ == "__main__":
    main()
