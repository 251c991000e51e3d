"""Constants that were dequantised and of which ops pick elements, such as rows of an embedding: nests read the codes,
and make float what was picked.
"""

from __future__ import annotations

from collections.abc import Iterator

from hardtack.codegen.ir.expr import const, floordiv, int_value, mod
from hardtack.codegen.ir.graph import Lit, Op, Quantized
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.loops import Arg, Buffer
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.operands import prepacked, whole
from hardtack.codegen.lower.views import Idx, base_of
from hardtack.codegen.machine.machine import Cpu

_PICKING = frozenset({"take", "gather"})
"""Ops of which a point reads one element of their first operand."""


def load_picked(b: NestBuilder, value: str, index: Idx) -> Arg:
    """value[index], as `b.load` gives it: from codes where no reader of the constant needs all of it as float."""
    buffer, at = b.low.locate(value, index)
    q = b.low.quantized.get(buffer)
    if q is None or not at or not _codes_suffice(b.low, buffer):
        return b.load(value, index)
    found = b.cast(_code(b, buffer, q, at), DType.F32)
    for step in q.steps:
        blocks = tuple(n // run for n, run in zip(_shape(b.low, buffer), step.runs, strict=True))
        table = _made(b.low, f"{buffer}.{step.table.name}", step.number, blocks, "whole", blocks)
        place = tuple(floordiv(i, run) for i, run in zip(at, step.runs, strict=True))
        exact = b.compute(step.kind, b.wide(found), b.wide(b.load_buffer(table, place)))
        found = b.cast(exact, step.result)
    return b.cast(found, b.low.buffers[buffer].dtype)


def _code(b: NestBuilder, buffer: str, q: Quantized, at: Idx) -> Arg:
    """The integer at a place: a byte, or half of one."""
    shape, name = _shape(b.low, buffer), f"{buffer}.{q.codes.name}"
    if q.bits == 8:
        return b.load_buffer(_made(b.low, name, q.dtype, shape, "whole", shape), at)
    packed = _made(b.low, name, q.dtype, shape, "halves", (*shape[:-1], -(-shape[-1] // 2)))
    byte = b.cast(b.load_buffer(packed, (*at[:-1], floordiv(at[-1], 2))), DType.I32)
    bits = b.cast(b.index(mod(at[-1], 2) * 4), DType.I32)
    half = b.compute("and", b.compute("shr", byte, bits), Lit(15, DType.I32))
    return half if q.dtype is DType.U8 else b.compute("sub", half, Lit(8, DType.I32))


def _made(low: Lowering, name: str, dtype: DType, shape: tuple[int, ...], kind: str, packed: tuple[int, ...]) -> str:
    """The buffer of a constant that is packed at export, all of it."""
    source = Buffer(name, dtype, tuple(map(const, shape)), tuple(range(len(shape))))
    return prepacked(low, kind, whole(source), packed, ()).buffer


def _codes_suffice(low: Lowering, buffer: str) -> bool:
    """Whether all readers of a constant pick elements of it or, on a CPU, are products, which read codes in panels."""
    if buffer in {base_of(low.producers, o) for o in low.graph.outputs}:
        return False
    products = {"matmul"} if isinstance(low.machine, Cpu) else set()
    return all(
        op.kind in products or (op.kind in _PICKING and base_of(low.producers, op.value(0)) == buffer)
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


def _shape(low: Lowering, buffer: str) -> tuple[int, ...]:
    return tuple(int_value(n) or 0 for n in low.buffers[buffer].shape)
