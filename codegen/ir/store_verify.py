"""The rules of stores between nests: each element of each buffer is written before anything reads it, by one nest.

A nest's own stores hit no element twice (nest_verify.py). So a buffer is whole once one nest has stored as many
elements as it has, or several have stored parts that have nothing in common. Later nests may change what is there, in
their order. What has content of its own is not written. Values that share a memory, each a change of the one before it,
follow one another there: each is read only until the next one is begun, and by no nest that begins it.
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


@dataclass(frozen=True)
class Memory:
    """What there is before the first nest, and what is read behind the last one. given: buffers with content of their
    own: inputs, constants, states, prepacked weights. in_place: those that take the memory of another one -> that one;
    wanted: outputs, and what states take over."""

    given: frozenset[str]
    in_place: Mapping[str, str] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()


def verify_written(nests: Sequence[Nest], buffers: Mapping[str, Buffer], memory: Memory) -> None:
    """Raise LoopError where a nest reads what nests before it have not written, or a buffer is never whole.

    nests: of one graph, in their order.
    """
    touched = [(n, n.reads(), n.writes()) for n in nests]
    _verify_given(touched, memory)
    elsewhere = memory.given | memory.in_place.keys()
    names = set(memory.wanted).union(memory.in_place.values(), *(x for _, *both in touched for x in both)) - elsewhere
    made = {b: _Written(buffers[b]) for b in sorted(names)}
    for n, reads, writes in touched:
        for b in sorted(reads - elsewhere):
            if not made[b].whole:
                raise LoopError(f"{n.name} reads {b}, of which {made[b].numel} elements of {made[b].all} are written")
        for b in sorted(writes - elsewhere):
            made[b].take(n)
        for b in sorted(writes & memory.in_place.keys()):
            old = made.get(memory.in_place[b])
            if old is not None and not old.whole:
                raise LoopError(f"{n.name} changes {b}, of which {old.numel} elements of {old.all} are written")
    for b, written in made.items():
        if not written.whole:
            raise LoopError(f"{b} has {written.all} elements, of which {written.numel} are written")


def _verify_given(touched: Sequence[tuple[Nest, set[str], set[str]]], memory: Memory) -> None:
    """What has content of its own keeps it, and of the values that share a memory the one that is read is there."""
    holds = _Holds(memory.in_place)
    for n, reads, writes in touched:
        for b in sorted(writes & memory.given):
            raise LoopError(f"{n.name} writes {b}, which is given")
        if memory.in_place:
            holds.read(n.name, reads - _only_updated(n))
            holds.write(n.name, reads, writes)
    for b in sorted(memory.in_place.keys() - holds.written):
        raise LoopError(f"nothing writes {b}")
    for b in sorted(memory.wanted):
        holds.read("the end of the run", {b})


def _only_updated(nest: Nest) -> set[str]:
    """The buffers of which a nest reads just the elements that it adds something to."""
    if not isinstance(nest, LoopNest):
        return set()
    return {s.buffer for s in nest.stores() if s.mode != "set"} - {s.buffer for s in nest.loads()}


class _Holds:
    """Which of the values that share a memory is in it, nest by nest."""

    def __init__(self, in_place: Mapping[str, str]) -> None:
        self.in_place = in_place
        self.taken: dict[str, str] = {}
        self.written: set[str] = set()
        self.shared = {*in_place, *in_place.values()}

    def read(self, who: str, buffers: set[str]) -> None:
        for b in sorted(buffers & self.shared):
            if b in self.in_place and b not in self.written:
                raise LoopError(f"{who} reads {b} before it is written")
            if b in self.taken:
                raise LoopError(f"{who} reads {b}, whose memory {self.taken[b]} takes")

    def write(self, who: str, reads: set[str], writes: set[str]) -> None:
        for b in sorted(writes & self.shared):
            if b in self.taken:
                raise LoopError(f"{who} writes {b}, whose memory {self.taken[b]} takes")
            old = self.in_place.get(b)
            if old is None:
                continue
            if old in self.in_place and old not in self.written:
                raise LoopError(f"{who} writes {b} in the memory of {old}, which is not written yet")
            if old in reads:
                raise LoopError(f"{who} reads {old}, whose memory it gives to {b}")
            if self.taken.setdefault(old, b) != b:
                raise LoopError(f"{who} writes {b} in the memory of {old}, which {self.taken[old]} takes")
            self.written.add(b)


@dataclass
class _Written:
    """How much of a buffer is written, and which parts."""

    buffer: Buffer
    numel: Expr = const(0)
    parts: list[Index] = field(default_factory=list)
    all: Expr = field(init=False)
    whole: bool = field(init=False)

    def __post_init__(self) -> None:
        self.all = self.buffer.numel()
        self.whole = self.all is const(0)

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
