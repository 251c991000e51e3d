"""Lowering of matrix products for GPUs: of numbers, and of codes that stand for them."""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE, int_value, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_code_rows import code_rows
from hardtack.codegen.lower.gpu_few_rows import lower_codes
from hardtack.codegen.lower.gpu_matmul import MOST_INT8_TERMS, Gemm, by_columns, emit_gemm
from hardtack.codegen.lower.gpu_quantized import dequantised_copy
from hardtack.codegen.lower.operands import copied, is_constant, operand
from hardtack.codegen.lower.picked_products import picked_as_reduction, picked_matrices
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.sums import matmul_as_reduction
from hardtack.codegen.lower.template import first_that_can
from hardtack.codegen.machine.machine import Gpu


@lowers("matmul", on=Gpu)
def lower_matmul(low: Lowering, op: Op) -> None:
    """Rows times a matrix, whose codes are read where it has any."""
    a, b = op.value(0), op.value(1)
    out = low.buffers[op.outputs[0]]
    picked = picked_matrices(low, op)
    if picked is not None:
        picked_as_reduction(low, op, picked)
        return
    if first_that_can(low, op, (Gemm,)) is None or _may_leave_int32(low, op):
        matmul_as_reduction(low, op)
        return
    a_view, b_view = operand(low, a, op), operand(low, b, op)
    constant = is_constant(low, b)
    codes = code_rows(low, b_view) if constant else None

    def copy_a() -> Operand:
        return copied(low, a, op, None)

    if codes is not None and lower_codes(low, op, out, a_view, codes, copy_a):
        return
    if codes is not None:
        b_view, constant = dequantised_copy(low, op, codes, b_view), False
    elif constant and (a_view.dtype in (DType.F32, *BYTES) or product(a_view.shape[:-1]) is ONE):
        b_view = by_columns(low, b_view)
    emit_gemm(low, op, out, a_view, b_view, constant, copy_a)


def _may_leave_int32(low: Lowering, op: Op) -> bool:
    """True for a product of int8 whose sums loops have to make modulo 2^32: tensor cores may saturate."""
    a = low.graph.types[op.value(0)]
    terms = int_value(a.shape[-1])
    if a.dtype is not DType.I8 or (terms is not None and terms <= MOST_INT8_TERMS):
        return False
    low.decide(op.outputs[0], "reductions", f"sums of {a.shape[-1]} products of int8 may leave int32")
    return True
