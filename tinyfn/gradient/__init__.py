"""Gradients: the reverse sweep over the graph, and the gradient of a call, which is a call.

`rules` has one rule an op; `store` has that of memory which was written, `history` knows what
memory was computed from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinyfn import call as calls
from tinyfn.errors import GradientError
from tinyfn.gradient import history
from tinyfn.gradient.rules import GRADIENT, NO_GRADIENT
from tinyfn.gradient.store import gradient_of_store
from tinyfn.mixin.core import same_shape
from tinyfn.uop.ops import CallInfo, Ops, UOp, substitute, toposort

__all__ = ["GRADIENT", "NO_GRADIENT", "compute_gradient", "sweep"]


def compute_gradient(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradients of `root` with respect to the targets it depends on."""
    return sweep({root: root_gradient}, set(targets))


def sweep(seeds: dict[UOp, UOp], targets: set[UOp]) -> dict[UOp, UOp]:
    """The reverse sweep: from nodes with given gradients to the targets."""
    order = history.order(seeds)
    depends: set[UOp] = set()
    for node in order:
        if node in targets or any(s in depends for s in _differentiable(node)):
            depends.add(node)
    gradients: dict[UOp, UOp] = dict(seeds)
    pending: dict[UOp, dict[int, UOp]] = {}
    found: dict[UOp, UOp] = {}
    for node in reversed(order):
        if node.op is Ops.CALL and node in pending:
            _spread(gradients, depends, _call_gradient(node, pending.pop(node)))
            continue
        g = gradients.pop(node, None)
        if g is None or node not in depends:
            continue
        if node in targets:
            found[node] = g
        if any(s in depends for s in _differentiable(node)):
            _spread(gradients, depends, _step(node, g, pending))
    known = history.in_memory(order)
    return dict(zip(found, substitute(found.values(), known), strict=True)) if known else found


def _differentiable(node: UOp) -> Sequence[UOp]:
    """The sources through which a gradient can pass."""
    if node.op is Ops.DETACH:
        return ()
    if node.op is Ops.CALL:
        return node.src[1:]
    if node.op is Ops.STORE:
        return node.src[1:2]
    came_from = history.find(node)
    return (came_from.seen,) if came_from else node.src


def _step(node: UOp, g: UOp, pending: dict[UOp, dict[int, UOp]]) -> list[tuple[UOp, UOp]]:
    """The gradients of a node's sources; those of calls wait until all outputs are known."""
    if node.op is Ops.AFTER:
        effect = node.src[1]
        if effect.op is Ops.CALL:
            slot = calls.output_slot(node)
            if slot is None:
                slot = effect.src[1:].index(node.src[0])
            waiting = pending.setdefault(effect, {})
            waiting[slot] = waiting[slot] + g if slot in waiting else g
            return []
        return list(gradient_of_store(node, g).items())
    came_from = history.find(node)
    if came_from is not None:
        return [(came_from.seen, g)]
    gradient_rule = GRADIENT.get(node.op)
    if gradient_rule is None:
        return []
    pairs = zip(node.src, gradient_rule(node, g), strict=False)
    return [(s, d) for s, d in pairs if d is not None]


def _spread(
    gradients: dict[UOp, UOp], depends: set[UOp], parts: Iterable[tuple[UOp, UOp | None]]
) -> None:
    for source, gradient in parts:
        if gradient is None or source not in depends or source.dtype.kind != "float":
            continue
        before = gradients.get(source)
        gradients[source] = gradient if before is None else before + gradient


# *** calls ***


def _call_gradient(call: UOp, by_output: dict[int, UOp]) -> list[tuple[UOp, UOp | None]]:
    info: CallInfo = call.arg
    arguments = call.src[1:]
    if info.grad_fxn is not None:
        ordered = [by_output[slot] for slot in sorted(by_output)]
        result = info.grad_fxn(*ordered, call=call)
        given = list(result) if isinstance(result, tuple | list) else [result]
        if len(given) > len(arguments):
            raise GradientError(
                f"grad_fxn of {info.name} must return one gradient (or None) for each of the "
                f"{len(arguments)} arguments, got {len(given)}"
            )
        pairs = [(a, _as_node(g)) for a, g in zip(arguments, given, strict=False)]
        for argument, gradient in pairs:
            if gradient is not None and not same_shape(gradient.shape, argument.shape):
                raise GradientError(
                    f"grad_fxn of {info.name} must return gradients of the shapes of the "
                    f"arguments: expected {argument.shape}, got {gradient.shape}"
                )
        return pairs
    if calls.is_kernel(call.src[0]):
        raise GradientError(
            f"the custom kernel {info.name} has no gradient; pass grad_fxn= to custom_kernel"
        )
    return _gradient_of_body(call, by_output)


def _as_node(gradient: Any) -> UOp | None:
    node: UOp | None = getattr(gradient, "uop", gradient)
    return node


def _gradient_of_body(call: UOp, by_output: dict[int, UOp]) -> list[tuple[UOp, UOp | None]]:
    """The gradient of a call is a call: its body is the gradient of the body.

    Outputs of the forward call that the gradient needs are passed to it, not computed again.
    """
    info, body, arguments = call.arg, call.src[0], call.src[1:]
    parameters = calls.parameters(body)
    wanted = {node for node in parameters.values() if node.dtype.kind == "float"}
    seeds: dict[UOp, UOp] = {}
    extra: list[UOp] = []
    for slot, gradient in sorted(by_output.items()):
        output = body.src[slot]
        if gradient.device is None and isinstance(output.device, tuple):
            gradient = gradient.copy_to_device(output.device)  # a constant, wanted on every slot
        seed = calls.parameter(gradient, len(arguments) + len(extra))
        seeds[output] = seeds[output] + seed if output in seeds else seed
        extra.append(gradient)
    found = sweep(seeds, wanted)
    unused: list[tuple[UOp, UOp | None]] = [
        (arguments[slot], _zeros(arguments[slot]))
        for slot, node in parameters.items()
        if node in wanted and node not in found
    ]
    unused += [(a, _zeros(a)) for slot, a in enumerate(arguments) if slot not in parameters]
    if not found:
        return unused
    slots = [slot for slot, node in sorted(parameters.items()) if node in found]
    gradients = [found[parameters[slot]] for slot in slots]
    gradients, saved = _reuse_outputs(call, gradients, len(arguments) + len(extra))
    place = [calls.seen_outside(g, arguments) for g in gradients]
    backward = CallInfo(
        name=f"{info.name}_backward",
        precompile=info.precompile_backward,
        precompile_backward=info.precompile_backward,
    )
    whole = calls.Body(UOp(Ops.TUPLE, src=tuple(gradients)), (*arguments, *extra, *saved))
    results = calls.build_call(whole, place, backward)
    return unused + [(arguments[s], result) for s, result in zip(slots, results, strict=True)]


def _zeros(node: UOp) -> UOp | None:
    """The gradient of an argument that the body does not use."""
    if node.dtype.kind != "float":
        return None
    scalar = UOp.const(0.0, node.dtype)._move("RESHAPE", (1,) * len(node.shape))
    return scalar._move("EXPAND", node.shape)


def _reuse_outputs(call: UOp, gradients: list[UOp], first_slot: int) -> tuple[list[UOp], list[UOp]]:
    """Gradients with the outputs of the forward call as parameters, and those outputs."""
    body = call.src[0]
    if calls.stored_arguments(body):
        return gradients, []
    used = set(toposort(gradients, enter_calls=False))
    table: dict[UOp, UOp] = {}
    saved: list[UOp] = []
    for slot, output in enumerate(body.src):
        core = output
        while core.op in (Ops.RESHAPE, Ops.CONTIGUOUS):
            core = core.src[0]
        if core not in used or core in table or not core.src or core.op is Ops.UNSHARD:
            continue
        value = calls.output_place(calls.seen_outside(output, call.src[1:]), slot).after(call)
        seen = calls.parameter(value, first_slot + len(saved))
        table[core] = seen._move("RESHAPE", core.shape)
        saved.append(value)
    return substitute(gradients, table), saved
