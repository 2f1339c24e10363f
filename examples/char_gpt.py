"""Teach a small transformer to write like Python's documentation, letter by letter.

    python examples/char_gpt.py                         # learns for about a minute, then writes
    python examples/char_gpt.py --steps 3000 --prompt "The " --letters 500

The text comes with Python (`pydoc_data.topics`). Writing keeps the keys and values of the letters
before in a cache; the position is a symbolic variable, so one recorded call serves all of them.
"""

import argparse
import pydoc_data.topics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyfn import Tensor, TinyJit, UOp, Variable, function
from tinyfn.helpers import tqdm
from tinyfn.nn import Embedding, LayerNorm, Linear
from tinyfn.nn.optim import AdamW
from tinyfn.nn.state import get_parameters


class Block:
    """Attention to the letters before, then a layer on each letter by itself."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.before, self.between = LayerNorm(width), LayerNorm(width)
        self.joined, self.out = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def split(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values: each (batch, heads, letters, width of a head)."""
        batch, letters, width = x.shape
        joined = self.joined(self.before(x))
        parts = joined.reshape(batch, letters, 3, self.heads, width // self.heads)
        return [parts[:, :, n].transpose(1, 2) for n in range(3)]

    def finish(self, x: Tensor, seen: Tensor) -> Tensor:
        """What was seen added to x, then the layer."""
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(self.up(self.between(x)).gelu())

    def __call__(self, x: Tensor) -> Tensor:
        """All letters of a text at once, each sees those before it."""
        q, k, v = self.split(x)
        return self.finish(x, q.scaled_dot_product_attention(k, v, is_causal=True))

    def next(self, x: Tensor, cache: Tensor, position: UOp) -> Tensor:
        """One letter at a position, with the keys and values of those before in the cache."""
        q, k, v = self.split(x)
        cache[:, :, :, position : position + 1] = Tensor.stack(k, v)
        keys, values = cache[0, :, :, : position + 1], cache[1, :, :, : position + 1]
        return self.finish(x, q.scaled_dot_product_attention(keys, values))


class GPT:
    """Letters in, scores of the next letter out."""

    def __init__(self, letters: int, context: int, width: int, heads: int, blocks: int) -> None:
        self.context, self.heads, self.width = context, heads, width
        self.letter, self.place = Embedding(letters, width), Embedding(context, width)
        self.blocks = [Block(width, heads) for _ in range(blocks)]
        self.last, self.score = LayerNorm(width), Linear(width, letters)

    @function
    def __call__(self, text: Tensor) -> Tensor:
        """Scores for what follows each letter: (batch, letters) to (batch, letters, kinds)."""
        x = self.letter(text) + self.place.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.score(self.last(x))

    def empty_caches(self) -> list[Tensor]:
        """Keys and values of no letter yet, one tensor for each block."""
        shape = (2, 1, self.heads, self.context, self.width // self.heads)
        return [Tensor.zeros(*shape).contiguous().realize() for _ in self.blocks]

    def next(self, letter: Tensor, caches: list[Tensor], position: UOp) -> Tensor:
        """Scores for what follows one letter (1, 1) at a position."""
        x = self.letter(letter) + self.place.weight[position : position + 1]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block.next(x, cache, position)
        return self.score(self.last(x))[0, 0]


class Writer:
    """Writes with a model: keeps the cache, and replays one recorded call a letter."""

    def __init__(self, model: GPT) -> None:
        self.model, self.caches = model, model.empty_caches()
        self.position = Variable("position", 0, model.context - 1)
        self.scores = TinyJit(self._scores)

    def _scores(self, letter: Tensor, position: UOp) -> Tensor:
        return self.model.next(letter, self.caches, position).realize()

    def write(self, prompt: Sequence[int], count: int, warmth: float, seed: int) -> list[int]:
        """The prompt and what follows, up to the model's context."""
        random = np.random.default_rng(seed)
        text = list(prompt)
        for place in range(min(len(prompt) + count, self.model.context) - 1):
            given = Tensor([[text[place]]], dtype="int32").realize()
            scores = self.scores(given, self.position.bind(place)).numpy()
            if place + 1 == len(text):
                noise = random.gumbel(size=scores.shape)
                text.append(int((scores / warmth + noise).argmax()))
        return text


def documentation() -> tuple[str, Any]:
    """The kinds of letters in Python's documentation, and the text as their numbers."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = "".join(sorted(set(text[:400_000])))
    numbers = {letter: n for n, letter in enumerate(letters)}
    return letters, np.array([numbers[c] for c in text[:400_000]], np.int32)


def learn(model: GPT, text: Any, steps: int, batch: int, seed: int) -> list[float]:
    """Train on pieces of the text that are drawn by chance; returns the losses."""
    optimizer = AdamW(get_parameters(model), lr=0.003)
    random = np.random.default_rng(seed)

    @TinyJit
    @Tensor.train()
    def step(given: Tensor, follows: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(given).sparse_categorical_crossentropy(follows).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    bar = tqdm(range(steps), unit="step")
    for _ in bar:
        starts = random.integers(0, len(text) - model.context - 1, batch)
        pieces = np.stack([text[s : s + model.context + 1] for s in starts])
        losses.append(step(Tensor(pieces[:, :-1]), Tensor(pieces[:, 1:])).item())
        bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
    return losses


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=600, help="batches to learn from")
    parser.add_argument("--batch", type=int, default=16, help="pieces of text a step")
    parser.add_argument("--width", type=int, default=128, help="numbers that stand for a letter")
    parser.add_argument("--context", type=int, default=128, help="letters that the model sees")
    parser.add_argument("--prompt", default="The ", help="what the text begins with")
    parser.add_argument("--letters", type=int, default=120, help="how many to write")
    parser.add_argument("--warmth", type=float, default=0.7, help="how freely it chooses")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and all choices")
    parser.add_argument("--quick", action="store_true", help="a smaller model, 200 steps")
    options = parser.parse_args(given)
    if options.quick:
        options.steps, options.width, options.context = min(options.steps, 200), 64, 64
    return options


def main(given: Sequence[str] | None = None) -> float:
    """Train, write and report; returns the mean loss of the last twenty steps."""
    options = arguments(given)
    started = time.perf_counter()
    Tensor.manual_seed(options.seed)
    letters, text = documentation()
    model = GPT(len(letters), options.context, options.width, heads=4, blocks=2)
    losses = learn(model, text, options.steps, options.batch, options.seed)
    loss = float(np.mean(losses[-20:]))
    print(f"loss {loss:.3f} a letter after {options.steps} steps")
    begun = time.perf_counter()
    prompt = [letters.index(c) for c in options.prompt if c in letters]
    wrote = Writer(model).write(prompt, options.letters, options.warmth, options.seed)
    print("".join(letters[n] for n in wrote))
    now = time.perf_counter()
    print(f"learned in {begun - started:.1f} s, wrote in {now - begun:.1f} s")
    return loss


if __name__ == "__main__":
    main()
