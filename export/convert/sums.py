"""Sums and differences with torch's alpha, the factor of the second operand."""

from __future__ import annotations

import math
from typing import Any

import torch

from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg, promoted
from hardtack.exporter.convert.table import Value, converts
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.errors import Refusal


@converts("aten.add.Tensor", "aten.add.Scalar")
def _add(b: Builder, x: Arg, y: Arg, alpha: Any = 1) -> Value:
    _, result = promoted(x, y)
    if result is DType.BOOL:
        term = b.cast(y, result)
        taken = coefficient(b, alpha, result)
        return b.op("or", b.cast(x, result), b.op("and", term, taken) if taken != Lit(True, result) else term)
    return _sum(b, "add", x, y, alpha, result)


def coefficient(b: Builder, alpha: Any, dtype: DType) -> Value | Lit:
    """What another operand is multiplied with. Refusal, as by torch, for a number that the dtype does not hold."""
    if isinstance(alpha, float):
        if not dtype.is_float:
            raise Refusal(f"alpha={alpha} of {dtype}: give a whole number")
        if math.isfinite(alpha) and not math.isfinite(torch.tensor(alpha, dtype=torch.float64).to(TORCH_DTYPE[dtype])):
            raise Refusal(f"alpha={alpha} does not fit {dtype}")
    elif isinstance(alpha, int) and dtype.is_float:
        return coefficient(b, float(alpha), dtype)
    return b.cast(alpha, dtype)


def _sum(b: Builder, kind: str, x: Arg, y: Arg, alpha: Any, dtype: DType) -> Value:
    """x + alpha * y, or -, rounded once; alpha as the half type has it."""
    if isinstance(alpha, bool):
        raise Refusal(f"alpha={alpha}, which torch takes for a result of bool only: give a number")
    if alpha == 1:
        return b.pw(kind, x, y, dtype=dtype)
    work = DType.F32 if dtype.is_half else dtype
    term = b.pw("mul", b.cast(y, dtype), coefficient(b, alpha, dtype), dtype=work)
    return b.to(b.pw(kind, b.cast(x, dtype), term, dtype=work), dtype)


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(b: Builder, x: Arg, y: Arg, alpha: Any = 1) -> Value:
    _, result = promoted(x, y)
    lowest = result is DType.I64 and alpha == INT_RANGE[result][0]  # which has no negative
    if alpha != 1 and isinstance(alpha, (int, float)) and not isinstance(alpha, bool) and not lowest:
        return _sum(b, "add", x, y, -alpha, result)  # as torch does: of i8, alpha=128 fits
    return _sum(b, "sub", x, y, alpha, result)


@converts("aten.rsub.Tensor", "aten.rsub.Scalar")
def _rsub(b: Builder, x: Arg, y: Arg, alpha: Any = 1) -> Value:
    return _sub(b, y, x, alpha)
