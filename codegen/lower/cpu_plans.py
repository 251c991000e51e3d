"""Plans of CPU templates in lowering: the shape that a tuning table is asked for, and its plan."""

from __future__ import annotations

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import ONE, Expr, product
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.roles import need
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.tune.cut_plan import ConvCutShape, CutPlan, CutShape, cut_problem


def product_plan(low: Lowering, a: Operand, b: Operand, constant: bool) -> CutPlan | None:
    """The plan of a product, from a tuning table, which has none of int8; None: the machine's own blocks. How it came
    about is recorded."""
    if a.dtype is DType.I8:
        return None
    rows, depth = a.shape[-2:]
    lead: tuple[Expr, ...] = a.shape[:-2]
    if constant:  # packed products have their batch in the rows
        rows, lead = product((*lead, rows)), ()
    batch, m, n, k = (_hint(low, e) for e in (product(lead), rows, b.shape[-1], depth))
    return _chosen(low, CutShape(batch, m, n, k, a.dtype, constant, constant or b.strides[-1] is ONE))


def conv_plan(
    low: Lowering, points: Expr, channels: tuple[int, int], groups: int, taps: int, step: int, x: Operand
) -> CutPlan | None:
    """The same of a convolution. channels: in and out, of a group."""
    if x.dtype is DType.I8:
        return None
    return _chosen(low, ConvCutShape(_hint(low, points), *channels, groups, taps, step, x.dtype))


def verify_cut(plan: CutPlan | None, shape: CutShape | ConvCutShape) -> None:
    """Raise LoopError for a plan with which there is no kernel."""
    if plan is not None:
        why = cut_problem(plan, shape)
        need(not why, f"its plan is not legal: {why}")


def _hint(low: Lowering, e: Expr) -> int:
    return size_hint(e, low.hints)


def _chosen(low: Lowering, shape: CutShape | ConvCutShape) -> CutPlan | None:
    plan, decisions = low.tuning.choose(shape, low.machine)
    assert isinstance(plan, CutPlan)
    low.decisions += decisions
    return plan if low.tuning.in_table(decisions) else None
