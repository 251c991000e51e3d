"""The loops behind a template, on every device: its epilogue, in the axes by which templates count results."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import Expr, sym
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, substitute_axes
from hardtack.codegen.ir.nests import walk_buffers
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest, Storage
from hardtack.codegen.schedule.axes import linearized, points, split_into
from hardtack.codegen.schedule.loop_kernel import is_one_element, loop_kernel


def tile_template(group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], name: str) -> Kernel:
    """Decide the epilogue of a template group: its axes become `batch`, `m` and `n`, as templates count results."""
    anchor = group.anchor
    assert anchor is not None
    axes, batch_axes = anchor.axes, anchor.template.batch_axes(anchor)
    parts = (axes[:batch_axes], axes[batch_axes:-1], axes[-1:])
    outer: list[Axis] = []
    swap: dict[Expr, Expr] = {}
    for stem, run in zip(("batch", "m", "n"), parts, strict=True):
        extent = points(run)
        s = sym(stem, extent=extent)
        outer.append(Axis(s, extent))
        swap.update(split_into([a.sym for a in run], s))
    walk = tuple(outer) if group.half is None else (*outer[:-1], group.half)
    nests = [linearized(n, buffers) for n in group.nests]
    nests = [substitute_axes(n, walk, swap) for n in nests]
    storage: dict[str, Storage] = {}
    private = group.private()
    for b in walk_buffers(group.members()):
        halves = group.half is not None and b == anchor.result  # an epilogue has both elements, and no others
        one = bool(nests) and (halves or is_one_element(b, nests))
        inside = one and b in group.writes() - kept - set(anchor.results)
        storage[b] = Storage("register" if inside or b in private else "memory")
    scheduled = tuple(ScheduledNest(n, (), walk[-1], False, ()) for n in nests)
    return loop_kernel(group, scheduled, tuple(outer), storage, buffers, name, flat=True, half=group.half)
