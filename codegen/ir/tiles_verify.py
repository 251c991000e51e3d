"""The rules of tiles: they compute the nests of their group, at the elements that these meant; what a nest takes from
a register is the element computed last for the same point, and what it takes from memory stands behind a barrier.

walk_verify.py has those of the points. That the kernel says of its buffers what the group does with them is what lets
loads go ahead: what it never writes stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer, LoopError, Store, phases
from hardtack.codegen.ir.nest_verify import verify_nest_of_kernel
from hardtack.codegen.ir.reindex import equal
from hardtack.codegen.ir.schedule_verify import verify_tiles
from hardtack.codegen.ir.tiles import TiledKernel, TileNest, to_text
from hardtack.codegen.ir.walk_verify import verify_walk_of_programs


def verify_tiled(kernel: TiledKernel, group: Group | None, buffers: Mapping[str, Buffer], most_warps: int) -> None:
    """Raise LoopError, with the kernel's text, where it breaks the rules above. group: None behind a pass on kernels,
    whose own verifier compares nests with those before it: their values are verified to be in the grammar then.
    most_warps: that a program may have."""
    try:
        if group is not None:
            verify_tiles([n.nest for n in kernel.nests], group.nests, buffers)
        else:
            for n in kernel.nests:
                verify_nest_of_kernel(n.nest, buffers)
        _verify_places(kernel)
        if group is not None:
            _verify_accesses(kernel, group)
        verify_walk_of_programs(kernel, buffers, most_warps)
        _verify_passing(kernel)
    except LoopError as e:
        raise LoopError(f"kernel {kernel.name}: {e}\n{to_text(kernel)}") from None


def _verify_places(kernel: TiledKernel) -> None:
    unknown = set(kernel.storage.values()) - {"memory", "register", "both"}
    if unknown:
        raise LoopError(f"the unknown storage {min(unknown)}")
    memory = {b for b, where in kernel.storage.items() if where != "register"}
    if {b.name for b in kernel.buffers} != memory or len(kernel.buffers) != len(memory):
        raise LoopError("the parameters are not the buffers in memory")
    for names, what in ((kernel.writes, "written"), (kernel.reads, "read")):
        if not names <= memory:
            raise LoopError(f"{min(names - memory)} is {what} outside, and not in memory")


def _verify_accesses(kernel: TiledKernel, group: Group) -> None:
    """The kernel says of its buffers what the group does with them, and a result that no nest takes is in memory."""
    taken = {b for n in kernel.nests for b in n.registers}
    for b, where in kernel.storage.items():
        if where == "register" and b not in taken:
            raise LoopError(f"{b} stays in a register that nothing reads")
    for given, touched, what in ((kernel.writes, group.writes(), "write"), (kernel.reads, group.reads(), "read")):
        if touched - kernel.storage.keys():
            raise LoopError(f"{min(touched - kernel.storage.keys())} has no storage")
        there = {b for b in touched if kernel.storage[b] != "register"}
        if given != there:
            names = ", ".join(sorted(given)) or "nothing"
            raise LoopError(f"it says that it {what}s {names}, and {what}s {', '.join(sorted(there)) or 'nothing'}")


def _verify_passing(kernel: TiledKernel) -> None:
    """Nest by nest: `held` has the offset of what each register holds, `fresh` what was stored since the barrier, and
    `touched` what was stored to memory or read from there."""
    held: dict[str, Expr] = {}
    fresh: set[str] = set()
    touched: set[str] = set()
    for tiles in kernel.passes:
        for n in tiles:
            if n.barrier and n is not tiles[0]:
                raise LoopError(f"{n.nest.name} stands behind a barrier inside a walk that it shares")
            if n.barrier:
                fresh, touched = set(), set()
            _verify_reads(kernel, n, held, fresh)
            over = {b for b in n.nest.writes() & touched if kernel.storage[b] != "register"}
            if over:
                raise LoopError(f"{n.nest.name} stores over {min(over)} before a barrier")
            held = _held_behind(n, held)
            fresh |= n.nest.writes()
            touched |= n.nest.writes() | {s.buffer for s in n.nest.loads() if s.buffer not in n.registers}
        held |= {b: e for n in tiles for b, e in _held_late(n).items()}
        if any(n.inner is not None and n.inner.looped for n in tiles):
            # behind the loop a register has the last chunk only
            inner = {n.inner.axis.sym for n in tiles if n.inner is not None}
            held = {b: e for b, e in held.items() if not free_syms(e) & inner}


def _held_behind(n: TileNest, held: Mapping[str, Expr]) -> dict[str, Expr]:
    """What registers hold behind a nest, inside the walk: not what is known at its end only, nor what other points or
    what was there have a part in."""
    late = _held_late(n)
    kept = {b: e for b, e in held.items() if b not in n.nest.writes()}
    own = {s.buffer: s.index[0] for s in n.nest.stores() if s.mode == "set" and not n.nest.serial}
    return kept | {b: e for b, e in own.items() if b not in late}


def _held_late(n: TileNest) -> dict[str, Expr]:
    """What is stored behind the reductions of a walk in chunks."""
    if n.inner is None or not n.inner.looped or not n.nest.reduced:
        return {}
    return {s.buffer: s.index[0] for s in phases(n.nest)[2] if isinstance(s, Store) and s.mode == "set"}


def _verify_reads(kernel: TiledKernel, n: TileNest, held: Mapping[str, Expr], fresh: set[str]) -> None:
    for load in n.nest.loads():
        if load.buffer in n.registers:
            if load.buffer not in held or not equal(held[load.buffer], load.index[0]):
                raise LoopError(f"{n.nest.name} takes {load.buffer} from a register that has another element")
        elif kernel.storage[load.buffer] == "register":
            raise LoopError(f"{n.nest.name} reads {load.buffer} from memory, where it is not")
        elif load.buffer in fresh:
            raise LoopError(f"{n.nest.name} reads {load.buffer} from memory before a barrier")
