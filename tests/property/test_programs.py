"""Random programs: compiled kernels, plain Python kernels and the oracle agree."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tinyfn import Context, Tensor, dtypes
from tinyfn.uop.interpret import interpret

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
UNARY = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "square": lambda x: x * x,
    "relu": lambda x: x.relu(),
}
FLOAT_UNARY = {
    "exp": lambda x: (x * 0.25).exp(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "sqrt": lambda x: (x.abs() + 1).sqrt(),
    "softmax": lambda x: x.softmax(-1) if x.ndim else x,
    "mean": lambda x: x.mean(-1, keepdim=True).expand(x.shape) if x.ndim else x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "max": lambda x, y: x.maximum(y),
    "where": lambda x, y: (x < y).where(x, y),
}


@st.composite
def arrays(draw, dtype):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 17]), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(-9, 10, shape)
    scale = 0.5 if dtype in FLOATS else 1
    return (np.abs(values) if dtype.startswith("u") else values) * scale


@st.composite
def moved(draw, x):
    kind = draw(st.sampled_from(["permute", "flip", "shrink", "pad", "reshape", "slice", "sum"]))
    axis = draw(st.integers(0, x.ndim - 1))
    if kind == "permute":
        return x.permute(draw(st.permutations(range(x.ndim))))
    if kind == "flip":
        return x.flip(axis)
    if kind == "shrink":
        begin = draw(st.integers(0, x.shape[axis] - 1))
        box = [(begin, s) if a == axis else None for a, s in enumerate(x.shape)]
        return x.shrink(tuple(box))
    if kind == "pad":
        around = draw(st.tuples(st.integers(0, 2), st.integers(0, 3)))
        return x.pad(tuple(around if a == axis else (0, 0) for a in range(x.ndim)))
    if kind == "reshape":
        return x.flatten() if x.ndim > 1 else x.reshape(1, -1)
    if kind == "slice":
        step = draw(st.sampled_from([-2, -1, 2]))
        return x[
            tuple(slice(None, None, step) if a == axis else slice(None) for a in range(x.ndim))
        ]
    return x.sum(axis, keepdim=True).cast(x.dtype)


@st.composite
def programs(draw):
    dtype = draw(st.sampled_from(FLOATS + INTS))
    first = Tensor(draw(arrays(dtype)).tolist(), dtype=dtype)
    x = first
    for _ in range(draw(st.integers(1, 6))):
        is_float = dtypes.is_float(x.dtype)
        step = draw(st.sampled_from(["unary", "binary", "move", "move", "cast", "matmul"]))
        if step == "unary":
            table = {**UNARY, **FLOAT_UNARY} if is_float else UNARY
            x = table[draw(st.sampled_from(sorted(table)))](x)
        elif step == "binary":
            other = x.flip(0) if draw(st.booleans()) else x * 2
            x = BINARY[draw(st.sampled_from(sorted(BINARY)))](x, other)
        elif step == "move":
            x = draw(moved(x))
        elif step == "cast":
            x = x.cast(draw(st.sampled_from(FLOATS if is_float else INTS)))
        elif x.ndim >= 2:
            x = x @ x.transpose(-1, -2)
    return x


def bound(dtype):
    """What rounding in another order may do to values of a program: a few units, relative."""
    return {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-4, "float64": 1e-10}.get(dtype, 0)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_kernels_agree_with_the_oracle(x):
    (expected,) = interpret([x.uop], {})
    native = x.numpy()
    if not dtypes.is_float(x.dtype):
        np.testing.assert_array_equal(native, expected)
        return
    tolerance = bound(x.dtype.name)
    scale = np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0)), initial=0)
    np.testing.assert_allclose(
        native.astype(np.float64),
        np.asarray(expected, np.float64),
        rtol=tolerance,
        atol=tolerance * max(scale, 1),
    )


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_plain_python_agrees_with_native(x):
    again = x + 0 if dtypes.is_float(x.dtype) else x ^ 0
    with Context(NATIVE=0):
        plain = x.contiguous().numpy()
    native = again.numpy()
    if dtypes.is_float(x.dtype):
        tolerance = bound(x.dtype.name)
        scale = np.nanmax(np.abs(np.where(np.isfinite(native), native, 0)), initial=0)
        np.testing.assert_allclose(
            plain.astype(np.float64),
            native.astype(np.float64),
            rtol=tolerance,
            atol=tolerance * max(scale, 1),
        )
    else:
        np.testing.assert_array_equal(plain, native)
