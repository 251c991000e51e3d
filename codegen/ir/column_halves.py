"""Halves of a product's columns: what lies as far into the second half of a row as a point lies into the first.

A gate and what it opens are one product, of two weights below one another, and what is made of both reads them so. An
epilogue that walks an axis of half the columns has both at a point.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.ir.expr import ONE, ZERO, Expr
from hardtack.codegen.ir.loops import Axis


def result_offsets(axes: Sequence[Axis], half: Axis | None) -> tuple[Expr, ...]:
    """Where a template's result lies that an epilogue has at a point of its axes, outermost in memory first: at one
    place, or with `half` in place of the last axis in the first half of the columns and in the second."""
    if half is None:
        return (_number(axes),)
    row = _number(axes[:-1]) * axes[-1].extent
    return row + half.sym, row + half.sym + half.extent


def _number(axes: Sequence[Axis]) -> Expr:
    """Of a point, row-major; an axis of extent 1 is always at 0."""
    found: Expr = ZERO
    for a in axes:
        if a.extent is not ONE:
            found = found * a.extent + a.sym
    return found
