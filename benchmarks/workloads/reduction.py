"""Sums and row kernels."""

from typing import Any

from workload import Input, M, Workload

SQUARE = (Input((4096, 4096)),)
ROWS = (Input((4096, 1024)),)


def softmax(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(np: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def total(name: str, axis: int | None) -> Workload:
    return Workload(
        f"sum of {name}, 4096x4096",
        "GB/s",
        4 * 16 * M,
        SQUARE,
        array=lambda _, a: a.sum(axis),
        torch=lambda _, a: a.sum(axis),
        tensor=lambda _, a: a.sum(axis),
    )


WORKLOADS = [
    total("all", None),
    total("rows", 1),
    total("columns", 0),
    Workload(
        "softmax, 4096x1024",
        "GB/s",
        2 * 4 * 4 * M,
        ROWS,
        array=softmax,
        torch=lambda torch, a: torch.softmax(a, 1),
        jax=lambda jax, a: jax.nn.softmax(a, 1),
        tensor=lambda _, a: a.softmax(1),
    ),
    Workload(
        "layernorm, 4096x1024",
        "GB/s",
        2 * 4 * 4 * M,
        ROWS,
        array=layernorm,
        torch=lambda torch, a: torch.nn.functional.layer_norm(a, (1024,)),
        tensor=lambda _, a: a.layernorm(),
    ),
]
