"""Shapes that fit nothing, views that are not contiguous, other element types."""

from typing import Any

from workload import Input, M, Workload

from .contraction import jax_convolution, product, windows
from .reduction import softmax


def total(shape: tuple[int, ...], axis: int, dtype: str = "float32") -> Workload:
    size = 4 if dtype.endswith("32") else 8
    count = 1
    for n in shape:
        count *= n
    return Workload(
        f"sum of axis {axis}, {'x'.join(map(str, shape))}" + (" int32" * (dtype == "int32")),
        "GB/s",
        size * count,
        (Input(shape, dtype, high=100 * (dtype == "int32")),),
        array=lambda _, a: a.sum(axis),
        torch=lambda _, a: a.sum(axis),
        tensor=lambda _, a: a.sum(axis),
    )


def chain(name: str, shape: tuple[int, ...], dtype: str, size: int, **more: Any) -> Workload:
    """a * b + a, whose numbers stay what they are in every element type."""
    count = 1
    for n in shape:
        count *= n
    return Workload(
        name,
        "GB/s",
        3 * size * count,
        (Input(shape, dtype, high=1000 * (dtype == "int32")),) * 2,
        array=lambda _, a, b: a * b + a,
        torch=lambda _, a, b: a * b + a,
        tensor=lambda _, a, b: a * b + a,
        numexpr=None if dtype == "float16" else "a * b + a",
        **more,
    )


WORKLOADS = [
    product(129, 129, 129),
    product(1009, 3, 1013),
    product(7, 1013, 3),
    product(509, 521, 523),
    product(4093, 4093, 1, tolerance=1e-4),
    product(512, 512, 512, "float16", tolerance=5e-3, leave_out=("numpy",)),
    total((4099, 1031), 1),
    total((1031, 4099), 0),
    total((1_000_003, 3), 1),
    total((3, 1_000_003), 0),
    total((129, 257, 129), 1),
    total((4096, 4096), 1, "int32"),
    chain("a*b+a, 1009x1013", (1009, 1013), "float32", 4),
    chain("a*b+a, 8M float64", (8 * M,), "float64", 8),
    chain("a*b+a, 16M int32", (16 * M,), "int32", 4),
    chain("a*b+a, 16M float16", (16 * M,), "float16", 2, tolerance=5e-3, leave_out=("numpy",)),
    Workload(
        "exp(a), 8M float64",
        "GB/s",
        2 * 8 * 8 * M,
        (Input((8 * M,), "float64"),),
        array=lambda np, a: np.exp(a),
        torch=lambda torch, a: torch.exp(a),
        tensor=lambda _, a: a.exp(),
        numexpr="exp(a)",
    ),
    Workload(
        "softmax, 8191x129",
        "GB/s",
        2 * 4 * 8191 * 129,
        (Input((8191, 129)),),
        array=softmax,
        torch=lambda torch, a: torch.softmax(a, 1),
        jax=lambda jax, a: jax.nn.softmax(a, 1),
        tensor=lambda _, a: a.softmax(1),
    ),
    Workload(
        "a + b.T, 2048x2048",
        "GB/s",
        3 * 4 * 4 * M,
        (Input((2048, 2048)),) * 2,
        array=lambda _, a, b: a + b.T,
        torch=lambda _, a, b: a + b.T,
        tensor=lambda _, a, b: a + b.T,
    ),
    Workload(
        "a[:, ::2] * 2 + a[:, 1::2], 4096x4096",
        "GB/s",
        4 * 16 * M * 3 / 2,
        (Input((4096, 4096)),),
        array=lambda _, a: a[:, ::2] * 2 + a[:, 1::2],
        torch=lambda _, a: a[:, ::2] * 2 + a[:, 1::2],
        tensor=lambda _, a: a[:, ::2] * 2 + a[:, 1::2],
    ),
    Workload(
        "rows reversed, 4096x4096",
        "GB/s",
        2 * 4 * 16 * M,
        (Input((4096, 4096)),),
        array=lambda np, a: np.array(a[:, ::-1]),
        torch=lambda _, a: a.flip(1),
        tensor=lambda _, a: a.flip(1).contiguous(),
    ),
    Workload(
        "conv2d 3x7x31x29, 13 of 3x3",
        "GFLOP/s",
        2.0 * 3 * 31 * 29 * 13 * 7 * 9,
        (Input((3, 7, 31, 29)), Input((13, 7, 3, 3))),
        array=windows,
        torch=lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=1),
        jax=jax_convolution,
        tensor=lambda _, x, w: x.conv2d(w, padding=1),
    ),
]
