"""Whether a program takes the example that it was captured with.

torch traces a dynamic size of 0 or 1 as 2, and what holds for 2 need not hold for these: x.view(2, -1) has rows for two
and for no others, and a mask of one row is as large as what it masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import evaluate, free_syms
from hardtack.codegen.ir.graph import Graph, Guard
from hardtack.exporter.errors import RangeError, SourceLine
from hardtack.exporter.sizes.ranges import Declared, DimRange, holds, readable

Place = tuple[str, int | None]
"""(input, dim), None as dim for an integer input."""

_CAPTURED = 2
"""What torch traces sizes below it as."""


def check_example(graph: Graph, declared: Declared) -> None:
    """RangeError where the sizes of the example are not those that the graph takes. Sizes not known are not looked at:
    a program that was exported elsewhere has none.
    """
    examples = {place: found.example for place, found in declared.dims.items() if found.example is not None}
    places = {b.sym: (b.input, b.dim) for b in graph.syms if b.input is not None}
    at = {sym.name: examples[place] for sym, place in places.items() if place in examples}
    for sym, place in places.items():
        if at.get(sym.name, sym.lo) < sym.lo:
            raise _too_small(place, sym.lo, at[sym.name])
    for place, size in _sizes(graph, at):
        if place in examples and examples[place] != size:
            raise _unequal(graph, declared, place, size)
    for guard in graph.guards:
        syms = free_syms(guard.a) | free_syms(guard.b)
        if syms and {s.name for s in syms} <= set(at) and not holds(guard, at):
            raise _needs(guard, {s: places[s] for s in syms}, at)


def check_fixed(place: Place, fixed: int, found: DimRange, where: SourceLine | None) -> None:
    """RangeError for a size that has become another constant than the example's."""
    if found.example is None or found.example == fixed:
        return
    raise RangeError(
        f"the program does not take its own example: {place_text(place)} was captured as {fixed} in place of "
        f"{found.example}, and the program holds for no other size",
        where,
        f"give an example of {_CAPTURED + 1} or more, or declare it static if it is always {found.example}",
    )


def place_text(place: Place) -> str:
    """`dimension 0 of input x`, `input n`."""
    name, dim = place
    return f"dimension {dim} of input {name}" if dim is not None else f"input {name}"


def _sizes(graph: Graph, at: Mapping[str, int]) -> Iterator[tuple[Place, int]]:
    """The size of each dimension whose symbols are all known."""
    for i in graph.inputs:
        for dim, size in enumerate(graph.types[i.name].shape):
            if {s.name for s in free_syms(size)} <= set(at):
                yield (i.name, dim), evaluate(size, at)


def _too_small(place: Place, lo: int, size: int) -> RangeError:
    return RangeError(
        f"the program does not take its own example: {place_text(place)} must be {lo} or more, and is {size}",
        None,
        f"give an example of {lo} or more, or declare it static if it is always {size}",
    )


def _unequal(graph: Graph, declared: Declared, place: Place, size: int) -> RangeError:
    """Two sizes for one symbol, or a size that is not the sum or product that it was declared as."""
    own = declared.dims[place].example
    syms = free_syms(graph.types[place[0]].shape[place[1] or 0])
    others = [(b.input, b.dim) for b in graph.syms if b.sym in syms and b.input is not None]
    beside = ", ".join(f"{place_text(o)}, which is {declared.dims[o].example}" for o in others)
    sizes = [own, *(declared.dims[o].example for o in others)]
    small = any(s is not None and s < _CAPTURED for s in sizes)
    return RangeError(
        f"the program does not take its own example: {place_text(place)} must be {size} beside {beside}, and is {own}",
        None,
        "declare the dimension of size 1 static, or give an example in which no dynamic size is 0 or 1, which torch "
        "captures as 2"
        if small
        else "give an example in which the sizes agree, or declare each by a Dim of its own",
    )


def _needs(guard: Guard, places: Mapping[Sym, Place], at: Mapping[str, int]) -> RangeError:
    sizes = ", ".join(
        f"{s.name} = {at[s.name]} ({place_text(p)})" for s, p in sorted(places.items(), key=lambda x: x[0].name)
    )
    return RangeError(
        f"the program does not take its own example: it needs {readable(guard)}, but {sizes}",
        None,
        "give an example for which this holds, without dynamic sizes of 0 and 1, which torch captures as 2, or declare "
        "these dimensions static",
    )
