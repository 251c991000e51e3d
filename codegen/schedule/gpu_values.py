"""How values pass between the nests of a kernel: in registers, or through memory behind a barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Check, LoopNest, phases
from hardtack.codegen.ir.nests import walk_buffers
from hardtack.codegen.ir.tiles import TileNest


def place_values(
    group: Group, nests: Sequence[TileNest], kept: frozenset[str]
) -> tuple[dict[str, str], list[TileNest]]:
    """Where each buffer lives, and the nests with their registers and barriers."""
    writer: dict[str, int] = {}
    for k, n in enumerate(nests):
        for b in n.nest.writes():
            writer.setdefault(b, k)
    value_offset = _value_offsets(nests)
    pass_of = _pass_numbers(nests)
    found: list[TileNest] = []
    from_memory: set[str] = set()
    from_register: set[str] = set()
    for k, n in enumerate(nests):
        mine: set[str] = set()
        late: set[str] = set()
        for load in n.nest.loads():
            b = load.buffer
            if b not in writer or writer[b] >= k:
                continue
            if load.index[0] is value_offset.get(b) and _still_there(nests, writer[b], k, pass_of, load.index[0]):
                mine.add(b)
            else:
                late.add(b)
        from_register |= mine
        from_memory |= late
        found.append(replace(n, registers=frozenset(mine - late)))
    storage: dict[str, str] = {}
    for b in walk_buffers(group.members()):
        passed = b in from_register
        in_memory = b not in writer or b in kept or b in from_memory or not passed
        storage[b] = "both" if passed and in_memory else "memory" if in_memory else "register"
    return storage, _with_barriers(found)


def _checked(e: Expr, nest: LoopNest) -> bool:
    """True if e depends on an index read from memory."""
    outs = {s.out for s in nest.body if isinstance(s, Check)}
    return any(s.name in outs for s in free_syms(e))


def _still_there(nests: Sequence[TileNest], writer: int, reader: int, pass_of: Sequence[int], offset: Expr) -> bool:
    """True if a value that nest `writer` computed is in its register when `reader` runs: chunks pass."""
    inner = nests[writer].inner
    if inner is None or not inner.looped or inner.axis.sym not in free_syms(offset):
        return True
    return pass_of[writer] == pass_of[reader]


def _with_barriers(nests: Sequence[TileNest]) -> list[TileNest]:
    """A barrier stands in front of a pass, whose nests then find what was stored before: what one of them stores, no
    other touches, but for values in registers (see _needs_end)."""
    written: set[str] = set()
    touched: set[str] = set()
    out: list[TileNest] = []
    for members in passes_of(nests):
        read = {s.buffer for n in members for s in n.nest.loads() if s.buffer not in n.registers}
        stores = {b for n in members for b in n.nest.writes()}
        barrier = bool(read & written or stores & touched)
        if barrier:
            written, touched = set(), set()
        written |= stores
        touched |= stores | read
        out += [replace(members[0], barrier=barrier), *members[1:]]
    return out


def _pass_numbers(nests: Sequence[TileNest]) -> list[int]:
    """The pass of each nest: neighbours that walk one looped axis share a pass unless one needs the other's end."""
    numbers: list[int] = []
    value_offset = _value_offsets(nests)
    current = -1
    members: list[TileNest] = []
    for n in nests:
        joins = (
            bool(members)
            and n.inner is not None
            and n.inner.looped
            and members[-1].inner is not None
            and members[-1].inner.axis.sym is n.inner.axis.sym
            and not any(_needs_end(m, n, value_offset) for m in members)
        )
        if not joins:
            current += 1
            members = []
        members.append(n)
        numbers.append(current)
    return numbers


def _needs_end(first: TileNest, second: TileNest, value_offset: Mapping[str, Expr]) -> bool:
    """True if `second` reads what `first` has only after its loop, or not from the register at the same point; or if it
    writes what `first` touches."""
    reduces, _, _ = phases(first.nest)
    stored = first.nest.writes()
    for s in second.nest.loads():
        if s.buffer in stored and (reduces or s.index[0] is not value_offset.get(s.buffer)):
            return True
    return bool(second.nest.writes() & (first.nest.reads() | stored))


def _value_offsets(nests: Sequence[TileNest]) -> dict[str, Expr]:
    """Where the buffers are stored of which one statement has the whole value, to be kept in a register."""
    found: dict[str, Expr | None] = {}
    for n in nests:
        for s in n.nest.stores():
            once = s.buffer not in found and s.mode == "set" and not _checked(s.index[0], n.nest)
            found[s.buffer] = s.index[0] if once else None
    return {b: e for b, e in found.items() if e is not None}


def passes_of(nests: Sequence[TileNest]) -> list[list[TileNest]]:
    out: dict[int, list[TileNest]] = {}
    for n, k in zip(nests, _pass_numbers(nests), strict=True):
        out.setdefault(k, []).append(n)
    return list(out.values())
