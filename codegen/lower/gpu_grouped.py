"""Lowering for GPUs of grouped products: a template, where the number of groups is known."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, int_value
from hardtack.codegen.ir.graph import Op, uses
from hardtack.codegen.ir.nests import Request, Template, TemplateNest
from hardtack.codegen.ir.roles import Role, Sizes, need, only, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_plans import chosen, hint, verify_plan
from hardtack.codegen.lower.grouped_sums import grouped_as_reduction
from hardtack.codegen.lower.operands import operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape


@dataclass(frozen=True)
class Grouped(Template):
    """Rows of a [M, K] by the matrices b [G, K, N], of which the i64 or i32 ends [G] say where each one's rows end,
    ascending."""

    plan: GemmPlan

    kind = "grouped"
    machine = Gpu
    roles = (Role("a", "M K"), Role("b", "G K N"), Role("ends", "G", only(DType.I32, DType.I64)))
    results = (Role("result", "M N", summed),)
    dtypes = (DType.F32, DType.F16, DType.BF16)
    takes_epilogue = True

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        if not int_value(request.operands[1].shape[0]):
            return "the number of groups is not known"
        return super().why_not(request, machine)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        verify_plan(self.plan)
        need(self.plan.splits == 1, f"its sums are in {self.plan.splits} parts, which nothing adds up")
        need(bool(int_value(sizes["G"])), f"its number of groups, {sizes['G']}, is not known")


@lowers("grouped_matmul", on=Gpu)
def lower_grouped(low: Lowering, op: Op) -> None:
    """One template that finds each program's group; f64, which has no tensor cores, as a reduction."""
    a, w, ends = uses(op)
    out = low.buffers[op.outputs[0]]
    if first_that_can(low, op, (Grouped,)) is None:
        grouped_as_reduction(low, op)
        return
    groups = int_value(low.graph.types[w].shape[0]) or 1
    views = tuple(operand(low, x, op) for x in (a, w, ends))
    m, n, k = (hint(low, e) for e in (*out.shape, views[0].shape[-1]))
    shape = GemmShape(
        groups, -(-m // groups), n, k, views[0].dtype, depth_first=views[1].strides[-2] is ONE, splittable=False
    )
    plan = chosen(low, shape)
    low.decide(out.name, f"grouped {plan.variant} {plan.block_m}x{plan.block_n}x{plan.block_k}", plan.reason)
    template(low, op, Grouped(plan), out, views)
