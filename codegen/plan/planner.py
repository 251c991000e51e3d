"""From rendered kernels to the plan: storage of every value, lifetimes, launches, the copies that end a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import Expr, Sym
from hardtack.codegen.ir.graph import Graph, Origin
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.plan import (
    Access,
    BufferParam,
    Call,
    Copy,
    If,
    Instr,
    KernelRecord,
    Launch,
    MapSource,
    Plan,
    PlanSym,
    Read,
    Storage,
    Value,
    While,
)
from hardtack.codegen.lower import Lowered
from hardtack.codegen.plan.accesses import tighter
from hardtack.codegen.plan.memory import Item, MemoryPlan, plan_memory, verify_memory


@dataclass(frozen=True)
class KernelLaunch:
    """One launch of a rendered kernel. `buffers` are in the order of its parameters, `accesses` are what it does to
    each; `grid` and `maps` as in Launch; `host`: the function of the host program that it calls."""

    kernel: str
    buffers: tuple[str, ...]
    accesses: tuple[tuple[Access, ...], ...]
    writes: frozenset[str]
    reads: frozenset[str]
    ints: tuple[Expr, ...]
    shared: Expr
    per_worker: Expr
    origin: Origin
    grid: tuple[Expr, Expr, Expr] | None = None
    maps: tuple[MapSource, ...] = ()
    host: str | None = None


@dataclass(frozen=True)
class CopyStep:
    """The bytes of `source` to `target`."""

    source: str
    target: str
    origin: Origin


@dataclass(frozen=True)
class ControlStep:
    """cond: `first` and `second` are the branches. while: `first` computes `cond`, `second` is the body."""

    kind: str
    cond: str
    first: tuple[Step, ...]
    second: tuple[Step, ...]
    origin: Origin


@dataclass(frozen=True)
class ReadStep:
    """`sym` takes the value of the buffer `source`; no step before depends on it."""

    sym: Sym
    source: str
    origin: Origin


Step = KernelLaunch | CopyStep | ControlStep | ReadStep


@dataclass(frozen=True)
class Planned:
    """The plan for a target named "" (its user fills it in), and the memory layout behind it."""

    plan: Plan
    memory: MemoryPlan
    items: tuple[Item, ...]


def build_plan(
    lowered: Lowered,
    steps: Sequence[Step],
    buffers: Mapping[str, Buffer],
    size_hint: Callable[[Expr], int],
    lean: bool = False,
) -> Planned:
    """The plan of one entry point, without its target's name. `buffers`: also those of branches and loop bodies. lean:
    as of plan_memory."""
    graph = lowered.graph
    fixed = fixed_storage(lowered)
    # what lies in one state's memory may be another one's next content, too
    finals = [(value, s) for s, value in lowered.finals.items() if s not in (value, lowered.in_place.get(value))]
    steps = (*steps, *(CopyStep(source, state, Origin()) for source, state in finals))
    lives = lifetimes(steps)
    used = list(dict.fromkeys([i.name for i in graph.inputs] + list(lives)))
    items = [Item(n, buffers[n].numel() * buffers[n].dtype.nbytes, *lives[n]) for n in used if n not in fixed]
    memory = plan_memory(items, size_hint, read_places(steps), lean)
    verify_memory(items, memory)
    values = tuple(
        Value(n, buffers[n].dtype, buffers[n].shape, buffers[n].strides(), fixed.get(n) or ("arena", memory.offsets[n]))
        for n in used
    )
    plan = Plan(
        graph.name,
        "",
        _plan_syms(graph),
        graph.guards,
        values,
        tuple(i.name for i in graph.inputs),
        lowered.outputs,
        _records(steps, buffers),
        tuple(map(_instr, steps, _arenas(steps, memory))),
        memory.nbytes[0],
    )
    return Planned(plan, memory, tuple(items))


def _arenas(steps: Sequence[Step], memory: MemoryPlan) -> Iterator[Expr]:
    """For each step the arena's nbytes from there on."""
    reads = 0
    for x in steps:
        reads += isinstance(x, ReadStep)
        yield memory.nbytes[reads]


def _instr(step: Step, arena_nbytes: Expr) -> Instr:
    if isinstance(step, ReadStep):
        return Read(step.sym, step.source, arena_nbytes, step.origin)
    if isinstance(step, CopyStep):
        return Copy(step.source, step.target, step.origin)
    if isinstance(step, ControlStep):
        first, second = (tuple(_instr(s, arena_nbytes) for s in x) for x in (step.first, step.second))
        if step.kind == "cond":
            return If(step.cond, first, second, step.origin)
        return While(first, step.cond, second, step.origin)
    return Launch(step.kernel, step.buffers, step.ints, step.shared, step.per_worker, step.origin, step.grid, step.maps)


def launches_of(steps: Sequence[Step]) -> Iterator[KernelLaunch]:
    """Every launch, those in branches and bodies included."""
    for x in steps:
        if isinstance(x, KernelLaunch):
            yield x
        elif isinstance(x, ControlStep):
            yield from launches_of((*x.first, *x.second))


def read_places(steps: Sequence[Step]) -> tuple[int, ...]:
    """The numbers of the reads among the steps, numbered as in `lifetimes`."""
    found: list[int] = []
    at = 0
    for x in steps:
        if isinstance(x, ReadStep):
            found.append(at)
        at = _walk((x,), at, {})
    return tuple(found)


def lifetimes(steps: Sequence[Step]) -> dict[str, tuple[int, int]]:
    """buffer -> first and last step at which it is used, steps numbered in order of the text.

    What a loop uses and something outside of it touches, too, lives through the whole loop, and so does its condition.
    """
    lives: dict[str, tuple[int, int]] = {}
    _walk(steps, 0, lives)
    return lives


def _touch(lives: dict[str, tuple[int, int]], name: str, first: int, last: int) -> None:
    old = lives.get(name, (first, last))
    lives[name] = (min(old[0], first), max(old[1], last))


def _walk(steps: Sequence[Step], at: int, lives: dict[str, tuple[int, int]]) -> int:
    """Number the steps from `at`; the number after them."""
    for x in steps:
        if isinstance(x, KernelLaunch):
            for b in x.buffers:
                _touch(lives, b, at, at)
            at += 1
        elif isinstance(x, CopyStep):
            _touch(lives, x.source, at, at)
            _touch(lives, x.target, at, at)
            at += 1
        elif isinstance(x, ReadStep):
            _touch(lives, x.source, at, at)
            at += 1
        else:
            at = _walk_control(x, at, lives)
    return at


def _walk_control(x: ControlStep, at: int, lives: dict[str, tuple[int, int]]) -> int:
    inside: dict[str, tuple[int, int]] = {}
    start = at
    if x.kind == "cond":
        _touch(lives, x.cond, at, at)
        at += 1
    end = _walk(x.second, _walk(x.first, at, inside), inside) + 1
    outside = x.kind == "while"
    for name, (first, last) in inside.items():
        carried = outside and (name in lives or name == x.cond or _reads_first(name, x))
        _touch(lives, name, *((start, end) if carried else (first, last)))
    return end + 1


def _reads_first(name: str, x: ControlStep) -> bool:
    """True if a loop reads the buffer before it writes it: it then comes from outside or from the turn before."""
    for s in (*x.first, *x.second):
        if isinstance(s, KernelLaunch) and name in s.buffers:
            return name not in s.writes or name in s.reads
        if isinstance(s, CopyStep) and name in (s.source, s.target):
            return name == s.source
        if isinstance(s, ControlStep):
            return True
    return False


def fixed_storage(lowered: Lowered) -> dict[str, Storage]:
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


def _plan_syms(graph: Graph) -> tuple[PlanSym, ...]:
    position = {i.name: k for k, i in enumerate(graph.inputs)}
    return tuple(PlanSym(s.sym, None if s.input is None else position[s.input], s.dim) for s in graph.syms)


def _records(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> tuple[KernelRecord, ...]:
    records: dict[str, KernelRecord] = {}
    calls: dict[str, dict[Call, Call]] = {}  # by what a launch passes
    for x in launches_of(steps):
        params = tuple(BufferParam(buffers[b].dtype, _access(b, x)) for b in x.buffers)
        record = KernelRecord(x.kernel, params, len(x.ints), host=x.host)
        assert records.setdefault(x.kernel, record) == record, f"kernel {x.kernel} has two calling conventions"
        passed, known = Call(x.ints, (), x.shared, x.per_worker, x.grid), calls.setdefault(x.kernel, {})
        accesses = tighter(known[passed].accesses, x.accesses) if passed in known else x.accesses
        known[passed] = replace(passed, accesses=accesses)
    return tuple(replace(records[n], calls=tuple(calls[n].values())) for n in sorted(records))


def _access(buffer: str, x: KernelLaunch) -> str:
    if buffer in x.writes:
        return "readwrite" if buffer in x.reads else "write"
    return "read"
