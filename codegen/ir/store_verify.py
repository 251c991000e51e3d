"""The rules of stores between nests: each element of each buffer is written before anything reads it, by one nest.

A nest's own stores hit no element twice (nest_verify.py). So a buffer is whole once one nest has stored as many
elements as it has, or several have stored parts that have nothing in common. Later nests may change what is there, in
their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hardtack.codegen.ir.expr import Expr, add, bounds, const, known_in_range, product
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.loops import Buffer, LoopError, LoopNest, Store
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.ir.reindex import equal

Index = tuple[Expr, ...]


def verify_written(nests: Sequence[Nest], buffers: Mapping[str, Buffer], given: frozenset[str]) -> None:
    """Raise LoopError where a nest reads what nests before it have not written, or a buffer is never whole.

    nests: of one graph, in their order. given: buffers with content of their own, or that share a state's memory.
    """
    made = {b: _Written(buffers[b]) for n in nests for b in sorted(n.writes()) if b not in given}
    for n in nests:
        for b in sorted(n.reads()):
            if b in made and not made[b].whole:
                raise LoopError(f"{n.name} reads {b}, of which {made[b].numel} elements of {made[b].all} are written")
        for b in sorted(n.writes() & made.keys()):
            made[b].take(n)
    for b, written in made.items():
        if not written.whole:
            raise LoopError(f"{b} has {written.all} elements, of which {written.numel} are written")


@dataclass
class _Written:
    """How much of a buffer is written, and which parts."""

    buffer: Buffer
    numel: Expr = const(0)
    parts: list[Index] = field(default_factory=list)
    whole: bool = False

    @property
    def all(self) -> Expr:
        return self.buffer.numel()

    def take(self, nest: Nest) -> None:
        """What a nest writes."""
        if not isinstance(nest, LoopNest):
            self.whole = True  # templates and loops of the plan write all of their results
            return
        for s in nest.stores():
            if s.buffer == self.buffer.name and not self.whole:
                self._take_part(nest, s)

    def _take_part(self, nest: LoopNest, s: Store) -> None:
        if nest.serial or s.mode != "set":
            raise LoopError(f"{nest.name} changes {s.buffer}, of which {self.numel} elements of {self.all} are written")
        axes = [a for a in nest.axes if a.kind == "parallel" or any(a.sym in free_syms(e) for e in s.index)]
        count = product(a.extent for a in axes)
        if equal(count, self.all):
            self.whole = True
            return
        common = next((p for p in self.parts if not apart(p, s.index)), None)
        if common is not None and count is not const(0):
            raise LoopError(f"{nest.name} stores {s.buffer} at {s.index}, which is stored at {common}, too")
        self.parts += [s.index] if count is not const(0) else []
        self.numel = add(self.numel, count)
        self.whole = equal(self.numel, self.all)


def apart(first: Index, second: Index) -> bool:
    """True if two stores are known to have no element in common: some coordinate of one lies below the other's."""
    return any(_below(i, j) or _below(j, i) for i, j in zip(first, second, strict=True))


def _below(i: Expr, j: Expr) -> bool:
    """True if each value of i is known to be less than each one of j."""
    least = substitute(j, {s: 0 for s in free_syms(j) if s.extent is not None})
    lo = bounds(j - least)[0]
    return lo is not None and lo >= 0 and known_in_range(i, least)
