"""Which of the plans of a kernel is taken: the one the measure of cost prefers, or another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tinyfn.errors import ArgumentError

UNITS = 8  # units for each thread, so that an uneven split costs little
OTHER_UNITS = (2, 4, 16)
PLACES = 6  # tiles after the one in force that are tried


@dataclass(frozen=True)
class Choice:
    """The decisions of a plan that timing can overrule.

    `tiles`: for each nest of loops, in the order in which they are planned, the place of its tile
    when all that fit stand in the order of their cost (0, the cheapest, where the tuple is too
    short). `units`: how many units of work each thread is offered.
    """

    tiles: tuple[int, ...] = ()
    units: int = UNITS

    def tile(self, nest: int) -> int:
        """The place of a nest's tile."""
        return self.tiles[nest] if nest < len(self.tiles) else 0

    def neighbours(self, offers: tuple[int, ...]) -> Iterator[Choice]:
        """Choices that differ in one decision; `offers` says how many tiles each nest has."""
        full = tuple(self.tile(nest) for nest in range(len(offers)))
        for nest, offered in enumerate(offers):
            for place in range(full[nest] + 1, min(full[nest] + 1 + PLACES, offered)):
                yield replace(self, tiles=(*full[:nest], place, *full[nest + 1 :]))
        for units in OTHER_UNITS:
            if units != self.units:
                yield replace(self, units=units)

    def text(self) -> str:
        """The choice for a file."""
        return json.dumps([list(self.tiles), self.units])

    @staticmethod
    def from_text(text: str) -> Choice:
        """The choice that `text` stands for; ArgumentError where it is none."""
        try:
            tiles, units = json.loads(text)
            found = Choice(tuple(map(int, tiles)), int(units))
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"expected [[places], units], got {text!r}") from error
        if any(place < 0 for place in found.tiles) or found.units < 1:
            raise ArgumentError(f"expected places from 0 and units from 1, got {text!r}")
        return found


DEFAULT = Choice()
