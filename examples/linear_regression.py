"""Fit a line to noisy points: the first page of the tutorial, as a program.

python examples/linear_regression.py
"""

import sys

from tinyfn import Tensor, nn


def main(steps: int = 100) -> tuple[float, float]:
    """Print how the loss falls; returns the slope and the offset that were found."""
    Tensor.manual_seed(0)
    x = Tensor.randn(200, 1).realize()
    y = (3 * x - 1 + 0.1 * Tensor.randn(200, 1)).realize()  # what is to be found: 3 and -1
    line = nn.Linear(1, 1)
    optimizer = nn.optim.SGD([line.weight, line.bias], lr=0.1)
    for step in range(steps):
        with Tensor.train():
            optimizer.zero_grad()
            loss = (line(x) - y).square().mean().backward()
            optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3}: loss {loss.item():.4f}")
    slope, offset = line.weight.item(), line.bias.item()
    print(f"y = {slope:.3f} x {offset:+.3f}")
    return slope, offset


if __name__ == "__main__":
    main(40 if "--quick" in sys.argv else 100)
