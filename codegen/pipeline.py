"""The pipeline: Graph -> plan and kernel sources, stage by stage. Read it as the table of contents of the compiler.

    products  first: everything behind it sees one product where there were several; GPUs only
    layout    next: lowering writes indices in terms of memory order
    lower     each op becomes nests; views are gone afterwards
    inline    before fusing: what is computed in place needs no kernel and shortens every list that follows
    fuse      on stored values only; decides which of them leave memory again (grouping.py has its steps)
    tile      per group: loops, lanes, scratch
    render    per kernel: C++ or Triton text, named by its content, so that equal kernels are compiled once
    plan      last: lifetimes are known once kernels are

What differs from device to device is asked of a Backend (backend.py).

Branches of conditionals and bodies of loops go through the same stages, as graphs of their own, inside their group's
turn.

After each stage its result is verified and its text recorded; HARDTACK_DUMP names a folder for the texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hardtack.codegen.backend import Backend
from hardtack.codegen.control import control_steps, renamed_buffer
from hardtack.codegen.fuse import Fused, size_hint
from hardtack.codegen.grouping import group_nests
from hardtack.codegen.inline import inline
from hardtack.codegen.ir import group as group_ir
from hardtack.codegen.ir import plan as plan_ir
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.group_verify import verify_group, verify_grouping
from hardtack.codegen.ir.loops import Buffer, ControlNest, LoopNest, Nest, TemplateNest
from hardtack.codegen.ir.nest_text import to_text_nest
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.plan import GpuKernel, Plan
from hardtack.codegen.ir.store_verify import verify_written
from hardtack.codegen.layout import choose_orders
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.builder import Made
from hardtack.codegen.noted import noted
from hardtack.codegen.planning import Step, build_plan

STAGES = ("graph", "lower", "inline", "fuse", "tile", "render", "plan")


@dataclass(frozen=True)
class CompiledEntry:
    """One entry point, compiled for one backend. The plan names no target: C++ sources serve every CPU target.

    sources: kernel name -> C++ or Triton. details: kernel name -> what the backend's compiler needs besides.
    constants: the names of the graph's constants that the plan reads; prepacks: those made from them. texts: stage ->
    its result as text.
    """

    plan: Plan
    sources: Mapping[str, str]
    details: Mapping[str, object]
    constants: tuple[str, ...]
    prepacks: Mapping[str, Made]
    decisions: tuple[Decision, ...]
    texts: Mapping[str, str] = field(repr=False)

    def for_target(self, target: str, gpu: Mapping[str, GpuKernel] | None = None) -> Plan:
        """The plan under a target's name. `gpu`: for a GPU target how each kernel is launched, by its name."""
        kernels = tuple(replace(k, gpu=gpu[k.name]) if gpu is not None else k for k in self.plan.kernels)
        return replace(self.plan, target=target, kernels=kernels)


def compile_entry(
    graph: Graph, hints: Mapping[str, int], backend: Backend, record: dict[str, str] | None = None
) -> CompiledEntry:
    """Compile a verified graph. `hints`: example sizes of the symbols, for decisions of profit only.

    record: takes each stage's text as it is made, for the dump of a compilation that fails. Raises UnsupportedOp for an
    op that the backend has no kernel for.
    """
    texts = {} if record is None else record
    with noted("in entry", f"{graph.name} for {backend.arch or backend.device}"):
        return _compiled(graph, hints, backend, texts)


def _compiled(graph: Graph, hints: Mapping[str, int], backend: Backend, texts: dict[str, str]) -> CompiledEntry:
    body = _compile_body(graph, hints, backend, texts)
    texts["render"] = "\n".join(f"{backend.comment} {name}\n{text}" for name, text in sorted(body.sources.items()))
    planned = build_plan(body.lowered, body.steps, body.buffers, lambda e: size_hint(e, hints))
    texts["plan"] = plan_ir.to_text(planned.plan)
    read = {v.storage[1] for v in planned.plan.values if v.storage[0] == "constant"}
    constants = tuple(c.name for c in graph.constants if c.name in read)
    prepacks = {n: p for n, p in body.lowered.prepacks.items() if n in read}
    return CompiledEntry(planned.plan, body.sources, body.details, constants, prepacks, body.decisions, texts)


@dataclass(frozen=True)
class _Body:
    """A graph compiled up to its steps; `buffers` has those of the branches inside, too."""

    lowered: Lowered
    steps: tuple[Step, ...]
    buffers: Mapping[str, Buffer]
    sources: Mapping[str, str]
    details: Mapping[str, object]
    decisions: tuple[Decision, ...]


def _compile_body(graph: Graph, hints: Mapping[str, int], backend: Backend, texts: dict[str, str]) -> _Body:
    """`texts` takes the stages' texts."""
    graph, joined = backend.joined(graph, hints)
    texts["graph"] = to_text_graph(graph) + _reasons(joined)
    lowered = lower_graph(graph, choose_orders(graph), backend.rules, backend.arch, hints, backend.tuning)
    _verify(lowered, texts, "lower", lowered.decisions)
    nests, inlined = inline(lowered.nests, lowered.buffers, _kept(lowered), backend.limits.largest_body)
    nests, prepared = backend.prepare(nests, lowered.buffers, hints)
    lowered = replace(lowered, nests=nests, buffers=prepared)
    _verify(lowered, texts, "inline", inlined)
    nests = tuple(map(_rooted, nests))
    constants = frozenset((*(c.name for c in graph.constants), *lowered.prepacks))
    fused = group_nests(nests, lowered.buffers, _kept(lowered), constants, hints, backend.limits)
    texts["fuse"] = "\n\n".join(group_ir.to_text(g) for g in fused.groups) + _reasons(fused.decisions)
    verify_grouping(nests, fused.groups, lowered.in_place)
    for g in fused.groups:
        verify_group(g, lowered.buffers)
    buffers = dict(lowered.buffers)
    sources: dict[str, str] = {}
    details: dict[str, object] = {}
    decisions = [*joined, *lowered.decisions, *inlined, *fused.decisions]
    steps: list[Step] = []
    kernels: list[str] = []
    following = (*fused.groups, None)[1:]
    for g, kept, behind in zip(fused.groups, _kept_of_groups(lowered, fused), following, strict=True):
        if g.control is None:
            with noted("in the kernel of", ", ".join(dict.fromkeys(str(n.origin) for n in g.members()))):
                rendered = backend.render(g, lowered.buffers, kept, _stem(g), hints, behind)
            kernels.append(rendered.listing)
            sources[rendered.launch.kernel] = rendered.text
            details[rendered.launch.kernel] = rendered.detail
            steps.append(rendered.launch)
            continue
        parts: list[_Body] = []
        for k, branch in enumerate(g.control.branches):
            inside: dict[str, str] = {}
            part = _compile_body(branch, hints, backend, inside)
            parts.append(part)
            for stage, text in inside.items():
                texts[stage] = texts.get(stage, "") + f"\n-- {g.name}, {branch.name}\n{text}"
            sources.update(part.sources)
            details.update(part.details)
            decisions += part.decisions
            buffers |= {renamed_buffer(g.control, k, n): _renamed(b, g.control, k) for n, b in part.buffers.items()}
        steps += control_steps(g.control, [(p.lowered, p.steps) for p in parts])
    texts["tile"] = "\n".join(kernels) + texts.get("tile", "")
    return _Body(lowered, tuple(steps), buffers, sources, details, tuple(decisions))


def _renamed(buffer: Buffer, control: ControlNest, branch: int) -> Buffer:
    return replace(buffer, name=renamed_buffer(control, branch, buffer.name))


def _kept(lowered: Lowered) -> frozenset[str]:
    """Buffers that are read after the last kernel, or through a state's memory."""
    return frozenset((*lowered.outputs, *lowered.finals.values(), *lowered.in_place))


def _verify(lowered: Lowered, texts: dict[str, str], stage: str, decisions: tuple[Decision, ...] = ()) -> None:
    texts[stage] = "\n\n".join(to_text_nest(n) for n in lowered.nests) + _reasons(decisions)
    for n in lowered.nests:
        verify_nest(n, lowered.buffers)
    verify_written(lowered.nests, lowered.buffers, frozenset(lowered.in_place))


def _rooted(nest: Nest) -> Nest:
    """The nest as its own source: what it was made of has been verified."""
    return replace(nest, sources=()) if isinstance(nest, LoopNest) else nest


def _reasons(decisions: tuple[Decision, ...]) -> str:
    return "\n\n" + "\n".join(map(str, decisions)) + "\n" if decisions else "\n"


def _kept_of_groups(lowered: Lowered, fused: Fused) -> list[frozenset[str]]:
    """For each group the buffers that must be in memory: the others it alone reads and writes."""
    users: dict[str, set[int]] = {}
    for k, g in enumerate(fused.groups):
        for b in g.reads() | g.writes():
            users.setdefault(b, set()).add(k)
    kept = _kept(lowered)
    return [kept | {b for b, where in users.items() if where != {k}} for k in range(len(fused.groups))]


def _stem(g: Group) -> str:
    """A readable name: the template, or the framework ops that the kernel computes."""
    ops = [n.origin.op for n in g.members() if n.origin.op]
    words = [re.sub(r"\W+", "_", op.removeprefix("aten.").split(".")[0]) for op in dict.fromkeys(ops)]
    head = [g.anchor.kind] if isinstance(g.anchor, TemplateNest) else []
    return "_".join([*head, *words])[:48].strip("_") or "kernel"
