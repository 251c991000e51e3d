"""Lowering for GPUs of grouped products: a template, where the number of groups is known."""

from __future__ import annotations

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.grouped import grouped_as_reduction
from hardtack.codegen.lower.matrix import template
from hardtack.codegen.lower.operands import operand
from hardtack.codegen.lower.triton import chosen, decide, hint
from hardtack.codegen.lower.views import ONE
from hardtack.codegen.tune.gemm import GemmPlan, GemmShape


def lower_grouped(low: Lowering, op: Op) -> None:
    """One template that finds each program's group; f64, which has no tensor cores, as a reduction."""
    a, w, ends = op.inputs
    assert isinstance(a, str) and isinstance(w, str) and isinstance(ends, str)
    out = low.buffers[op.outputs[0]]
    groups = int_value(low.graph.types[w].shape[0])
    if out.dtype is DType.F64 or groups is None or groups == 0:
        grouped_as_reduction(low, op)
        return
    views = tuple(operand(low, x, op) for x in (a, w, ends))
    m, n, k = (hint(low, e) for e in (*out.shape, views[0].shape[-1]))
    shape = GemmShape(
        groups, -(-m // groups), n, k, out.dtype, depth_first=views[1].strides[-2] is ONE, splittable=False
    )
    plan = chosen(low, shape)
    assert isinstance(plan, GemmPlan)
    decide(low, out.name, f"grouped {plan.variant} {plan.block_m}x{plan.block_n}x{plan.block_k}", plan.reason)
    template(low, op, "grouped", out, views, plan=plan)
