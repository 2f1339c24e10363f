"""Find the values of a type inside nested arguments and objects: each once, in a fixed order."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

CLOSED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    str,
    bytes,
    int,
    float,
    complex,
    np.ndarray,
    np.generic,
)


def find(obj: Any, kind: type[T]) -> list[T]:
    """The instances of `kind` in lists, tuples, sets, dicts and objects, cycles included.

    An instance that is found is not searched itself; neither are classes, modules, functions,
    arrays and strings.
    """
    return list({id(v): v for _, v in _walk(obj, kind)}.values())


def find_named(obj: Any, kind: type[T], prefix: str = "") -> dict[str, T]:
    """The instances of `kind` by the dotted way to them: `layers.0.weight`."""
    return {f"{prefix}{name}": value for name, value in _walk(obj, kind)}


def _walk(obj: Any, kind: type[T]) -> Iterator[tuple[str, T]]:
    """Names and instances in order; every container is entered once."""
    stack: list[tuple[str, Any]] = [("", obj)]
    entered: set[int] = set()
    while stack:
        name, value = stack.pop()
        if isinstance(value, kind):
            yield name, value
            continue
        if value is None or isinstance(value, CLOSED) or id(value) in entered:
            continue
        entered.add(id(value))
        parts = list(_parts(value))
        stack += [(f"{name}.{key}" if name else key, part) for key, part in reversed(parts)]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container or object holds, by key."""
    if isinstance(value, Mapping):
        yield from ((str(k), v) for k, v in value.items())
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        yield from ((str(i), v) for i, v in enumerate(value))
    elif isinstance(value, tuple):
        yield from zip(value._fields, value, strict=True)  # type: ignore[attr-defined]
    elif isinstance(value, set | frozenset):
        yield from ((str(i), v) for i, v in enumerate(sorted(value, key=id)))
    elif isinstance(value, functools.partial):
        yield from ((str(i), v) for i, v in enumerate(value.args))
        yield from value.keywords.items()
    else:
        yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from ((str(k), v) for k, v in getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                yield slot, getattr(value, slot)
