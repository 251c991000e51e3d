"""Changing the axes of a nest: renaming them, splitting one into several, joining several into one; its indices as
element offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, floordiv, mod, product
from hardtack.codegen.ir.expr_walk import free_syms, split_linear
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopNest, Stmt, Store, source_of


def mixed_radix(e: Expr) -> tuple[Sym, ...] | None:
    """The axes of e, most significant first, if e numbers their points: i*J*K + j*K + k. None if it does not."""
    axes = [s for s in free_syms(e) if s.extent is not None]
    placed: list[tuple[Sym, Expr]] = []
    rest = e
    for s in axes:
        parts = split_linear(rest, s)
        if parts is None:
            return None
        placed.append((s, parts[0]))
        rest = parts[1]
    if rest is not ZERO:
        return None
    out: list[Sym] = []
    step: Expr = ONE
    while placed:
        found = [p for p in placed if p[1] is step]
        if len(found) != 1:
            return None
        placed.remove(found[0])
        out.append(found[0][0])
        extent = found[0][0].extent
        assert extent is not None
        step = step * extent
    return tuple(reversed(out))


def split_into(axes: Sequence[Sym], joined: Expr) -> dict[Expr, Expr]:
    """Each of `axes` (most significant first) in terms of one axis that numbers their points."""
    out: dict[Expr, Expr] = {}
    step: Expr = ONE
    for i, s in enumerate(reversed(axes)):
        extent = s.extent
        assert extent is not None
        digit = floordiv(joined, step)
        size = extent if extent is not ZERO else ONE  # without points there is nothing to number
        out[s] = digit if i == len(axes) - 1 else mod(digit, size)
        step = step * size
    return out


def points(axes: Sequence[Axis]) -> Expr:
    """How many points the axes span."""
    return product(a.extent for a in axes)


def linearized(nest: LoopNest, buffers: Mapping[str, Buffer]) -> LoopNest:
    """Every index as one element offset; the nest as it was is the source of all that is made of it."""

    def flat(s: Stmt) -> Stmt:
        if isinstance(s, (Load, Store)):
            return replace(s, index=(buffers[s.buffer].offset(s.index),))
        return s

    return replace(nest, body=tuple(flat(s) for s in nest.body), sources=(source_of(nest),))
