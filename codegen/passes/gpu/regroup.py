"""Brings the axes of point by point nests in line with a reduction whose results and whose input they read.

A group norm reduces x over (n, g) and normalises it over (n, h, w, c), with the results of group c // k. Walked as
(n, g, h, w, r), c = g * k + r, the second nest has the outer points of the first: they become one kernel, in which a
group is read once. What follows it point by point is walked in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, Expr, FloorDiv, Sym, const, int_value, sym
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopNest, Store, substitute_axes
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope


@dataclass(frozen=True)
class _Walk:
    """The order in which a buffer's elements are written. first: dimensions walked first; then the groups of dimension
    `split`, k members each; then the other dimensions in the order `rest`, where `split` stands for the members."""

    first: tuple[int, ...]
    split: int
    k: int
    rest: tuple[int, ...]

    def renamed(self, to: Mapping[int, int]) -> _Walk | None:
        """The same walk where dimension d is called to[d]; None where one has no other name: it is of size 1."""
        if any(d not in to for d in (*self.first, self.split, *self.rest)):
            return None
        return _Walk(tuple(to[d] for d in self.first), to[self.split], self.k, tuple(to[d] for d in self.rest))


def regroup(nests: Sequence[Nest], buffers: Mapping[str, Buffer]) -> tuple[Nest, ...]:
    """The nests, those that normalise by groups with their axes in the order of the groups' reduction."""
    reducers: dict[str, LoopNest] = {}
    walks: dict[str, _Walk] = {}
    out: list[Nest] = []
    for n in nests:
        if isinstance(n, LoopNest) and n.reduced and not n.serial:
            reducers |= dict.fromkeys(n.writes(), n)
        elif isinstance(n, LoopNest) and not n.serial and len(stores := n.stores()) == 1:
            target = buffers[stores[0].buffer]
            dims = _dims(n, stores[0])
            walk = None if dims is None else _walk(n, dims, reducers, walks, buffers)
            if dims is not None and walk is not None and walk.rest[-1] == target.order[-1]:
                walks[target.name] = walk
                n = _walked(n, dims, walk)
        out.append(n)
    return tuple(out)


def _dims(nest: LoopNest, at: Load | Store) -> dict[int, Axis] | None:
    """Dimension -> the axis that stands there alone; None unless each axis does, at a dimension of its extent."""
    by_sym = {a.sym: a for a in nest.axes}
    found = {d: by_sym[e] for d, e in enumerate(at.index) if isinstance(e, Sym) and e in by_sym}
    others = [e for d, e in enumerate(at.index) if d not in found]
    alone = len(found) == len(nest.axes) and len({a.sym for a in found.values()}) == len(found)
    return found if alone and all(int_value(e) == 0 for e in others) else None


def _walk(
    nest: LoopNest,
    dims: Mapping[int, Axis],
    reducers: Mapping[str, LoopNest],
    walks: Mapping[str, _Walk],
    buffers: Mapping[str, Buffer],
) -> _Walk | None:
    """How the nest should be walked; None for as it is."""
    at = {a.sym: d for d, a in dims.items()}
    for load in nest.loads():
        read = _dims(nest, load) if load.buffer in walks else None
        if read is not None:
            return walks[load.buffer].renamed({d: at[a.sym] for d, a in read.items()})
    for load in nest.loads():
        reducer = reducers.get(load.buffer)
        if reducer is not None and load.mask is None and reducer.reads() & (nest.reads() - reducers.keys()):
            found = _by_reducer(nest, dims, load, reducer, buffers[load.buffer].shape)
            if found is not None:
                return found
    return None


def _by_reducer(
    nest: LoopNest, dims: Mapping[int, Axis], load: Load, reducer: LoopNest, shape: Sequence[Expr]
) -> _Walk | None:
    """Each dimension of the result is read at an axis of the nest, the last at axis // k."""
    if not load.index:
        return None  # one result for all: there are no groups
    *outer, last = load.index
    at = {a.sym: d for d, a in dims.items()}
    if not isinstance(last, FloorDiv) or not isinstance(last.a, Sym):
        return None
    k = int_value(last.b)
    first = [at[e] for e in outer if isinstance(e, Sym) and e in at]
    whole = len(first) == sum(n is not ONE for n in shape[:-1]) == len(reducer.parallel) - 1
    if k is None or last.a not in at or not whole or last.a.extent is not shape[-1] * k:
        return None
    rest = [at[a.sym] for a in nest.axes if at[a.sym] not in first]
    return _Walk(tuple(first), at[last.a], k, tuple(rest))


def _walked(nest: LoopNest, dims: Mapping[int, Axis], walk: _Walk) -> LoopNest:
    split = dims[walk.split]
    groups = split.extent // walk.k
    g = Axis(sym("group", extent=groups), groups)
    r = Axis(sym("member", extent=walk.k), const(walk.k))
    first = [dims[d] for d in walk.first]
    rest = [r if d == walk.split else dims[d] for d in walk.rest]
    return substitute_axes(nest, (*first, g, *rest), {split.sym: g.sym * walk.k + r.sym})


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    return regroup(nests, buffers), buffers, ()


REGROUP = NestPass("regroup", _run)
"""What normalises by groups is walked in the order of the groups' reduction, to share its kernel."""
