"""Passes over a row: a nest that writes a row and the next one, which reduces it, walk the row together; and two that
reduce it, of which neither needs the other's result.

Both run at one outer point and have one inner axis of one extent; the second reads what the first writes at the same
place only. So softmax sums its exponentials while it makes them, and a layer norm its residual sum: a pass less over
the row, and the arithmetic of both in one loop, where it overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.loops import Arg, Assert, Check, LoopNest, Stmt, map_stmt, out_of


def joined_passes(nests: Sequence[LoopNest], depth: int) -> list[LoopNest]:
    """The nests of a kernel with `depth` outer axes, neighbours joined where they walk the same row."""
    out: list[LoopNest] = []
    for n in nests:
        joined = _joined(out[-1], n, depth) if out else None
        if joined is None:
            out.append(n)
        else:
            out[-1] = joined
    return out


def _joined(first: LoopNest, second: LoopNest, depth: int) -> LoopNest | None:
    """One nest in place of two, the reducing one's axis in place of the other's; None where they differ."""
    if len(first.axes) != depth + 1 or len(second.axes) != depth + 1 or first.serial or second.serial:
        return None
    row, reduced = first.axes[-1], second.axes[-1]
    if reduced.kind != "reduce" or row.extent is not reduced.extent:
        return None
    if second.writes() & (first.reads() | first.writes()) or any(isinstance(s, (Check, Assert)) for s in first.body):
        return None
    moved: dict[Expr, Expr] = {row.sym: reduced.sym}
    read = [s for s in second.loads() if s.buffer in first.writes()]
    if row.kind == "parallel":
        written = {s.buffer: substitute(s.index[0], moved) for s in first.stores() if s.mode == "set"}
        together = bool(read) and all(written.get(s.buffer) is s.index[0] for s in read)
    else:
        # what a reduction gives is there behind its walk only
        together = not read and _walks_as(first, second, moved)
    if not together:
        return None
    walked = tuple(replace(x, points=tuple(substitute(e, moved) for e in x.points)) for x in first.sources)
    body = (*_renamed(first, moved), *second.body)
    return replace(second, name=second.name, body=body, sources=(*walked, *second.sources))


def _walks_as(first: LoopNest, second: LoopNest, moved: dict[Expr, Expr]) -> bool:
    """True if both read an element of a buffer along the row: one walk reads it once."""
    mine = {(s.buffer, substitute(s.index[0], moved)) for s in first.loads()}
    axis = second.axes[-1].sym
    return any((s.buffer, s.index[0]) in mine and axis in free_syms(s.index[0]) for s in second.loads())


def _renamed(nest: LoopNest, moved: dict[Expr, Expr]) -> tuple[Stmt, ...]:
    """The body over the other axis, its values named apart from those of the nest it joins."""
    names: dict[str, Arg] = {out: f"{out}_row" for s in nest.body if (out := out_of(s)) is not None}
    return tuple(map_stmt(s, names, moved) for s in nest.body)
