"""Reductions over nothing are the neutral value: a tile has a point for an axis of none, too, and must read nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import ZERO
from hardtack.codegen.ir.loops import Compute, LoopNest, phases
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.ir.neutral import neutral_value
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope


def without_empty_reductions(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """The nests, those that reduce over no points without the axes that they reduce."""
    return tuple(map(_reduced, nests))


def _reduced(nest: Nest) -> Nest:
    if not isinstance(nest, LoopNest) or all(a.extent is not ZERO for a in nest.reduced):
        return nest
    reduces, _, after = phases(nest)
    neutral = [Compute(r.out, "cast", (neutral_value(r.kind, r.dtype),), r.dtype) for r in reduces]
    return replace(nest, axes=nest.parallel, body=(*neutral, *after))


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    return without_empty_reductions(nests), buffers, ()


NEUTRAL_REDUCTIONS = NestPass("neutral", _run)
"""Reductions over nothing become their neutral value."""
