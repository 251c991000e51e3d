"""Constants that were dequantised, as products on CPUs read them: codes in panels, tables of what makes them float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.graph import Quantized
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_workspace import PANEL
from hardtack.codegen.lower.operands import prepacked


class CodeStep(NamedTuple):
    """A step of dequantisation (QuantizedStep): its kind, and what its result is rounded to."""

    kind: str
    result: DType


@dataclass(frozen=True)
class PackedCodes:
    """A matrix [K, N] as QuantizedGemm reads it."""

    steps: tuple[CodeStep, ...]
    group: int
    bits: int
    operands: tuple[Operand, ...]


def packed_codes(low: Lowering, matrix: Operand) -> PackedCodes | None:
    """What a constant [.., K, N] was dequantised from, packed; None where it was not, where the view of it is no matrix
    of its two dimensions, or where codes and tables together would save less than a quarter of its bytes."""
    q = low.quantized.get(matrix.buffer)
    shape = low.buffers[matrix.buffer].shape
    whole = tuple(int_value(n) or 0 for n in shape)
    found = _dimensions(whole, matrix)
    if q is None or found is None:
        return None
    k, n = (int_value(e) or 0 for e in matrix.shape[-2:])
    runs = tuple((s.runs[found[0]], s.runs[found[1]]) for s in q.steps)
    group = math.gcd(k, *(along_k for along_k, _ in runs))
    nbytes = k * n * q.bits // 8 + (k // group) * n * sum(s.number.nbytes for s in q.steps)
    if any(along_n not in (1, n) for _, along_n in runs) or 4 * nbytes > 3 * k * n * matrix.dtype.nbytes:
        return None
    return PackedCodes(
        tuple(CodeStep(s.kind, s.result) for s in q.steps), group, q.bits, _operands(low, matrix, q, found, group)
    )


def _operands(low: Lowering, matrix: Operand, q: Quantized, found: tuple[int, int], group: int) -> tuple[Operand, ...]:
    k, n = (int_value(e) or 0 for e in matrix.shape[-2:])
    panels = -(-n // PANEL)
    codes = Operand(f"{matrix.buffer}.{q.codes.name}", q.dtype, matrix.offset, matrix.shape[-2:], matrix.strides[-2:])
    packing, width = ("panels", PANEL) if q.bits == 8 else ("nibbles", PANEL // 2)
    made = [prepacked(low, packing, codes, (panels, k, width), ())]
    whole = tuple(int_value(size) or 0 for size in low.buffers[matrix.buffer].shape)
    for step in q.steps:
        blocks = tuple(size // run for size, run in zip(whole, step.runs, strict=True))
        strides = [math.prod(blocks[d + 1 :]) if blocks[d] > 1 else 0 for d in range(len(blocks))]
        along_k = step.runs[found[0]]
        shape = (k // along_k, along_k // group, n)
        table = Operand(
            f"{matrix.buffer}.{step.table.name}", step.number, const(0), tuple(map(const, shape)),
            (const(strides[found[0]]), const(0), const(strides[found[1]])),
        )  # fmt: skip
        made.append(prepacked(low, "panels", table, (panels, k // group, PANEL), ()))
    return tuple(made)


def _dimensions(whole: Sequence[int], matrix: Operand) -> tuple[int, int] | None:
    """Which dimensions of a constant of shape `whole` are the K and the N of a view that has all of it; None for any
    other view."""
    k, n = (int_value(e) or 0 for e in matrix.shape[-2:])
    if matrix.offset is not const(0) or k * n != math.prod(whole) or not k * n:
        return None
    found: list[int] = []
    for size, stride in zip(matrix.shape[-2:], matrix.strides[-2:], strict=True):
        fitting = [
            d for d in range(len(whole))
            if whole[d] == int_value(size) and d not in found
            and (whole[d] == 1 or math.prod(whole[d + 1 :]) == int_value(stride))
        ]  # fmt: skip
        if not fitting:
            return None
        found.append(fitting[-1])
    return found[0], found[1]
