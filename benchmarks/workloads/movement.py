"""Data movement: transposing, looking up rows, running sums, sorting, pooling."""

from typing import Any

from workload import Input, M, Workload

SQUARE = (Input((4096, 4096)),)


def pooled(_: Any, a: Any) -> Any:
    return a.reshape(16, 64, 56, 2, 56, 2).max((3, 5))


def jax_pooled(jax: Any, a: Any) -> Any:
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(a, -jax.numpy.inf, jax.lax.max, window, window, "VALID")


def largest(np: Any, a: Any) -> Any:
    return np.flip(np.sort(np.partition(a, -64, 1)[:, -64:], 1), 1)


WORKLOADS = [
    Workload(
        "transpose copy, 4096x4096",
        "GB/s",
        2 * 4 * 16 * M,
        SQUARE,
        array=lambda np, a: np.ascontiguousarray(a.T),
        jax=lambda jax, a: jax.numpy.transpose(a),
        torch=lambda _, a: a.T.contiguous(),
        tensor=lambda _, a: a.T.contiguous(),
    ),
    Workload(
        "embedding 32000x256, 8192 rows",
        "GB/s",
        2 * 4 * 8192 * 256,
        (Input((32000, 256)), Input((8192,), "int32", high=32000)),
        array=lambda _, table, rows: table[rows],
        torch=lambda torch, table, rows: torch.nn.functional.embedding(rows, table),
        tensor=lambda _, table, rows: table[rows],
    ),
    Workload(
        "cumsum of rows, 4096x4096",
        "GB/s",
        2 * 4 * 16 * M,
        SQUARE,
        array=lambda np, a: np.cumsum(a, 1),
        torch=lambda torch, a: torch.cumsum(a, 1),
        tensor=lambda _, a: a.cumsum(1),
    ),
    Workload(
        "cumsum of columns, 4096x4096",
        "GB/s",
        2 * 4 * 16 * M,
        SQUARE,
        array=lambda np, a: np.cumsum(a, 0),
        torch=lambda torch, a: torch.cumsum(a, 0),
        tensor=lambda _, a: a.cumsum(0),
    ),
    Workload(
        "cumsum, 16M",
        "GB/s",
        2 * 4 * 16 * M,
        (Input((16 * M,)),),
        array=lambda np, a: np.cumsum(a),
        torch=lambda torch, a: torch.cumsum(a, 0),
        tensor=lambda _, a: a.cumsum(0),
        tolerance=1e-2,
    ),
    Workload(
        "sort of rows, 256x4096",
        "Melem/s",
        256 * 4096,
        (Input((256, 4096)),),
        array=lambda np, a: np.sort(a, 1),
        torch=lambda torch, a: torch.sort(a, 1).values,
        tensor=lambda _, a: a.sort(1)[0],
    ),
    Workload(
        "stable argsort of rows, 256x4096",
        "Melem/s",
        256 * 4096,
        (Input((256, 4096)),),
        array=lambda np, a: np.argsort(a, 1, kind="stable"),
        jax=lambda jax, a: jax.numpy.argsort(a, 1, stable=True),
        torch=lambda torch, a: torch.argsort(a, dim=1, stable=True),
        tensor=lambda _, a: a.argsort(1),
    ),
    Workload(
        "sort of 1M",
        "Melem/s",
        M,
        (Input((M,)),),
        array=lambda np, a: np.sort(a),
        torch=lambda torch, a: torch.sort(a).values,
        tensor=lambda _, a: a.sort()[0],
    ),
    Workload(
        "topk of rows, 64 of 256x4096",
        "Melem/s",
        256 * 4096,
        (Input((256, 4096)),),
        array=largest,
        jax=lambda jax, a: jax.lax.top_k(a, 64)[0],
        torch=lambda torch, a: torch.topk(a, 64).values,
        tensor=lambda _, a: a.topk(64)[0],
    ),
    Workload(
        "max_pool2d 2x2, 16x64x112x112",
        "GB/s",
        4 * 16 * 64 * 112 * 112 * 5 / 4,
        (Input((16, 64, 112, 112)),),
        array=pooled,
        torch=lambda torch, a: torch.nn.functional.max_pool2d(a, 2),
        jax=jax_pooled,
        tensor=lambda _, a: a.max_pool2d(2),
    ),
]
