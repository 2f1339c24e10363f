"""QR by Householder reflections and SVD by Jacobi rotations, for small matrices."""

from __future__ import annotations

import math
from typing import Self

from tinyfn.errors import ShapeError
from tinyfn.mixin.core import show
from tinyfn.mixin.rearrange import RearrangeMixin


class DecompositionMixin(RearrangeMixin):
    """The graph grows with the size of the matrix: meant for matrices of a few dozen rows."""

    __slots__ = ()

    def _matrix_sizes(self, name: str) -> tuple[int, int]:
        self._need_float(name)
        if self.ndim < 2 or not all(isinstance(s, int) for s in self.shape[-2:]):
            raise ShapeError(f"{name} takes matrices of known sizes, got shape {show(self.shape)}")
        rows, columns = self.shape[-2:]
        return int(rows), int(columns)

    def qr(self) -> tuple[Self, Self]:
        """Q (orthogonal, rows x rows) and R (upper triangular) with Q R equal to this.

        Golub, Van Loan: Matrix computations, 5.2.

        >>> a = Tensor([[3.0, 1.0], [4.0, 2.0]])
        >>> q, r = a.qr()
        >>> bool((q @ r).allclose(a, atol=1e-5)), abs(r[1, 0].item()) < 1e-6
        (True, True)
        """
        rows, columns = self._matrix_sizes("qr")
        lead = self.shape[:-2]
        r = self
        q = self._identity(rows)._broadcast_to((*lead, rows, rows))
        numbers = self._iota_along(0, 2, rows)
        for i in range(min(rows - 1, columns)):
            below = numbers >= i
            x = below.where(r._narrow(r.ndim - 1, i, 1), 0)
            first = r._narrow(r.ndim - 1, i, 1)._narrow(r.ndim - 2, i, 1)
            size = x.square().sum(-2, keepdim=True).sqrt()
            turned = (first < 0).where(size, -size)
            v = numbers.eq(i).where(x - turned, x)
            length = v.square().sum(-2, keepdim=True)
            factor = length.eq(0).where(0, 2 / length.eq(0).where(1, length))
            r = (r - v * (factor * v.transpose(-2, -1).matmul(r))).contiguous()
            q = (q - q.matmul(v) * factor * v.transpose(-2, -1)).contiguous()
        return q, r.triu()

    def _identity(self, n: int) -> Self:
        return self._iota_along(0, 2, n).eq(self._iota_along(1, 2, n)).cast(self.dtype)

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """U, S and V^T with U diag(S) V^T equal to this; S falls.

        One-sided Jacobi with the pairs of a round-robin turned together (Brent and Luk, 1985).

        Args:
            full_matrices: whether U and V are square.

        >>> u, s, v = Tensor([[3.0, 0.0], [0.0, -4.0]]).svd()
        >>> s.tolist(), (u @ s.diag() @ v).numpy().round(4).tolist()
        ([4.0, 3.0], [[3.0, 0.0], [0.0, -4.0]])
        """
        rows, columns = self._matrix_sizes("svd")
        if rows < columns:
            u, s, vt = self.transpose(-2, -1).svd(full_matrices)
            return vt.transpose(-2, -1), s, u.transpose(-2, -1)
        a, v = self._jacobi(columns)
        s, order = a.square().sum(-2).sqrt().sort(-1, descending=True)
        a = a.gather(a.ndim - 1, order.unsqueeze(-2)._broadcast_to(a.shape))
        v = v.gather(v.ndim - 1, order.unsqueeze(-2)._broadcast_to(v.shape))
        # the columns of a are orthogonal: its R is diagonal, and Q completes those of length 0
        q, r = a.qr()
        signs = (r.diagonal(0, -2, -1) < 0).where(-1.0, 1.0).cast(self.dtype)
        signs = signs._pad_constant([(0, 0)] * (signs.ndim - 1) + [(0, rows - columns)], 1.0)
        u = q * signs.unsqueeze(-2)
        u = u if full_matrices else u._narrow(u.ndim - 1, 0, columns)
        return u, s, v.transpose(-2, -1)

    def _jacobi(self, n: int) -> tuple[Self, Self]:
        """This with its columns turned orthogonal, and the product of the rotations."""
        a = self
        v = self._identity(n)._broadcast_to((*self.shape[:-2], n, n))
        size = n + n % 2
        sweeps = 5 + math.ceil(math.log2(max(n, 2)))
        for _ in range(sweeps):
            for turn in range(size - 1 if n > 1 else 0):
                partner = _partners(size, turn, n)
                cosine, sine = a._rotation(partner)
                index = self._from_list(partner)
                a = (a * cosine + a._gather(index, a.ndim - 1) * sine).contiguous()
                v = (v * cosine + v._gather(index, v.ndim - 1) * sine).contiguous()
        return a, v

    def _rotation(self, partner: list[int]) -> tuple[Self, Self]:
        """Cosine and signed sine for each column that make it and its partner orthogonal."""
        n = len(partner)
        index = self._from_list(partner)
        other = self._gather(index, self.ndim - 1)
        norm = self.square().sum(-2, keepdim=True)
        norm_other = other.square().sum(-2, keepdim=True)
        dot = (self * other).sum(-2, keepdim=True)
        number = self._iota_along(0, 1, n)
        first, alone = number < index, number.eq(index)
        sign = first.where(1.0, -1.0).cast(self.dtype)
        # tan of the angle that makes the pair orthogonal; the first of a pair has the role of p
        gap = (norm_other - norm) * sign
        still = dot.eq(0) | alone
        zeta = gap / (still.where(1, dot) * 2)
        root = (zeta * zeta + 1).sqrt()
        tangent = (zeta < 0).where(-1.0, 1.0).cast(self.dtype) / (zeta.abs() + root)
        tangent = still.where(0, tangent)
        cosine = (tangent * tangent + 1).rsqrt()
        return cosine, -(cosine * tangent) * sign


def _partners(size: int, turn: int, n: int) -> list[int]:
    """Who meets whom in one turn of a round-robin; alone where the partner does not exist."""
    ring = [(turn + i) % (size - 1) for i in range(size - 1)]
    partner = list(range(n))
    pairs = [(ring[0], size - 1)] + [(ring[i], ring[-i]) for i in range(1, size // 2)]
    for a, b in pairs:
        if a < n and b < n:
            partner[a], partner[b] = b, a
    return partner
