"""The memory planner: offsets in the arena for values with lifetimes. A pure function, checked by brute force in tests.

    MemoryPlan ::= offsets {name: Expr}, nbytes (Expr, ...)

Values are placed largest first, each at the lowest place where it meets no value that is alive at the same time; sizes
are taken at the symbols' example values. The layout so found fixes only an order: of two values that are alive
together, one lies below the other. Offsets are then written as expressions, each the largest end of the values below
it, so they never overlap at any size, and for constant sizes they are constants.

Where the plan reads sizes on its way, values that are first written behind a read lie above all from before it that are
alive with them: of those no place depends on what is read. The arena grows at each read, and keeps what lies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, const, maximum
from hardtack.codegen.ir.expr_walk import evaluate, free_syms

ALIGNMENT = 64
"""Every value starts at a multiple of this many bytes: a cache line, and the widest vector."""


@dataclass(frozen=True)
class Item:
    """A value to place: nbytes, and the first and last step at which it is alive, both included."""

    name: str
    nbytes: Expr
    first: int
    last: int

    def reads_before(self, reads: Sequence[int]) -> int:
        """How many of the reads, numbers of steps, come before the value is first written."""
        return sum(r < self.first for r in reads)

    def meets(self, other: Item) -> bool:
        """True if both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """name -> offset in bytes, a multiple of ALIGNMENT; nbytes of the arena at the start and behind each read."""

    offsets: dict[str, Expr]
    nbytes: tuple[Expr, ...]
    reads: tuple[int, ...] = ()


class LayoutError(AssertionError):
    """A layout breaks its rules: a bug of ours, never the user's."""


_PROBES = (0, 1, 2, 17, 1000)
"""Sizes at which verify_memory looks at a layout that has symbols."""


def verify_memory(items: Sequence[Item], plan: MemoryPlan) -> None:
    """LayoutError where values that are alive together share bytes, or one is misplaced, at some of a few sizes.

    A layout without symbols is proved; one with symbols is tried, and the runtime looks again at every new shape.
    """
    if {i.name for i in items} != set(plan.offsets):
        raise LayoutError("the layout is not of these values")
    for sizes in _probes(items):
        if any(evaluate(i.nbytes, sizes) < 0 for i in items):
            continue  # sizes that the program's guards refuse
        totals = [evaluate(n, sizes) for n in plan.nbytes]
        placed = [(evaluate(plan.offsets[i.name], sizes), evaluate(i.nbytes, sizes), i) for i in items]
        for start, nbytes, item in placed:
            total = totals[item.reads_before(plan.reads)]
            if start % ALIGNMENT or not 0 <= start <= start + nbytes <= total:
                raise LayoutError(f"{item.name} at {start}, {nbytes} bytes of {total}, sizes {sizes}")
        # in the order of their places, a value can only share bytes with those that start before it ends
        placed.sort(key=lambda p: p[0])
        for k, (start, nbytes, item) in enumerate(placed):
            for other_start, other_nbytes, other in placed[k + 1 :]:
                if other_start >= start + nbytes:
                    break
                if other_nbytes and item.meets(other):
                    raise LayoutError(f"{item.name} and {other.name} share bytes at {other_start}, sizes {sizes}")


def _probes(items: Sequence[Item]) -> Iterator[Mapping[str, int]]:
    """The same try for every symbol, within its bounds."""
    syms = sorted(frozenset().union(*(free_syms(i.nbytes) for i in items)), key=lambda s: s.name)
    for size in _PROBES if syms else (0,):
        yield {s.name: max(size, s.lo) if s.hi is None else min(max(size, s.lo), s.hi) for s in syms}


def aligned(nbytes: Expr) -> Expr:
    """nbytes rounded up to ALIGNMENT."""
    return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT


def plan_memory(
    items: Sequence[Item], size_hint: Callable[[Expr], int], reads: Sequence[int] = (), lean: bool = False
) -> MemoryPlan:
    """Place `items`. `size_hint` gives an example size in bytes for an expression; reads: the steps that read sizes.
    lean: the smallest of several layouts, by what is placed first: large values, early ones, long-lived ones.
    """
    ranks: list[Callable[[Item], tuple[int, int]]] = [lambda i: (-size_hint(i.nbytes), i.first)]
    if lean:
        ranks.append(lambda i: (i.first, -size_hint(i.nbytes)))
        ranks.append(lambda i: (i.first - i.last, -size_hint(i.nbytes)))
        ranks.append(lambda i: ((i.first - i.last - 1) * size_hint(i.nbytes), i.first))
    found = [
        _placed(sorted(items, key=lambda i: (i.reads_before(reads), *r(i), i.name)), size_hint, reads) for r in ranks
    ]
    return min(found, key=lambda plan: max(map(size_hint, plan.nbytes)))


def _placed(order: Sequence[Item], size_hint: Callable[[Expr], int], reads: Sequence[int]) -> MemoryPlan:
    """Each item in its turn, as low as it fits."""
    sizes = {i.name: max(0, size_hint(aligned(i.nbytes))) for i in order}
    at: dict[str, int] = {}
    placed: list[Item] = []
    for item in order:
        rivals = [p for p in placed if p.meets(item)]
        older = (at[r.name] + sizes[r.name] for r in rivals if r.reads_before(reads) < item.reads_before(reads))
        at[item.name] = _lowest(item, rivals, at, sizes, max(older, default=0))
        placed.append(item)
    return _as_expressions(placed, at, tuple(reads))


def _lowest(item: Item, rivals: Sequence[Item], at: dict[str, int], sizes: dict[str, int], position: int) -> int:
    """The lowest place from `position` on at which the item fits between its rivals."""
    for rival in sorted(rivals, key=lambda r: at[r.name]):
        if at[rival.name] >= position + sizes[item.name]:
            break
        position = max(position, at[rival.name] + sizes[rival.name])
    return position


def _as_expressions(placed: Sequence[Item], at: dict[str, int], reads: tuple[int, ...]) -> MemoryPlan:
    rank = {item.name: (at[item.name], k) for k, item in enumerate(placed)}
    upwards = sorted(placed, key=lambda i: rank[i.name])
    offsets: dict[str, Expr] = {}
    totals: list[Expr] = [const(0)] * (len(reads) + 1)
    for k, item in enumerate(upwards):
        below = [u for u in upwards[:k] if u.meets(item)]
        # u need not be named if it lies below another of them that it meets: that one's offset is past u's end
        tops = [u for j, u in enumerate(below) if not any(u.meets(w) for w in below[j + 1 :])]
        offsets[item.name] = maximum(0, *(offsets[u.name] + aligned(u.nbytes) for u in tops))
        for n in range(item.reads_before(reads), len(totals)):
            totals[n] = maximum(totals[n], offsets[item.name] + aligned(item.nbytes))
    return MemoryPlan(offsets, tuple(totals), reads)
