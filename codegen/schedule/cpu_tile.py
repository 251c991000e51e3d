"""Tiling for CPU kernels: which axes go to the workers, which to the lanes, what stays in registers or scratch.

A pure function Group -> Kernel. Steps: linear offsets; axes split where an index divides them, joined where no access
tells them apart; passes over one row joined; the storage of values that only this group uses; the vector axis of each
nest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, bounds, const, int_value, mod, sym
from hardtack.codegen.ir.expr_walk import divisors_along, free_syms, split_linear, stride_along, substitute
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopNest, Stmt, Store, exprs_of, join, substitute_axes
from hardtack.codegen.ir.nests import walk_buffers
from hardtack.codegen.ir.reindex import within
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest, Storage
from hardtack.codegen.schedule.axes import linearized
from hardtack.codegen.schedule.cpu_row_walks import joined_passes
from hardtack.codegen.schedule.loop_kernel import is_one_element, loop_kernel, offsets_of

FLAT_BLOCK = 2048
"""Elements of the vector axis that one task of a flat kernel takes."""
COLUMN_BLOCKS = (128, 64, 32, 16)
"""Sizes tried when a reduction's vector axis must also be split among workers."""


@dataclass(frozen=True)
class TileSteps:
    """Which steps are taken of those that a kernel is right without: splitting axes, joining them, joining passes."""

    split: bool = True
    collapse: bool = True
    join_passes: bool = True


ALL_STEPS = TileSteps()


def tile(
    group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], name: str, steps: TileSteps = ALL_STEPS
) -> Kernel:
    """Decide the loops of a loop group. `kept`: buffers that something outside the group reads."""
    assert group.nests, "a group without nests of its own: siblings are for GPUs"
    nests = [linearized(n, buffers) for n in group.nests]
    nests, outer = _split_axes(nests, group.outer) if steps.split else (nests, group.outer)
    if all(len(n.axes) == len(outer) for n in nests) and outer:
        return _flat_kernel(group, nests, outer, buffers, kept, name, steps)
    nests, outer = _demoted(nests, outer)
    nests, outer = _blocked(nests, outer)
    nests = [_collapsed_inner(n, len(outer)) for n in nests] if steps.collapse else nests
    nests = joined_passes(nests, len(outer)) if steps.join_passes else nests
    storage, local = _storage(group, kept, nests, outer)
    nests = [_local_offsets(n, local) for n in nests]
    scheduled = tuple(_schedule(n, len(outer)) for n in nests)
    return loop_kernel(group, scheduled, outer, storage, buffers, name, flat=False)


def _split_axes(nests: list[LoopNest], outer: tuple[Axis, ...]) -> tuple[list[LoopNest], tuple[Axis, ...]]:
    """Split an axis a at a constant d that divides its extent, where indices use a//d or a%d: both become linear."""
    for k, axis in enumerate(outer):
        found: set[int] = set()
        for n in nests:
            found |= _nest_divisors(n, axis.sym)
        parts = _split_parts(axis, found, f"o{len(outer)}x{k}")
        if parts is None:
            continue
        new_outer = (*outer[:k], *parts, *outer[k + 1 :])
        swap: dict[Expr, Expr] = {axis.sym: join(parts)}
        moved = [substitute_axes(n, (*new_outer, *n.axes[len(outer) :]), swap) for n in nests]
        return _split_axes(moved, new_outer)
    return [_split_inner(n, len(outer)) for n in nests], outer


def _nest_divisors(nest: LoopNest, axis: Sym) -> set[int]:
    found: set[int] = set()
    for s in nest.body:
        for e in exprs_of(s):
            found |= divisors_along(e, axis)
    return found


def _split_parts(axis: Axis, divisors: set[int], stem: str) -> tuple[Axis, Axis] | None:
    for d in sorted(divisors, reverse=True):
        if d > 1 and mod(axis.extent, d) is ZERO and axis.extent is not const(d):
            high = axis.extent // d
            a, b = sym(f"{stem}h{d}", extent=high), sym(f"{stem}l{d}", extent=d)
            return Axis(a, high, axis.kind), Axis(b, const(d), axis.kind)
    return None


def _split_inner(nest: LoopNest, depth: int) -> LoopNest:
    for k, axis in enumerate(nest.axes[depth:], depth):
        parts = _split_parts(axis, _nest_divisors(nest, axis.sym), f"x{len(nest.axes)}{axis.sym.name}")
        if parts is not None:
            axes = (*nest.axes[:k], *parts, *nest.axes[k + 1 :])
            return _split_inner(substitute_axes(nest, axes, {axis.sym: join(parts)}), depth)
    return nest


def try_collapse(
    nests: Sequence[LoopNest], first: Axis, second: Axis, stem: str
) -> tuple[Axis, dict[Expr, Expr]] | None:
    """One axis in place of two neighbours, if no access then has to divide; None if one would."""
    extent = first.extent * second.extent
    if extent is ZERO:
        return None
    joined = Axis(sym(stem, extent=extent), extent, first.kind)
    swap: dict[Expr, Expr] = {first.sym: joined.sym // second.extent, second.sym: joined.sym % second.extent}
    for n in nests:
        for s in n.body:
            for e in exprs_of(s):
                if not free_syms(e) & {first.sym, second.sym}:
                    continue
                if not _linear_in(substitute(e, swap), joined.sym):
                    return None
    return joined, swap


def _linear_in(e: Expr, s: Sym) -> bool:
    return s not in free_syms(e) or split_linear(e, s) is not None


def _collapse_outer(nests: list[LoopNest], outer: tuple[Axis, ...]) -> tuple[list[LoopNest], tuple[Axis, ...]]:
    """Neighbouring outer axes joined from the innermost outwards."""
    k = len(outer) - 2
    count = 0
    while k >= 0:
        found = try_collapse(nests, outer[k], outer[k + 1], f"p{count}")
        count += 1
        if found is not None:
            axis, swap = found
            rest = len(outer)
            outer = (*outer[:k], axis, *outer[k + 2 :])
            nests = [substitute_axes(n, (*outer, *n.axes[rest:]), swap) for n in nests]
        k -= 1
    return nests, outer


def _collapsed_inner(nest: LoopNest, depth: int) -> LoopNest:
    """Neighbouring inner axes of one kind joined, so that lanes and loops are as long as possible."""
    k = len(nest.axes) - 2
    count = 0
    while k >= depth:
        first, second = nest.axes[k], nest.axes[k + 1]
        if first.kind == second.kind:
            found = try_collapse([nest], first, second, f"q{count}")
            count += 1
            if found is not None:
                axis, swap = found
                nest = substitute_axes(nest, (*nest.axes[:k], axis, *nest.axes[k + 2 :]), swap)
        k -= 1
    return nest


def _flat_kernel(
    group: Group,
    nests: list[LoopNest],
    outer: tuple[Axis, ...],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    name: str,
    steps: TileSteps,
) -> Kernel:
    nests, outer = _collapse_outer(nests, outer) if steps.collapse else (nests, outer)
    storage = {
        b: Storage("register" if b in group.writes() - kept and is_one_element(b, nests) else "memory")
        for b in walk_buffers(group.members())
    }
    scheduled = tuple(ScheduledNest(n, (), outer[-1], False, ()) for n in nests)
    return loop_kernel(group, scheduled, outer, storage, buffers, name, flat=True)


def _demoted(nests: list[LoopNest], outer: tuple[Axis, ...]) -> tuple[list[LoopNest], tuple[Axis, ...]]:
    """The last outer axis becomes an inner one where the reductions are contiguous along it: lanes go there instead."""
    if not outer:
        return nests, outer
    last = outer[-1].sym
    along = across = 0
    for n in nests:
        for s in n.loads():
            if not n.reduced:
                continue
            along += stride_along(s.index[0], last) is ONE
            across += any(stride_along(s.index[0], a.sym) is ONE for a in n.reduced)
    return (nests, outer[:-1]) if along > across else (nests, outer)


def _blocked(nests: list[LoopNest], outer: tuple[Axis, ...]) -> tuple[list[LoopNest], tuple[Axis, ...]]:
    """A lone reduction without outer axes: blocks of its first parallel axis are shared among the workers."""
    if outer or len(nests) != 1 or not nests[0].parallel:
        return nests, outer
    axis = nests[0].axes[0]
    for block in COLUMN_BLOCKS:
        n = int_value(axis.extent)
        if n is not None and n % block == 0 and n > block:
            high = Axis(sym("blk", extent=n // block), const(n // block))
            low = Axis(sym("col", extent=block), const(block))
            moved = substitute_axes(nests[0], (high, low, *nests[0].axes[1:]), {axis.sym: join((high, low))})
            return [moved], (high,)
    return nests, outer


def _storage(
    group: Group,
    kept: frozenset[str],
    nests: Sequence[LoopNest],
    outer: Sequence[Axis],
) -> tuple[dict[str, Storage], dict[str, Callable[[Expr], Expr]]]:
    """Where each buffer lives, and for scratch how an offset into the buffer becomes one into the row."""
    storage: dict[str, Storage] = {}
    local: dict[str, Callable[[Expr], Expr]] = {}
    outer_syms = {a.sym for a in outer}
    for b in walk_buffers(group.members()):
        storage[b] = Storage("memory")
        if b in kept or b not in group.writes():
            continue
        rest = [_without(o, outer_syms) for o in offsets_of(b, nests)]
        if any(r is None for r in rest):
            continue
        if len(rest) < 2 and not any(s.extent is not None for r in rest for s in free_syms(r or ZERO)):
            storage[b] = Storage("register")
        else:
            numel = _row_numel(b, nests, outer_syms)
            if numel is None:
                continue
            storage[b] = Storage("scratch", numel)
        local[b] = lambda e: _without(e, outer_syms) or ZERO
    return storage, local


def _without(offset: Expr, outer: set[Sym]) -> Expr | None:
    """The offset with the outer axes' terms taken away; None where they stand inside something."""
    for s in outer:
        parts = split_linear(offset, s)
        if parts is None:
            return None
        offset = parts[1]
    return offset


def _row_numel(buffer: str, nests: Sequence[LoopNest], outer: set[Sym]) -> Expr | None:
    """The elements of the buffer that one outer point stores; None where they, or that no more are read, is unknown."""
    sizes: set[Expr] = set()
    made = [s for n in nests if all(a.extent is not ZERO for a in n.parallel) for s in n.body]
    touched = [s for s in made if isinstance(s, (Load, Store)) and s.buffer == buffer and not _never(s)]
    for s in (s for s in touched if isinstance(s, Store)):
        top = _without(s.index[0], outer)
        for axis in sorted((y for y in free_syms(s.index[0]) if y.extent is not None), key=lambda y: y.name):
            parts = None if top is None else split_linear(top, axis)
            if parts is None or axis.extent is None or bounds(parts[0])[0] is None:
                return None
            last = axis.extent - 1 if (bounds(parts[0])[0] or 0) >= 0 else ZERO
            top = parts[1] + parts[0] * last
        if top is None:
            return None
        sizes.add(top + 1)
    known = [int_value(e) for e in sizes]
    if len(sizes) > 1 and any(n is None for n in known):
        return None
    numel = next(iter(sizes)) if len(sizes) == 1 else const(max((n for n in known if n is not None), default=0))
    unmasked = [s for s in touched if isinstance(s, Store) or s.mask is None]
    offsets = [_without(s.index[0], outer) or ZERO for s in unmasked]
    return numel if all(within(e, numel) for e in offsets) else None


def _never(s: Load | Store) -> bool:
    """True if the access is made along a reduction over nothing."""
    return any(y.extent is ZERO for y in free_syms(s.index[0]))


def _local_offsets(nest: LoopNest, local: Mapping[str, Callable[[Expr], Expr]]) -> LoopNest:
    def moved(s: Stmt) -> Stmt:
        if isinstance(s, (Load, Store)) and s.buffer in local:
            return replace(s, index=(local[s.buffer](s.index[0]),))
        return s

    return replace(nest, body=tuple(moved(s) for s in nest.body))


def _schedule(nest: LoopNest, depth: int) -> ScheduledNest:
    """Lanes go to the parallel axis that is contiguous in memory, else to the last reduce axis."""
    inner = [a for a in nest.axes[depth:] if a.kind == "parallel"]
    reduced = list(nest.reduced)
    if not reduced:
        vector = inner[-1] if inner else None
        return ScheduledNest(nest, tuple(inner[:-1]), vector, False, ())
    if inner and _votes(nest, inner[-1].sym) >= _votes(nest, reduced[-1].sym):
        return ScheduledNest(nest, tuple(inner[:-1]), inner[-1], False, tuple(reduced))
    return ScheduledNest(nest, tuple(inner), reduced[-1], True, tuple(reduced[:-1]))


def _votes(nest: LoopNest, axis: Sym) -> int:
    """Loads that are contiguous along the axis, minus those that would be gathered."""
    total = 0
    for s in nest.loads():
        stride = stride_along(s.index[0], axis)
        total += 2 if stride is ONE else 0 if stride is ZERO else -1
    return total
