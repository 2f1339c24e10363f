"""The inputs of a recorded function: found, stored and described."""

from __future__ import annotations

from typing import Any

from tinyfn.device import Buffer
from tinyfn.errors import JitError
from tinyfn.runtime import execute
from tinyfn.tensor import Tensor
from tinyfn.uop.ops import Ops, UOp, toposort


def named_values(value: Any, kind: type, name: str = "") -> list[tuple[str, Any]]:
    """The values of a kind in nested lists, tuples and dicts, with the way to each."""
    if isinstance(value, kind):
        return [(name or "result", value)]
    if isinstance(value, list | tuple):
        parts: Any = enumerate(value)
    elif isinstance(value, dict):
        parts = value.items()
    else:
        return []
    found = []
    for key, part in parts:
        found += named_values(part, kind, f"{name}.{key}" if name else str(key))
    return found


class Inputs:
    """The tensors and variables among the arguments of one call, stored and described."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        named = named_values(args, Tensor) + named_values(kwargs, Tensor)
        unstored = [t for _, t in named if not _is_whole_buffer(t.uop)]
        if unstored:
            for tensor in unstored:
                tensor.uop = tensor.uop.contiguous()
            Tensor.realize(*unstored)
        self.names = [name for name, _ in named]
        self.nodes = [t.uop.base for _, t in named]
        self.described = [(t.shape, t.dtype, t.device, t.uop.axis) for _, t in named]
        if len(set(self.nodes)) != len(self.nodes):
            twice = [n for i, n in enumerate(self.names) if self.nodes[i] in self.nodes[:i]]
            raise JitError(
                f"the same tensor is passed twice (argument {twice[0]}); pass a .clone() of it"
            )
        bound = named_values(args, UOp) + named_values(kwargs, UOp)
        self.variables: dict[str, int] = {}
        for _, node in [*bound, *((n, t.uop) for n, t in named)]:
            self._bind(node)
        self.described = [(_unbound_shape(s), d, w, a) for s, d, w, a in self.described]
        whole = all(t.uop.op is Ops.BUFFER for _, t in named)
        self.plain = whole and not bound and not kwargs and len(named) == len(args)

    def _bind(self, node: UOp) -> None:
        sizes = [s for s in (node.shape or ()) if isinstance(s, UOp)]
        for found in toposort([*sizes, node] if node.op is Ops.BIND else sizes):
            if found.op is Ops.BIND:
                variable, value = found.unbind()
                self.variables[variable.arg.name] = value

    @property
    def buffers(self) -> list[Buffer]:
        """The memory of the inputs, slot by slot."""
        return [b for n in self.nodes for b in execute.memory_of(n)]


def _unbound_shape(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    table = {
        n: n.src[0] for s in shape if isinstance(s, UOp) for n in toposort([s]) if n.op is Ops.BIND
    }
    return tuple(s.substitute(table) if isinstance(s, UOp) else s for s in shape)


def _is_whole_buffer(node: UOp) -> bool:
    while node.op in (Ops.RESHAPE, Ops.UNSHARD, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.BUFFER


def text_of(described: tuple[Any, ...]) -> str:
    """An input in words: shape, dtype, device."""
    shape, dtype, device, axis = described
    sizes = tuple(s if isinstance(s, int) else s.render() for s in shape)
    place = f"{device}" if axis is None else f"{device} along axis {axis}"
    return f"a tensor of shape {sizes}, {dtype} on {place}"
