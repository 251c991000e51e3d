"""What holds along every path through a plan: definition before use, no forbidden write, no overlap in the arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_read import RawInstr, RawPlan

Known = Callable[[int], int | None]


def accesses(plan: RawPlan, i: RawInstr) -> tuple[list[int], list[int]]:
    """(values read, values written) by the instruction itself, not by what it holds."""
    if i.op == "launch":
        pairs = list(zip(i.buffers, plan.kernels[i.kernel].buffers, strict=True))
        reads = [v for v, (_, access) in pairs if access != "write"]
        return reads, [v for v, (_, access) in pairs if access != "read"]
    if i.op == "copy":
        return [i.src], [i.dst]
    if i.op == "fill":
        return [], [i.dst]
    return [i.cond], []


def check_flow(plan: RawPlan) -> None:
    """Raises LoadError for a use before definition, a write to an input or constant, or an output left undefined."""
    initial = {n for n, v in enumerate(plan.values) if v.storage in ("input", "constant", "state")}
    defined = _check_body(plan, plan.body, initial)
    for v in plan.outputs:
        if v not in defined:
            raise LoadError(f"output {plan.values[v].name!r} is not defined at the end", plan.where)


def _check_body(plan: RawPlan, body: Iterable[RawInstr], before: set[int]) -> set[int]:
    """What is defined after `body`, given what is before it."""
    defined = set(before)
    for i in body:
        if i.op == "while":
            # the test runs at least once, the body perhaps never; a later round sees no less than the first
            defined = _check_body(plan, i.cond_body, defined)
            _check_instr(plan, i, defined)
            _check_body(plan, i.body, defined)
            continue
        _check_instr(plan, i, defined)
        if i.op == "if":
            defined = _check_body(plan, i.body, defined) & _check_body(plan, i.orelse, defined)
        else:
            defined.update(accesses(plan, i)[1])
    return defined


def _check_instr(plan: RawPlan, i: RawInstr, defined: set[int]) -> None:
    reads, writes = accesses(plan, i)
    for v in reads:
        if v not in defined:
            raise LoadError(f"{i.path}: value {plan.values[v].name!r} is used before it is defined", plan.where)
    arguments = list(i.buffers) if i.op == "launch" else [*reads, *writes]
    for v in writes:
        value = plan.values[v]
        if value.storage in ("input", "constant"):
            place = {"input": "an input", "constant": "a constant"}[value.storage]
            raise LoadError(f"{i.path}: writes value {value.name!r}, which is stored in {place}", plan.where)
        if arguments.count(v) > 1:
            raise LoadError(f"{i.path}: value {value.name!r} is written and given twice", plan.where)
        _check_state_alias(plan, i, v, arguments)


def _check_state_alias(plan: RawPlan, i: RawInstr, written: int, arguments: list[int]) -> None:
    """Values of one state share its bytes: a launch that writes one may not see another."""
    w = plan.values[written]
    for v in arguments:
        other = plan.values[v]
        if v != written and w.storage == other.storage == "state" and w.at == other.at:
            raise LoadError(f"{i.path}: values {w.name!r} and {other.name!r} share state {w.at!r}", plan.where)


@dataclass
class _Lifetimes:
    """First write and last use of every value, counted in instructions; `while` bodies widen what crosses them."""

    plan: RawPlan
    clock: int = 0
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def walk(self, body: Iterable[RawInstr]) -> None:
        for i in body:
            self.clock += 1
            if i.op == "while":
                self._loop(i)
                continue
            self._touch(i)
            self.walk(i.body)
            self.walk(i.orelse)

    def _touch(self, i: RawInstr) -> None:
        reads, writes = accesses(self.plan, i)
        for v in writes:
            self.first.setdefault(v, self.clock)
        for v in (*reads, *writes):
            self.last[v] = self.clock

    def _loop(self, i: RawInstr) -> None:
        start = self.clock
        defined_before = set(self.first)
        self.walk(i.cond_body)
        self.clock += 1
        self._touch(i)
        self.walk(i.body)
        self.clock += 1
        for v, used in self.last.items():
            # what was defined outside is needed by the next round until the loop ends
            if used > start and v in defined_before:
                self.last[v] = self.clock


def check_arena(plan: RawPlan, nbytes: Known, constant: Known) -> None:
    """Raises LoadError where two values that are alive together overlap, as far as places are known at load."""
    lives = _Lifetimes(plan)
    lives.walk(plan.body)
    placed: list[tuple[int, int, int]] = []  # (first, value, offset)
    for v, value in enumerate(plan.values):
        if value.storage != "arena" or v not in lives.first:
            continue
        assert isinstance(value.at, int)
        offset, size = constant(value.at), nbytes(v)
        if offset is not None and size:
            placed.append((lives.first[v], v, offset))
    placed.sort()
    alive: list[tuple[int, int]] = []
    for first, v, offset in placed:
        alive = [(w, at) for w, at in alive if lives.last[w] >= first]
        for w, at in alive:
            if offset < at + (nbytes(w) or 0) and at < offset + (nbytes(v) or 0):
                a, b = plan.values[w].name, plan.values[v].name
                raise LoadError(f"values {a!r} and {b!r} are alive together and overlap in the arena", plan.where)
        alive.append((v, offset))
