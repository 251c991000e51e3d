"""Whether a plan's arena stays below a budget for every size of the declared ranges, and what is in the way if not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hardtack.codegen.ir.expr import Sym, bounds
from hardtack.codegen.ir.expr_walk import evaluate, free_syms
from hardtack.codegen.ir.plan import Launch, Plan
from hardtack.codegen.plan.memory import Item, MemoryPlan

SHOWN = 8
"""Values that a message names."""


class OverBudget(ValueError):
    """The arena takes more than Options.memory_budget; the message names what is alive at the peak."""


def most_nbytes(memory: MemoryPlan) -> int | None:
    """The arena's size at the largest sizes; None where there is no bound."""
    found = [bounds(n)[1] for n in memory.nbytes]
    return None if None in found else max(n for n in found if n is not None)


def largest_sizes(syms: Iterable[Sym]) -> dict[str, int]:
    """Symbol -> its largest size, of symbols that have one."""
    return {s.name: s.hi for s in syms if s.hi is not None}


def alive_at_peak(items: Sequence[Item], sizes: Mapping[str, int]) -> tuple[Item, ...]:
    """What is alive at the step with most bytes, from the largest value."""
    nbytes = {i.name: evaluate(i.nbytes, sizes) for i in items}

    def alive(step: int) -> list[Item]:
        return [i for i in items if i.first <= step <= i.last]

    found = max((alive(i.first) for i in items), key=lambda some: sum(nbytes[i.name] for i in some), default=[])
    return tuple(sorted(found, key=lambda i: (-nbytes[i.name], i.name)))


def over_budget(plan: Plan, items: Sequence[Item], memory: MemoryPlan, budget: int, device: str) -> OverBudget:
    """The exception for an arena that may be larger than the budget."""
    where, most = f'entry "{plan.entry}" for {device}', most_nbytes(memory)
    syms = frozenset[Sym]().union(*map(free_syms, (*memory.nbytes, *(i.nbytes for i in items))))
    if most is None:
        names = sorted(s.name for s in syms if s.hi is None)
        return OverBudget(
            f"{where}: the arena has no bound, so memory_budget {budget:,} cannot be kept: there is none for "
            f"{', '.join(names)}; declare one, as Dim(.., max=..)"
        )
    alive = alive_at_peak(items, largest_sizes(syms))
    lines = [f"  {_text(i, plan, largest_sizes(syms))}" for i in alive[:SHOWN]]
    lines += [f"  and {len(alive) - SHOWN} more"] if len(alive) > SHOWN else []
    return OverBudget(
        f"{where}: the arena takes up to {most:,} bytes, and memory_budget is {budget:,}; most are alive at once of\n"
        + "\n".join(lines)
    )


def _text(item: Item, plan: Plan, sizes: Mapping[str, int]) -> str:
    value = next(v for v in plan.values if v.name == item.name)
    shape = ", ".join(str(evaluate(n, sizes)) for n in value.shape)
    writer = next((x.origin for x in plan.body if isinstance(x, Launch) and item.name in x.buffers), None)
    of = f", of {writer}" if writer is not None and str(writer) else ""
    return f"{item.name}: {value.dtype}[{shape}], {evaluate(item.nbytes, sizes):,} bytes{of}"
