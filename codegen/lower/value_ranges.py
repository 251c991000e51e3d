"""Between which numbers the elements of a value lie, as far as the ops that make it say so."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.types import INT_RANGE

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
SEVEN_BITS: Range = (0, 127)
"""Bytes of which instructions may take the sign bit for a further digit."""


def range_of(graph: Graph, producers: Mapping[str, Op], x: Operand) -> Range:
    """Limits of a number that is no NaN. producers: of each value the op that makes it.

    A NaN that becomes an integer is the lowest int32, cut to the type's bits: 0 in a byte.
    """
    if isinstance(x, Lit):
        return float(x.value), float(x.value)
    if not isinstance(x, str):
        return ANY
    op, dtype = producers.get(x), graph.type_of(x).dtype
    own: Range = INT_RANGE[dtype] if dtype.is_int else ANY
    if op is None:
        return own
    if is_view(op) or op.kind == "round":
        return range_of(graph, producers, op.inputs[0])
    if op.kind in ("min", "max", "cat"):
        ranges = [range_of(graph, producers, y) for y in op.inputs]
        least = max if op.kind == "max" else min
        most = min if op.kind == "min" else max
        return least(lo for lo, _ in ranges), most(hi for _, hi in ranges)
    if op.kind in ("cast", "bitcast"):
        lo, hi = range_of(graph, producers, op.inputs[0])
        held = own[0] <= lo and hi <= own[1] and math.isfinite(lo + hi)
        whole = op.kind == "cast" or graph.type_of(op.inputs[0]).dtype.is_int
        return (math.floor(lo), math.ceil(hi)) if held and whole else own
    return own


def has_seven_bits(graph: Graph, producers: Mapping[str, Op], x: Operand) -> bool:
    """Whether the bytes of a value, of int8 or uint8, are numbers from 0 to 127."""
    lo, hi = range_of(graph, producers, x)
    return SEVEN_BITS[0] <= lo and hi <= SEVEN_BITS[1]
