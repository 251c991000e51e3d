"""Constants that were dequantised and of which ops pick elements, such as rows of an embedding: nests read the codes,
and make float what was picked.
"""

from __future__ import annotations

from collections.abc import Iterator

from hardtack.codegen.ir.expr import const, floordiv, int_value, mod
from hardtack.codegen.ir.graph import Lit, Op, Quantized, QuantizedStep
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
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
        found = after_step(b, step, found, b.load_buffer(made, place))
    return b.cast(found, b.low.buffers[buffer].dtype)


def packed_rows(low: Lowering, codes: Operand, bits: int) -> str:
    """The buffer of codes [.., N], a byte each, or two of 4 bits in a byte of [.., ceil(N/2)]."""
    shape = tuple(int_value(n) or 0 for n in codes.shape)
    if bits == 8:
        return prepacked(low, "whole", codes, shape, ()).buffer
    return prepacked(low, "halves", codes, (*shape[:-1], -(-shape[-1] // 2)), ()).buffer


def code_as_float(b: NestBuilder, packed: str, q: Quantized, at: Idx) -> Arg:
    """The integer at a place in what packed_rows gives, as f32."""
    if q.bits == 8:
        return b.cast(b.load_buffer(packed, at), DType.F32)
    byte = b.cast(b.load_buffer(packed, (*at[:-1], floordiv(at[-1], 2))), DType.I32)
    bits = b.cast(b.index(mod(at[-1], 2) * 4), DType.I32)
    half = b.compute("and", b.compute("shr", byte, bits), Lit(15, DType.I32))
    return b.cast(half if q.dtype is DType.U8 else b.compute("sub", half, Lit(8, DType.I32)), DType.F32)


def after_step(b: NestBuilder, step: QuantizedStep, found: Arg, number: Arg) -> Arg:
    """A step with a number of its table, rounded as the model rounds it."""
    return b.cast(b.compute(step.kind, b.wide(found), b.wide(number)), step.result)


def _codes_suffice(low: Lowering, buffer: str) -> bool:
    """Whether all readers of a constant pick elements of it or are products, which read codes of their own."""
    if buffer in {base_of(low.producers, o) for o in low.graph.outputs}:
        return False
    return all(
        op.kind == "matmul" or (op.kind in _PICKING and base_of(low.producers, op.value(0)) == buffer)
        for op in _readers(low, buffer)
    )


def _readers(low: Lowering, value: str) -> Iterator[Op]:
    """The ops that read a value or views of it."""
    for op in low.readers.get(value, ()):
        if is_view(op):
            for out in op.outputs:
                yield from _readers(low, out)
        else:
            yield op
