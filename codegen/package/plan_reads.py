"""Symbols that are read during a run: each once, in order, before all that depends on it (docs/plan.md, "Reads").

What depends on such a symbol is proved by the runtime when it has read the value, as sizes of inputs are when a shape
is bound: nothing runs before.
"""

from __future__ import annotations

from collections.abc import Iterable

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_flow import accesses
from hardtack.codegen.package.plan_read import RawInstr, RawPlan


def check_reads(plan: RawPlan) -> None:
    """Raises LoadError for a symbol that is read out of order, more than once or nowhere, and for an instruction, or
    the places of what it touches, that depends on one that is read later. The launches' forms have been checked."""
    _Reads(plan).check()


def arena_of_values(plan: RawPlan) -> dict[int, int]:
    """Value of the arena -> the expression that is the arena's nbytes where it is first written."""
    found: dict[int, int] = {}
    arena = plan.arena
    for i in plan.body:
        if i.op == "read":
            arena = i.arena
        for v in _written(plan, i):
            found.setdefault(v, arena)
    return found


def _written(plan: RawPlan, i: RawInstr) -> Iterable[int]:
    yield from accesses(plan, i)[1]
    for inner in (*i.cond_body, *i.body, *i.orelse):
        yield from _written(plan, inner)


def needs_of(plan: RawPlan) -> list[int]:
    """By expression: how many of the symbols it needs, from the first on."""
    needs: list[int] = []
    for e in plan.exprs:
        parts = () if e.kind in ("const", "sym") else tuple(needs[a] for a in e.args)
        needs.append(e.args[0] + 1 if e.kind == "sym" else max(parts, default=0))
    return needs


def count_bound(plan: RawPlan) -> int:
    """How many symbols inputs bind."""
    return sum(s.input is not None for s in plan.syms)


class _Reads:
    def __init__(self, plan: RawPlan) -> None:
        self.plan = plan
        self.known = count_bound(plan)
        self.needs = needs_of(plan)

    def check(self) -> None:
        for s in self.plan.syms[: self.known]:
            if s.input is None:
                raise LoadError(
                    f"symbol {s.name!r} is read, and stands before one that an input binds", self.plan.where
                )
        for v in self.plan.inputs:
            self._value(v)
        self._exprs((self.plan.arena,), "the arena")
        self._body(self.plan.body, outermost=True)
        for s in self.plan.syms[self.known :]:
            raise LoadError(f"symbol {s.name!r} is bound by no input and read nowhere", self.plan.where)

    def _exprs(self, es: Iterable[int], what: str) -> None:
        if any(self.needs[e] > self.known for e in es):
            raise LoadError(f"{what} depends on a symbol before it is read", self.plan.where)

    def _value(self, v: int) -> None:
        value = self.plan.values[v]
        place = (value.at,) if value.storage == "arena" and isinstance(value.at, int) else ()
        self._exprs((*value.shape, *value.strides, *place), f"value {value.name!r}")

    def _body(self, body: Iterable[RawInstr], outermost: bool) -> None:
        for i in body:
            for v in (*i.buffers, *(v for part in accesses(self.plan, i) for v in part)):
                self._value(v)
            if i.op == "read":
                self._read(i, outermost)
            elif i.op == "launch":
                self._launch(i)
            for inner in (i.cond_body, i.body, i.orelse):
                self._body(inner, outermost=False)

    def _read(self, i: RawInstr, outermost: bool) -> None:
        name = self.plan.syms[i.sym].name
        if not outermost:
            raise LoadError(f"{i.path}: symbol {name!r} is read inside of an if or a while", self.plan.where)
        if i.sym != self.known:
            raise LoadError(f"{i.path}: symbol {name!r} is read where symbol {self.known} is next", self.plan.where)
        self.known += 1
        self._exprs((i.arena,), f"{i.path}: the arena")

    def _launch(self, i: RawInstr) -> None:
        what = f"{i.path}: kernel {self.plan.kernels[i.kernel].name!r}"
        self._exprs((*i.ints, *(i.grid or (i.shared, i.per_worker))), what)
        for m in i.maps:
            self._exprs((m.offset, *m.shape, *m.strides), what)
