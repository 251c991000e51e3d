"""From rendered kernels to the plan: storage of every value, lifetimes, launches, the copies that end a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Graph, Origin
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.plan import BufferParam, Copy, Instr, KernelRecord, Launch, Plan, PlanSym, Storage, Value
from hardtack.codegen.lower import Lowered
from hardtack.codegen.memory import Item, MemoryPlan, plan_memory


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a rendered kernel. `buffers` are in the order of its parameters."""

    kernel: str
    buffers: tuple[str, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    ints: tuple[Expr, ...]
    shared: Expr
    per_worker: Expr
    origin: Origin


@dataclass(frozen=True)
class Planned:
    """The plan for a target named "" (fill it in with `for_target`), and the memory layout behind it."""

    plan: Plan
    memory: MemoryPlan


def build_plan(lowered: Lowered, launches: Sequence[KernelLaunch], size_hint: Callable[[Expr], int]) -> Planned:
    """The plan of one entry point, without its target's name."""
    graph, buffers = lowered.graph, lowered.buffers
    fixed = _fixed_storage(lowered)
    used = list(dict.fromkeys([i.name for i in graph.inputs] + [b for x in launches for b in x.buffers]))
    finals = [(lowered.finals[s], s) for s in lowered.finals if lowered.finals[s] not in lowered.in_place]
    used += [n for pair in finals for n in pair if n not in used]
    items = _lifetimes(launches, finals, buffers, [n for n in used if n not in fixed])
    memory = plan_memory(items, size_hint)
    values = tuple(
        Value(n, buffers[n].dtype, buffers[n].shape, buffers[n].strides(), fixed.get(n) or ("arena", memory.offsets[n]))
        for n in used
    )
    body: list[Instr] = [Launch(x.kernel, x.buffers, x.ints, x.shared, x.per_worker, x.origin) for x in launches]
    body += [Copy(source, state) for source, state in finals]
    plan = Plan(
        graph.name,
        "",
        _plan_syms(graph),
        graph.guards,
        values,
        tuple(i.name for i in graph.inputs),
        lowered.outputs,
        _records(launches, buffers),
        tuple(body),
        memory.nbytes,
    )
    return Planned(plan, memory)


def _fixed_storage(lowered: Lowered) -> dict[str, Storage]:
    """Everything that does not live in the arena."""
    graph = lowered.graph
    fixed: dict[str, Storage] = {}
    for k, i in enumerate(graph.inputs):
        fixed[i.name] = ("input", k)
    for c in graph.constants:
        fixed[c.name] = ("constant", c.name)
    for name in lowered.prepacks:
        fixed[name] = ("constant", name)
    for s in graph.states:
        fixed[s.name] = ("state", s.name)
    for value, state in lowered.in_place.items():
        fixed[value] = ("state", state)
    for k, name in enumerate(lowered.outputs):
        fixed[name] = ("output", k)
    return fixed


def _lifetimes(
    launches: Sequence[KernelLaunch],
    finals: Sequence[tuple[str, str]],
    buffers: Mapping[str, Buffer],
    names: Sequence[str],
) -> list[Item]:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, x in enumerate(launches):
        for b in x.buffers:
            first.setdefault(b, step)
            last[b] = step
    for k, (source, _) in enumerate(finals):
        last[source] = len(launches) + k
    return [Item(n, buffers[n].numel() * buffers[n].dtype.nbytes, first[n], last[n]) for n in names]


def _plan_syms(graph: Graph) -> tuple[PlanSym, ...]:
    position = {i.name: k for k, i in enumerate(graph.inputs)}
    return tuple(PlanSym(s.sym, position[s.input], s.dim) for s in graph.syms)


def _records(launches: Sequence[KernelLaunch], buffers: Mapping[str, Buffer]) -> tuple[KernelRecord, ...]:
    records: dict[str, KernelRecord] = {}
    for x in launches:
        params = tuple(BufferParam(buffers[b].dtype, _access(b, x)) for b in x.buffers)
        record = KernelRecord(x.kernel, params, len(x.ints))
        assert records.setdefault(x.kernel, record) == record, f"kernel {x.kernel} has two calling conventions"
    return tuple(records[n] for n in sorted(records))


def _access(buffer: str, x: KernelLaunch) -> str:
    if buffer in x.writes:
        return "readwrite" if buffer in x.reads else "write"
    return "read"
