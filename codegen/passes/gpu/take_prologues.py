"""Prologues: the row that a product multiplies is computed by the product's own programs instead of a kernel before it.

A one-row product is so short that a kernel in front of it (a norm, a gate) costs as much as a part of the product, most
of it the launch. Each program needs the whole row, so each computes it again; that is legal where nothing else reads
the row, and pays where what it reads is small enough to stay in the caches near the program and where the instructions
hide behind the product's reads of its matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, const, int_value, sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.loops import Assert, Axis, Buffer, Check, LoopNest, substitute_axes
from hardtack.codegen.ir.nests import RowOperand
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, GroupPass, Scope
from hardtack.codegen.passes.shared.inline import cost
from hardtack.codegen.schedule.axes import mixed_radix, points, split_into
from hardtack.codegen.schedule.fuse import fuse

MOST_NBYTES = 64 << 10
"""Bytes that each program may read for the row."""
MOST_COST = 6
"""Instructions for the row that each element of the matrix may cost besides its multiplication and addition."""
LITTLE_WORK = 1 << 24
"""Instructions of all programs that take less time than a launch, however they compare with the product's."""
LONGEST_REDUCED = 8192
"""Elements of a row that a program holds in registers to reduce it."""


def take_prologues(
    given: tuple[Group, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Group, ...], Decisions]:
    """The groups with nests moved into the products that alone read what they compute."""
    limits = context.limits
    groups = list(given)
    decisions: list[Decision] = []
    found = {k: row for k, g in enumerate(groups) if limits.prologues and (row := _row_operand(g)) is not None}
    replaced: dict[int, tuple[Group, ...]] = {}
    for buffer in dict.fromkeys(row.buffer for row in found.values()):
        maker = next((k for k, g in enumerate(groups) if buffer in g.writes()), None)
        if maker is None:
            continue
        readers = [k for k, g in enumerate(groups) if buffer in g.reads()]
        nests = _prologue(groups, maker, readers, buffer, found, buffers, scope.kept, limits.most_reducing)
        names = ", ".join(groups[k].name for k in readers)
        if isinstance(nests, str):
            decisions.append(Decision("prologue", groups[maker].name, names, False, nests))
            continue
        taken = {n.name for n in nests}
        rest = [n for n in groups[maker].nests if n.name not in taken]
        for k in readers:
            groups[k] = replace(groups[k], prologue=nests)
            groups[k] = replace(groups[k], constants=scope.constants & groups[k].reads_of_prologue())
        groups[maker] = replace(groups[maker], nests=tuple(rest))
        replaced[maker] = fuse(rest, buffers, context.hints, limits).groups
        nbytes, work = _nbytes(nests, buffers), _row_cost(nests)
        reason = f"each program computes the row from {nbytes} bytes, {work} instructions an element"
        decisions.append(Decision("prologue", nests[-1].name, names, True, reason))
    out = [part for k, g in enumerate(groups) for part in replaced.get(k, (g,))]
    return tuple(out), tuple(decisions)


def _row_operand(group: Group) -> RowOperand | None:
    return group.anchor.template.row_operand(group.anchor) if group.anchor is not None else None


def _prologue(
    groups: Sequence[Group],
    maker: int,
    readers: Sequence[int],
    buffer: str,
    found: Mapping[int, RowOperand],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    most_reducing: int,
) -> tuple[LoopNest, ...] | str:
    """The nests that move, over the row's axis; or why none does."""
    source = groups[maker]
    if source.anchor is not None or source.control is not None:
        return f"{source.name} is no loop"
    if buffer in kept:
        return "it is an output or a state"
    for k in readers:
        if k not in found or found[k].buffer != buffer or buffer in _read_elsewhere(groups[k]):
            return f"{groups[k].name} reads it, too"
    others = [g for k, g in enumerate(groups) if k != maker]
    changer = next((g for g in others if buffer in g.writes()), None)
    if changer is not None:
        return f"{changer.name} writes it, too"
    outside = set(kept).union(*(g.reads() | g.writes() for g in others)) - {buffer}
    taken = _needed(source, buffer, outside)
    if not any(buffer in n.writes() for n in taken):
        return "what computes it computes something else, too"
    moved = _over_the_row(taken, found[readers[0]].length, buffers)
    if isinstance(moved, str):
        return moved
    rows = [found[k] for k in readers]
    return (
        _why_unmovable(groups, maker, readers, taken) or _why_unprofitable(moved, rows, buffers, most_reducing) or moved
    )


def _read_elsewhere(group: Group) -> set[str]:
    """What a product reads besides its first operand."""
    assert group.anchor is not None
    return {o.buffer for o in group.anchor.operands[1:]}.union(*(n.reads() for n in group.nests))


def _needed(source: Group, buffer: str, outside: set[str]) -> tuple[LoopNest, ...]:
    """The nests of the group that compute the buffer, and nothing that something else needs."""
    taken: list[LoopNest] = []
    left: set[str] = set(outside)
    for n in reversed(source.nests):
        wanted = n.writes() & (set().union(*(t.reads() for t in taken)) if taken else {buffer})
        if (buffer in n.writes() or wanted) and not n.writes() & left:
            taken.insert(0, n)
        else:
            left |= n.reads()
    return tuple(taken)


def _over_the_row(nests: Sequence[LoopNest], length: int, buffers: Mapping[str, Buffer]) -> tuple[LoopNest, ...] | str:
    """The nests over one axis that numbers the row's elements, or over none; or why they are not about one row."""
    k = sym("k", extent=const(length))
    moved: list[LoopNest] = []
    written: dict[str, Expr] = {}
    for n in nests:
        one = _one_over_the_row(n, k, length, buffers)
        if isinstance(one, str):
            return one
        for load in one.loads():
            if load.buffer in written and buffers[load.buffer].offset(load.index) is not written[load.buffer]:
                return f"{n.name} reads {load.buffer} at another point than the one just computed"
        for s in one.stores():
            if s.mode != "set" or s.buffer in written:
                return f"{s.buffer} is written more than once"
            written[s.buffer] = buffers[s.buffer].offset(s.index)
        moved.append(one)
    if not moved or not moved[-1].axes or moved[-1].reduced:
        return "its last nest does not walk the row"
    return tuple(moved)


def _one_over_the_row(n: LoopNest, k: Expr, length: int, buffers: Mapping[str, Buffer]) -> LoopNest | str:
    if n.serial or any(isinstance(s, (Assert, Check)) for s in n.body):
        return f"{n.name} checks an index, asserts, or must run in order"
    extent = const(length)
    single: dict[Expr, Expr] = {a.sym: ZERO for a in n.axes if a.extent is ONE}
    reduced = [a for a in n.reduced if a.extent is not ONE]
    parallel = [a for a in n.parallel if a.extent is not ONE]
    if reduced and parallel:
        return f"{n.name} reduces more than one row"
    walked = reduced or parallel
    if not walked:
        return substitute_axes(n, (), single) if not n.reduced else f"{n.name} reduces a single element"
    if points(walked) is not extent:
        return f"{n.name} walks {points(walked)} points, the row has {length}"
    order = [a.sym for a in walked]
    if parallel:
        (target, *more) = n.stores()
        at = buffers[target.buffer].offset(substitute_axes(n, n.axes, single).stores()[0].index)
        digits = mixed_radix(at)
        if more or digits is None or set(digits) != set(order):
            return f"{n.name} does not store element after element"
        order = list(digits)
    elif any(free_syms(e) & set(order) for s in n.stores() for e in s.index):
        return f"{n.name} stores while it reduces"
    assert isinstance(k, type(order[0]))
    axis = Axis(k, extent, walked[0].kind)
    return substitute_axes(n, (axis,), single | split_into(order, k))


def _why_unmovable(
    groups: Sequence[Group], maker: int, readers: Sequence[int], taken: Sequence[LoopNest]
) -> str | None:
    """Why the nests can't be computed later than now; None if they can."""
    read = set().union(*(n.reads() for n in taken), ()) - set().union(*(n.writes() for n in taken), ())
    changed = read & set().union(*(g.writes() for g in groups[maker + 1 : max(readers) + 1]), ())
    names = {n.name for n in taken}
    before: set[str] = set()
    for n in groups[maker].nests:
        if n.name in names:
            before |= n.reads()
        else:
            changed |= n.writes() & before
    return f"{min(changed)}, which it reads, changes before the product" if changed else None


def _why_unprofitable(
    nests: Sequence[LoopNest], rows: Sequence[RowOperand], buffers: Mapping[str, Buffer], most_reducing: int
) -> str | None:
    nbytes, work = _nbytes(nests, buffers), _row_cost(nests)
    if nbytes > MOST_NBYTES:
        return f"every program would read {nbytes} bytes for the row, more than {MOST_NBYTES}"
    for row in rows:
        if work > MOST_COST * row.columns and work * row.length * row.programs > LITTLE_WORK:
            return f"{work} instructions an element for {row.columns} columns"
        if not any(n.reduced for n in nests):
            continue
        if row.length > LONGEST_REDUCED:
            return f"a row of {row.length} elements is too long to be reduced in registers"
        if row.programs > most_reducing:
            return f"{row.programs} programs would reduce the row, more than {most_reducing}"
    return None


def _nbytes(nests: Sequence[LoopNest], buffers: Mapping[str, Buffer]) -> int:
    """Bytes that one program reads."""
    private = set().union(*(n.writes() for n in nests))
    sizes: dict[tuple[str, Expr], int] = {}
    for n in nests:
        count = int_value(points(n.axes)) or 1
        for s in n.loads():
            if s.buffer not in private:
                at = buffers[s.buffer].offset(s.index)
                sizes[s.buffer, at] = buffers[s.buffer].dtype.nbytes * (count if free_syms(at) else 1)
    return sum(sizes.values())


def _row_cost(nests: Sequence[LoopNest]) -> int:
    """Instructions for one element of the row."""
    return sum(cost(n) for n in nests if n.axes)


TAKE_PROLOGUES = GroupPass("prologues", take_prologues)
"""The row of a one-row product is computed by its programs."""
