"""Constants that were dequantised and of which ops pick elements, such as rows of an embedding: nests read the codes,
and make float what was picked.
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import const, floordiv, int_value
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.code_matrix import after_step, code_as_float, packed_rows, stored_factor
from hardtack.codegen.lower.operands import prepacked, whole
from hardtack.codegen.lower.views import Idx, base_of

_PICKING = frozenset({"take", "gather"})
"""Ops of which a point reads one element of their first operand."""


def load_picked(b: NestBuilder, value: str, index: Idx) -> Arg:
    """value[index], as `b.load` gives it: from codes where no reader of the constant needs all of it as float."""
    buffer, at = b.low.locate(value, index)
    q = b.low.quantized.get(buffer)
    if q is None or not at or not _codes_suffice(b.low, buffer):
        return b.load(value, index)
    shape = tuple(int_value(n) or 0 for n in b.low.buffers[buffer].shape)
    codes = Buffer(f"{buffer}.{q.codes.name}", q.dtype, tuple(map(const, shape)), tuple(range(len(shape))))
    found = code_as_float(b, packed_rows(b.low, whole(codes), q.bits), q, at)
    for step in q.steps:
        blocks = tuple(n // run for n, run in zip(shape, step.runs, strict=True))
        table = Buffer(f"{buffer}.{step.table.name}", step.number, tuple(map(const, blocks)), codes.order)
        made = prepacked(b.low, "whole", whole(table), blocks, ()).buffer
        place = tuple(floordiv(i, run) for i, run in zip(at, step.runs, strict=True))
        found = after_step(b, step, found, made, place, stored_factor(b.low, buffer, step))
    return b.cast(found, b.low.buffers[buffer].dtype)


def _codes_suffice(low: Lowering, buffer: str) -> bool:
    """Whether all readers of a constant pick elements of it or are products, which read codes of their own."""
    if buffer in {base_of(low.producers, o) for o in low.graph.outputs}:
        return False
    return all(
        op.kind == "matmul" or (op.kind in _PICKING and base_of(low.producers, op.value(0)) == buffer)
        for op in low.readers_of(buffer)
    )
