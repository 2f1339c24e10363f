"""The gradient of memory after a store: the value's part, and what is left of the memory's."""

from __future__ import annotations

from tinyfn.errors import GradientError
from tinyfn.gradient.history import find
from tinyfn.gradient.rules import GRADIENT
from tinyfn.uop.ops import Ops, UOp


def gradient_of_store(node: UOp, g: UOp) -> dict[UOp, UOp]:
    """A store: the value gets the gradient through the view, the rest stays with the memory."""
    found: dict[UOp, UOp] = {}
    for effect in node.src[1:]:
        if effect.op is not Ops.STORE:
            raise GradientError(f"no gradient passes through {effect.op.name} in this place")
        view, value = effect.src[:2]
        through = _view_again(view, node.src[0], g)
        if value.dtype.kind == "float":
            found[value] = through
        g = _zeroed(view, node.src[0], g)
    memory = node.src[0]
    if memory.op is not Ops.BUFFER or memory.arg.kind == "data" or find(memory):
        found[memory] = g
    return found


def _view_again(view: UOp, memory: UOp, other: UOp) -> UOp:
    """The same view of another tensor of the memory's shape."""
    return view.substitute({memory: other})


def _zeroed(view: UOp, memory: UOp, g: UOp) -> UOp:
    """The gradient with 0 in the place that was overwritten."""
    ones = UOp.const(1.0, g.dtype)._move("RESHAPE", (1,) * len(g.shape))._move("EXPAND", g.shape)
    probe = _covered(view, memory, ones)
    return probe._alu("CMPEQ", UOp.const(0.0, g.dtype))._alu("WHERE", g, UOp.const(0.0, g.dtype))


def _covered(view: UOp, memory: UOp, ones: UOp) -> UOp:
    """Ones at the elements of memory that the view covers, zeros elsewhere."""
    chain = []
    node = view
    while node is not memory:
        chain.append(node)
        node = node.src[0]
    if not chain:
        return ones
    g = UOp.const(1.0, ones.dtype)._move("RESHAPE", (1,) * len(view.shape))
    g = g._move("EXPAND", view.shape)
    for step in chain:
        (inner,) = GRADIENT[step.op](step, g)
        assert inner is not None
        g = inner
    return g
