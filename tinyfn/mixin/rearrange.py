"""Movement by a formula: "b (h d) -> b h d", the syntax of einops (Rogozhnikov, 2022)."""

from __future__ import annotations

import re
from typing import Self

from tinyfn.errors import ArgumentError, ShapeError
from tinyfn.mixin.core import Size, count, plain, same_size, show
from tinyfn.mixin.sorting import SortMixin

Groups = list[list[str]]


class RearrangeMixin(SortMixin):
    """`rearrange`: axes split, exchanged and joined."""

    __slots__ = ()

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes by name: parentheses split one on the left and join several on the right.

        `...` stands for the axes not named, 1 (or `()`) for an axis of size 1.

        Args:
            sizes: of the axes in parentheses on the left, all but one of each.

        >>> Tensor.zeros(2, 6).rearrange("b (h d) -> h b d", h=3).shape
        (3, 2, 2)
        """
        left, arrow, right = formula.partition("->")
        if not arrow:
            raise ArgumentError(f"expected a formula with '->', got {formula!r}")
        groups = _parsed(left, formula)
        dots = self.ndim - sum(1 for g in groups if g != ["..."])
        source = _expanded(groups, dots, formula)
        target = _expanded(_parsed(right, formula), dots, formula)
        _check_names(source, target, formula, sizes)
        if len(source) != self.ndim:
            raise ShapeError(
                f"expected {len(source)} axes for {formula!r}, got shape {show(self.shape)}"
            )
        known: dict[str, Size] = dict(sizes)
        for names, size in zip(source, self.shape, strict=True):
            _split_size(names, size, known, formula)
        order = [name for names in source for name in names]
        x = self.reshape(tuple(known[name] for name in order))
        x = x.permute(tuple(order.index(name) for names in target for name in names))
        return x.reshape(tuple(count([known[n] for n in names]) for names in target))


def _parsed(text: str, formula: str) -> Groups:
    """One list of names an axis; an axis of size 1 has none, `...` stays."""
    groups: Groups = []
    inside: list[str] | None = None
    for token in re.findall(r"\(|\)|\.\.\.|…|\w+|\S", text):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            groups.append(inside)
            inside = None
        elif token in ("...", "…"):
            if inside is not None:
                raise ArgumentError(f"expected ... outside of parentheses in {formula!r}")
            groups.append(["..."])
        elif token == "1" or token.isidentifier():
            names = [] if token == "1" else [token]
            if inside is None:
                groups.append(names)
            else:
                inside += names
        else:
            raise ArgumentError(
                f"expected names, parentheses and ... in {formula!r}, got {token!r}"
            )
    if inside is not None:
        raise ArgumentError(f"expected every parenthesis closed in {formula!r}")
    return groups


def _expanded(groups: Groups, dots: int, formula: str) -> Groups:
    """`...` as that many axes with names of their own."""
    if groups.count(["..."]) > 1:
        raise ArgumentError(f"expected ... at most once on each side of {formula!r}")
    found: Groups = []
    for g in groups:
        found += [[f"...{i}"] for i in range(dots)] if g == ["..."] else [g]
    return found


def _check_names(source: Groups, target: Groups, formula: str, sizes: dict[str, int]) -> None:
    left = [n for g in source for n in g]
    right = [n for g in target for n in g]
    if sorted(left) != sorted(right) or len(set(left)) != len(left):
        raise ArgumentError(f"expected each name once on each side of {formula!r}")
    unknown = [n for n in sizes if n not in left]
    if unknown:
        raise ArgumentError(f"{formula!r} has no axis called {', '.join(unknown)}")


def _split_size(names: list[str], size: Size, known: dict[str, Size], formula: str) -> None:
    """Find the one size of a group that is not given."""
    missing = [n for n in names if n not in known]
    rest = count([known[n] for n in names if n in known])
    if len(missing) > 1:
        raise ArgumentError(f"expected sizes of all but one of ({' '.join(names)}) in {formula!r}")
    exact = not isinstance(size, int) or (rest and size % rest == 0)
    if (missing and not exact) or (not missing and not same_size(rest, size)):
        raise ShapeError(
            f"an axis of size {size} cannot be split as ({' '.join(names)}) of {formula!r} with "
            f"{known}"
        )
    if missing:
        known[missing[0]] = plain(size // rest)
