"""How far rounding may carry a value: a running error analysis over the graph that computes it.

Every node has a value (the interpreter's) and an error: whatever order and fusion a kernel
chooses, its result lies within the error of the exact result, and so does the interpreter's. An
error of infinity says that anything may come out (a comparison of values closer than their
errors, an overflow that depends on the order). A value that is infinite or NaN with a finite
error is so for sure.

Rules follow Higham, *Accuracy and Stability of Numerical Algorithms*, chapters 2 to 4: an
operation rounded once has the relative error u (half of an ulp), a sum of n numbers in any order
(n-1) u times the sum of magnitudes, and what its sources are off by goes through the operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyfn import call as calls
from tinyfn.errors import ArgumentError
from tinyfn.schedule.inline import Inlined
from tinyfn.tensor import Tensor
from tinyfn.testing.error_rules import RULES, finish
from tinyfn.uop.interpret import Walk, memory_below
from tinyfn.uop.ops import Ops, Rules, UOp, rewrite, toposort

Array = Any
ONE_SLOT_ONLY = {Ops.UNSHARD, Ops.SHARD, Ops.MSELECT, Ops.MSTACK, Ops.ALLREDUCE, Ops.SLOT}

BODIES = Rules("inline every call")


@BODIES.on(Ops.AFTER)
def output_of_call(node: UOp, state: Inlined) -> UOp | None:
    """The output of a call, precompiled or not, is that value of its body."""
    call, slot = node.src[1], calls.output_slot(node)
    if call.op is not Ops.CALL or slot is None or calls.is_kernel(call.src[0]):
        return None
    if call not in state.outputs:
        state.outputs[call], state.number = calls.inline(call, state.number)
    return state.outputs[call][slot].after(*node.src[2:])


def bounds(tensor: Tensor) -> tuple[Array, Array]:
    """The interpreter's value of a tensor, and how far a right result may be from the exact one.

    Returns:
        An array of the tensor's values and a float64 array of the same shape. Two right results
        differ by twice the second; a result and exact arithmetic by once.

    Raises:
        ArgumentError: the tensor is spread over several slots (derive bounds before sharding).

    >>> from tinyfn import Tensor
    >>> value, error = bounds(Tensor([1.0, 2.0, 3.0]).sum())
    >>> float(value), 0 < float(error) < 1e-5
    (6.0, True)
    """
    root: UOp = rewrite(tensor.uop, BODIES, Inlined())
    values = Walk({}, {})
    (value,) = values.run([root])
    return value, ErrorWalk(values).run(root)


class ErrorWalk:
    """One walk over a graph whose values are known, sources first."""

    def __init__(self, values: Walk) -> None:
        self.values = values
        self.errors: dict[UOp, Array] = {}
        self.memory: dict[UOp, Array] = {}

    def run(self, root: UOp) -> Array:
        """The error of the root."""
        for node in toposort([root], enter_calls=False):
            if node.op in ONE_SLOT_ONLY or isinstance(node.device, tuple):
                raise ArgumentError(
                    "expected tensors on one slot, got a sharded one: "
                    "derive the bounds from the same computation without shard"
                )
            self.errors[node] = self._error(node)
        return self.errors[root]

    def _error(self, node: UOp) -> Array:
        if node.op is Ops.STORE:
            return self._store(node)
        if node.op is Ops.AFTER:
            return self._after(node)
        value = self.values.values[node]
        if value is None or isinstance(value, tuple) or not hasattr(value, "shape"):
            return None
        rule = RULES.get(node.op)
        if rule is None:
            return np.zeros(value.shape) if not node.src else np.full(value.shape, np.inf)
        sources = [self.values.values[s] for s in node.src]
        errors = [self.errors[s] for s in node.src]
        with np.errstate(all="ignore"):
            return finish(node, value, sources, rule(node, value, sources, errors))

    def _contents(self, base: UOp) -> Array:
        return self.memory.get(base, self.errors[base])

    def _store(self, node: UOp) -> None:
        """Errors written where the values are written."""
        base, chain = memory_below(node.src[0])
        flat = np.array(self._contents(base)).reshape(-1)
        numbers = np.arange(1, flat.size + 1).reshape(np.shape(self._contents(base)))
        where = self.values.view(chain, numbers)
        chosen = where > 0
        if len(node.src) > 2:
            chosen = chosen & self.values.values[node.src[2]]
        new = np.broadcast_to(self.errors[node.src[1]], where.shape)
        flat[where[chosen] - 1] = new[chosen]
        self.memory[base] = flat.reshape(numbers.shape)

    def _after(self, node: UOp) -> Array:
        base, chain = memory_below(node.src[0])
        if base not in self.memory:
            return self.errors[node.src[0]]
        return self.values.view(chain, self.memory[base])


def allowed(got: Array, value: Array, error: Array) -> Array:
    """Where a result is as near to the value as the error allows (equal for ints and bools)."""
    got, value = np.asarray(got), np.asarray(value)
    with np.errstate(all="ignore"):
        if got.dtype.kind != "f" and value.dtype.kind != "f":
            return (got == value) | (error > 0)
        near = np.abs(got.astype(np.float64) - value.astype(np.float64)) <= error
        same = (got == value) | (np.isnan(got) & np.isnan(value))
        return near | same | np.isposinf(error)
