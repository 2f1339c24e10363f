"""UOp, the node of every graph: interned, immutable, with its derived facts and its builders."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from tinyfn.device import Buffer
from tinyfn.dtype import DType, Invalid, const_key, dtypes
from tinyfn.errors import ArgumentError, DeviceError, ShapeError
from tinyfn.helpers import prod
from tinyfn.mixin import OpMixin
from tinyfn.mixin.core import same_shape
from tinyfn.uop import infer, opcodes, render, rewrite, simplify
from tinyfn.uop.construct import Construct
from tinyfn.uop.info import Device, FullInfo, ScanInfo, ScatterInfo, SortInfo, pack
from tinyfn.uop.opcodes import Ops

_interned: dict[Any, weakref.ref[UOp]] = {}
_numbers = itertools.count()
_births = itertools.count()


class _Fence(threading.local):
    """Since when nodes belong to the function that this thread captures."""

    since = 0


fence = _Fence()
DERIVED = ("_shape", "_device", "_axis", "_ranges", "_bounds", "_key")


def now() -> int:
    """A moment: nodes built before it have a smaller `born`."""
    return next(_births)


def next_number() -> int:
    """A number for a leaf with an identity of its own."""
    return next(_numbers)


class UOp(Construct, OpMixin):
    """A node: what it does (`op`), the type of its value, its sources, and what else it needs.

    Two nodes with equal parts are the same object.
    """

    __slots__ = (
        *(
            "__weakref__",
            "_born",
            "_intern_key",
            "_memory",
            "_realized",
            "arg",
            "dtype",
            "op",
            "src",
        ),
        *DERIVED,
    )
    __array_ufunc__ = None  # a graph has no values that numpy's functions could take
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    _born: int
    _memory: UOp
    _realized: Any
    _intern_key: Any

    def __new__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
    ) -> UOp:
        known = const_key(arg) if op is Ops.CONST else arg
        key = (op, dtype, src, known)
        reference = _interned.get(key)
        if reference is not None and (found := reference()) is not None:
            return found
        node = object.__new__(cls)
        put = object.__setattr__
        put(node, "op", op)
        put(node, "dtype", dtype)
        put(node, "src", src)
        put(node, "arg", arg)
        put(node, "_intern_key", key)
        put(node, "_born", next(_births))
        _interned[key] = weakref.ref(node)
        return node

    def __del__(self, interned: dict[Any, weakref.ref[UOp]] = _interned) -> None:
        # the table is bound here because module globals are gone when the interpreter exits
        reference = interned.get(self._intern_key)
        # the weak reference still answers here, unless the cycle collector came first
        if reference is not None and reference() in (None, self):
            del interned[self._intern_key]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a UOp never changes: {name} of {self.op.name} cannot be set")

    __eq__ = object.__eq__  # type: ignore[assignment]
    __ne__ = object.__ne__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"UOp({self.op.name}, {self.dtype}, arg={self.arg!r}, src={len(self.src)} nodes)"

    def __reduce__(self) -> Any:
        return UOp, (self.op, self.dtype, self.src, self.arg)

    # *** derived facts ***

    # shape of the value; None where the node has no value
    shape = infer.derived("_shape", lambda n: infer.SHAPE[n.op](n))
    # where the value lives; None for what lives nowhere, a tuple where each slot has a part
    device = infer.derived("_device", lambda n: infer.DEVICE[n.op](n))
    # the axis along which the value is sharded
    axis = infer.derived("_axis", lambda n: infer.AXIS[n.op](n))
    _range_set = infer.derived("_ranges", infer.ranges_of)
    # lowest and highest value
    bounds = infer.derived("_bounds", infer.bounds_of)

    @property
    def born(self) -> int:
        """The moment the node was first built."""
        return self._born

    @property
    def ranges(self) -> dict[UOp, None]:
        """The loops inside which the node stands, as an ordered set."""
        return cast(dict[UOp, None], self._range_set)

    @property
    def vmin(self) -> Any:
        """The lowest value the node can have."""
        return self.bounds[0]

    @property
    def vmax(self) -> Any:
        """The highest value the node can have."""
        return self.bounds[1]

    @property
    def max_shape(self) -> tuple[int, ...]:
        """The shape with every symbolic size at its largest."""
        return tuple(s if isinstance(s, int) else s.vmax for s in self.shape)

    @property
    def shard_shape(self) -> tuple[Any, ...]:
        """The shape of one slot's part."""
        if self.axis is None:
            return cast(tuple[Any, ...], self.shape)
        count = len(self.device)
        return tuple(s // count if i == self.axis else s for i, s in enumerate(self.shape))

    key = infer.derived("_key", infer.structural_key)

    @property
    def base(self) -> UOp:
        """The node below all movement."""
        node = self
        while node.op in opcodes.MOVEMENT or node.op in (Ops.DETACH, Ops.UNSHARD):
            node = node.src[0]
        return node

    @property
    def buf_uop(self) -> UOp:
        """The buffer (or parameter) whose memory the value is a view of."""
        node = self.base
        states = []
        while node.op is Ops.AFTER:
            if hasattr(node, "_memory"):
                node = node._memory
                break
            states.append(node)
            node = node.src[0].base
        for state in states:
            object.__setattr__(state, "_memory", node)
        return node

    @property
    def buffer(self) -> Buffer | tuple[Buffer, ...]:
        """The memory of a buffer (one a slot where it has several); made at the first use."""
        if self.op is Ops.BUFFER and hasattr(self, "_realized"):
            known: Buffer | tuple[Buffer, ...] = self._realized
            return known
        if self.op is Ops.MSELECT:
            parts: Any = self.src[0].buffer
            part: Buffer = parts[self.arg]
            return part
        if self.op is Ops.MSTACK:
            return tuple(cast(Buffer, s.buffer) for s in self.src)
        node = self.buf_uop
        if node is not self and node.op is not Ops.BUFFER:
            return node.buffer
        if node.op is not Ops.BUFFER:
            raise ArgumentError(f"expected a node that is memory, got {self!r}")
        if not hasattr(node, "_realized"):
            info = node.arg
            slots = info.device if isinstance(info.device, tuple) else (info.device,)
            made = tuple(Buffer(slot, prod(info.shape), node.dtype) for slot in slots)
            node.set_buffer(made if isinstance(info.device, tuple) else made[0])
        return cast(Buffer | tuple[Buffer, ...], node._realized)

    def set_buffer(self, memory: Buffer | tuple[Buffer, ...]) -> None:
        """Put memory behind a BUFFER node (the one thing about a node that is not fixed)."""
        object.__setattr__(self, "_realized", memory)

    @property
    def is_realized(self) -> bool:
        """Whether the node is a view of memory that has been filled."""
        node = self.base
        return node.op is Ops.BUFFER and hasattr(node, "_realized")

    @property
    def realized(self) -> Buffer | tuple[Buffer, ...] | None:
        """The memory below the node, or None where it has none yet."""
        return self.base.buffer if self.is_realized else None

    @property
    def val(self) -> Any:
        """The value of a constant or of a bound variable."""
        node = self.src[1] if self.op is Ops.BIND else self
        if node.op is not Ops.CONST:
            raise ArgumentError(f"expected a constant or a bound variable, got {self!r}")
        return node.arg

    # *** traversal ***

    def toposort(
        self, gate: Callable[[UOp], bool] | None = None, enter_calls: bool = True
    ) -> dict[UOp, None]:
        """Every node below this one, sources first (a dict used as an ordered set)."""
        return dict.fromkeys(rewrite.toposort([self], enter_calls, gate))

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """The node with other sources."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg)

    def replace(self, **parts: Any) -> UOp:
        """The node with some of op, dtype, src, arg changed."""
        own = {"op": self.op, "dtype": self.dtype, "src": self.src, "arg": self.arg}
        return UOp(**{**own, **parts})

    def substitute(
        self,
        dvars: Mapping[UOp, UOp],
        name: str | None = None,
        extra_pm: Any = None,
        walk: bool = False,
        enter_calls: bool = False,
    ) -> UOp:
        """The graph with nodes replaced; what replaces a node is not searched again."""
        return cast(UOp, rewrite.substitute([self], dvars, enter_calls)[0])

    def simplify(self, tracked: bool = False) -> UOp:
        """The graph with index arithmetic in normal form and known conditions folded."""
        return cast(UOp, rewrite.rewrite(self, simplify.RULES))

    def render(self, simplify: bool = True, pm: Any = None) -> str:
        """The node as an expression in Python's syntax."""
        return render.expression(self.simplify() if simplify else self)

    def variables(self) -> list[UOp]:
        """The symbolic variables below this node, by name."""
        found = {n for n in self.toposort() if n.op is Ops.VARIABLE}
        return sorted(found, key=lambda v: str(v.arg.name))

    def sym_infer(self, var_vals: Mapping[Any, int]) -> int:
        """The integer value under values of the variables (by name or node)."""
        named = {k.arg.name if isinstance(k, UOp) else k: v for k, v in var_vals.items()}
        table = {v: UOp.const(named[v.arg.name], dtypes.weakint) for v in self.variables()}
        return int(self.substitute(table).simplify().val)

    def unbind(self) -> tuple[UOp, int]:
        """The variable and the value of a bound variable."""
        if self.op is not Ops.BIND:
            raise ArgumentError(f"expected a bound variable, got {self!r}")
        return self.src[0], self.src[1].arg

    # *** what the operator vocabulary asks for ***

    def _alu(self, name: str, *others: Any) -> UOp:
        op = Ops[name]
        src = self._drop_expanded_constants((self, *others))
        chosen = src[1] if op is Ops.WHERE else src[0]
        if chosen.dtype is dtypes.weakint and len(src) == 2:
            built = simplify.index_op(op, *src)
            if built is not None:
                return cast(UOp, built)
        self._check_devices(op, src)
        return UOp(op, dtypes.bool if op in opcodes.COMPARE else chosen.dtype, src)

    @staticmethod
    def _drop_expanded_constants(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """Scalars need no shape beside an operand that has it; padding makes another value."""
        bare = tuple(UOp._without_repeats(s) for s in src)
        return bare if any(s.shape for s in bare) else src

    @staticmethod
    def _without_repeats(node: UOp) -> UOp:
        """The constant that is repeated to give the node, if one is."""
        below = node
        while below.op in opcodes.MOVEMENT and below.op is not Ops.PAD:
            below = below.src[0]
        return below if below.op is Ops.CONST else node

    @staticmethod
    def _check_devices(op: Ops, src: tuple[UOp, ...]) -> None:
        devices = {s.device for s in src if s.device is not None}
        if len(devices) > 1:
            listed = " and ".join(sorted(map(str, devices)))
            raise DeviceError(
                f"expected the operands of {op.name} on the same device, got {listed}; "
                "move one of them with .to(device) or .shard(devices)"
            )

    def _move(self, name: str, arg: Sequence[Any]) -> UOp:
        op = Ops[name]
        if self._move_is_nothing(op, arg):
            return self
        node = self
        inner_is_own = node.born >= fence.since  # an input of a function stays a node
        if op is node.op is Ops.RESHAPE and inner_is_own and node.src[0].axis is None:
            node = node.src[0]
            if same_shape(node.shape, arg):
                return node
        if op is node.op is Ops.PERMUTE and inner_is_own:
            inner = node.arg
            return node.src[0]._move("PERMUTE", tuple(inner[i] for i in arg))
        packed, symbols = pack(arg)
        return UOp(op, self.dtype, (node, *symbols), packed)

    def _move_is_nothing(self, op: Ops, arg: Sequence[Any]) -> bool:
        if op in (Ops.RESHAPE, Ops.EXPAND):
            return same_shape(self.shape, arg)
        if op is Ops.PERMUTE:
            return tuple(arg) == tuple(range(len(arg)))
        if op is Ops.PAD:
            return all(isinstance(a, int) and a == 0 for a in arg)
        if op is Ops.SHRINK:
            return all(isinstance(a, int) and a == 0 for a in arg[::2]) and same_shape(
                self.shape, arg[1::2]
            )
        return not arg

    def _reduce(self, name: str, axes: tuple[int, ...]) -> UOp:
        from_size_one = all(isinstance(self.shape[a], int) and self.shape[a] == 1 for a in axes)
        if not axes or from_size_one:
            return self
        return self.reduce_axis(Ops[name], tuple(sorted(axes)))

    def _constant(self, value: Any, dtype: DType) -> UOp:
        return UOp.const(value, dtype)

    @classmethod
    def _iota(cls, n: Any, dtype: DType, device: Device = None) -> UOp:
        packed, symbols = pack((n,))
        return UOp(Ops.IOTA, dtype, symbols, packed)

    def _gather(self, index: UOp, axis: int) -> UOp:
        return UOp(Ops.GATHER, self.dtype, (self, index), axis)

    def _scatter(self, name: str, index: UOp, values: UOp, axis: int) -> UOp:
        return UOp(Ops.SCATTER, self.dtype, (self, index, values), ScatterInfo(Ops[name], axis))

    def _scan(self, name: str, axis: int, reverse: bool = False, factor: UOp | None = None) -> UOp:
        sources = (self,) if factor is None else (self, factor)
        return UOp(Ops.SCAN, self.dtype, sources, ScanInfo(Ops[name], axis, reverse))

    def _argsort(self, descending: bool = False, count: int | None = None) -> UOp:
        return UOp(Ops.ARGSORT, dtypes.int32, (self,), SortInfo(descending, count))

    @staticmethod
    def _symbolic(x: Any) -> bool:
        return isinstance(x, UOp)

    def cast(self, dtype: DType) -> UOp:
        """The value in another dtype."""
        if self.dtype is dtype:
            return self
        if self.op is Ops.CONST:
            return UOp.const(dtypes.as_const(self.arg, dtype), dtype)
        return UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The same bits as another dtype of the same width."""
        if self.dtype is dtype:
            return self
        if self.dtype.itemsize != dtype.itemsize:
            raise ShapeError(
                f"expected a dtype of {self.dtype.itemsize} bytes to bitcast {self.dtype} to, "
                f"got {dtype} of {dtype.itemsize} bytes"
            )
        return UOp(Ops.BITCAST, dtype, (self,))

    _next_number = staticmethod(next_number)

    # *** Python protocol ***

    def __int__(self) -> int:
        return int(self.val)

    def __index__(self) -> int:
        return int(self.val)

    def __bool__(self) -> bool:
        if self.dtype.kind in ("bool", "weakint") and self.vmin == self.vmax:
            return bool(self.vmin)
        raise ArgumentError(
            f"a symbolic value has no truth value: {self.render()} lies between "
            f"{self.vmin} and {self.vmax}"
        )

    def __iter__(self) -> Iterator[UOp]:
        if not self.shape:
            raise ArgumentError("a scalar node cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    @staticmethod
    def const(b: Any, dtype: DType | None = None) -> UOp:
        """A scalar constant of the dtype (of the Python value's own where none is given)."""
        if isinstance(b, UOp):
            return b if dtype is None else b.cast(dtype)
        kind = dtypes.from_py(b) if dtype is None else dtype
        return UOp(Ops.CONST, kind, (), b if b is Invalid else dtypes.as_const(b, kind))

    @staticmethod
    def full(shape: Sequence[Any], value: Any, dtype: DType, device: Device) -> UOp:
        """A filled tensor that is a leaf of its own."""
        packed, symbols = pack(shape)
        info = FullInfo(next_number(), device, packed)
        return UOp(Ops.FULL, dtype, (UOp.const(value, dtype), *symbols), info)
