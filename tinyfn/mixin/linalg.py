"""Contractions: matrix products with numpy's rules, and einsum."""

from __future__ import annotations

from typing import Any, Self, cast

from tinyfn.dtype import DType, dtypes, least_upper_dtype, to_dtype
from tinyfn.errors import ArgumentError, DTypeError, ShapeError
from tinyfn.mixin.arrange import ArrangeMixin
from tinyfn.mixin.core import broadcast_shape, same_size, show


class LinalgMixin(ArrangeMixin):
    """A contraction is the product of expanded operands, summed over the last axis."""

    __slots__ = ()

    def dot(self, w: Self, dtype: DType | str | None = None) -> Self:
        """The matrix product (numpy's matmul).

        The last axis of this meets the second to last of `w` (the only one of a vector); the axes
        before them broadcast. Halves are accumulated in float32 and rounded once.

        Args:
            dtype: of the result and of the accumulation; by default what both promote to.

        Raises:
            ShapeError: the sizes that meet differ, or an operand has no axis.

        >>> Tensor([[1, 2], [3, 4]]).dot(Tensor([1, 1])).tolist()
        [3, 7]
        """
        w = self._factor(w)
        self._check_dot(w)
        common = least_upper_dtype(self.dtype, w.dtype)
        own, other = self.shape, w.shape
        vector = len(other) == 1
        # (..., rows, 1, met) times (..., 1, columns, met)
        columns = (1,) if vector else (other[-1],)
        right = w if vector else w.transpose(-1, -2)
        right = right._reshaped((*other[:-2], *(() if len(own) == 1 else (1,)), *columns, own[-1]))
        left = self._reshaped((*own[:-1], 1, own[-1]))
        found = left._contracted(right, common, dtype)
        return found._without_axes((found.ndim - 1,)) if vector else found

    def _factor(self, x: Any) -> Self:
        factor = self._as_operand(x)
        if not isinstance(factor, type(self)):
            raise DTypeError(
                f"expected a {type(self).__name__} to multiply with, got {type(x).__name__}"
            )
        return factor

    def _check_dot(self, w: Self) -> None:
        if not self.ndim or not w.ndim:
            raise ShapeError(
                f"a matrix product takes operands of 1 axis or more, got shapes "
                f"{show(self.shape)} and {show(w.shape)}; use * for scalars"
            )
        met = w.shape[-2] if w.ndim > 1 else w.shape[0]
        if not same_size(self.shape[-1], met):
            raise ShapeError(
                f"cannot multiply shapes {show(self.shape)} and {show(w.shape)}: the last axis of "
                f"the first has size {self.shape[-1]}, the one it meets has {met}"
            )

    def _contracted(
        self, other: Self, common: DType, dtype: DType | str | None, axes: int = 1
    ) -> Self:
        """The product of two broadcast operands, summed over the last axes, which go away."""
        result = common if dtype is None else to_dtype(dtype)
        shape = broadcast_shape(self.shape, other.shape)
        inner = self._computed_in(result) if result.kind == "float" else result
        x, y = (v.cast(inner)._broadcast_to(shape) for v in (self, other))
        last = tuple(range(len(shape) - axes, len(shape)))
        if inner.kind == "bool":
            return x._alu("AND", y)._reduced("MAX", last, False)
        return x._alu("MUL", y)._reduced("ADD", last, False).cast(result)

    def matmul(self, x: Self, reverse: bool = False, dtype: DType | str | None = None) -> Self:
        """The same as `dot`; `reverse` exchanges the operands.

        >>> Tensor([[1, 2], [3, 4]]).matmul(Tensor([10, 1])).tolist()
        [12, 34]
        """
        return self._factor(x).dot(self, dtype) if reverse else self.dot(x, dtype)

    def __matmul__(self, x: Self) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Self) -> Self:
        return self.matmul(x, True)

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """self @ weight + bias; a weight of one axis scales elementwise.

        Args:
            weight: (in, out); for torch's layout pass its transpose.

        >>> Tensor([1.0, 2.0]).linear(Tensor([[1.0, 0.0], [3.0, 4.0]]), Tensor([0.5, 0.0])).tolist()
        [7.5, 8.0]
        """
        if dtype is not None:
            kind = to_dtype(dtype)
            cast_bias = None if bias is None else bias.cast(kind)
            return self.cast(kind).linear(weight.cast(kind), cast_bias)
        product = self.mul(weight) if weight.ndim == 1 else self.dot(weight)
        return product if bias is None else product.add(bias)

    # *** einsum ***

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DType | str | None = None) -> Self:
        """Einstein's summation, numpy's syntax (`...` included).

        >>> Tensor.einsum("ij,jk->ik", Tensor.eye(2), Tensor.ones(2, 2)).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        given = (
            operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else None
        )
        tensors: tuple[Self, ...] = tuple(operands if given is None else given)
        inputs, output = _parse(formula, tensors)
        common = least_upper_dtype(*(t.dtype for t in tensors))
        result = common if dtype is None else to_dtype(dtype)
        labelled = [
            _without_repeats(t, letters) for t, letters in zip(tensors, inputs, strict=True)
        ]
        done, letters = labelled[0]
        done = done.cast(result)
        for i, (tensor, own) in enumerate(labelled[1:], start=1):
            later = {c for _, rest in labelled[i + 1 :] for c in rest} | set(output)
            done, letters = _contract_pair(done, letters, tensor, own, later, result)
        done, letters = _sum_letters(done, letters, set(output))
        return cast(Self, done._permuted(tuple(letters.index(c) for c in output)))

    # *** small matrix algorithms ***

    def newton_schulz(self, steps: int, params: tuple[int, ...], eps: float = 1e-7) -> Self:
        """An odd polynomial of the matrix, iterated: brings all singular values near 1.

        Jordan et al., Muon (2024): with params (a, b, c, ...) every step is
        a x + b (x x^T) x + c (x x^T)^2 x + ...

        >>> x = Tensor([[3.0, 0.0], [0.0, 3.0]]).newton_schulz(5, params=(1.5, -0.5))
        >>> x.numpy().round(3).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        self._need_float("newton_schulz")
        if self.ndim < 2:
            raise ShapeError(f"expected a matrix or a batch of them, got shape {show(self.shape)}")
        x = self.div(self.square().sum((-2, -1), keepdim=True).sqrt().add(eps))
        wide = bool(self.shape[-2] > self.shape[-1])
        x = x.transpose(-2, -1) if wide else x
        for _ in range(steps):
            gram, power = x.matmul(x.transpose(-2, -1)), x
            total = x.mul(params[0])
            for factor in params[1:]:
                power = gram.matmul(power)
                total = total.add(power.mul(factor))
            x = total
        return x.transpose(-2, -1) if wide else x


def _parse(formula: str, tensors: tuple[Any, ...]) -> tuple[list[str], str]:
    """The letters of every operand and of the result; `...` gets letters of its own."""
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(tensors):
        raise ArgumentError(
            f"expected {len(inputs)} operands for einsum {formula!r}, got {len(tensors)}"
        )
    spare = [c for c in map(chr, range(0x3B1, 0x3B1 + 64)) if c not in text]
    hidden = ""
    expanded = []
    for letters, tensor in zip(inputs, tensors, strict=True):
        own = tensor.ndim - len(letters.replace("...", ""))
        if own < 0 or (own and "..." not in letters):
            raise ShapeError(
                f"expected {len(letters)} axes for {letters!r} of einsum {formula!r}, got shape "
                f"{show(tensor.shape)}"
            )
        stands_for = "".join(reversed(spare[:own]))
        hidden = max(hidden, stands_for, key=len)
        expanded.append(letters.replace("...", stands_for))
    if not arrow:
        joined = "".join(i.replace("...", "") for i in inputs)
        once = "".join(c for c in sorted(set(joined)) if joined.count(c) == 1)
        right = hidden + once
    output = right.replace("...", hidden)
    unknown = [c for c in output if not any(c in e for e in expanded)]
    if unknown or len(set(output)) != len(output):
        raise ArgumentError(
            f"expected the result of einsum {formula!r} to name letters of its operands, each once"
        )
    return expanded, output


def _without_repeats(tensor: Any, letters: str) -> tuple[Any, str]:
    """A letter that an operand has twice takes its diagonal."""
    for letter in sorted(set(letters)):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if not same_size(tensor.shape[first], tensor.shape[second]):
                raise ShapeError(
                    f"expected equal sizes for the letter {letter!r}, got shape "
                    f"{show(tensor.shape)}"
                )
            tensor = tensor.diagonal(0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return tensor, letters


def _sum_letters(tensor: Any, letters: str, kept: set[str]) -> tuple[Any, str]:
    """The axes whose letters nobody needs are summed."""
    axes = tuple(i for i, c in enumerate(letters) if c not in kept)
    if not axes:
        return tensor, letters
    if tensor.dtype is dtypes.bool:
        return tensor.any(axes), "".join(c for c in letters if c in kept)
    return tensor.sum(axes, dtype=tensor.dtype), "".join(c for c in letters if c in kept)


def _contract_pair(
    x: Any, own: str, y: Any, other: str, later: set[str], result: DType
) -> tuple[Any, str]:
    """Two operands into one: letters that neither the rest nor the result has are summed."""
    x, own = _sum_letters(x, own, later | set(other))
    y, other = _sum_letters(y, other, later | set(own))
    summed = "".join(c for c in own if c not in later)
    kept = [c for c in dict.fromkeys(own + other) if c not in summed]
    order = "".join(kept) + summed
    pair = []
    for tensor, letters in ((x, own), (y, other)):
        moved = tensor._permuted(tuple(letters.index(c) for c in order if c in letters))
        sizes = dict(zip(letters, tensor.shape, strict=True))
        pair.append(moved._reshaped(tuple(sizes.get(c, 1) for c in order)))
    return pair[0]._contracted(pair[1], result, result, len(summed)), "".join(kept)
