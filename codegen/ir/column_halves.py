"""Halves of a product's columns: what lies as far into the second half of a row as a point lies into the first.

A gate and what it opens are one product, of two weights below one another, and what is made of both reads them so. An
epilogue that walks an axis of half the columns has both at a point.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.loops import Axis, join


def result_offsets(axes: Sequence[Axis], half: Axis | None) -> tuple[Expr, ...]:
    """Where a template's result lies that an epilogue has at a point of its axes, outermost in memory first: at one
    place, or with `half` in place of the last axis in the first half of the columns and in the second."""
    if half is None:
        return (join(axes),)
    row = join(axes[:-1]) * axes[-1].extent
    return row + half.sym, row + half.sym + half.extent
