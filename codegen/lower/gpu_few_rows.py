"""Products of few rows with codes on GPUs: which template reads them."""

from __future__ import annotations

from collections.abc import Callable

from hardtack.codegen.ir.expr import ONE, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_code_rows import CodeRows, runs_of
from hardtack.codegen.lower.gpu_fragments import CodeFragments
from hardtack.codegen.lower.gpu_matmul import as_rows, emit_parts
from hardtack.codegen.lower.gpu_plans import gpu, hint
from hardtack.codegen.lower.gpu_quantized import CodeGemm, CodeRow, CodeTile
from hardtack.codegen.tune.code_plan import plan_code_fragments, plan_code_row, plan_code_tile
from hardtack.codegen.tune.gemm_plan import GemmPlan


def lower_codes(low: Lowering, op: Op, out: Buffer, a: Operand, codes: CodeRows, copy_a: Callable[[], Operand]) -> bool:
    """A product of few rows with codes, by a template that reads them; False where there is none for it."""
    rows = product(a.shape[:-1])
    found = _choice(low, a.dtype, codes, hint(low, rows), rows is ONE)
    if found is None:
        return False
    what, plan = found
    low.decide(out.name, f"{what.kind} {plan.block_m}x{plan.block_n}x{plan.block_k}", plan.reason)
    operands = (as_rows(a, copy_a), codes.packed, *codes.tables, *codes.factors)
    emit_parts(low, op, what(plan, True, 0, "", codes.steps, codes.bits), out, operands)
    return True


def _choice(
    low: Lowering, dtype: DType, codes: CodeRows, rows: int, one_row: bool
) -> tuple[type[CodeGemm], GemmPlan] | None:
    """rows: the example's number where it is dynamic; one_row: it is 1 whatever the symbols are."""
    n, k, runs, machine = codes.n, codes.k, runs_of(codes.steps), gpu(low)
    kind = (codes.packed.dtype, codes.bits)
    fragments = plan_code_fragments(rows, n, k, kind, runs, machine) if dtype in HALF else None
    if fragments is not None:
        return CodeFragments, fragments
    if one_row:
        row = plan_code_row(n, k, codes.bits, runs, machine)
        return None if row is None else (CodeRow, row)
    tile = plan_code_tile(rows, n, k, runs, machine)
    return None if tile is None else (CodeTile, tile)
