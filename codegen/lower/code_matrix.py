"""Matrices of constants that were dequantised, as products read them: where their codes and their tables lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.graph import Quantized, QuantizedStep
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.lower.builder import Lowering


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
        """A step's numbers [blocks of K, blocks of N]."""
        blocks = [size // run for size, run in zip(self.whole, step.runs, strict=True)]
        strides = [math.prod(blocks[d + 1 :]) if blocks[d] > 1 else 0 for d in self.dims]
        shape, steps = (tuple(map(const, v)) for v in ([blocks[d] for d in self.dims], strides))
        return Operand(f"{self.matrix.buffer}.{step.table.name}", step.number, const(0), shape, steps)


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
    uneven = any(s.runs[found[1]] not in (1, n) for s in q.steps)
    return None if uneven or 4 * nbytes > 3 * k * n * matrix.dtype.nbytes else made


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
