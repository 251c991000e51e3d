"""Which plan a kernel gets: from a table that the user gave, else from the table that is shipped, else by cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace

from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.tune.attention_plan import AttentionPlan, AttentionShape
from hardtack.codegen.tune.candidates import Plan, Shape, plan_by_cost, problem
from hardtack.codegen.tune.conv_plan import ConvShape
from hardtack.codegen.tune.cut_plan import ConvCutShape, CutPlan, CutShape, cut_problem
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape
from hardtack.codegen.tune.table import PlanFields, Tables, TuningTable, shipped_table

FAMILIES: dict[str, tuple[type[Shape], type[Plan]]] = {
    "gemm": (GemmShape, GemmPlan),
    "conv": (ConvShape, GemmPlan),
    "attention": (AttentionShape, AttentionPlan),
    "cpu_gemm": (CutShape, CutPlan),
    "cpu_conv": (ConvCutShape, CutPlan),
}
"""Template family -> what its plan depends on, and its plan."""
HEAVY = " heavy=1"
"""The end of the key of a product with a costly epilogue. A table without it is asked for the product alone."""
KIND = "tuning"
"""Of the Decisions that are made here: subject is the key, partner the plan's fields."""
_BY_COST = "cost model: "
"""How the reason of a plan begins that no table has."""


@dataclass(frozen=True)
class Tuning:
    """The tables to look into, by level ("user" before "shipped")."""

    levels: tuple[tuple[str, TuningTable], ...] = ()

    def choose(self, shape: Shape, machine: Machine) -> tuple[Plan, tuple[Decision, ...]]:
        """The plan for a shape, and how it came about. An entry that is not legal is passed over, with a Decision."""
        key, decisions = key_of(shape), list[Decision]()
        plain = key.removesuffix(HEAVY)
        for level, table in self.levels:
            found = next((k for k in (key, plain) if k in table.entries), None)
            if found is None:
                continue
            entry = table.entries[found]
            reason = f"{level} table: {entry.measured_ns / 1000:.2f} us, measured with {table.measured_with}"
            reason += "" if found == key else ", without what is computed behind it here"
            plan = plan_of(shape, entry.plan, reason)
            why_not = plan if isinstance(plan, str) else problem(plan, shape, machine)
            if why_not == "":
                assert not isinstance(plan, str)
                return plan, (*decisions, Decision(KIND, key, plan_text(plan), True, reason))
            what = ",".join(f"{k}={v}" for k, v in sorted(entry.plan.items()))
            decisions.append(Decision(KIND, key, what, False, f"{level} table: not legal any more: {why_not}"))
        by_cost = plan_by_cost(shape, machine)
        plan = replace(by_cost, reason=f"{_BY_COST}{by_cost.reason}")
        return plan, (*decisions, Decision(KIND, key, plan_text(plan), True, plan.reason))

    def in_table(self, decisions: Iterable[Decision]) -> bool:
        """Whether a table gave the plan that came about so."""
        return any(shapes_in_tables(decisions).values())

    def __str__(self) -> str:
        return ", ".join(f"{level} {table.sha256}" for level, table in self.levels)


NO_TUNING = Tuning()
"""No tables: the cost model chooses."""


def tuning_for(machine: Gpu, tables: Tables) -> Tuning:
    """The levels for a machine. The user's table is left out where it is for another one."""
    user, shipped = tables.user, shipped_table(machine.name) if tables.shipped else None
    levels = [("user", user)] if user is not None and user.arch == machine.name else []
    return Tuning((*levels, *((("shipped", shipped),) if shipped is not None else ())))


def check_cuts(table: TuningTable) -> None:
    """Raise LoadError, at the file and the entry, where a CPU's table has an entry that is no plan of its key."""
    for key, entry in table.entries.items():
        at = f"{table.where}: entries[{key!r}]"
        try:
            shape = shape_of(key)
        except ValueError as error:
            raise LoadError(f"{error}", at) from None
        if not isinstance(shape, (CutShape, ConvCutShape)):
            raise LoadError("this is a key of GPUs, in a table of a CPU", at)
        plan = plan_of(shape, entry.plan, "")
        why = plan if isinstance(plan, str) else cut_problem(plan, shape) if isinstance(plan, CutPlan) else ""
        if why:
            raise LoadError(why, f"{at}.plan")


def shapes_in_tables(decisions: Iterable[Decision]) -> Mapping[str, bool]:
    """The key of every shape that got a plan -> whether a table gave it."""
    return {d.subject: not d.reason.startswith(_BY_COST) for d in decisions if d.kind == KIND and d.accepted}


def family_of(shape: Shape) -> str:
    """The template family that a shape belongs to."""
    return next(name for name, (kind, _) in FAMILIES.items() if isinstance(shape, kind))


def key_of(shape: Shape) -> str:
    """The shape as text: its family, then every field, such as "conv points=64 ... dtype=bf16"."""
    values = ((f.name, getattr(shape, f.name)) for f in fields(shape))
    text = " ".join([family_of(shape), *(f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in values)])
    return text.removesuffix(" heavy=0")


def shape_of(key: str) -> Shape:
    """The shape of a key. Raises ValueError for a text that is no key."""
    family, *pairs = key.split(" ")
    if family not in FAMILIES:
        raise ValueError(f"no template family {family!r}; there are {', '.join(FAMILIES)}")
    kind = FAMILIES[family][0]
    given = dict(p.split("=", 1) for p in pairs if "=" in p)
    if kind is GemmShape:
        given.setdefault("heavy", "0")
    if [f.name for f in fields(kind)] != list(given):
        raise ValueError(f"{key!r} is no key of {family}; its fields are {', '.join(f.name for f in fields(kind))}")
    read: dict[str, Callable[[str], object]] = {"DType": DType, "bool": lambda text: bool(int(text)), "int": int}
    return kind(**{f.name: read[str(f.type)](given[f.name]) for f in fields(kind)})  # type: ignore[arg-type]


def plan_text(plan: Plan) -> str:
    """A plan's fields as text."""
    return ",".join(f"{k}={v}" for k, v in sorted(plan_fields(plan).items()))


def plan_fields(plan: Plan) -> PlanFields:
    """What a table keeps of a plan."""
    return {f.name: getattr(plan, f.name) for f in fields(plan) if f.name != "reason"}


def plan_of(shape: Shape, given: PlanFields, reason: str) -> Plan | str:
    """The plan with the fields of a table; a text that says what is wrong with them."""
    kind = FAMILIES[family_of(shape)][1]
    wanted = {f.name: str(f.type) for f in fields(kind) if f.name != "reason"}
    for name in sorted({*wanted, *given}):
        if name not in wanted:
            return f"plans have no field {name!r}"
        if name not in given:
            return f"the field {name!r} is missing"
        if type(given[name]).__name__ != wanted[name]:
            return f"{name} is {given[name]!r}; it must be of type {wanted[name]}"
    return kind(**given, reason=reason)  # type: ignore[arg-type]
