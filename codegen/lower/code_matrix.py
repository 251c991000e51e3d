"""Constants that were dequantised, as lowering reads them: where the codes and tables of a matrix lie, how codes are
packed in rows, and what a nest makes of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ZERO, const, floordiv, int_value, mod
from hardtack.codegen.ir.graph import Lit, Quantized, QuantizedStep
from hardtack.codegen.ir.loops import Arg
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder
from hardtack.codegen.lower.operands import prepacked, whole
from hardtack.codegen.lower.views import Idx

STEPS = ("sub", "mul", "add")
"""Kinds of QuantizedStep."""
CODES = (DType.I8, DType.U8, DType.F8E4M3, DType.F8E5M2)
NUMBERS = (DType.F32, DType.BF16, DType.F16)
"""That steps give."""
TABLES = (*NUMBERS, DType.F8E4M3, DType.F8E8M0)
"""What the numbers that steps read are stored as."""
_FLOAT4_AS_E4M3 = 64.0
"""A number of float4_e2m1 by what its bits are in f8e4m3fn, whose exponents begin 6 lower."""


@dataclass(frozen=True)
class CodeMatrix:
    """A matrix [K, N] that is all of a dequantised constant. whole: the constant's shape; dims: which dimensions of it
    are K and N."""

    matrix: Operand
    quantized: Quantized
    whole: tuple[int, ...]
    dims: tuple[int, int]

    @property
    def k(self) -> int:
        return self.whole[self.dims[0]]

    @property
    def n(self) -> int:
        return self.whole[self.dims[1]]

    @property
    def group(self) -> int:
        """Neighbours along K that have one number in each table."""
        return math.gcd(self.k, *(s.runs[self.dims[0]] for s in self.quantized.steps))

    def codes(self) -> Operand:
        """The codes [K, N], a byte each."""
        m, q = self.matrix, self.quantized
        return Operand(f"{m.buffer}.{q.codes.name}", q.dtype, m.offset, m.shape[-2:], m.strides[-2:])

    def table(self, step: QuantizedStep) -> Operand:
        """A step's numbers [blocks of K, N], which need not lie apart; where blocks of columns have one each, N is two
        dimensions: the blocks, and the columns of one."""
        blocks = [size // run for size, run in zip(self.whole, step.runs, strict=True)]
        along_k, along_n = (math.prod(blocks[d + 1 :]) if blocks[d] > 1 else 0 for d in self.dims)
        rows, columns, run = blocks[self.dims[0]], blocks[self.dims[1]], step.runs[self.dims[1]]
        apart = run in (1, self.n)
        shape = (rows, self.n) if apart else (rows, columns, run)
        strides = (along_k, along_n) if apart else (along_k, along_n, 0)
        name = f"{self.matrix.buffer}.{step.table.name}"
        return Operand(name, step.number, const(0), tuple(map(const, shape)), tuple(map(const, strides)))

    def factors(self, low: Lowering) -> tuple[Operand, ...]:
        """The factor of each step's table that has one, [1]."""
        return tuple(
            whole(low.buffers[factor])
            for s in self.quantized.steps
            if (factor := stored_factor(low, self.matrix.buffer, s)) is not None
        )


def code_matrix(low: Lowering, matrix: Operand) -> CodeMatrix | None:
    """The codes of a constant [.., K, N]; None where it has none, where the view of it is no matrix of its two
    dimensions, or where codes and tables together would save less than a quarter of its bytes."""
    q = low.quantized.get(matrix.buffer)
    whole = tuple(int_value(n) or 0 for n in low.buffers[matrix.buffer].shape)
    found = _dimensions(whole, matrix)
    if q is None or found is None:
        return None
    made = CodeMatrix(matrix, q, whole, found)
    k, n = made.k, made.n
    nbytes = k * n * q.bits // 8 + (k // made.group) * n * sum(s.number.nbytes for s in q.steps)
    return None if 4 * nbytes > 3 * k * n * matrix.dtype.nbytes else made


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


def halves(codes: DType) -> str:
    """The packing of codes of 4 bits in rows, by what they are as bytes."""
    return "float4_halves" if codes.is_float8 else "halves"


def packed_rows(low: Lowering, codes: Operand, bits: int) -> str:
    """The buffer of codes [.., N], a byte each, or two of 4 bits in a byte of [.., ceil(N/2)]."""
    shape = tuple(int_value(n) or 0 for n in codes.shape)
    if bits == 8:
        return prepacked(low, "whole", codes, shape, ()).buffer
    return prepacked(low, halves(codes.dtype), codes, (*shape[:-1], -(-shape[-1] // 2)), ()).buffer


def stored_factor(low: Lowering, constant: str, step: QuantizedStep) -> str | None:
    """The buffer of the factor of a step's table, [1]; None where it has none."""
    if step.factor is None:
        return None
    source = Operand(f"{constant}.{step.factor.name}", DType.F32, const(0), (const(1),), (const(1),))
    return prepacked(low, "whole", source, (1,), ()).buffer


def code_as_float(b: NestBuilder, packed: str, q: Quantized, at: Idx) -> Arg:
    """The code at a place in what packed_rows gives, as f32."""
    if q.bits == 8:
        return b.cast(b.load_buffer(packed, at), DType.F32)
    byte: Arg = b.load_buffer(packed, (*at[:-1], floordiv(at[-1], 2)))
    if q.dtype.is_float8:
        byte = b.compute("bitcast", byte, dtype=DType.U8)
    byte = b.cast(byte, DType.I32)
    bits = b.cast(b.index(mod(at[-1], 2) * 4), DType.I32)
    half = b.compute("and", b.compute("shr", byte, bits), Lit(15, DType.I32))
    if q.dtype.is_float8:
        return _float4_as_float(b, half)
    return b.cast(half if q.dtype is DType.U8 else b.compute("sub", half, Lit(8, DType.I32)), DType.F32)


def _float4_as_float(b: NestBuilder, half: Arg) -> Arg:
    """The number of a code of float4_e2m1, whose sign, exponent and fraction f8e4m3fn has in other places."""
    sign = b.compute("shl", b.compute("and", half, Lit(8, DType.I32)), Lit(4, DType.I32))
    size = b.compute("shl", b.compute("and", half, Lit(7, DType.I32)), Lit(2, DType.I32))
    code = b.compute("bitcast", b.cast(b.compute("or", sign, size), DType.U8), dtype=DType.F8E4M3)
    return b.compute("mul", b.cast(code, DType.F32), Lit(_FLOAT4_AS_E4M3, DType.F32))


def after_step(b: NestBuilder, step: QuantizedStep, found: Arg, table: str, at: Idx, factor: str | None) -> Arg:
    """A step with the number that its table has at a place, rounded as the model rounds it. factor: stored_factor."""
    number = b.cast(b.load_buffer(table, at), DType.F32)
    if factor is not None:
        number = b.compute("mul", number, b.load_buffer(factor, (ZERO,)))
    return b.cast(b.compute(step.kind, b.wide(found), number), step.result)
