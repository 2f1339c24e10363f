"""Attention as a call with kernels of its own, which hold no more scores than a tile.

problem     sizes, dtypes and mask
words       loops, scratch and operands
rows        the kernels over blocks of rows: the output; the gradient of the queries
keys        the kernel over blocks of keys: the gradients of keys and values

`attention` is the way in. Its gradient is two more calls of kernels where that pays; else
it is that of the composed form, which holds all scores. So are that of a mask, and second ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinyfn import call as calls
from tinyfn.attention.keys import keys_backward
from tinyfn.attention.problem import Problem
from tinyfn.attention.rows import forward, queries_backward
from tinyfn.dtype import DType, dtypes
from tinyfn.gradient import sweep
from tinyfn.uop.info import CallInfo
from tinyfn.uop.ops import Ops, UOp, substitute

HELD = 1 << 24  # scores that a backward pass may hold: as ordinary products they take less time
LONG = 128  # rows from which on it takes less to leave out the half that is not seen
STAND_INS = 1 << 20  # slots away from those of captured functions
FEWEST = 16  # rows from which on they fill the lanes of a unit
TYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def attention(
    query: UOp, key: UOp, value: UOp, mask: UOp | None, causal: bool, grouped: bool
) -> UOp | None:
    """softmax(q k^T / sqrt(d)) v in a kernel of its own; None where it has none for these.

    Queries (..., heads, rows, d), keys (..., heads, keys, d), values (..., heads, keys, width), all
    of one float dtype of 16 bits or more; `grouped`: several heads of the queries to one of the
    keys. The mask is bool or float, of the queries' axes or fewer, each 1 or whole.
    """
    if mask is not None:
        mask = mask._move("RESHAPE", (1,) * (len(query.shape) - len(mask.shape)) + mask.shape)
    problem = _problem(query, key, value, mask, causal, grouped)
    if problem is None:
        return None
    inputs = [_in_memory(x) for x in (query, key, value, mask) if x is not None]
    output = _memory(query, (*query.shape[:-1], value.shape[-1]), problem.dtype)
    sums = _memory(query, query.shape[:-1], problem.inner)
    info = CallInfo("attention", Gradient(problem))
    call = UOp(Ops.CALL, src=(forward(problem), output, sums, *inputs), arg=info)
    return output.after(call)


# *** whether ***


def _problem(
    q: UOp, k: UOp, v: UOp, mask: UOp | None, causal: bool, grouped: bool
) -> Problem | None:
    """The problem of one slot; None where the kernels do not fit."""
    given = [x for x in (q, k, v, mask) if x is not None]
    known = all(isinstance(size, int) and size > 0 for x in given for size in x.shape)
    if not known or not len(q.shape) == len(k.shape) == len(v.shape) >= 2:
        return None
    if q.dtype not in TYPES or any(x.dtype is not q.dtype for x in (k, v)):
        return None
    if not _placed_alike(q, k, v, mask) or q.shape[-2] < FEWEST:
        return None
    (*heads, rows, size), (*lead, keys, _), width = q.shard_shape, k.shard_shape, v.shape[-1]
    groups = 1
    if grouped and lead and lead[-1] and heads[-1] % lead[-1] == 0:
        groups = heads[-1] // lead[-1]
    problem = Problem(tuple(lead), groups, rows, keys, size, width, q.dtype, causal)
    whole = (*heads, rows, keys)
    same = tuple(heads) == problem.heads and k.shape[-1] == size
    if not same or v.shard_shape[:-1] != k.shard_shape[:-1] or not problem.fits:
        return None
    if mask is None:
        return problem
    matches = all(m in (1, n) for m, n in zip(mask.shard_shape, whole, strict=True))
    kinds = (dtypes.bool, q.dtype, problem.inner)
    if not matches or mask.dtype not in kinds:
        return None
    return replace(problem, mask=tuple(mask.shard_shape), mask_dtype=mask.dtype)


def _placed_alike(q: UOp, k: UOp, v: UOp, mask: UOp | None) -> bool:
    """Whether every slot has all it needs: the same part of the leading axes of each."""
    if any(x.device != q.device or x.axis != q.axis for x in (k, v)):
        return False
    if q.axis is not None and q.axis >= len(q.shape) - 2:
        return False
    if mask is None or q.device == mask.device is None:
        return True
    if mask.device not in (q.device, None):
        return False
    return mask.axis == q.axis or (q.axis is not None and mask.shape[q.axis] == 1)


def _in_memory(node: UOp) -> UOp:
    """The node as memory that a kernel can take: itself, or stored first."""
    inner = node
    while inner.op in (Ops.RESHAPE, Ops.UNSHARD):
        inner = inner.src[0]
    return node if inner.op in (Ops.BUFFER, Ops.AFTER) else node.contiguous()


def _memory(like: UOp, shape: Any, dtype: DType) -> UOp:
    """Memory of a shape on the slots of a node, sharded as it is."""
    count = len(like.device) if like.axis is not None else 1
    own = tuple(s // count if i == like.axis else s for i, s in enumerate(shape))
    made = UOp.new_memory(like.device, own, dtype, kind="scratch")
    return made if like.axis is None else made.unshard(like.axis)


# *** gradients ***


@dataclass(frozen=True)
class Gradient:
    """The gradient of a call of the kernel of a problem."""

    problem: Problem

    def __call__(self, gradient: UOp, *, call: UOp) -> tuple[UOp | None, ...]:
        """Nothing for the memory of the outputs; then for queries, keys, values and mask."""
        problem, inputs = self.problem, call.src[3:]
        if _holds_scores(problem):
            return (None, None, *_composed(problem, inputs, _in_memory(gradient)))
        output, sums = (memory.after(call) for memory in call.src[1:3])
        given = _in_memory(gradient.cast(problem.dtype))
        product = output.cast(problem.inner).mul(given.cast(problem.inner))
        sources = (*inputs, given, sums, product.sum(-1).contiguous())
        query, key = inputs[:2]
        info = CallInfo("attention_backward", SecondGradient(problem, of_keys=False))
        queries = _memory(query, query.shape, problem.dtype)
        call = UOp(Ops.CALL, src=(queries_backward(problem), queries, *sources), arg=info)
        of_queries = queries.after(call)
        info = CallInfo("attention_backward", SecondGradient(problem, of_keys=True))
        both = _memory(key, (*key.shape[:-1], problem.size + problem.width), problem.dtype)
        call = UOp(Ops.CALL, src=(keys_backward(problem), both, *sources), arg=info)
        of_keys, of_values = _parts(both.after(call), problem)
        found = [None, None, of_queries, of_keys, of_values]
        if problem.mask is not None:
            floats = problem.mask_dtype is not dtypes.bool
            found.append(_composed(problem, inputs, given)[3] if floats else None)
        return tuple(found)


@dataclass(frozen=True)
class SecondGradient:
    """The gradient of a call of a backward kernel, taken of the composed form.

    `of_keys`: the result of the call is the gradients of keys and values, else of the queries.
    """

    problem: Problem
    of_keys: bool

    def __call__(self, gradient: UOp, *, call: UOp) -> tuple[UOp | None, ...]:
        """Nothing for the memory of the result; then for each source up to the gradient."""
        sources = call.src[2:-2]
        stand_ins = _stand_ins(sources)
        first = _composed_gradients(self.problem, stand_ins[:-1], stand_ins[-1])
        if self.of_keys:
            seeds = dict(zip(first[1:3], _parts(gradient, self.problem), strict=True))
        else:
            seeds = {first[0]: gradient}
        floats = {x for x in stand_ins if x.dtype.kind == "float"}
        found = sweep(seeds, floats)
        return (None, *_in_place([found.get(x) for x in stand_ins], stand_ins, sources))


def _parts(both: UOp, problem: Problem) -> tuple[UOp, UOp]:
    """What belongs to the keys and what to the values, which one kernel writes side by side."""
    return both[..., : problem.size], both[..., problem.size :]


def _holds_scores(problem: Problem) -> bool:
    """Whether the gradient is better taken of the composed form."""
    scores = math.prod(problem.heads) * problem.rows * problem.keys
    return scores <= HELD and not (problem.causal and problem.rows >= LONG)


def _composed(problem: Problem, inputs: Sequence[UOp], given: UOp) -> list[UOp | None]:
    """The gradients of the inputs, taken of the composed form; None for a mask of bools."""
    sources = (*inputs, given)
    stand_ins = _stand_ins(sources)
    found = _composed_gradients(problem, stand_ins[:-1], stand_ins[-1])
    return [*_in_place(found, stand_ins, sources), None][: len(inputs)]


def _stand_ins(sources: Sequence[UOp]) -> list[UOp]:
    """A node for each source, none of which a gradient from outside can hold."""
    return [calls.parameter(x, slot) for slot, x in enumerate(sources, STAND_INS)]


def _composed_gradients(problem: Problem, inputs: Sequence[UOp], given: UOp) -> list[UOp]:
    """The gradients of distinct inputs as a graph of ordinary operations."""
    query, key, value = inputs[:3]
    mask = inputs[3] if problem.mask is not None else None
    output = query.scaled_dot_product_attention(
        key, value, mask, is_causal=problem.causal, enable_gqa=problem.groups > 1
    )
    floats = [x for x in inputs if x.dtype.kind == "float"]
    found = sweep({output: given}, set(floats))
    return [found[x] for x in floats]


def _in_place(
    found: Sequence[UOp | None], stand_ins: Sequence[UOp], sources: Sequence[UOp]
) -> list[UOp | None]:
    """Results on stand-ins as results on the sources they stand for."""
    table = dict(zip(stand_ins, sources, strict=True))
    real = iter(substitute([x for x in found if x is not None], table))
    return [None if x is None else next(real) for x in found]


__all__ = ["attention"]
