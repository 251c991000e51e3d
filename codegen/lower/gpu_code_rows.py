"""Matrices of codes as kernels of GPUs read them: of one constant, or of several whose products are one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hardtack.codegen.ir.constants import Packing, View
from hardtack.codegen.ir.expr import ONE, ZERO, const, int_value
from hardtack.codegen.ir.graph import QuantizedStep
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Join, JoinPart, Lowering, NestBuilder
from hardtack.codegen.lower.code_matrix import CodeMatrix, after_step, code_as_float, code_matrix, halves, packed_rows
from hardtack.codegen.lower.operands import numbers_of, prepacked, whole


class TableStep(NamedTuple):
    """A step of dequantisation (QuantizedStep): its kind, how many neighbours along K have one number, what its result
    is rounded to, and whether its numbers have a factor."""

    kind: str
    run: int
    result: DType
    scaled: bool = False


@dataclass(frozen=True)
class CodeRows:
    """A matrix [K, N] as codes [N, K], K innermost. first: one of those that it is made of; packed: the codes, two of 4
    bits in a byte; tables: each step's numbers [N, K/run]; factors: of the tables that have one, [1]."""

    k: int
    n: int
    first: CodeMatrix
    packed: Operand
    tables: tuple[Operand, ...]
    factors: tuple[Operand, ...] = ()

    @property
    def bits(self) -> int:
        return self.first.quantized.bits

    @property
    def steps(self) -> tuple[TableStep, ...]:
        return _steps(self.first)


def code_rows(low: Lowering, matrix: Operand) -> CodeRows | None:
    """The codes of a constant [.., K, N], or of constants that were joined along N; None where there are none."""
    one = code_matrix(low, matrix)
    if one is not None:
        packed = whole(low.buffers[packed_rows(low, _turned(one.codes()), one.quantized.bits)])
        return CodeRows(one.k, one.n, one, packed, _tables(low, one), one.factors(low))
    parts = _parts(low, matrix)
    return _joined(low, parts) if parts else None


def _steps(codes: CodeMatrix) -> tuple[TableStep, ...]:
    run = codes.dims[0]
    return tuple(TableStep(s.kind, s.runs[run], s.result, s.factor is not None) for s in codes.quantized.steps)


def _tables(low: Lowering, codes: CodeMatrix) -> tuple[Operand, ...]:
    """Each step's numbers [N, K/run]; where all columns have one, its stride is 0."""
    found: list[Operand] = []
    for step in codes.quantized.steps:
        table = _by_row(codes, step)
        shared = table.strides[0] is ZERO
        if shared:
            table = replace(table, shape=(ONE, table.shape[1]))
        *columns, blocks = _sizes(table)
        made = prepacked(low, "whole", table, (math.prod(columns), blocks), ())
        if shared:
            made = replace(made, shape=(const(codes.n), made.shape[1]), strides=(ZERO, ONE))
        found.append(made)
    return tuple(found)


def _by_row(codes: CodeMatrix, step: QuantizedStep) -> Operand:
    """A step's numbers [N, blocks of K], N in one dimension or two."""
    table = codes.table(step)
    shape, strides = ((*v[1:], v[0]) for v in (table.shape, table.strides))
    return replace(table, shape=shape, strides=strides)


def _turned(o: Operand) -> Operand:
    return replace(o, shape=o.shape[::-1], strides=o.strides[::-1])


def _sizes(o: Operand) -> tuple[int, ...]:
    return tuple(int_value(n) or 0 for n in o.shape)


def _parts(low: Lowering, matrix: Operand) -> list[CodeMatrix]:
    """The matrices that a constant was joined of, one after another along N; none where they are not alike."""
    request = low.prepacks.get(matrix.buffer)
    if not isinstance(request, Join) or matrix.strides[-2] is not ONE or len(matrix.shape) != 2:
        return []
    found: list[CodeMatrix] = []
    for part in request.parts:
        shape, strides = (tuple(map(const, v[::-1])) for v in (part.view.shape, part.view.strides))
        view = Operand(part.source, matrix.dtype, const(part.view.offset), shape, strides)
        one = code_matrix(low, view) if len(shape) == 2 else None
        if one is None or one.factors(low) or (found and _kind(one) != _kind(found[0])):
            return []
        found.append(one)
    return found if sum(c.n for c in found) == int_value(matrix.shape[-1]) else []


def _kind(codes: CodeMatrix) -> tuple[object, ...]:
    """What matrices have in common that can be joined."""
    q = codes.quantized
    return (codes.k, q.dtype, q.bits, _steps(codes), tuple(s.number for s in q.steps))


def _joined(low: Lowering, parts: Sequence[CodeMatrix]) -> CodeRows:
    first = parts[0]
    packing = None if first.quantized.bits == 8 else Packing(halves(first.quantized.dtype), ())
    packed = _join(low, [_turned(p.codes()) for p in parts], -(-first.k * first.quantized.bits // 8), packing)
    tables = []
    for k, step in enumerate(_steps(first)):
        columns = first.k // step.run
        tables.append(_join(low, [_by_row(p, p.quantized.steps[k]) for p in parts], columns, None))
    return CodeRows(first.k, sum(p.n for p in parts), first, packed, tuple(tables))


def _join(low: Lowering, rows: Sequence[Operand], columns: int, packing: Packing | None) -> Operand:
    """Constants [N, K], N in one dimension or more, below one another, each packed into rows of `columns`."""
    parts: list[JoinPart] = []
    at = 0
    for o in rows:
        view = numbers_of(o)
        count = math.prod(view.shape[:-1])
        parts.append(JoinPart(o.buffer, view, View(at * columns, (count, columns), (columns, 1)), packing))
        at += count
    request = Join((at, columns), tuple(parts))
    name = f"{rows[0].buffer}.joined.{hashlib.sha256(repr(request).encode()).hexdigest()[:8]}"
    if name not in low.prepacks:
        low.buffers[name] = Buffer(name, rows[0].dtype, (const(at), const(columns)), (0, 1))
        low.prepacks[name] = request
    return whole(low.buffers[name])


def store_numbers(b: NestBuilder, codes: CodeRows, out: Buffer) -> None:
    """The nest that makes numbers of codes: out [N, K], rounded as the model rounds them."""
    n, k = b.loop(out.shape, out.order)
    q = codes.first.quantized
    found = code_as_float(b, codes.packed.buffer, q, (n, k))
    factors = (f.buffer for f in codes.factors)
    for step, run, table in zip(q.steps, (s.run for s in codes.steps), codes.tables, strict=True):
        row = ZERO if table.strides[0] is ZERO else n
        factor = next(factors) if step.factor is not None else None
        found = after_step(b, step, found, table.buffer, (row, k // run), factor)
    b.store(out.name, (n, k), b.cast(found, out.dtype))
    b.done()


def runs_of(steps: Iterable[TableStep]) -> tuple[int, ...]:
    """Of each step."""
    return tuple(s.run for s in steps)
