"""Random tensors: counter-based (threefry), the same numbers on any number of threads and slots.

The state is one small buffer of two uint64: the key (from the seed) and how many numbers were
drawn. Drawing reads the counter and adds to it, inside of captured functions and replays too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import numpy as np

from tinyfn.device import Device
from tinyfn.dtype import DType, decode_small, dtypes, encode_small, storage_dtype, to_dtype
from tinyfn.errors import ArgumentError, DTypeError, ShapeError
from tinyfn.helpers import argfix, prod

GOLDEN = 0x9E3779B97F4A7C15
# Digits of a float after which nothing rounds up to 1
DIGITS = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.fp8e4m3: 4, dtypes.fp8e5m2: 3}


class _State:
    """The seed in force and the tensor that holds key and counter."""

    seed: int = 0
    tensor: Any = None


class RandomMixin:
    """Class methods that make random tensors; mixed into Tensor."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Start the sequence of random numbers again from a seed.

        >>> Tensor.manual_seed(7)
        >>> first = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(7)
        >>> Tensor.rand(3).tolist() == first
        True
        """
        _State.seed = int(seed)
        _State.tensor = None

    @classmethod
    def random_bits(cls, key: Any, counter: Any, num: int) -> Self:
        """`num` uint32 numbers: the high words of threefry of counter, counter + 1, ...

        >>> key, start = Tensor([7], dtype="uint64"), Tensor([1], dtype="uint64")
        >>> every = Tensor.random_bits(key, start - 1, 3).tolist()
        >>> every[1:] == Tensor.random_bits(key, start, 2).tolist()
        True
        """
        make = cast(Any, cls)
        position = make._iota(num, dtypes.int64).cast(dtypes.uint64) + counter.cast(dtypes.uint64)
        return cast(Self, _words(position, key)[0])

    @classmethod
    def _draw(cls, num: int) -> Any:
        """`num` fresh 64-bit numbers."""
        make = cast(Any, cls)
        if _State.tensor is None:
            key = (_State.seed * GOLDEN + GOLDEN) & (2**64 - 1)
            start = make(np.array([key, 0], np.uint64), device=Device.DEFAULT)
            start.uop = _as_state(start.uop)
            _State.tensor = start
        state = _State.tensor
        counter = state[1:2]
        counter.assign(counter + num)
        position = make._iota(num, dtypes.int64).cast(dtypes.uint64) + (state[1] - num)
        key = state[0].reshape(1).expand(num)
        return position._alu("THREEFRY", key)

    @classmethod
    def _below(cls, num: int, span: int) -> Any:
        """`num` uint64 numbers below `span`, of which none is likelier by more than 2**-32."""
        if span <= 2**32:
            return _high_product(cls._draw(num), span)
        bits = cls._draw(2 * num)
        high, low = bits[:num], bits[num:]
        rest = high * (span % 2**64)
        carry = rest + _high_product(low, span) < rest
        return _high_product(high, span) + carry.cast(dtypes.uint64)

    @classmethod
    def rand(
        cls,
        *shape: Any,
        device: Any = None,
        dtype: DType | str | None = None,
        contiguous: bool = True,
    ) -> Self:
        """Uniform numbers in [0, 1).

        >>> x = Tensor.rand(1000)
        >>> x.min().item() >= 0, x.max().item() < 1, 0.45 < x.mean().item() < 0.55
        (True, True, True)
        """
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        if kind.kind != "float":
            raise DTypeError(f"expected a float dtype for rand, got {kind}; use randint")
        sizes = _sizes(argfix(*shape))
        bits = cls._draw(prod(sizes))
        if kind is dtypes.float64:
            values = (bits >> 11).cast(kind) * 2.0**-53
        else:
            kept = DIGITS.get(kind, 24)
            values = (bits >> (64 - kept)).cast(dtypes.float32) * 2.0**-kept
        drawn = values.cast(kind).reshape(sizes)
        drawn = drawn.contiguous() if contiguous else drawn
        return cast(Self, _placed(drawn, device))

    def rand_like(self, **kwargs: Any) -> Self:
        """Uniform numbers in the shape, dtype and place of this tensor.

        >>> Tensor([[1.0, 2.0]], dtype="half").rand_like()
        <Tensor (1, 2) dtypes.float16 on CPU>
        """
        return cast(Self, _like(self, type(self).rand, kwargs))

    @classmethod
    def randn(cls, *shape: Any, dtype: DType | str | None = None, **kwargs: Any) -> Self:
        """Normal numbers with mean 0 and deviation 1 (Box and Muller, 1958).

        >>> x = Tensor.randn(1000)
        >>> abs(x.mean().item()) < 0.15, 0.9 < x.std().item() < 1.1
        (True, True)
        """
        make = cast(Any, cls)
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        wide = _wide(kind)
        sizes = _sizes(argfix(*shape))
        device = kwargs.pop("device", None)
        kwargs.pop("contiguous", None)
        angle = make.rand(*sizes, dtype=wide, contiguous=False) * (2 * math.pi)
        radius = (-2.0 * (1.0 - make.rand(*sizes, dtype=wide, contiguous=False)).log()).sqrt()
        return cast(Self, _placed((angle.cos() * radius).cast(kind).contiguous(), device))

    def randn_like(self, dtype: DType | str | None = None, **kwargs: Any) -> Self:
        """Normal numbers in the shape and place of this tensor.

        >>> Tensor([[1.0, 2.0]]).randn_like(dtype="double")
        <Tensor (1, 2) dtypes.float64 on CPU>
        """
        if dtype is not None:
            kwargs["dtype"] = dtype
        return cast(Self, _like(self, type(self).randn, kwargs))

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DType | str = dtypes.int,
        **kwargs: Any,
    ) -> Self:
        """Whole numbers from `low` below `high`, each equally likely.

        >>> sorted(set(Tensor.randint(1000, low=-1, high=3).tolist()))  # without `high` itself
        [-1, 0, 1, 2]
        """
        kind = to_dtype(dtype)
        if kind.kind not in ("int", "uint"):
            raise DTypeError(f"expected an int dtype for randint, got {kind}")
        if not isinstance(low, int) or not isinstance(high, int) or low >= high:
            raise ArgumentError(f"expected ints with low < high, got low={low!r}, high={high!r}")
        sizes = _sizes(argfix(*shape))
        if low < kind.min or high > kind.max + 1:
            raise ArgumentError(
                f"expected ints within {kind.min} to {kind.max} for {kind}, got {low} to {high - 1}"
            )
        drawn = cls._below(prod(sizes), high - low) + low % 2**64
        values = drawn.cast(kind).reshape(sizes).contiguous()
        return cast(Self, _placed(values, kwargs.get("device")))

    @classmethod
    def randperm(
        cls, n: int, device: Any = None, dtype: DType | str = dtypes.int, **kwargs: Any
    ) -> Self:
        """The numbers 0 to n-1 in a random order.

        >>> sorted(Tensor.randperm(5).tolist())
        [0, 1, 2, 3, 4]
        """
        order = cls._draw(*_sizes((n,))).argsort().cast(to_dtype(dtype))
        return cast(Self, _placed(order, device))

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Uniform numbers in [low, high), the whole ones if the dtype is of ints.

        >>> x = Tensor.uniform(1000, low=-2, high=3)
        >>> x.min().item() >= -2, x.max().item() < 3
        (True, True)
        """
        make = cast(Any, cls)
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        if not low <= high or math.isinf(high - low):
            raise ArgumentError(f"expected finite low <= high, got low={low!r}, high={high!r}")
        if kind.kind in ("int", "uint"):
            whole = {"low": math.ceil(low), "high": math.ceil(high)}
            return cast(Self, make.randint(*shape, **whole, dtype=kind, **kwargs))
        drawn = make.rand(*shape, dtype=_wide(kind), **kwargs)
        # what rounds up to `high` would be outside
        return cast(Self, ((high - low) * drawn + low).minimum(_last(low, high, kind)).cast(kind))

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType | str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Normal numbers with this mean and standard deviation.

        >>> x = Tensor.normal(1000, mean=5, std=0.1)
        >>> 4.9 < x.mean().item() < 5.1, 0.09 < x.std().item() < 0.11
        (True, True)
        """
        make = cast(Any, cls)
        kind = dtypes.default_float() if dtype is None else to_dtype(dtype)
        return cast(Self, (std * make.randn(*shape, dtype=_wide(kind), **kwargs) + mean).cast(kind))

    @classmethod
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform numbers in [-1, 1) over the square root of the number of elements.

        >>> Tensor.scaled_uniform(10, 10).abs().max().item() <= 0.1  # 1 / sqrt(100)
        True
        """
        make = cast(Any, cls)
        sizes = _sizes(argfix(*shape))
        scale = max(prod(sizes), 1) ** -0.5
        return cast(Self, make.uniform(*sizes, low=-1.0, high=1.0, **kwargs) * scale)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform numbers below sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010).

        >>> Tensor.glorot_uniform(20, 4).abs().max().item() <= 0.5  # sqrt(6 / 24)
        True
        """
        make = cast(Any, cls)
        sizes = _sizes(argfix(*shape))
        if not sizes:
            raise ShapeError("expected a shape of 1 axis or more, which says what goes in and out")
        bound = math.sqrt(6 / max(sizes[0] + prod(sizes[1:]), 1))
        return cast(Self, make.uniform(*sizes, low=-1.0, high=1.0, **kwargs) * bound)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Uniform numbers for layers with leaky relu of slope `a` (He et al., 2015).

        >>> Tensor.kaiming_uniform(10, 24, a=0).abs().max().item() <= 0.5  # sqrt(6 / 24)
        True
        """
        make = cast(Any, cls)
        sizes = _sizes(argfix(*shape))
        bound = math.sqrt(3.0) * math.sqrt(2.0 / (1 + a**2)) / math.sqrt(max(prod(sizes[1:]), 1))
        return cast(Self, make.uniform(*sizes, low=-bound, high=bound, **kwargs))

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Normal numbers for layers with leaky relu of slope `a` (He et al., 2015).

        >>> 0.45 < Tensor.kaiming_normal(1000, 8, a=0).std().item() < 0.55  # sqrt(2 / 8)
        True
        """
        make = cast(Any, cls)
        sizes = _sizes(argfix(*shape))
        std = math.sqrt(2.0 / (1 + a**2)) / math.sqrt(max(prod(sizes[1:]), 1))
        return cast(Self, make.normal(*sizes, mean=0.0, std=std, **kwargs))

    def dropout(self, p: float = 0.5) -> Self:
        """In training: zero with probability p, the rest scaled by 1 / (1 - p); else itself.

        >>> x = Tensor.ones(1000)
        >>> x.dropout(0.75).sum().item()
        1000.0
        >>> with Tensor.train():
        ...     sorted(set(x.dropout(0.75).tolist()))
        [0.0, 4.0]
        """
        if not 0 <= p <= 1:
            raise ArgumentError(f"expected a probability between 0 and 1, got {p}")
        me = cast(Any, self)
        if not type(me).training or p == 0:
            return self
        if p == 1:
            return cast(Self, me.zeros_like())
        kept = me.rand_like(dtype=dtypes.float32, contiguous=False) >= p
        return cast(Self, kept.contiguous().where(me, 0) / (1.0 - p))


def _wide(kind: DType) -> DType:
    """The dtype that numbers are drawn in: that of few digits is rounded to at the end."""
    return dtypes.float64 if kind is dtypes.float64 else dtypes.float32


def _last(low: float, high: float, kind: DType) -> float:
    """The largest value of a float dtype in [low, high); `low` where the dtype has none."""
    if kind in DIGITS and kind is not dtypes.float16:
        bits = int(encode_small(np.array([high], np.float64), kind)[0])
        sign = 1 << (8 * kind.itemsize - 1)
        below = bits + 1 if bits & sign else bits - 1 if bits else sign + 1
        last = decode_small(np.array([below], storage_dtype(kind)), kind)[0]
    else:
        exact = storage_dtype(kind).type
        last = np.nextafter(exact(high), exact(-np.inf))
    return max(float(last), low)


def _high_product(bits: Any, span: int) -> Any:
    """The high words of uint64 times a span of at most 2**64, from products of halves."""
    high, low = bits >> 32, bits & 0xFFFFFFFF
    upper, lower = divmod(span, 2**32)
    middle = high * lower + (low * lower >> 32)
    if not upper:
        return middle >> 32
    rest = low * upper + (middle & 0xFFFFFFFF)
    return high * upper + (middle >> 32) + (rest >> 32)


def _as_state(node: Any) -> Any:
    """The same memory under the kind `state`, which functions take without being asked."""
    info = node.arg
    renamed = node.new_memory(info.device, info.shape, node.dtype, kind="state")
    renamed.set_buffer(node.buffer)
    return renamed


def _words(position: Any, key: Any) -> tuple[Any, Any]:
    bits = position._alu("THREEFRY", key.cast(dtypes.uint64).reshape(1).expand(position.shape))
    return (bits >> 32).cast(dtypes.uint32), (bits & 0xFFFFFFFF).cast(dtypes.uint32)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    for size in shape:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise ShapeError(f"expected whole sizes of 0 or more, got {tuple(shape)}")
    return tuple(int(s) for s in shape)


def _placed(tensor: Any, device: Any) -> Any:
    return tensor if device is None else tensor.to(device)


def _like(tensor: Any, draw: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    dtype = kwargs.pop("dtype", tensor.dtype)
    device = kwargs.pop("device", tensor.device)
    drawn = draw(*tensor.shape, dtype=dtype, **kwargs)
    if isinstance(device, tuple):
        return drawn.shard(device, tensor.uop.axis)
    return _placed(drawn, None if device == drawn.device else device)
