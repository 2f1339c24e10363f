"""Kernel graphs that tests of the code generator share, and a comparison with the oracle."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tinyfn.codegen import Generated, generate
from tinyfn.codegen.cache import fetch
from tinyfn.codegen.simd import plain_function
from tinyfn.device import Target
from tinyfn.dtype import Invalid, dtypes, storage_dtype
from tinyfn.uop.arithmetic import from_storage, to_storage
from tinyfn.uop.interpret_kernel import run_kernel
from tinyfn.uop.ops import AddrSpace, AxisType, KernelInfo, Ops, UOp, toposort

f32 = dtypes.float32
LOOP, REDUCE = AxisType.LOOP, AxisType.REDUCE


def target(vector_bytes: int = 64, registers: int = 32, threads: int = 2) -> Target:
    """A processor; `vector_bytes=0` has no vectors."""
    return Target("test", vector_bytes, registers, 1 << 15, 1 << 20, 1 << 25, True, threads)


TARGETS = {
    "avx512": target(64, 32),
    "avx2": target(32, 16),
    "neon": target(16, 32),
    "scalar": target(0, 16),
}


def memory(slot: int, size: int, dtype: Any = f32, space: Any = AddrSpace.GLOBAL) -> UOp:
    """A one-dimensional parameter."""
    return UOp.placeholder((size,), dtype, slot, space)


def at(place: UOp, offset: Any, valid: UOp | None = None) -> UOp:
    """An element, reading 0 where not valid."""
    if isinstance(offset, int):
        offset = UOp.const(offset, dtypes.weakint)
    if valid is not None:
        invalid = UOp.const(Invalid, dtypes.weakint)
        offset = UOp(Ops.WHERE, dtypes.weakint, (valid, offset, invalid))
    return UOp(Ops.INDEX, place.dtype, (place, offset))


def kernel(*effects: UOp, name: str = "kernel") -> UOp:
    """A SINK."""
    return UOp.sink(*effects, arg=KernelInfo(name=name))


def unary(op: Ops, x: UOp) -> UOp:
    """An elementwise op of one source."""
    return UOp(op, x.dtype, (x,))


def exp(x: UOp) -> UOp:
    """e^x."""
    return unary(Ops.EXP, x)


def largest(x: UOp, y: UOp) -> UOp:
    """max."""
    return UOp(Ops.MAX, x.dtype, (x, y))


# *** graphs ***


def elementwise(n: int, dtype: Any = f32) -> UOp:
    """c = a * b + a."""
    i = UOp.range(n, 0, LOOP)
    a, b = at(memory(1, n, dtype), i), at(memory(2, n, dtype), i)
    return kernel(at(memory(0, n, dtype), i).store(a * b + a).end(i), name="multiply_add")


def softmax(rows: int, n: int, staged: bool = False) -> UOp:
    """Softmax over rows; `staged` keeps the exponentials in scratch."""
    x, out = memory(1, rows * n), memory(0, rows * n)
    i, j, k = UOp.range(rows, 0, LOOP), UOp.range(n, 1, LOOP), UOp.range(n, 2, REDUCE)
    top = at(x, i * n + k).reduce(k, arg=Ops.MAX)
    e = exp(at(x, i * n + k) - top)
    total = e.reduce(k)
    again = exp(at(x, i * n + j) - top)
    if staged:
        row = memory(1000, n, f32, AddrSpace.LOCAL)
        again = at(row.after(at(row, k).store(e).end(k)), j)
    return kernel(at(out, i * n + j).store(again / total).end(i, j), name="softmax")


def layernorm(rows: int, n: int) -> UOp:
    """(x - mean) / sqrt(var + eps) * w over rows."""
    x, w, out = memory(1, rows * n), memory(2, n), memory(0, rows * n)
    i, j, k = UOp.range(rows, 0, LOOP), UOp.range(n, 1, LOOP), UOp.range(n, 2, REDUCE)
    mean = at(x, i * n + k).reduce(k) * (1.0 / n)
    apart = at(x, i * n + k) - mean
    scale = unary(Ops.RSQRT, (apart * apart).reduce(k) * (1.0 / n) + 1e-5)
    value = (at(x, i * n + j) - mean) * scale * at(w, j)
    return kernel(at(out, i * n + j).store(value).end(i, j), name="layernorm")


def matmul(
    m: int,
    n: int,
    depth: int,
    dtype: Any = f32,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    epilogue: bool = False,
) -> UOp:
    """c = a @ b (+ bias, relu)."""
    a, b = memory(1, batch * m * depth, dtype), memory(2, batch * depth * n, dtype)
    c, bias = memory(0, batch * m * n, dtype), memory(3, n, dtype)
    g, i, j = UOp.range(batch, 0, LOOP), UOp.range(m, 1, LOOP), UOp.range(n, 2, LOOP)
    k = UOp.range(depth, 3, REDUCE)
    left = at(a, g * (m * depth) + (k * m + i if transpose_a else i * depth + k))
    right = at(b, g * (n * depth) + (j * depth + k if transpose_b else k * n + j))
    value = (left * right).reduce(k)
    if epilogue:
        value = largest(value + at(bias, j), UOp.const(0, dtype))
    place = at(c, g * (m * n) + i * n + j)
    return kernel(place.store(value).end(g, i, j), name="matmul")


def padded_conv(images: int, inputs: int, outputs: int, height: int, width: int) -> UOp:
    """A 3x3 convolution with a border of zeros."""
    x, w = memory(1, images * inputs * height * width), memory(2, outputs * inputs * 9)
    out = memory(0, images * outputs * height * width)
    g, o, y, z = (UOp.range(s, i, LOOP) for i, s in enumerate((images, outputs, height, width)))
    c, u, v = (UOp.range(s, i + 4, REDUCE) for i, s in enumerate((inputs, 3, 3)))
    row, column = y + u - 1, z + v - 1
    low = UOp.const(-1, dtypes.weakint)
    valid = (low < row) & (row < height) & (low < column) & (column < width)
    pixel = at(x, ((g * inputs + c) * height + row) * width + column, valid)
    value = (pixel * at(w, ((o * inputs + c) * 3 + u) * 3 + v)).reduce(c, u, v)
    place = at(out, ((g * outputs + o) * height + y) * width + z)
    return kernel(place.store(value).end(g, o, y, z), name="conv")


def row_reduce(rows: int, n: int, op: Ops = Ops.ADD, dtype: Any = f32) -> UOp:
    """A reduction of rows."""
    i, k = UOp.range(rows, 0, LOOP), UOp.range(n, 1, REDUCE)
    value = at(memory(1, rows * n, dtype), i * n + k).reduce(k, arg=op)
    return kernel(at(memory(0, rows, dtype), i).store(value).end(i), name="rows")


def column_reduce(rows: int, n: int, op: Ops = Ops.ADD) -> UOp:
    """A reduction of columns."""
    i, k = UOp.range(n, 0, LOOP), UOp.range(rows, 1, REDUCE)
    value = at(memory(1, rows * n), k * n + i).reduce(k, arg=op)
    return kernel(at(memory(0, n), i).store(value).end(i), name="columns")


def total(n: int, op: Ops = Ops.ADD) -> UOp:
    """A reduction of everything."""
    k = UOp.range(n, 0, REDUCE)
    return kernel(at(memory(0, 1), 0).store(at(memory(1, n), k).reduce(k, arg=op)), name="total")


def gather(n: int, rows: int, width: int) -> UOp:
    """out[i] = table[index[i]], 0 where the index is out of range."""
    i, j = UOp.range(n, 0, LOOP), UOp.range(width, 1, LOOP)
    index = at(memory(2, n, dtypes.int32), i).cast(dtypes.weakint)
    valid = (UOp.const(-1, dtypes.weakint) < index) & (index < rows)
    value = at(memory(1, rows * width), index * width + j, valid)
    return kernel(at(memory(0, n * width), i * width + j).store(value).end(i, j), name="gather")


def scatter_add(n: int, rows: int, width: int) -> UOp:
    """table[index[i]] += x[i], in the order of i."""
    i, j = UOp.range(n, 0, REDUCE), UOp.range(width, 1, LOOP)
    index = at(memory(1, n, dtypes.int32), i).cast(dtypes.weakint)
    valid = (UOp.const(-1, dtypes.weakint) < index) & (index < rows)
    place = at(memory(0, rows * width), index * width + j, valid)
    return kernel(
        place.store(place + at(memory(2, n * width), i * width + j)).end(i, j), name="add"
    )


def counted_rows(rows: int, n: int) -> UOp:
    """Rows doubled as far as they are not empty: a loop of as many steps as memory says, 0 or n."""
    i = UOp.range(rows, 0, LOOP)
    size = at(memory(2, rows, dtypes.bool), i).cast(dtypes.weakint) * n
    j = UOp.range(size, 1, LOOP)
    value = at(memory(1, rows * n), i * n + j) * 2.0
    return kernel(at(memory(0, rows * n), i * n + j).store(value).end(i, j), name="counted")


def symbolic_rows(most: int) -> UOp:
    """Rows of symbolic length scaled by the sum of another row."""
    n = UOp.variable("length", 1, most)
    a, b = UOp.placeholder((4 * n,), f32, 1), UOp.placeholder((n,), f32, 2)
    c = UOp.placeholder((4 * n,), f32, 0)
    i, j, k = UOp.range(4, 0, LOOP), UOp.range(n, 1, LOOP), UOp.range(n, 2, REDUCE)
    value = at(a, i * n + j) * at(b, k).reduce(k) + at(b, j)
    return kernel(at(c, i * n + j).store(value).end(i, j), name="symbolic")


def attention_rows(batch: int, rows: int, depth: int, width: int) -> UOp:
    """softmax(x) @ v, a row at a time."""
    x, v = memory(1, batch * rows * depth), memory(2, batch * depth * width)
    out = memory(0, batch * rows * width)
    g, i, j = (UOp.range(s, n, LOOP) for n, s in enumerate((batch, rows, width)))
    k, again = UOp.range(depth, 3, REDUCE), UOp.range(depth, 4, REDUCE)
    row = (g * rows + i) * depth
    top = at(x, row + k).reduce(k, arg=Ops.MAX)
    total = exp(at(x, row + k) - top).reduce(k)
    share = exp(at(x, row + again) - top) / total
    value = (share * at(v, (g * depth + again) * width + j)).reduce(again)
    return kernel(at(out, (g * rows + i) * width + j).store(value).end(g, i, j), name="attention")


# *** comparison ***


def parameters(sink: UOp) -> dict[int, UOp]:
    """The parameters of a kernel by slot."""
    found = [n for n in toposort([sink]) if n.op is Ops.PARAM]
    return {p.arg.slot: p for p in found if p.arg.addrspace is AddrSpace.GLOBAL}


def contents(param: UOp, variables: dict[str, int], seed: int) -> Any:
    """Memory for a parameter, as it is stored."""
    size = 1
    for length in param.shape:
        size *= length if isinstance(length, int) else length.sym_infer(variables)
    rng = np.random.default_rng(seed)
    dtype = param.dtype
    if dtype.kind == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if dtype.kind == "float":
        wide = rng.standard_normal(size).astype(np.float64 if dtype.itemsize == 8 else np.float32)
        return to_storage(wide.astype(np.float16) if dtype is dtypes.float16 else wide, dtype)
    return rng.integers(0, 50, size).astype(storage_dtype(dtype))


def run(
    made: Generated, arrays: dict[int, Any], variables: dict[str, int], chunks: int = 1
) -> None:
    """Run generated source as plain Python, its units in several chunks."""
    function = plain_function(made.source)
    arguments = [arrays[s] for s in made.buffers] + [variables[v] for v in made.variables]
    for low, high in pieces(made, variables, chunks):
        function(*arguments, low, high)


def pieces(made: Generated, variables: dict[str, int], chunks: int) -> list[tuple[int, int]]:
    """The units of a kernel in about so many pieces."""
    extent = made.extent if isinstance(made.extent, int) else made.extent.sym_infer(variables)
    size = -(-max(1, -(-extent // chunks)) // made.step) * made.step
    return [(low, min(low + size, extent)) for low in range(0, extent, size)]


def run_native(
    made: Generated, arrays: dict[int, Any], variables: dict[str, int], chunks: int = 1
) -> None:
    """Run the compiled kernel, on copies that end where the memory after them is watched."""
    (program,) = fetch([made.source])
    watched = [aligned(arrays[slot]) for slot in made.buffers]
    values = [view.ctypes.data for view, _ in watched]
    values += [variables[name] for name in made.variables]
    block = (ctypes.c_int64 * (len(values) + 1))(*values)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function = call(program.address)
    for low, high in pieces(made, variables, chunks):
        assert function(ctypes.addressof(block), low, high) == 0
    for slot, (view, after) in zip(made.buffers, watched, strict=True):
        arrays[slot][:] = view
        assert (after == GUARD).all(), f"{made.name} wrote past the end of its memory"


GUARD = 0xA5


def aligned(array: Any) -> tuple[Any, Any]:
    """A copy of an array on a line of the cache, and the bytes after it."""
    raw = np.full(array.nbytes + 256, GUARD, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + array.nbytes].view(array.dtype)
    view[:] = array
    return view, raw[start + array.nbytes :]


TOLERANCE = {8: 1e-9, 4: 1e-5, 2: 1e-2, 1: 0.15}


def expected(sink: UOp, arrays: dict[int, Any], variables: dict[str, int]) -> dict[int, Any]:
    """What the oracle makes of memory."""
    params = parameters(sink)
    held = {s: from_storage(a.copy(), params[s].dtype) for s, a in arrays.items()}
    with np.errstate(all="ignore"):
        run_kernel(sink, held, variables)
    return held


def check(
    sink: UOp,
    variables: dict[str, int] | None = None,
    targets: tuple[str, ...] = tuple(TARGETS),
    chunks: tuple[int, ...] = (1, 3),
    seed: int = 0,
    execute: Any = run,
) -> None:
    """Generated code does what the oracle does, for every target and split."""
    known = variables or {}
    params = parameters(sink)
    arrays = {slot: contents(p, known, seed + slot) for slot, p in params.items()}
    want = expected(sink, arrays, known)
    for name in targets:
        made = generate(sink, TARGETS[name])
        for count in chunks:
            got = {slot: a.copy() for slot, a in arrays.items()}
            execute(made, got, known, count)
            for slot, param in params.items():
                compare(from_storage(got[slot], param.dtype), want[slot], param.dtype, made.source)


def compare(got: Any, want: Any, dtype: Any, source: str) -> None:
    """Equal, within what reordered sums of floats allow."""
    if dtype.kind != "float":
        np.testing.assert_array_equal(got, want, source)
        return
    bound = TOLERANCE[dtype.itemsize]
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), bound, bound, err_msg=source)
