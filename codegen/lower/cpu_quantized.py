"""Constants that were dequantised, as products on CPUs read them: codes in panels, tables of what makes them float."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hardtack.codegen.ir.expr import ZERO, const, int_value
from hardtack.codegen.ir.graph import QuantizedStep
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.code_matrix import CodeMatrix, code_matrix
from hardtack.codegen.lower.cpu_workspace import PANEL
from hardtack.codegen.lower.operands import prepacked


class CodeStep(NamedTuple):
    """A step of dequantisation (QuantizedStep): its kind, what its result is rounded to, and whether its numbers have a
    factor."""

    kind: str
    result: DType
    scaled: bool = False


@dataclass(frozen=True)
class PackedCodes:
    """A matrix [K, N] as QuantizedGemm reads it."""

    steps: tuple[CodeStep, ...]
    group: int
    bits: int
    operands: tuple[Operand, ...]


def packed_codes(low: Lowering, matrix: Operand) -> PackedCodes | None:
    """What a constant [.., K, N] was dequantised from, packed; None where it is to be read as numbers."""
    found = code_matrix(low, matrix)
    if found is None:
        return None
    q = found.quantized
    panels = -(-found.n // PANEL)
    pairs = "float4_pairs" if q.dtype.is_float8 else "nibble_pairs"
    packing, rows = ("panels", found.k) if q.bits == 8 else (pairs, -(-found.k // 2))
    codes = prepacked(low, packing, found.codes(), (panels, rows, PANEL), ())
    tables = (_packed_table(low, found, s) for s in q.steps)
    steps = tuple(CodeStep(s.kind, s.result, s.factor is not None) for s in q.steps)
    return PackedCodes(steps, found.group, q.bits, (codes, *tables, *found.factors(low)))


def _packed_table(low: Lowering, codes: CodeMatrix, step: QuantizedStep) -> Operand:
    """[ceil(N/32), K/group, 32], whatever runs the step's own table has."""
    table, group = codes.table(step), codes.group
    blocks, columns = int_value(table.shape[0]) or 0, table.shape[1:]
    shape = (const(blocks), const(codes.k // blocks // group), *columns)
    strides = (table.strides[0], ZERO, *table.strides[1:])
    spread = Operand(table.buffer, table.dtype, table.offset, shape, strides)
    kind = "panels" if len(columns) == 1 else "block_panels"
    return prepacked(low, kind, spread, (-(-codes.n // PANEL), codes.k // group, PANEL), ())
