"""A scheduled group as a Kernel of loops: what it has in memory, reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopNest, Store
from hardtack.codegen.ir.nests import walk_buffers
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest, Storage
from hardtack.codegen.schedule.axes import linearized


def loop_kernel(
    group: Group,
    nests: tuple[ScheduledNest, ...],
    outer: tuple[Axis, ...],
    storage: Mapping[str, Storage],
    buffers: Mapping[str, Buffer],
    name: str,
    flat: bool,
    half: Axis | None = None,
) -> Kernel:
    memory = [b for b in walk_buffers(group.members()) if storage[b].kind == "memory"]
    serial = any(n.serial for n in group.nests)
    members = group.members()
    return Kernel(
        name,
        outer,
        nests,
        flat,
        serial,
        storage,
        tuple(buffers[b] for b in memory),
        frozenset(group.writes() & set(memory)),
        frozenset(group.reads() & set(memory)),
        (group.anchor or members[0]).origin,
        group.anchor,
        tuple(linearized(n, buffers) for n in group.prologue),
        group.constants,
        half=half,
    )


def is_one_element(buffer: str, nests: Sequence[LoopNest]) -> bool:
    """True if at each point the nests write and read one and the same element of the buffer."""
    return len(offsets_of(buffer, nests)) < 2


def offsets_of(buffer: str, nests: Sequence[LoopNest]) -> set[Expr]:
    return {s.index[0] for n in nests for s in n.body if isinstance(s, (Load, Store)) and s.buffer == buffer}
