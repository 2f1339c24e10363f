"""Two small models and their data, built alike from the layers of torch or of tinyfn."""

import numpy as np

STEPS = 10


def waves(*shape, scale=1.0):
    """Numbers that look irregular, and are the same everywhere."""
    count = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64)
    return (scale * np.sin(count * count * 0.37)).reshape(shape).astype(np.float32)


def labels(*shape, classes):
    return (np.arange(np.prod(shape)) * 7 % 11 % classes).reshape(shape)


def split_heads(x):
    return x.reshape(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)


class Images:
    """Convolutions with batch and group norm, a transposed convolution and a linear layer."""

    inputs, answers = waves(STEPS, 4, 1, 8, 8), labels(STEPS, 4, classes=5)

    def __init__(self, nn):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False)
        self.groups = nn.GroupNorm(2, 6)
        self.up = nn.ConvTranspose2d(6, 2, 3, stride=2, output_padding=1)
        self.head = nn.Linear(2 * 4 * 4, 5)

    def forward(self, x, f):
        x = f.max_pool2d(self.norm(self.first(x)).relu(), 2)
        x = f.silu(self.up(self.groups(self.second(x)).tanh()))
        return self.head(x.flatten(1))


class Words:
    """An embedding, causal attention with a residual, and a recurrent cell over the positions."""

    inputs, answers = labels(STEPS, 4, 5, classes=11), labels(STEPS, 4, classes=11)

    def __init__(self, nn):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.cell = nn.LSTMCell(8, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, numbers, f):
        x = self.words(numbers)
        q, k, v = (split_heads(part) for part in self.mix(self.norm(x)).chunk(3, -1))
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        state = None
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
        return self.head(state[0])


MODELS = {"images": Images, "words": Words}

# an eps that is not tiny: some gradients are zero but for rounding, and Adam would divide by that
OPTIMIZERS = {
    "SGD": {"lr": 0.05},
    "SGD momentum": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "SGD nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01, "eps": 1e-3},
    "AdamW": {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1},
}


def digest(values):
    """What is written down of a tensor: its sum of squares, and three of its numbers."""
    flat = np.asarray(values, np.float64).ravel()
    return [float(x) for x in (flat @ flat, flat[0], flat[len(flat) // 2], flat[-1])]
