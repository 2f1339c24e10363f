"""Layers, and beside them `optim` (optimizers), `state` (weights in files) and `datasets`."""

from tinyfn.nn.contraction import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Linear
from tinyfn.nn.normalisation import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from tinyfn.nn.sequence import Embedding, LSTMCell

from . import datasets, optim, state

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "RMSNorm",
    "datasets",
    "optim",
    "state",
]
