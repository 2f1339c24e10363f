"""The math functions against wider arithmetic: errors in units of the last place, special values.

`pytest -m deep tests/codegen/test_math.py` takes every float32 there is (minutes a function).
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from tinyfn.codegen.native import math

TYPES = {"f32": np.float32, "f64": np.float64}
SCALARS = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
PLAIN = [name for name in math.FUNCTIONS if name != "pow"]
ANGLES = ("sin", "cos", "tan")
INF, NAN = np.inf, np.nan
WIDE_ENOUGH = np.finfo(np.longdouble).nmant >= 63
counter = itertools.count()


@functools.cache
def machine() -> tuple[llvm.TargetMachine, llvm.LLJIT]:
    """The host's code generator and linker."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    make = functools.partial(target.create_target_machine, cpu=cpu, features=features, reloc="pic")
    return make(), llvm.create_lljit_compiler(make(), use_jit_link=True)


def loop(name: str, element: str, lanes: int, fma: bool, branches: bool) -> tuple[str, str]:
    """The name and the text of void f(inputs..., output, count), count a multiple of the lanes."""
    inputs = 2 if name == "pow" else 1
    module = ir.Module()
    module.triple = llvm.get_process_triple()
    pointer, index = ir.PointerType(), ir.IntType(64)
    kind = ir.FunctionType(ir.VoidType(), [pointer] * (inputs + 1) + [index])
    function = ir.Function(module, kind, f"{name}_{next(counter)}")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    entry, body, done = builder.block, *map(function.append_basic_block, ("body", "done"))
    builder.branch(body)
    builder.position_at_end(body)
    i = builder.phi(index)
    i.add_incoming(index(0), entry)
    scalar = SCALARS[element]
    register = scalar if lanes == 1 else ir.VectorType(scalar, lanes)
    places = [builder.gep(a, [i], source_etype=scalar) for a in function.args[:-1]]
    align = np.dtype(TYPES[element]).itemsize
    values = [builder.load(place, align=align, typ=register) for place in places[:-1]]
    result = math.emit(name, builder, values, element, lanes, fma=fma, branches=branches)
    builder.store(result, places[-1], align=align)
    following = builder.add(i, index(lanes))
    i.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, function.args[-1]), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return function.name, str(module)


@functools.cache
def compiled(
    name: str, element: str, lanes: int = 16, fma: bool = True, branches: bool = False
) -> Callable[..., np.ndarray]:
    """The function over arrays."""
    generator, linker = machine()
    symbol, text = loop(name, element, lanes, fma, branches)
    library = llvm.JITLibraryBuilder()
    library.add_object_img(generator.emit_object(llvm.parse_assembly(text)))
    library.export_symbol(symbol)
    linked = library.link(linker, symbol)
    pointers = [ctypes.c_void_p] * (3 if name == "pow" else 2)
    native = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(linked[symbol])

    def call(*arrays: np.ndarray) -> np.ndarray:
        size = arrays[0].size
        padded = [np.append(a, np.ones(-size % lanes, a.dtype)) for a in arrays]
        assert all(a.dtype == TYPES[element] for a in padded) and linked
        output = np.empty_like(padded[0])
        native(*(a.ctypes.data for a in padded), output.ctypes.data, output.size)
        return output[:size]

    return call


def erf_series(x: np.ndarray) -> np.ndarray:
    """erf(x) = 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (1 3 5 ... (2n+1)): no term is negative."""
    size = np.minimum(abs(x), 8)
    total = term = size
    for n in range(1, 200):
        term = term * 2 * size * size / (2 * n + 1)
        total = total + term
    half_pi = np.arctan(x.dtype.type(1)) * 2
    return np.copysign(np.sqrt(2 / half_pi) * np.exp(-size * size) * total, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow or cancellation."""
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


NUMPY_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "pow": "power",
}  # fmt: skip


def exact(name: str, *args: np.ndarray) -> np.ndarray:
    """The function in the next wider arithmetic."""
    wide = np.float64 if args[0].dtype == np.float32 else np.longdouble
    arrays = [a.astype(wide) for a in args]
    own = {"erf": erf_series, "sigmoid": sigmoid}
    return (own.get(name) or getattr(np, NUMPY_NAMES.get(name, name)))(*arrays)


def units(got: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The error in units of the last place of the true value; inf where NaN or 0 is wrong."""
    info = np.finfo(got.dtype)
    top = np.ldexp(true.dtype.type(1), int(info.maxexp))
    wide, clipped = np.clip(got.astype(true.dtype), -top, top), np.clip(true, -top, top)
    _, exponent = np.frexp(np.where(clipped == 0, info.smallest_normal, clipped))
    exponent = np.clip(exponent - 1, info.minexp, info.maxexp - 1)
    error = np.ldexp(abs(wide - clipped), info.nmant - exponent)
    error[np.isnan(true) & np.isnan(got)] = 0
    same_zero = (true != 0) | ((got == 0) & (np.signbit(got) == np.signbit(true)))
    error[(np.isnan(true) != np.isnan(got)) | ~same_zero] = INF
    return error


EDGES = [
    0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 2.0, 88.72284, 88.72283, -87.33655, -103.97208,
    -103.98, -104.1, 709.782712893384, 709.79, -745.13, -745.14, 128.0, 127.99999, -126.0, -149.0,
    -149.5, -150.0, 1024.0, -1022.0, -1074.0, -1075.0, 3.4028235e38, -3.4028235e38, 1e22, 1e30,
    1.5707964, 3.1415927, 3.9, 3.95, 5.9, 6.0, 9.1, 19.1, -17.4, -37.5,
]  # fmt: skip


def samples(element: str, count: int, seed: int = 0) -> np.ndarray:
    """Edges, any bit patterns, and dense values where functions bend."""
    random, dtype = np.random.default_rng(seed), TYPES[element]
    bits = np.uint32 if element == "f32" else np.uint64
    info = np.finfo(dtype)
    patterns = random.integers(0, np.iinfo(bits).max, count, bits).view(dtype)
    denormal = random.integers(0, 1 << info.nmant, count // 8, bits).view(dtype)
    scaled = np.exp(random.uniform(-20, 14, count)) * random.choice([-1, 1], count)
    near_one = 1 + random.uniform(-0.6, 0.6, count) * random.choice([1, 1e-3], count)
    spans = [random.uniform(-end, end, count) for end in (2, 4, 120, 760)]
    quarters = random.integers(1, 1 << 40, count) * (np.pi / 2)
    parts = (EDGES, patterns, denormal, -denormal, scaled, near_one, *spans, quarters)
    return np.concatenate([np.asarray(part, dtype) for part in parts])


def power_samples(element: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of edges, and bases of every size with exponents that keep the result in range."""
    random, dtype = np.random.default_rng(5), TYPES[element]
    more = [3, -3, -2, 1 / 3, 1e-300, 8388609, 16777216, -9007199254740991]
    edges = np.asarray([*EDGES, *more], dtype)
    first, second = np.meshgrid(edges, edges)
    base = samples(element, count, 1)
    end = 160 if element == "f32" else 1100
    size = np.maximum(abs(np.nan_to_num(base).astype(float)), 1e-320)
    reach = end / np.maximum(abs(np.log2(size)), 1e-6)
    exponent = (random.uniform(-1, 1, base.size) * reach).astype(dtype)
    exponent[::3] = np.rint(exponent[::3])
    base[1::2] = abs(base[1::2])
    pairs = ((first.ravel(), second.ravel()), (base, exponent))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def limit(name: str, element: str) -> float:
    """The promised error: 1 unit in float32, 2 for pow and erf and in float64."""
    return 2.0 if element == "f64" or name in ("pow", "erf") else 1.0


def check(name: str, element: str, args: tuple[np.ndarray, ...], **options: bool) -> float:
    """Compare with wider arithmetic; the largest error."""
    if element == "f64" and not WIDE_ENOUGH:
        pytest.skip("needs a long double wider than float64")
    with np.errstate(all="ignore"):
        got = compiled(name, element, **options)(*args)
        true = exact(name, *args)
        error = units(got, true)
    worst = int(np.argmax(error))
    shown = [a[worst] for a in args]
    assert error[worst] < limit(name, element), (shown, got[worst], true[worst], error[worst])
    return float(error[worst])


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", PLAIN)
def test_error_is_small(name: str, element: str, fma: bool) -> None:
    check(name, element, (samples(element, 6000),), fma=fma)


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_error_of_pow_is_small(element: str, fma: bool) -> None:
    check("pow", element, power_samples(element, 6000), fma=fma)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", ANGLES)
def test_branch_around_large_angles(name: str, element: str) -> None:
    angles = samples(element, 6000)
    ordinary = angles[abs(angles) < 1e4]
    check(name, element, (np.concatenate([ordinary, angles]),), branches=True)


@pytest.mark.parametrize("branches", [True, False])
@pytest.mark.parametrize("name", ANGLES)
def test_angles_nearest_to_multiples_of_half_pi(name: str, branches: bool) -> None:
    nearest = {"f32": np.ldexp(16367173.0, 72), "f64": np.ldexp(6381956970095103.0, 797)}
    for element, angle in nearest.items():
        powers = np.ldexp(1.0, np.arange(-3, 127 if element == "f32" else 1023))
        angles = np.concatenate([[angle, -angle], powers, powers * 1.5]).astype(TYPES[element])
        check(name, element, (angles,), branches=branches)


@pytest.mark.parametrize("name", list(math.FUNCTIONS))
def test_every_count_of_lanes_gives_the_same_bits(name: str) -> None:
    for element, dtype in TYPES.items():
        args = (samples(element, 300),) * (2 if name == "pow" else 1)
        results = [compiled(name, element, lanes)(*args) for lanes in (1, 4, 16)]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0].astype(dtype))


POWERS = [
    (0.0, 0.0, 1.0), (NAN, 0.0, 1.0), (1.0, NAN, 1.0), (-1.0, NAN, NAN), (NAN, 1.0, NAN),
    (-1.0, INF, 1.0), (-1.0, -INF, 1.0), (0.0, -INF, INF), (0.5, INF, 0.0), (0.5, -INF, INF),
    (0.0, -1.0, INF), (-0.0, -1.0, -INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (-0.0, 3.0, -0.0),
    (-0.0, 0.5, 0.0), (-8.0, 1 / 3, NAN), (-2.0, 3.0, -8.0), (-INF, 3.0, -INF), (-INF, -3.0, -0.0),
    (-INF, 0.5, INF), (-INF, -0.5, 0.0), (2.0, INF, INF), (2.0, -INF, 0.0), (-0.5, INF, 0.0),
    (-2.0, INF, INF), (INF, -1.0, 0.0), (INF, 1e-30, INF),
]  # fmt: skip


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_exceptions_of_pow(element: str) -> None:
    columns = zip(*POWERS, strict=True)
    base, exponent, expected = (np.array(column, TYPES[element]) for column in columns)
    got = compiled("pow", element)(base, exponent)
    np.testing.assert_array_equal(got, expected)
    signs = np.signbit(got) == np.signbit(expected)
    assert np.all(signs | np.isnan(expected))


def test_no_calls_are_left() -> None:
    """Intrinsics that the target lacks would become calls, which nothing links."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    targets = [
        ("x86_64-unknown-linux-gnu", "x86-64", False),
        ("x86_64-unknown-linux-gnu", "haswell", True),
        ("x86_64-unknown-linux-gnu", "skylake-avx512", True),
        ("aarch64-unknown-linux-gnu", "generic", True),
    ]
    for triple, cpu, fma in targets:
        target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, reloc="pic")
        for name, element in itertools.product(math.FUNCTIONS, TYPES):
            module = llvm.parse_assembly(loop(name, element, 8, fma, True)[1])
            module.triple = triple
            lines = target.emit_assembly(module).splitlines()
            calls = [line for line in lines if line.split()[:1] in (["callq"], ["bl"])]
            assert not calls, (cpu, name, element, calls)


@pytest.mark.deep
@pytest.mark.parametrize("name", PLAIN)
def test_every_float32(name: str, record_property: Callable[[str, object], None]) -> None:
    function, worst, step = compiled(name, "f32"), 0.0, 1 << 18
    wide = compiled("erf", "f64") if name == "erf" else functools.partial(exact, name)
    for start in range(0, 1 << 32, step):
        x = np.arange(start, start + step, dtype=np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            true = wide(x.astype(np.float64)) if name == "erf" else wide(x)
            error = units(function(x), true)
        k = int(np.argmax(error))
        assert error[k] < limit(name, "f32"), (x[k], function(x[k : k + 1]), true[k], error[k])
        worst = max(worst, float(error[k]))
    record_property("worst", worst)
    print(f"{name}: {worst:.4f} units")
