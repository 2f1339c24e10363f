"""What the operator vocabulary asks of a class that wants it, and small helpers on sizes.

`Core` names the primitives; Tensor, UOp and the tests' eager class each implement them. Everything
else in this package is written with them, so that it means the same for all three.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from tinyfn.dtype import DType, Invalid, dtypes
from tinyfn.errors import ShapeError
from tinyfn.helpers import prod

Size = Any
"""An int, or a symbolic size: an opaque value with arithmetic, `vmin` and `vmax`."""
Shape = tuple[Size, ...]
Axes = int | Sequence[int] | None


class Core:
    """The primitives: facts about the value, and one builder for each family of operations.

    A builder trusts its arguments: shapes are equal (a scalar constant may stand beside a tensor),
    dtypes fit, axes are not negative. One that changes nothing returns `self`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> Any:
        """The size of every axis: an int, or a symbolic size."""

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """The type of the elements."""

    @property
    @abstractmethod
    def device(self) -> Any:
        """Where the value lives."""

    @abstractmethod
    def _alu(self, name: str, *others: Self) -> Self:
        """The elementwise op of that name."""

    @abstractmethod
    def _move(self, name: str, arg: tuple[Any, ...]) -> Self:
        """The movement op of that name, with its validated argument."""

    @abstractmethod
    def _reduce(self, name: str, axes: tuple[int, ...]) -> Self:
        """ADD, MUL, MAX or MIN over axes, which stay as size 1."""

    @abstractmethod
    def _constant(self, value: Any, dtype: DType) -> Self:
        """A scalar constant of shape (); a symbolic integer is allowed as the value."""

    @classmethod
    @abstractmethod
    def _iota(cls, n: Size, dtype: DType, device: Any = None) -> Self:
        """0, 1, ... n-1."""

    @abstractmethod
    def _gather(self, index: Self, axis: int) -> Self:
        """Elements along an axis by number; a number out of range reads 0."""

    @abstractmethod
    def _scatter(self, name: str, index: Self, values: Self, axis: int) -> Self:
        """This combined by ADD, MUL, MAX or MIN with values at their numbers along an axis."""

    @abstractmethod
    def _scan(
        self, name: str, axis: int, reverse: bool = False, factor: Self | None = None
    ) -> Self:
        """The running ADD, MUL, MAX or MIN along an axis, from its end if `reverse`.

        FMA: the value so far times the element of `factor`, plus the element; from 0.
        """

    @abstractmethod
    def _argsort(self, descending: bool = False, count: int | None = None) -> Self:
        """The numbers (int32) of the elements of the last axis in order; of the first `count` ones.

        Equal elements keep their order; NaN is the largest.
        """

    @staticmethod
    @abstractmethod
    def _symbolic(x: Any) -> bool:
        """Whether x is a symbolic integer."""

    @abstractmethod
    def cast(self, dtype: DType) -> Self:
        """The values in another dtype."""

    @abstractmethod
    def bitcast(self, dtype: DType) -> Self:
        """The same bits as another dtype of the same width."""

    @abstractmethod
    def contiguous(self, **kwargs: Any) -> Self:
        """The values stored row-major."""

    @abstractmethod
    def contiguous_backward(self) -> Self:
        """The same values; the gradient is stored before it goes on."""

    @abstractmethod
    def detach(self) -> Self:
        """The same values with no gradient."""

    # *** what follows from them ***

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> Tensor([[1, 2]]).ndim, Tensor(5).ndim
        (2, 0)
        """
        return len(self.shape)

    def _full(self, shape: Shape, value: Any, dtype: DType) -> Self:
        """One constant everywhere."""
        scalar = self._constant(value, dtype)
        if not shape:
            return scalar
        return scalar._move("RESHAPE", (1,) * len(shape))._move("EXPAND", shape)

    def _iota_along(self, axis: int, ndim: int, size: Size) -> Self:
        """0, 1, ... size-1 along one axis; the other axes have size 1."""
        wide = max_size(size) > 2**31 - 1
        numbers = type(self)._iota(size, dtypes.int64 if wide else dtypes.int32, self.device)
        return numbers._move("RESHAPE", (1,) * axis + (size,) + (1,) * (ndim - axis - 1))

    def _beside(self, other: Self) -> Self:
        """The other value where this one lives; itself where nothing has a place."""
        return other

    def _known_values(self) -> Any:
        """The values as an array where they are known already, else None."""
        return None

    def _from_list(self, values: Sequence[int]) -> Self:
        """A vector of ints; built of constants here, as memory by classes that have memory."""
        values = [int(v) for v in values]
        numbers = self._iota_along(0, 1, len(values))
        chosen = self._full((len(values),), values[-1] if values else 0, numbers.dtype)
        for i in reversed(range(len(values) - 1)):
            here = numbers._alu("CMPLE", self._constant(i, numbers.dtype))
            chosen = here._alu("WHERE", self._constant(values[i], numbers.dtype), chosen)
        return chosen


def is_scalar(x: Any) -> bool:
    """Whether x is a Python number (or Invalid): it takes the dtype of what it meets."""
    return isinstance(x, bool | int | float) or x is Invalid


def is_numpys(x: Any) -> bool:
    """Whether x is a number or array of numpy's (known by its module: it is not imported here)."""
    return type(x).__module__.partition(".")[0] in ("numpy", "ml_dtypes")


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes are equal: ints by value, symbolic sizes by identity."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are equal."""
    return a == b or (len(a) == len(b) and all(map(same_size, a, b)))


def is_one(size: Size) -> bool:
    """Whether a size is the int 1."""
    return isinstance(size, int) and size == 1


def plain(size: Size) -> Size:
    """A size as an int where it has only one value."""
    if isinstance(size, int):
        return int(size)
    if hasattr(size, "vmin"):
        return int(size.vmin) if size.vmin == size.vmax else size
    return int(size)


def max_size(size: Size) -> int:
    """The largest value of a size."""
    return size if isinstance(size, int) else int(size.vmax)


def count(sizes: Sequence[Size]) -> Size:
    """The number of elements of a shape."""
    return plain(prod(sizes))


def show(shape: Sequence[Size]) -> str:
    """A shape as text; symbolic sizes by their expression."""
    parts = [
        str(s) if isinstance(s, int) or not hasattr(s, "render") else s.render() for s in shape
    ]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape that all of these broadcast to (numpy's rule: aligned right, 1 stretches).

    Raises:
        ShapeError: two sizes differ and neither is 1.
    """
    if all(same_shape(shapes[0], s) for s in shapes[1:]):
        return shapes[0]
    ndim = max(map(len, shapes))
    aligned = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    result = []
    for sizes in zip(*aligned, strict=True):
        wide = [s for s in sizes if not is_one(s)]
        if any(not same_size(s, wide[0]) for s in wide[1:]):
            listed = " and ".join(map(show, shapes))
            raise ShapeError(
                f"expected shapes that broadcast to each other, got {listed}: aligned at the "
                "right, sizes have to be equal or 1"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def resolve_axis(axis: Any, ndim: int) -> int:
    """An axis number that is not negative.

    Raises:
        ShapeError: there is no such axis.
    """
    number = as_int(axis, "an axis")
    low, high = (-ndim, ndim - 1) if ndim else (-1, 0)
    if not low <= number <= high:
        raise ShapeError(
            f"expected an axis between {low} and {high} for a tensor of {ndim} axes, got {number}"
        )
    return number + max(ndim, 1) if number < 0 else number


def resolve_axes(axis: Axes, ndim: int) -> tuple[int, ...]:
    """Axis numbers that are not negative, ascending; all axes for None."""
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(resolve_axis(a, ndim) for a in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"expected each axis once, got {given}")
    return () if not ndim else tuple(sorted(axes))


def as_int(value: Any, what: str) -> int:
    """A whole number given as an int (or anything with `__index__`)."""
    if hasattr(value, "__index__") and not isinstance(value, bool) and not hasattr(value, "vmin"):
        return int(value.__index__())
    raise ShapeError(f"expected an int as {what}, got {value!r}")
