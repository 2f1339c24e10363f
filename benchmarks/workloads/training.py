"""Training steps: a loss written once per library, and one way to learn in each library."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable
from typing import Any

from workload import Input, Workload

from .contraction import attention
from .movement import jax_pooled
from .reduction import layernorm

Loss = Callable[..., Any]
RATE, B1, B2, EPS = 1e-3, 0.9, 0.999, 1e-8


def cross_entropy(np: Any, scores: Any, labels: Any) -> Any:
    shifted = scores - scores.max(-1, keepdims=True)
    right = np.take_along_axis(shifted, labels[..., None], -1)[..., 0]
    return (np.log(np.exp(shifted).sum(-1)) - right).mean()


# -- how each library learns


def torch_learns(loss: Loss, decay: float, torch: Any, compiled: Any, *given: Any) -> Any:
    x, labels, *weights = given
    weights = [w.clone().requires_grad_() for w in weights]
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    optimizer = kind(weights, lr=RATE, weight_decay=decay, fused=True)
    labels = labels.long()
    loss_of = compiled(functools.partial(loss, torch))

    def step() -> Any:
        optimizer.zero_grad()
        value = loss_of(x, labels, *weights)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def jax_learns(loss: Loss, decay: float, jax: Any, *given: Any) -> Any:
    x, labels, *weights = given
    tree, np = jax.tree_util, jax.numpy

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: Any, x: Any, labels: Any) -> Any:
        weights, first, second, count = state
        value, slopes = jax.value_and_grad(lambda w: loss(jax, x, labels, *w))(weights)
        count = count + 1
        first = tree.tree_map(lambda m, g: B1 * m + (1 - B1) * g, first, slopes)
        second = tree.tree_map(lambda v, g: B2 * v + (1 - B2) * g * g, second, slopes)

        def new(w: Any, m: Any, v: Any) -> Any:
            m, v = (a / -np.expm1(count * math.log(b)) for a, b in ((m, B1), (v, B2)))
            away = m / (np.sqrt(v) + EPS)
            return w - RATE * (away + decay * w)

        return (tree.tree_map(new, weights, first, second), first, second, count), value

    zeros = tree.tree_map(np.zeros_like, weights)
    state = (weights, zeros, tree.tree_map(np.zeros_like, weights), np.zeros(()))

    def step() -> Any:
        nonlocal state
        state, value = update(state, x, labels)
        return value

    return step


def tensor_learns(loss: Loss, decay: float, module: Any, *given: Any) -> Any:
    x, labels, *weights = given
    optim = importlib.import_module(module.__name__ + ".nn.optim")
    optimizer = (
        optim.AdamW(weights, lr=RATE, weight_decay=decay) if decay else optim.Adam(weights, lr=RATE)
    )

    training = getattr(module.Tensor, "train", None) or (lambda: module.Context(TRAINING=1))

    @module.TinyJit
    @training()
    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        value = loss(module, x, labels, *weights)
        value.backward()
        return value.realize(*optimizer.schedule_step())

    return lambda: step(x, labels)


# -- multilayer perceptron


def mlp_array(np: Any, x: Any, labels: Any, *weights: Any) -> Any:
    for w in weights[:-1]:
        x = np.maximum(x @ w, 0)
    return cross_entropy(np, x @ weights[-1], labels)


def mlp_jax(jax: Any, *given: Any) -> Any:
    return mlp_array(jax.numpy, *given)


def mlp_torch(torch: Any, x: Any, labels: Any, *weights: Any) -> Any:
    for w in weights[:-1]:
        x = torch.relu(x @ w)
    return torch.nn.functional.cross_entropy(x @ weights[-1], labels)


def mlp_tensor(_: Any, x: Any, labels: Any, *weights: Any) -> Any:
    for w in weights[:-1]:
        x = (x @ w).relu()
    return (x @ weights[-1]).sparse_categorical_crossentropy(labels)


# -- convolutional net


def shifted_products(np: Any, x: Any, w: Any) -> Any:
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.tensordot(views, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def jax_products(jax: Any, x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID")


def halved(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def convnet_array(
    np: Any, x: Any, labels: Any, *given: Any, convolve: Any = None, pool: Any = halved
) -> Any:
    convolve = convolve or functools.partial(shifted_products, np)
    *weights, last = given
    for first, second, scale, shift in (weights[:4], weights[4:]):
        x = np.maximum(convolve(x, first), 0)
        x = np.maximum(convolve(x, second), 0)
        x = x - x.mean((0, 2, 3), keepdims=True)
        x = x / np.sqrt((x * x).mean((0, 2, 3), keepdims=True) + 1e-5)
        x = x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
        x = pool(x)
    return cross_entropy(np, x.reshape(len(x), -1) @ last, labels)


def convnet_jax(jax: Any, *given: Any) -> Any:
    convolve, pool = (functools.partial(f, jax) for f in (jax_products, jax_pooled))
    return convnet_array(jax.numpy, *given, convolve=convolve, pool=pool)


def convnet_torch(torch: Any, x: Any, labels: Any, *given: Any) -> Any:
    f = torch.nn.functional
    *weights, last = given
    for first, second, scale, shift in (weights[:4], weights[4:]):
        x = torch.relu(f.conv2d(torch.relu(f.conv2d(x, first)), second))
        x = f.max_pool2d(f.batch_norm(x, None, None, scale, shift, training=True), 2)
    return f.cross_entropy(x.flatten(1) @ last, labels)


def convnet_tensor(_: Any, x: Any, labels: Any, *given: Any) -> Any:
    *weights, last = given
    for first, second, scale, shift in (weights[:4], weights[4:]):
        x = x.conv2d(first).relu().conv2d(second).relu()
        mean = x.mean((0, 2, 3))
        spread = (x - mean.reshape(1, -1, 1, 1)).square().mean((0, 2, 3))
        x = x.batchnorm(scale, shift, mean, (spread + 1e-5).rsqrt()).max_pool2d(2)
    return (x.flatten(1) @ last).sparse_categorical_crossentropy(labels)


# -- transformer

WIDTH, HEADS, BATCH, LENGTH, VOCABULARY, LAYERS = 128, 2, 8, 64, 256, 2
NORM = (Input((WIDTH,), scale=0.1, offset=1), Input((WIDTH,), scale=0.1))
LAYER = (
    *NORM,
    Input((WIDTH, 3 * WIDTH), scale=0.05),
    Input((WIDTH, WIDTH), scale=0.05),
    *NORM,
    Input((WIDTH, 4 * WIDTH), scale=0.05),
    Input((4 * WIDTH, WIDTH), scale=0.05),
)
GPT = (
    Input((VOCABULARY, WIDTH), scale=0.1),
    Input((LENGTH, WIDTH), scale=0.1),
    *LAYER * LAYERS,
    *NORM,
    Input((WIDTH, VOCABULARY), scale=0.05),
)


def layers_of(weights: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    inner = weights[2:-3]
    return [inner[k : k + len(LAYER)] for k in range(0, len(inner), len(LAYER))]


def gpt_array(np: Any, tokens: Any, labels: Any, *weights: Any) -> Any:
    x = weights[0][tokens] + weights[1]
    for scale, shift, qkv, out, scale2, shift2, up, down in layers_of(weights):
        joined = ((layernorm(np, x) * scale + shift) @ qkv).reshape(BATCH, LENGTH, 3, HEADS, -1)
        seen = attention(np, *joined.transpose(2, 0, 3, 1, 4))
        x = x + seen.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ out
        a = (layernorm(np, x) * scale2 + shift2) @ up
        x = x + 0.5 * a * (1 + np.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))) @ down
    scale, shift, head = weights[-3:]
    return cross_entropy(np, (layernorm(np, x) * scale + shift) @ head, labels)


def gpt_jax(jax: Any, *given: Any) -> Any:
    return gpt_array(jax.numpy, *given)


def gpt_torch(torch: Any, tokens: Any, labels: Any, *weights: Any) -> Any:
    f = torch.nn.functional
    x = f.embedding(tokens, weights[0]) + weights[1]
    for scale, shift, qkv, out, scale2, shift2, up, down in layers_of(weights):
        joined = f.layer_norm(x, (WIDTH,), scale, shift) @ qkv
        q, k, v = joined.view(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind()
        seen = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ out
        a = f.layer_norm(x, (WIDTH,), scale2, shift2) @ up
        x = x + f.gelu(a, approximate="tanh") @ down
    scale, shift, head = weights[-3:]
    scores = f.layer_norm(x, (WIDTH,), scale, shift) @ head
    return f.cross_entropy(scores.view(-1, VOCABULARY), labels.view(-1))


def gpt_tensor(_: Any, tokens: Any, labels: Any, *weights: Any) -> Any:
    x = weights[0][tokens] + weights[1]
    for scale, shift, qkv, out, scale2, shift2, up, down in layers_of(weights):
        joined = ((x.layernorm() * scale + shift) @ qkv).reshape(BATCH, LENGTH, 3, HEADS, -1)
        q, k, v = (joined[:, :, n].transpose(1, 2) for n in range(3))
        seen = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ out
        x = x + ((x.layernorm() * scale2 + shift2) @ up).gelu() @ down
    scale, shift, head = weights[-3:]
    return ((x.layernorm() * scale + shift) @ head).sparse_categorical_crossentropy(labels)


# -- the lines


def step(name: str, model: tuple[Loss, ...], inputs: tuple[Input, ...], decay: float) -> Workload:
    array, torch, tensor, jax = model
    return Workload(
        f"training step, {name}",
        "steps/s",
        1,
        inputs,
        array=array,
        torch=functools.partial(torch_learns, torch, decay),
        tensor=functools.partial(tensor_learns, tensor, decay),
        jax=functools.partial(jax_learns, jax, decay),
        training=True,
    )


def mlp(batch: int, *sizes: int) -> Workload:
    inputs = (
        Input((batch, sizes[0])),
        Input((batch,), "int32", high=sizes[-1]),
        *(Input((m, n), scale=m**-0.5) for m, n in itertools.pairwise(sizes)),
    )
    name = f"MLP {'-'.join(map(str, sizes))}, batch {batch}"
    return step(name, (mlp_array, mlp_torch, mlp_tensor, mlp_jax), inputs, 0.0)


def filters(out: int, into: int, size: int) -> Input:
    return Input((out, into, size, size), scale=(into * size * size) ** -0.5)


CONVNET = (
    Input((64, 1, 28, 28)),
    Input((64,), "int32", high=10),
    *(filters(32, 1, 5), filters(32, 32, 5), *(Input((32,), scale=0.1, offset=1),) * 2),
    *(filters(64, 32, 3), filters(64, 64, 3), *(Input((64,), scale=0.1, offset=1),) * 2),
    Input((576, 10), scale=0.05),
)
TOKENS = (Input((BATCH, LENGTH), "int32", high=VOCABULARY),) * 2
WORKLOADS = [
    mlp(128, 784, 512, 512, 10),
    mlp(32, 64, 64, 64, 10),
    step(
        "convnet 28x28, batch 64",
        (convnet_array, convnet_torch, convnet_tensor, convnet_jax),
        CONVNET,
        0.0,
    ),
    step(
        "GPT d128, 2 layers, batch 8 x 64",
        (gpt_array, gpt_torch, gpt_tensor, gpt_jax),
        (*TOKENS, *GPT),
        0.01,
    ),
]
