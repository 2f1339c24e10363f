"""Products: matrices of many shapes, batches, a convolution, attention."""

from typing import Any

from workload import Input, Workload

from .reduction import softmax


def product(m: int, k: int, n: int, dtype: str = "float32", **more: Any) -> Workload:
    """One matrix product."""

    def multiply(_: Any, a: Any, b: Any) -> Any:
        return a @ b

    shape = f"{m}x{k}x{n}" if len({m, k, n}) > 1 else f"{m}³"
    return Workload(
        f"matmul {shape}" + ("" if dtype == "float32" else f" {dtype}"),
        "GFLOP/s",
        2.0 * m * k * n,
        (Input((m, k), dtype), Input((k, n), dtype)),
        *(multiply, multiply, multiply),
        **{"tolerance": 2e-5 if dtype == "float32" else 1e-10, **more},
    )


def many(n: int, count: int) -> Workload:
    """Small products together, so that one call does not hide the kernels."""

    def multiply(_: Any, *given: Any) -> Any:
        return tuple(a @ b for a, b in zip(given[:count], given[count:], strict=True))

    return Workload(
        f"{count} products of {n}³ in a call",
        "GFLOP/s",
        2.0 * count * n**3,
        (Input((n, n)),) * (2 * count),
        *(multiply, multiply, multiply),
    )


def windows(np: Any, x: Any, w: Any) -> Any:
    """The 3x3 convolution, padded by 1, in numpy: windows against the weights."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.tensordot(views, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def gelu_linear(np: Any, x: Any, w: Any, b: Any) -> Any:
    a = x @ w + b
    return 0.5 * a * (1 + np.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))


def attention(np: Any, q: Any, k: Any, v: Any) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / 8
    allowed = np.tril(np.ones(scores.shape[-2:], bool))
    return softmax(np, np.where(allowed, scores, -np.inf)) @ v


def jax_convolution(jax: Any, x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))


QKV = (Input((4, 8, 256, 64)),) * 3
WORKLOADS = [
    *(product(n, n, n) for n in (64, 256, 512, 1024, 2048)),
    many(16, 64),
    many(32, 64),
    many(64, 32),
    product(512, 512, 512, "float64"),
    product(197, 64, 769),
    product(1000, 1000, 1000),
    product(4096, 64, 64),
    product(1, 4096, 4096),
    Workload(
        "a @ b.T, 1024³",
        "GFLOP/s",
        2.0 * 1024**3,
        (Input((1024, 1024)),) * 2,
        array=lambda _, a, b: a @ b.T,
        torch=lambda _, a, b: a @ b.T,
        tensor=lambda _, a, b: a @ b.T,
    ),
    Workload(
        "batched matmul, 64 x 128³",
        "GFLOP/s",
        2.0 * 64 * 128**3,
        (Input((64, 128, 128)),) * 2,
        array=lambda _, a, b: a @ b,
        torch=lambda _, a, b: a @ b,
        tensor=lambda _, a, b: a @ b,
    ),
    Workload(
        "gelu(x @ w + b), 512x1024x1024",
        "GFLOP/s",
        2.0 * 512 * 1024 * 1024,
        (Input((512, 1024)), Input((1024, 1024)), Input((1024,))),
        array=gelu_linear,
        torch=lambda torch, x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh"),
        jax=lambda jax, x, w, b: jax.nn.gelu(x @ w + b),
        tensor=lambda _, x, w, b: (x @ w + b).gelu(),
    ),
    Workload(
        "conv2d 16x32x56x56, 64 of 3x3",
        "GFLOP/s",
        2.0 * 16 * 56 * 56 * 64 * 32 * 9,
        (Input((16, 32, 56, 56)), Input((64, 32, 3, 3))),
        array=windows,
        torch=lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        jax=jax_convolution,
        tensor=lambda _, x, w: x.conv2d(w, padding=1),
    ),
    Workload(
        "causal attention 4x8x256x64",
        "GFLOP/s",
        4.0 * 4 * 8 * 256 * 256 * 64,
        QKV,
        array=attention,
        torch=lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True
        ),
        tensor=lambda _, q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
    ),
]
