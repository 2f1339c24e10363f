"""What is measured: shapes, the work in bytes or operations, and the same in each library's words.

A workload's functions take the library's own arrays (`numpy` for numpy, torch for torch ...) and
return one; `work` counts bytes (GB/s) or floating point operations (GFLOP/s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

M = 1 << 20


@dataclass(frozen=True)
class Workload:
    """One line of the table."""

    name: str
    unit: str
    shapes: tuple[tuple[int, ...], ...]
    work: float
    functions: dict[str, Callable[..., Any]]
    tolerance: float = 1e-4


def _matmul(m: int, k: int, n: int) -> Workload:
    def multiply(a: Any, b: Any) -> Any:
        return a @ b

    libraries = ("numpy", "torch", "jax", "tinygrad", "tinyfn")
    return Workload(
        f"matmul {m}x{k}x{n}",
        "GFLOP/s",
        ((m, k), (k, n)),
        2 * m * k * n,
        dict.fromkeys(libraries, multiply),
        tolerance=1e-3,
    )


def _numpy_softmax(np: Any, x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def workloads(modules: dict[str, Any]) -> list[Workload]:
    """All workloads, with the functions of the libraries that are given."""
    np, torch, jax = (modules.get(name) for name in ("numpy", "torch", "jax"))

    def same(method: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
        return dict.fromkeys(("tinygrad", "tinyfn"), method)

    return [
        Workload(
            "relu(a*b+1) - b/2, 16M",
            "GB/s",
            ((16 * M,), (16 * M,)),
            3 * 4 * 16 * M,
            {
                "numpy": lambda a, b: np.maximum(a * b + 1, 0) - b / 2,
                "torch": lambda a, b: torch.relu(a * b + 1) - b / 2,
                "jax": lambda a, b: jax.nn.relu(a * b + 1) - b / 2,
                **dict.fromkeys(("tinygrad", "tinyfn"), lambda a, b: (a * b + 1).relu() - b / 2),
            },
        ),
        Workload(
            "exp(a) * tanh(b), 16M",
            "GB/s",
            ((16 * M,), (16 * M,)),
            3 * 4 * 16 * M,
            {
                "numpy": lambda a, b: np.exp(a) * np.tanh(b),
                "torch": lambda a, b: torch.exp(a) * torch.tanh(b),
                "jax": lambda a, b: jax.numpy.exp(a) * jax.numpy.tanh(b),
                **dict.fromkeys(("tinygrad", "tinyfn"), lambda a, b: a.exp() * b.tanh()),
            },
        ),
        Workload(
            "sum of rows, 4096x4096",
            "GB/s",
            ((4096, 4096),),
            4 * 16 * M,
            {
                **dict.fromkeys(("numpy", "torch", "jax"), lambda a: a.sum(1)),
                **same(lambda a: a.sum(1)),
            },
        ),
        Workload(
            "softmax, 4096x1024",
            "GB/s",
            ((4096, 1024),),
            2 * 4 * 4 * M,
            {
                "numpy": lambda a: _numpy_softmax(np, a),
                "torch": lambda a: torch.softmax(a, 1),
                "jax": lambda a: jax.nn.softmax(a, 1),
                **same(lambda a: a.softmax(1)),
            },
        ),
        *(_matmul(n, n, n) for n in (64, 256, 512, 1024)),
    ]
