"""Train the small models in torch and write down what their weights become.

    python -m tests.nn.record_torch      (torch has to be installed)

torch is not among the test requirements: the tests compare with the file that this writes.
"""

import json
from pathlib import Path

import torch

from tests.nn.models import MODELS, OPTIMIZERS, digest, waves

FILE = Path(__file__).with_name("torch_weights.json")


def train(kind, optimizer):
    model = type(kind.__name__, (kind, torch.nn.Module), {})(torch.nn)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.tensor(waves(*parameter.shape, scale=0.5)))
    moves = getattr(torch.optim, optimizer.split()[0])
    steps = moves(model.parameters(), **OPTIMIZERS[optimizer])
    losses = []
    for x, y in zip(kind.inputs, kind.answers, strict=True):
        steps.zero_grad()
        guess = model.forward(torch.tensor(x), torch.nn.functional)
        loss = torch.nn.functional.cross_entropy(guess, torch.tensor(y))
        loss.backward()
        steps.step()
        losses.append(loss.item())
    weights = {name: digest(value.detach()) for name, value in model.state_dict().items()}
    return {"losses": losses, "weights": weights}


def main():
    torch.set_num_threads(1)
    found = {
        f"{model} {optimizer}": train(kind, optimizer)
        for model, kind in MODELS.items()
        for optimizer in OPTIMIZERS
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
