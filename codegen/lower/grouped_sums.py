"""Grouped products: rows of one matrix, in groups that offsets delimit, each group by a matrix of its own."""

from __future__ import annotations

from hardtack.codegen.ir.graph import Op, uses
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start


def grouped_as_reduction(low: Lowering, op: Op) -> None:
    """Each row's group is counted, then its products are summed with that group's matrix."""
    a, w, _ = uses(op)
    group = _groups(low, op)
    b, out, (row, column) = start(low, op)
    k = b.axis(low.graph.types[a].shape[1], "reduce")
    count = low.graph.types[w].shape[0]
    number = b.load_buffer(group.name, (row,))
    inside = b.compute("lt", number, b.index(count))
    at = b.check(b.compute("where", inside, number, lit_of(0, DType.I64)), count)
    zero = lit_of(0, low.graph.types[a].dtype)
    left, right = b.load(a, (row, k), inside, zero), b.load(w, (at, k, column), inside, zero)
    value = b.total(b.compute("mul", b.wide(left), b.wide(right)))
    b.store(out.name, (row, column), b.cast(value, out.dtype))
    b.done()


def _groups(low: Lowering, op: Op) -> Buffer:
    """i64 [M]: how many groups end at or before each row; as many as there are for a row behind the last."""
    rows, ends = low.graph.types[op.outputs[0]].shape[0], op.value(2)
    result = low.temporary(f"{op.outputs[0]}.group", DType.I64, (rows,))
    b = NestBuilder(low, result.name, op.origin)
    (row,) = b.loop(result.shape, result.order)
    g = b.axis(low.graph.types[ends].shape[0], "reduce")
    over = b.compute("le", b.cast(b.load(ends, (g,)), DType.I64), b.index(row))
    counted = b.cast(over, DType.I64)
    b.store(result.name, (row,), b.total(counted))
    b.done()
    return result
