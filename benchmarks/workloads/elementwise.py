"""Elementwise chains: arithmetic at the speed of memory, and transcendental functions."""

from workload import Input, M, Workload

FLAT = Input((16 * M,))
POSITIVE = Input((16 * M,), positive=True)
C = 0.7978845608028654  # sqrt(2 / pi)

WORKLOADS = [
    Workload(
        "relu(a*b+1) - b/2, 16M",
        "GB/s",
        3 * 4 * 16 * M,
        (FLAT, FLAT),
        array=lambda np, a, b: np.maximum(a * b + 1, 0) - b / 2,
        torch=lambda torch, a, b: torch.relu(a * b + 1) - b / 2,
        tensor=lambda _, a, b: (a * b + 1).relu() - b / 2,
        numexpr="where(a * b + 1 > 0, a * b + 1, 0) - b / 2",
    ),
    Workload(
        "exp(a) * tanh(b), 16M",
        "GB/s",
        3 * 4 * 16 * M,
        (FLAT, FLAT),
        array=lambda np, a, b: np.exp(a) * np.tanh(b),
        torch=lambda torch, a, b: torch.exp(a) * torch.tanh(b),
        tensor=lambda _, a, b: a.exp() * b.tanh(),
        numexpr="exp(a) * tanh(b)",
    ),
    Workload(
        "sin(a) + log(b), 16M",
        "GB/s",
        3 * 4 * 16 * M,
        (FLAT, POSITIVE),
        array=lambda np, a, b: np.sin(a) + np.log(b),
        torch=lambda torch, a, b: torch.sin(a) + torch.log(b),
        tensor=lambda _, a, b: a.sin() + b.log(),
        numexpr="sin(a) + log(b)",
    ),
    Workload(
        "gelu, 4M",
        "GB/s",
        2 * 4 * 4 * M,
        (Input((4 * M,)),),
        array=lambda np, a: 0.5 * a * (1 + np.tanh(C * (a + 0.044715 * a * a * a))),
        torch=lambda torch, a: torch.nn.functional.gelu(a, approximate="tanh"),
        jax=lambda jax, a: jax.nn.gelu(a),
        tensor=lambda _, a: a.gelu(),
        numexpr=f"a * (1 + tanh({C} * (a + 0.044715 * a * a * a))) / 2",
    ),
    Workload(
        "a*b+1 on 8 elements, replayed",
        "calls/s",
        1,
        (Input((8,)), Input((8,))),
        array=lambda _, a, b: a * b + 1,
        torch=lambda _, a, b: a * b + 1,
        tensor=lambda _, a, b: a * b + 1,
        numexpr="a * b + 1",
    ),
]
