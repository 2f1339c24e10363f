"""Layers for sequences: embeddings of numbers, and one step of an LSTM."""

from __future__ import annotations

import math

from tinyfn.errors import DTypeError
from tinyfn.tensor import Tensor


class Embedding:
    """A learned vector for each whole number below `vocab_size`; zeros for one out of range.

    Args:
        vocab_size: how many numbers there are.
        embed_size: the size of each vector.

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_sz, self.embed_sz = vocab_size, embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, idx: Tensor) -> Tensor:
        if idx.dtype.kind not in ("int", "uint"):
            raise DTypeError(f"Embedding takes whole numbers as an int tensor, got {idx.dtype}")
        return self.weight[idx]


class LSTMCell:
    """One step of a long short-term memory (Hochreiter, Schmidhuber, 1997).

    The gates lie in the weights in torch's order: input, forget, candidate, output.

    Args:
        input_size: the size of the last axis of the input.
        hidden_size: the size of the two states.
        bias: whether there are biases.

    >>> cell = LSTMCell(3, 5)
    >>> hidden, state = cell(Tensor.ones(2, 3))
    >>> hidden, state = cell(Tensor.ones(2, 3), (hidden, state))
    >>> hidden.shape, state.shape
    ((2, 5), (2, 5))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(hidden_size)

        def start(*shape: int) -> Tensor:
            return Tensor.uniform(*shape, low=-bound, high=bound)

        self.weight_ih = start(4 * hidden_size, input_size)
        self.weight_hh = start(4 * hidden_size, hidden_size)
        self.bias_ih = start(4 * hidden_size) if bias else None
        self.bias_hh = start(4 * hidden_size) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state; `hc` are the ones before, zeros where None."""
        if hc is None:
            size = self.weight_hh.shape[1]
            zeros = Tensor.zeros(x.shape[0], size, dtype=x.dtype, device=x.device)
            hc = (zeros, zeros)
        hidden, cell = hc
        gates = x.linear(self.weight_ih.T, self.bias_ih)
        gates = gates + hidden.linear(self.weight_hh.T, self.bias_hh)
        write, keep, candidate, show = gates.chunk(4, dim=1)
        cell = keep.sigmoid() * cell + write.sigmoid() * candidate.tanh()
        return show.sigmoid() * cell.tanh(), cell
