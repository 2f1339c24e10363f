"""What an attention is: its sizes, dtypes and mask, as seen by one slot."""

from __future__ import annotations

from dataclasses import dataclass

from tinyfn.dtype import DType, dtypes

BLOCKS = (32, 48, 64)  # rows (or keys) that are lanes of one unit of work
TILE = 64  # keys (or rows) that one pass takes in
SCRATCH = 1 << 18  # bytes of scratch of one unit, at most


@dataclass(frozen=True)
class Problem:
    """Queries (*lead, rows, size), with `groups` heads of them for each head of the keys.

    `lead` are the axes before rows of keys (*lead, keys, size) and values (*lead, keys, width).
    `mask` is the shape of the mask, with as many axes as the queries have, each 1 or whole.
    """

    lead: tuple[int, ...]
    groups: int
    rows: int
    keys: int
    size: int
    width: int
    dtype: DType
    causal: bool = False
    mask: tuple[int, ...] | None = None
    mask_dtype: DType | None = None

    @property
    def inner(self) -> DType:
        """The dtype to compute in."""
        return dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32

    @property
    def heads(self) -> tuple[int, ...]:
        """The axes before rows of the queries."""
        return (*self.lead[:-1], self.lead[-1] * self.groups) if self.lead else ()

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return float(self.size**-0.5)

    @property
    def row_block(self) -> int:
        """Rows of a unit that walks over keys."""
        return block(self.rows)

    @property
    def key_block(self) -> int:
        """Keys of a unit that walks over rows."""
        return block(self.keys)

    @property
    def fits(self) -> bool:
        """Whether a unit's scratch is small: four blocks as wide as a head, two tiles of scores."""
        elements = (4 * max(self.size, self.width) + 2 * TILE) * BLOCKS[-1]
        return elements * self.inner.itemsize <= SCRATCH


def block(count: int) -> int:
    """The block that leaves the fewest places empty; the largest of such."""
    return min(reversed(BLOCKS), key=lambda size: -(-count // size) * size)
