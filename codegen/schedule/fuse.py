"""Fusion: which nests become one kernel. Pure functions; legality and profit apart, every refusal with its reason.

Nests are taken in order. A nest joins the group of its latest producer, either as an epilogue of a template, point for
point, or in a loop group at the depth of outer axes up to which it reads only what the same outer point has written.
Nests without a producer in common are joined when they walk the same axes and read a buffer in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.column_halves import result_offsets
from hardtack.codegen.ir.expr import ONE, Expr, Sym, const, int_value, product, sym
from hardtack.codegen.ir.expr_walk import free_syms, split_linear
from hardtack.codegen.ir.group import Decision, Group, same_digit
from hardtack.codegen.ir.loops import Assert, Axis, Buffer, Load, LoopNest, Reduce, Store, join, substitute_axes
from hardtack.codegen.ir.nests import ControlNest, Nest, ReadNest, TemplateNest
from hardtack.codegen.schedule.axes import mixed_radix, split_into
from hardtack.codegen.schedule.fusion_limits import FusionLimits


@dataclass(frozen=True)
class Fused:
    """Groups in execution order, and every decision."""

    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...]


def fuse(nests: Sequence[Nest], buffers: Mapping[str, Buffer], hints: Mapping[str, int], limits: FusionLimits) -> Fused:
    """Nests -> groups. `hints`: example sizes of symbols by name, used for profit only."""
    groups: list[Group] = []
    decisions: list[Decision] = []
    written_in: dict[str, int] = {}
    closed = 0  # groups before the last read: what stands behind it may depend on the size
    for nest in nests:
        at = _latest_producer(nest, written_in)
        joined = None
        if isinstance(nest, LoopNest):
            for candidate in (k for k in _candidates(at, groups, nest) if k >= closed):
                joined, decision = try_join(groups[candidate], nest, buffers, hints, limits)
                decisions.append(decision)
                if joined is not None:
                    groups[candidate] = joined
                    at = candidate
                    break
        if joined is None:
            groups.append(_alone(nest))
            at = len(groups) - 1
        if isinstance(nest, ReadNest):
            closed = len(groups)
        assert at is not None
        for name in nest.writes():
            written_in[name] = max(at, written_in.get(name, at))
    return Fused(tuple(groups), tuple(decisions))


def _latest_producer(nest: Nest, written_in: Mapping[str, int]) -> int | None:
    """The last group that must run before the nest: it writes what the nest reads or writes again."""
    touched = nest.reads()
    if isinstance(nest, LoopNest) and nest.serial:
        touched = touched | nest.writes()
    found = [written_in[b] for b in touched if b in written_in]
    return max(found) if found else None


def _candidates(at: int | None, groups: Sequence[Group], nest: LoopNest) -> list[int]:
    """Groups to try: the producer's, then the last one if it reads a buffer in common."""
    out = [] if at is None else [at]
    last = len(groups) - 1
    if (
        last >= 0
        and last != at
        and groups[last].nests
        and groups[last].anchor is None
        and groups[last].reads() & nest.reads()
    ):
        out.append(last)
    return out


def _alone(nest: Nest) -> Group:
    if isinstance(nest, TemplateNest):
        return Group(nest.name, nest.axes, (), nest)
    if isinstance(nest, (ControlNest, ReadNest)):
        return Group(nest.name, (), (), control=nest)
    return _renamed(Group(nest.name, nest.parallel, (nest,)))


def _renamed(group: Group) -> Group:
    """The group's outer axes named o0, o1, ... in every nest, so that they can be compared."""
    outer = tuple(Axis(sym(f"o{k}", extent=a.extent), a.extent) for k, a in enumerate(group.outer))
    nests = tuple(_with_outer(n, outer) for n in group.nests)
    return replace(group, outer=outer, nests=nests)


def _with_outer(nest: LoopNest, outer: Sequence[Axis]) -> LoopNest:
    """The nest with its first axes replaced by `outer`."""
    depth = len(outer)
    swap: dict[Expr, Expr] = {a.sym: o.sym for a, o in zip(nest.axes, outer, strict=False)}
    return substitute_axes(nest, (*outer, *nest.axes[depth:]), swap)


def try_join(
    group: Group, nest: LoopNest, buffers: Mapping[str, Buffer], hints: Mapping[str, int], limits: FusionLimits
) -> tuple[Group | None, Decision]:
    """The group with the nest in it, or None; and the decision."""

    def refuse(reason: str) -> tuple[None, Decision]:
        return None, Decision("fuse", nest.name, group.name, False, reason)

    if group.control is not None:
        return refuse("nothing is computed inside a conditional or loop but its branches")
    if nest.serial or any(n.serial for n in group.nests):
        return refuse("points that must run in order stay alone")
    if len(group.nests) >= limits.largest_group:
        return refuse(f"the group has {limits.largest_group} nests")
    if group.anchor is not None:
        result = _join_epilogue(group, nest, buffers, limits)
    else:
        result = _join_loops(group, nest, buffers, hints, limits)
    if isinstance(result, str):
        return refuse(result)
    return result, Decision("fuse", nest.name, group.name, True, f"shares {len(result.outer)} axes")


def _join_epilogue(group: Group, nest: LoopNest, buffers: Mapping[str, Buffer], limits: FusionLimits) -> Group | str:
    anchor = group.anchor
    assert anchor is not None
    if not (anchor.template.takes_epilogue and limits.epilogues):
        return f"the template {anchor.template.label} takes no epilogue"
    if any(isinstance(s, (Reduce, Assert)) for s in nest.body):
        return "it reduces or asserts, an epilogue is point for point"
    internal = [s for s in nest.loads() if s.buffer in group.writes()]
    if not internal:
        return "it reads nothing that the template writes"
    aligned: LoopNest | str | None = _align_to_store(nest, group, internal[0], buffers)
    if aligned is None:
        aligned = align_to_template(nest, group.walk, internal[0], buffers)
    if isinstance(aligned, str):
        halved = None if group.nests else in_halves(nest, anchor, buffers)
        if halved is None:
            return aligned
        half, aligned = halved
        group = replace(group, half=half)
    for s in aligned.loads():
        if s.buffer not in group.writes():
            continue
        if not any(buffers[s.buffer].offset(s.index) is at for at in _written_offsets(group, s.buffer, buffers)):
            return f"it reads {s.buffer} at another point than the one just computed"
    last = group.walk[-1].sym
    for st in aligned.stores():
        parts = split_linear(buffers[st.buffer].offset(st.index), last)
        if parts is None or parts[0] is not ONE:
            return f"its stores to {st.buffer} would scatter"
    return replace(group, nests=(*group.nests, aligned))


def in_halves(nest: LoopNest, anchor: TemplateNest, buffers: Mapping[str, Buffer]) -> tuple[Axis, LoopNest] | None:
    """An axis that an epilogue walks in place of the template's last one, and a nest over these, where the nest reads
    both halves of the result's columns at each of its points; None for any other nest, and other templates."""
    columns, result = int_value(anchor.axes[-1].extent), buffers[anchor.result]
    reads = [s for s in nest.loads() if s.buffer == anchor.result]
    if not columns or columns % 2 or not anchor.template.takes_halves(anchor):
        return None
    half = Axis(sym("half", extent=const(columns // 2)), const(columns // 2))
    last = result.order[-1]
    if result.shape[last] is not const(columns):
        return None
    shape = tuple(half.extent if d == last else n for d, n in enumerate(result.shape))
    seen = {**buffers, anchor.result: replace(result, shape=shape)}  # its first half
    offsets = result_offsets(anchor.axes, half)
    for read in reads:
        aligned = align_to_template(nest, (*anchor.axes[:-1], half), read, seen)
        if isinstance(aligned, str):
            continue
        found = {result.offset(s.index) for s in aligned.loads() if s.buffer == anchor.result}
        return (half, aligned) if found == {*offsets} else None
    return None


def _written_offsets(group: Group, buffer: str, buffers: Mapping[str, Buffer]) -> tuple[Expr, ...]:
    """Where the group writes `buffer` at its current point."""
    anchor = group.anchor
    if anchor is not None and buffer == anchor.result:
        return group.result_offsets()
    stores = (s for n in group.nests for s in n.stores() if s.buffer == buffer)
    return tuple(buffers[buffer].offset(s.index) for s in stores)[:1]


def _align_to_store(nest: LoopNest, group: Group, load: Load, buffers: Mapping[str, Buffer]) -> LoopNest | None:
    """The nest over the anchor's axes where it reads, index by index on its own axes, what the epilogue has stored:
    a whole buffer, since a part (of a cat) would be taken for all that the nest walks.
    """
    stored = [s.index for n in group.nests for s in n.stores() if s.buffer == load.buffer]
    if len(stored) != 1 or product(buffers[load.buffer].shape) is not product(a.extent for a in group.walk):
        return None
    swap: dict[Expr, Expr] = {}
    own = {a.sym for a in nest.axes}
    for read, written, size in zip(load.index, stored[0], buffers[load.buffer].shape, strict=True):
        if isinstance(read, Sym) and read in own and read.extent is size and read not in swap:
            swap[read] = written
        elif read is not written:
            return None
    if any(a.sym not in swap for a in nest.axes):
        return None
    return substitute_axes(nest, group.walk, swap)


def align_to_template(
    nest: LoopNest, axes: tuple[Axis, ...], load: Load, buffers: Mapping[str, Buffer]
) -> LoopNest | str:
    """The nest over `axes`, those of a template or its epilogue, found from one load of the template's result (or what
    its epilogue wrote)."""
    swap: dict[Expr, Expr] = {}
    buffer = buffers[load.buffer]
    if len(buffer.shape) != len(axes):
        return "the result and the buffer it reads have different ranks"
    own = {a.sym for a in nest.axes}
    if any(s.extent is not None and s not in own for e in load.index for s in free_syms(e)):
        return "it reads the result at an index that is data"
    for dim, axis in zip(buffer.order, axes, strict=True):
        e = load.index[dim]
        if axis.extent is ONE:
            if free_syms(e):
                return "an index stands at a dimension of size 1"
            continue
        if axis.extent is not buffer.shape[dim]:
            return "its axes differ from the template's"
        digits = mixed_radix(e)
        if digits is None or any(a in swap for a in digits):
            return _align_joined(nest, axes, load, buffers)
        total = _extent_product(digits)
        if total is not axis.extent:
            return "it covers a part of the template's result"
        swap.update(split_into(digits, axis.sym))
    left = [a for a in nest.axes if a.sym not in swap]
    if left:
        return f"it walks axes that the template does not have ({', '.join(str(a.extent) for a in left)})"
    return substitute_axes(nest, axes, swap)


def _align_joined(nest: LoopNest, axes: tuple[Axis, ...], load: Load, buffers: Mapping[str, Buffer]) -> LoopNest | str:
    """The nest has one axis where the template has several: put their joined number for it and see if indices agree."""
    swap: dict[Expr, Expr] = {}
    rest = [a for a in axes if a.extent is not ONE]
    for axis in nest.axes:
        run: list[Axis] = []
        total: Expr = ONE
        while rest and total is not axis.extent:
            run.append(rest.pop(0))
            total = total * run[-1].extent
        if total is not axis.extent:
            return "its axes do not line up with the template's"
        swap[axis.sym] = join(run)
    if rest:
        return "it covers a part of the template's result"
    moved = substitute_axes(nest, axes, swap)
    index = next(s.index for s in moved.loads() if s.buffer == load.buffer)
    same = buffers[load.buffer].offset(index) is join(axes)
    return moved if same else "it reads the result through a view that has no common axes"


def _extent_product(axes: Sequence[Sym]) -> Expr:
    total: Expr = ONE
    for a in axes:
        assert a.extent is not None
        total = total * a.extent
    return total


def _join_loops(
    group: Group, nest: LoopNest, buffers: Mapping[str, Buffer], hints: Mapping[str, int], limits: FusionLimits
) -> Group | str:
    shared = 0
    for mine, theirs in zip(nest.parallel, group.outer, strict=False):
        if mine.extent is not theirs.extent:
            break
        shared += 1
    renamed = _with_outer(nest, group.outer[:shared])
    depth = _depth(group, renamed, shared)
    internal = nest.reads() & group.writes()
    if not internal and (depth < len(group.outer) or depth < len(nest.parallel)):
        return "no value in common, and the axes differ"
    if not internal and any(n.reduced for n in group.nests) != bool(nest.reduced):
        return "no value in common, and only one of the two reduces"
    if not limits.nested_reductions and any(n.reduced and len(n.parallel) > depth for n in (*group.nests, nest)):
        return "a reduction would stand inside a loop over the axes that are not shared"
    lost = _lost_parallelism(group, nest, depth, hints, limits)
    if lost is not None:
        return lost
    cut = _renamed(replace(group, outer=group.outer[:depth]))
    return replace(cut, nests=(*cut.nests, _with_outer(nest, cut.outer)))


def _depth(group: Group, nest: LoopNest, shared: int) -> int:
    """How many outer axes deep the nest reads only what its own outer point has written."""
    depth = shared
    for load in nest.loads():
        for store in (s for n in group.nests for s in n.stores() if s.buffer == load.buffer):
            depth = min(depth, _agreeing(group.outer, store, load))
    for writer in nest.stores():
        for other in (s for n in group.nests for s in n.stores() if s.buffer == writer.buffer):
            depth = min(depth, _agreeing(group.outer, other, Load("", writer.buffer, writer.index)))
    return depth


def _agreeing(outer: Sequence[Axis], store: Store, load: Load) -> int:
    """The number of leading outer axes at which store and load agree: both have the axis in the same dimension, alone
    or as the same digit of the index."""
    for k, axis in enumerate(outer):
        same = any(same_digit(s, i, axis.sym) for s, i in zip(store.index, load.index, strict=True))
        if not same:
            return k
    return len(outer)


def _points(axes: Sequence[Axis], hints: Mapping[str, int]) -> int:
    total = 1
    for a in axes:
        total *= size_hint(a.extent, hints)
    return total


def _lost_parallelism(
    group: Group, nest: LoopNest, depth: int, hints: Mapping[str, int], limits: FusionLimits
) -> str | None:
    """Why joining at `depth` would leave too few outer points; None if it would not."""
    after = _points(group.outer[:depth], hints)
    work = sum(_points(n.axes, hints) for n in group.nests) + _points(nest.axes, hints)
    before, own = _points(group.outer, hints), _points(nest.parallel, hints)
    if not limits.keeps_parallelism:
        # what one worker computes stays small: a nest that could keep all of them busy does not join it
        before = own if after == 1 and own >= limits.parallel_enough else min(before, own)
    if after >= min(limits.parallel_enough, before):
        # a shallow group turns the rest of its axes into loops over local rows; keep them within a cache
        return None
    if work <= limits.small_work:
        return None
    return f"only {after} outer points would be left for {work} points of work"
