"""The pipeline: Graph -> plan and kernel sources. Read it as the table of contents of the compiler.

Stages make one IR of another, and are the same for all devices:

    layout    lowering writes indices in terms of memory order
    lower     each op becomes nests; views are gone afterwards
    fuse      nests become groups, on stored values only
    tile      per group: loops, lanes, scratch
    render    per kernel: C++ or Triton text, named by its content, so that equal kernels are compiled once
    plan      last: lifetimes are known once kernels are

Between them run passes, which keep their IR: a Backend lists its own (backend.py, passes/passes.py). After each stage
and each pass the result is verified and its text recorded; HARDTACK_DUMP names a folder for the texts.

Branches of conditionals and bodies of loops go through the same stages, as graphs of their own, inside their group's
turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hardtack.codegen.backend import Backend, Rendered
from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir import group as group_ir
from hardtack.codegen.ir import plan as plan_ir
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.ir.graph_verify import verify_graph
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.group_verify import verify_group, verify_grouping
from hardtack.codegen.ir.loops import Buffer, LoopNest
from hardtack.codegen.ir.nest_text import to_text_nest
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import ControlNest, Nest, ReadNest, TemplateNest
from hardtack.codegen.ir.plan import GpuKernel, Plan
from hardtack.codegen.ir.store_verify import Memory, verify_written
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.builder import Made
from hardtack.codegen.lower.in_place import last_names, one_name
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.notes import noted
from hardtack.codegen.passes.passes import Context, Decisions, Scope
from hardtack.codegen.plan.budget import largest_sizes, most_nbytes, over_budget
from hardtack.codegen.plan.control_steps import control_steps, renamed_buffer
from hardtack.codegen.plan.launch_verify import verify_launch
from hardtack.codegen.plan.planner import Planned, ReadStep, Step, build_plan, fixed_storage
from hardtack.codegen.schedule.fuse import fuse
from hardtack.codegen.schedule.lean_order import lean_order


@dataclass(frozen=True)
class CompiledEntry:
    """One entry point, compiled for one backend. The plan names no target: a backend may serve several.

    kernels: by name. constants: the names of the graph's constants, and of parts of them, that the plan reads;
    prepacks: those made from them.
    texts: stage -> its result as text.
    """

    plan: Plan
    kernels: Mapping[str, Rendered]
    constants: tuple[str, ...]
    prepacks: Mapping[str, Made]
    decisions: tuple[Decision, ...]
    texts: Mapping[str, str] = field(repr=False)

    @property
    def sources(self) -> Mapping[str, str]:
        """Kernel name -> C++ or Triton."""
        return {name: kernel.text for name, kernel in self.kernels.items()}

    def for_target(self, target: str, records: Mapping[str, GpuKernel] | None = None) -> Plan:
        """The plan under a target's name. `records`: how a GPU launches each kernel, by its name."""
        kernels = tuple(replace(k, gpu=records[k.name]) if records is not None else k for k in self.plan.kernels)
        return replace(self.plan, target=target, kernels=kernels)


def compile_entry(
    graph: Graph,
    hints: Mapping[str, int],
    backend: Backend,
    record: dict[str, str] | None = None,
    budget: int | None = None,
) -> CompiledEntry:
    """Compile a verified graph. `hints`: example sizes of the symbols, for decisions of profit only.

    record: takes each stage's text as it is made, for the dump of a compilation that fails. budget: bytes that the
    arena may take at the largest sizes. Raises UnsupportedOp for an op that the backend has no kernel for, and
    OverBudget.
    """
    texts = {} if record is None else record
    with noted("in entry", f"{graph.name} for {backend.key}"):
        if budget is None:
            body = _compile_body(graph, hints, backend, texts)
            planned = build_plan(body.lowered, body.steps, body.buffers, lambda e: size_hint(e, hints))
        else:
            body, planned = _within(budget, graph, hints, backend, texts)
        return _entry_of(graph, backend, texts, body, planned)


def _within(
    budget: int, graph: Graph, hints: Mapping[str, int], backend: Backend, texts: dict[str, str]
) -> tuple[_Body, Planned]:
    """In the order of the program, or, where its arena is too large, in an order and a layout that take less."""
    sizes = {**hints, **largest_sizes(s.sym for s in graph.syms)}
    for lean in (False, True):
        body = _compile_body(graph, hints, backend, texts, lean=sizes if lean else None)
        planned = build_plan(body.lowered, body.steps, body.buffers, lambda e: size_hint(e, sizes), lean)
        most = most_nbytes(planned.memory)
        if most is not None and most <= budget:
            return body, planned
    raise over_budget(planned.plan, planned.items, planned.memory, budget, backend.key)


def _entry_of(graph: Graph, backend: Backend, texts: dict[str, str], body: _Body, planned: Planned) -> CompiledEntry:
    texts["render"] = "\n".join(f"{backend.comment} {name}\n{k.text}" for name, k in sorted(body.kernels.items()))
    texts["plan"] = plan_ir.to_text(planned.plan)
    read = {v.storage[1] for v in planned.plan.values if v.storage[0] == "constant"}
    constants = tuple(x.name for c in graph.constants for x in (c, *c.parts()) if x.name in read)
    prepacks = {n: p for n, p in body.lowered.prepacks.items() if n in read}
    return CompiledEntry(planned.plan, body.kernels, constants, prepacks, body.decisions, texts)


@dataclass(frozen=True)
class _Body:
    """A graph compiled up to its steps; `buffers` has those of the branches inside, too."""

    lowered: Lowered
    steps: tuple[Step, ...]
    buffers: Mapping[str, Buffer]
    kernels: Mapping[str, Rendered]
    decisions: tuple[Decision, ...]


def context_of(backend: Backend, hints: Mapping[str, int]) -> Context:
    """What passes may look at."""
    return Context(hints, backend.machines[0], backend.tuning, backend.limits)


def _compile_body(
    graph: Graph,
    hints: Mapping[str, int],
    backend: Backend,
    texts: dict[str, str],
    around: tuple[Graph, ...] = (),
    lean: Mapping[str, int] | None = None,
) -> _Body:
    """`texts` takes the stages' texts. around: the graphs that a branch or a body lies in. lean: the sizes for which
    groups are ordered so that less memory is alive; None: they stay in the program's order."""
    context, decisions = context_of(backend, hints), list[Decision]()
    graph = run_graph_passes(graph, backend, context, decisions, texts, around)
    lowered = lower_graph(graph, choose_orders(graph), backend.rules, context.machine, hints, backend.tuning)
    decisions += lowered.decisions
    lowered = run_nest_passes(lowered, backend, context, decisions, texts)
    groups = fused_groups(lowered, backend, context, decisions, texts)
    if lean is not None:
        groups = _lean(groups, lowered, lean)
    buffers = dict(lowered.buffers)
    rendered: dict[str, Rendered] = {}
    steps: list[Step] = []
    listings: list[dict[str, str]] = []
    branches: dict[str, str] = {}
    for g, kept, behind in zip(groups, _kept_of_groups(lowered, groups), (*groups, None)[1:], strict=True):
        if g.control is None:
            with noted("in the kernel of", ", ".join(dict.fromkeys(str(n.origin) for n in g.members()))):
                kernel, listing = kernel_of(g, lowered.buffers, kept, behind, backend, context)
            listings.append(listing)
            rendered[kernel.launch.kernel] = kernel
            steps.append(kernel.launch)
            continue
        if isinstance(g.control, ReadNest):
            steps.append(ReadStep(g.control.sym, g.control.source, g.control.origin))
            continue
        parts = []
        for k, branch in enumerate(g.control.branches):
            inside: dict[str, str] = {}
            part = _compile_body(branch, hints, backend, inside, (*around, graph))
            parts.append((part.lowered, part.steps))
            for stage, text in inside.items():
                branches[stage] = branches.get(stage, "") + f"\n-- {g.name}, {branch.name}\n{text}"
            rendered.update(part.kernels)
            decisions += part.decisions
            buffers |= {renamed_buffer(g.control, k, n): _renamed(b, g.control, k) for n, b in part.buffers.items()}
        steps += control_steps(g.control, parts)
    for stage in ("tile", *(p.name for p in backend.passes().kernels)):
        texts[stage] = "\n".join(listing[stage] for listing in listings)
    for stage, text in branches.items():
        texts[stage] = texts.get(stage, "") + text
    return _Body(lowered, tuple(steps), buffers, rendered, tuple(decisions))


def run_graph_passes(
    graph: Graph,
    backend: Backend,
    context: Context,
    decisions: list[Decision],
    texts: dict[str, str],
    around: tuple[Graph, ...] = (),
) -> Graph:
    """The graph as it is lowered. `decisions` and `texts` take what there is to tell; around: as in verify_graph."""
    texts["graph"] = to_text_graph(graph) + "\n"
    for p in backend.passes().graph:
        made, found = p.run(graph, context)
        if made is not graph:
            graph = verify_graph(made, around)
        decisions += found
        texts[p.name] = to_text_graph(graph) + _reasons(found)
    return graph


def run_nest_passes(
    lowered: Lowered, backend: Backend, context: Context, decisions: list[Decision], texts: dict[str, str]
) -> Lowered:
    """The nests as they are fused, verified from the lowering on: after a pass those that it has made."""
    _verify(lowered, None)
    texts["lower"] = _nests_text(lowered.nests) + _reasons(lowered.decisions)
    scope = _scope(lowered)
    for p in backend.passes().nests:
        before = lowered
        nests, buffers, found = p.run(before.nests, before.buffers, scope, context)
        lowered = replace(lowered, nests=nests, buffers=buffers)
        decisions += found
        _verify(lowered, before)
        texts[p.name] = _nests_text(nests) + _reasons(found)
        lowered = replace(lowered, nests=tuple(map(_rooted, nests)))
    return _one_name(lowered)


def _one_name(lowered: Lowered) -> Lowered:
    """Values that share a memory as one buffer: that of the input, of all others that of the last."""
    states, inputs = ({x.name for x in part} for part in (lowered.graph.states, lowered.graph.inputs))
    names = last_names(lowered.in_place)
    in_place = {last: first for first, last in names.items() if first in states}
    ends = {last: first for first, last in names.items() if first in inputs}  # each input is one value of the plan
    names = {x: ends.get(last, last) for x, last in names.items() if x not in inputs} | ends
    finals = {x: ends.get(buffer, buffer) for x, buffer in lowered.finals.items()}
    return replace(lowered, nests=one_name(lowered.nests, names), in_place=in_place, finals=finals)


def fused_groups(
    lowered: Lowered, backend: Backend, context: Context, decisions: list[Decision], texts: dict[str, str]
) -> tuple[Group, ...]:
    """The nests as groups in execution order, verified from fusion on: after a pass those that it has made."""
    scope, known, order = _scope(lowered), dict[int, Group](), list[int]()

    def verified(stage: str, groups: tuple[Group, ...], found: Decisions) -> tuple[Group, ...]:
        texts[stage] = "\n\n".join(map(group_ir.to_text, groups)) + _reasons(found)
        decisions.extend(found)
        made = [g for g in groups if id(g) not in known]
        if [*map(id, groups)] != order:
            verify_grouping(lowered.nests, groups, lowered.in_place)
        for g in made:
            verify_group(g, lowered.buffers)
        known.update((id(g), g) for g in made)
        order[:] = map(id, groups)
        return groups

    fused = fuse(lowered.nests, lowered.buffers, context.hints, context.limits)
    groups = verified("fuse", fused.groups, fused.decisions)
    for p in backend.passes().groups:
        groups = verified(p.name, *p.run(groups, lowered.buffers, scope, context))
    return groups


def _lean(groups: tuple[Group, ...], lowered: Lowered, sizes: Mapping[str, int]) -> tuple[Group, ...]:
    """The groups in an order in which less memory is alive, verified."""
    nbytes = {n: size_hint(b.numel() * b.dtype.nbytes, sizes) for n, b in lowered.buffers.items()}
    found = lean_order(groups, nbytes, frozenset(fixed_storage(lowered)), lowered.in_place)
    verify_grouping(lowered.nests, found, lowered.in_place)
    return found


def kernel_of(
    group: Group,
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    following: Group | None,
    backend: Backend,
    context: Context,
) -> tuple[Rendered, dict[str, str]]:
    """A group's kernel; and what it was after each of the stages that make it, under the name that it has at last."""
    stem = _stem(group)
    kernel = backend.schedule(group, buffers, kept, stem, context)
    backend.verify(kernel, group, buffers)
    listings = {"tile": backend.listing(kernel)}
    for p in backend.passes().kernels:
        made = p.run(kernel, buffers, following, context)
        if made is kernel:
            listings[p.name] = next(reversed(listings.values()))
            continue
        p.verify(kernel, made, buffers)
        backend.verify(made, None, buffers)
        kernel = made
        listings[p.name] = backend.listing(kernel)
    rendered = backend.render(kernel, group, buffers)
    verify_launch(rendered.launch, group, kept)
    head = re.compile(rf"^kernel {re.escape(stem)}\b")
    return rendered, {k: head.sub(f"kernel {rendered.launch.kernel}", text) for k, text in listings.items()}


def memory_of(lowered: Lowered) -> Memory:
    """What the nests find in memory, and what they must leave there."""
    graph = lowered.graph
    given = [x.name for part in (graph.inputs, graph.constants, graph.states) for x in part]
    return Memory(
        frozenset((*given, *lowered.prepacks)),
        lowered.in_place,
        frozenset((*lowered.outputs, *lowered.finals.values())),
    )


def _scope(lowered: Lowered) -> Scope:
    constants = frozenset((*(c.name for c in lowered.graph.constants), *lowered.prepacks))
    return Scope(_kept(lowered), constants, lowered.in_place)


def _renamed(buffer: Buffer, control: ControlNest, branch: int) -> Buffer:
    return replace(buffer, name=renamed_buffer(control, branch, buffer.name))


def _kept(lowered: Lowered) -> frozenset[str]:
    """Buffers that are read after the last kernel, or through the memory of a state or an input."""
    shared = (*lowered.in_place, *lowered.in_place.values())
    return frozenset((*lowered.outputs, *lowered.finals.values(), *shared))


def _verify(lowered: Lowered, before: Lowered | None) -> None:
    """before: in front of a pass, verified. A nest that the pass kept is verified again where a buffer that it names is
    another one; what is written, where any nest or buffer is, or stands at another place."""
    old = () if before is None else before.nests
    known = set(map(id, old))
    others = frozenset() if before is None else _other_buffers(before.buffers, lowered.buffers)
    for n in lowered.nests:
        if id(n) not in known or (others and others & (n.reads() | n.writes())):
            verify_nest(n, lowered.buffers)
    if others or [*map(id, lowered.nests)] != [*map(id, old)]:
        verify_written(lowered.nests, lowered.buffers, memory_of(lowered))


def _other_buffers(before: Mapping[str, Buffer], after: Mapping[str, Buffer]) -> frozenset[str]:
    """Those that were there and are not as they were: new ones are named by new nests only."""
    if before is after:
        return frozenset()
    return frozenset(b for b, was in before.items() if (now := after.get(b)) is not was and now != was)


def _nests_text(nests: Sequence[Nest]) -> str:
    return "\n\n".join(map(to_text_nest, nests))


def _rooted(nest: Nest) -> Nest:
    """The nest as its own source: what it was made of has been verified."""
    return replace(nest, sources=()) if isinstance(nest, LoopNest) and nest.sources else nest


def _reasons(decisions: tuple[Decision, ...]) -> str:
    return "\n\n" + "\n".join(map(str, decisions)) + "\n" if decisions else "\n"


def _kept_of_groups(lowered: Lowered, groups: Sequence[Group]) -> list[frozenset[str]]:
    """For each group the buffers that must be in memory: the others it alone reads and writes."""
    users: dict[str, set[int]] = {}
    for k, g in enumerate(groups):
        for b in g.reads() | g.writes():
            users.setdefault(b, set()).add(k)
    kept = _kept(lowered)
    return [kept | {b for b, where in users.items() if where != {k}} for k in range(len(groups))]


def _stem(g: Group) -> str:
    """A readable name: the template, or the framework ops that the kernel computes."""
    ops = [n.origin.op for n in g.members() if n.origin.op]
    words = [re.sub(r"\W+", "_", op.removeprefix("aten.").split(".")[0]) for op in dict.fromkeys(ops)]
    head = [g.anchor.template.label] if isinstance(g.anchor, TemplateNest) else []
    return "_".join([*head, *words])[:48].strip("_") or "kernel"
