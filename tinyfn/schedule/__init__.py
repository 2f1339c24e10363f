"""From a graph of tensors to a list of kernel calls. `build` is the table of contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tinyfn.device import Device
from tinyfn.errors import BindingError
from tinyfn.helpers import DEBUG, SPEC, Recent
from tinyfn.schedule.activate import store_activations
from tinyfn.schedule.check import check_linear
from tinyfn.schedule.collective import expand_collectives
from tinyfn.schedule.graph import EXTERNAL, INLINED, Places, is_whole
from tinyfn.schedule.inline import inline_calls
from tinyfn.schedule.memory import MemoryPlan, Slice, buffers_of, plan_memory
from tinyfn.schedule.merge import merge_kernels
from tinyfn.schedule.order import Orderer, stored_at
from tinyfn.schedule.overlap import join_overlapping_sums
from tinyfn.schedule.prepare import prepare
from tinyfn.schedule.shard import resolve_shards
from tinyfn.uop import spec
from tinyfn.uop.ops import Ops, UOp, listing, substitute, toposort

Watch = Callable[[str, UOp], None]
STAGES = {"tensors": spec.TENSOR, "inlined": spec.TENSOR}


@dataclass(frozen=True)
class Template:
    """A schedule up to the identity of its memory."""

    linear: UOp
    results: tuple[UOp, ...]
    parameters: tuple[UOp, ...]
    temporaries: tuple[UOp, ...]
    plan: MemoryPlan


@dataclass(frozen=True)
class Schedule:
    """A list of calls on actual buffers, the variables' values, and what each root becomes."""

    linear: UOp
    variables: dict[str, int]
    results: dict[UOp, UOp]
    plan: MemoryPlan


KEPT = 1024  # schedules; what a program runs again and again is far less
_templates: Recent[tuple[UOp, str], Template] = Recent(KEPT)


def build(root: UOp, watch: Watch) -> Template:
    """The passes, in order. Calls first: no later pass has to enter a body."""
    graph = root
    watch("tensors", graph)
    graph = inline_calls(graph)
    watch("inlined", graph)
    graph = resolve_shards(graph)
    watch("per slot", graph)
    graph = expand_collectives(graph)
    graph = store_activations(join_overlapping_sums(prepare(graph)))
    watch("prepared", graph)
    places = Places(template_of_body)
    items = Orderer(graph.src, places).run()
    listed = merge_kernels([c for item in items for c in item.calls], _kept(graph, places))
    results = [_result(o, n, places) for o, n in zip(root.src, graph.src, strict=True)]
    return _template(root, listed, results)


def _kept(graph: UOp, places: Places) -> set[UOp]:
    """Memory that somebody sees after the schedule has run."""
    return {stored_at(n, places).base for n in graph.src if n.shape is not None}


def _result(original: UOp, local: UOp, places: Places) -> UOp:
    """What a root becomes: its memory in its shape."""
    memory = stored_at(local, places)
    if all(isinstance(s, int) for s in local.shape):
        memory = memory._move("RESHAPE", local.shape) if memory.op is Ops.BUFFER else memory
    elif memory.op is Ops.BUFFER:
        memory = memory._move("SHRINK", [v for s in local.shape for v in (0, s)])
    return memory if original.axis is None else memory.unshard(original.axis)


def _template(root: UOp, listed: list[UOp], results: list[UOp]) -> Template:
    seen_after = {n for r in results for n in toposort([r]) if n.op is Ops.BUFFER}
    given = {n for n in toposort([root], enter_calls=False) if _is_given(n)}
    used = dict.fromkeys(m for c in listed for m in buffers_of(c))
    made = [m for m in used if m not in given]
    internal = {m for m in made if m not in seen_after}
    linear = UOp(Ops.LINEAR, src=tuple(listed))
    if SPEC:
        check_linear(linear, given)
        for call in listed:
            if call.src[0].op is Ops.SINK:
                spec.check(call.src[0], spec.KERNEL, "kernel")
    parameters = tuple(
        n
        for n in toposort([root], enter_calls=False)
        if n.op is Ops.PARAM and n.arg.addrspace is None
    )
    return Template(linear, tuple(results), parameters, tuple(made), plan_memory(listed, internal))


def _is_given(node: UOp) -> bool:
    """Memory that exists before the schedule runs (not the scratch of a body)."""
    if node.op is Ops.BUFFER:
        return bool(node.arg.num >= 0 or INLINED < node.arg.num <= EXTERNAL)
    return node.op is Ops.PARAM


def template_of_body(body: UOp) -> Template:
    """The schedule of a precompiled body; every output is memory of its own."""
    key = body, Device.DEFAULT
    found = _templates.get(key)
    if found is None:
        outputs = tuple(o if is_whole(o) else _stored(o) for o in body.src)
        template = build(UOp(Ops.SINK, src=outputs), _watcher())
        results = tuple(
            r.base if r.op is not Ops.UNSHARD else r.src[0].base for r in template.results
        )
        found = _templates.keep(key, replace(template, results=results))
    return found


def _stored(output: UOp) -> UOp:
    """An output as a value that the schedule stores on its own."""
    return output if output.op is Ops.CONTIGUOUS else output.contiguous()


def create(roots: Sequence[UOp]) -> Schedule:
    """The schedule that computes the roots: found by its structure, or built."""
    if not roots:
        return Schedule(UOp(Ops.LINEAR), {}, {}, MemoryPlan())
    sink = UOp(Ops.SINK, src=tuple(roots))
    table, variables = _canonical_names(sink)
    canonical: UOp = substitute([sink], table)[0]
    key = canonical, Device.DEFAULT
    template = _templates.get(key)
    if template is None:
        template = _templates.keep(key, build(canonical, _watcher()))
    back = {new: old for old, new in table.items() if old.op is not Ops.BIND}
    return _instantiate(template, roots, back, _bound(sink), variables)


def _canonical_names(sink: UOp) -> tuple[dict[UOp, UOp], dict[str, int]]:
    """New names for buffers and fills by their order, and the values of the bound variables."""
    table: dict[UOp, UOp] = {}
    variables: dict[str, int] = {}
    for node in toposort([sink], enter_calls=False):
        if node.op in (Ops.BUFFER, Ops.FULL):
            table[node] = node.replace(arg=replace(node.arg, num=EXTERNAL - len(table)))
        elif node.op is Ops.BIND:
            table[node] = node.src[0]
            name, value = node.src[0].arg.name, node.src[1].arg
            if variables.setdefault(name, value) != value:
                raise BindingError(
                    f"the variable {name} is bound to {variables[name]} and to {value} in one "
                    "graph; give one of them another name"
                )
    for node, new in list(table.items()):
        if node.op is Ops.FULL and len(node.src) > 1:
            table[node] = substitute([new], {b: v for b, v in table.items() if b.op is Ops.BIND})[0]
    return table, variables


def _bound(sink: UOp) -> dict[UOp, UOp]:
    return {n.src[0]: n for n in toposort([sink], enter_calls=False) if n.op is Ops.BIND}


def _instantiate(
    template: Template,
    roots: Sequence[UOp],
    back: dict[UOp, UOp],
    bound: dict[UOp, UOp],
    variables: dict[str, int],
) -> Schedule:
    """The template on actual buffers: those of the roots, and new ones for what it makes."""
    table = dict(back)
    internal = {s.memory for s in template.plan.slices}
    for memory in template.temporaries:
        info = memory.arg
        kind = "temporary" if memory in internal else "data"
        table[memory] = UOp.new_memory(info.device, info.shape, memory.dtype, kind=kind)
    called = []
    for call in template.linear.src:
        arguments = substitute(call.src[1:], table)
        called.append(UOp(Ops.CALL, call.dtype, (call.src[0], *arguments), call.arg))
    results = substitute(template.results, {**table, **bound})
    slices = tuple(
        Slice(table[s.memory], table[s.memory].arg.device, s.offset, s.nbytes)
        for s in template.plan.slices
    )
    return Schedule(
        UOp(Ops.LINEAR, src=tuple(called)),
        variables,
        dict(zip(roots, results, strict=True)),
        MemoryPlan(slices, template.plan.arenas),
    )


def _watcher() -> Watch:
    """Printing and checking between passes, as the flags ask for."""

    def watch(stage: str, graph: UOp) -> None:
        if DEBUG >= 3:
            print(f"*** {stage}\n{listing(graph)}")
        if SPEC:
            spec.check(graph, STAGES.get(stage, spec.PER_SLOT), stage)

    return watch
