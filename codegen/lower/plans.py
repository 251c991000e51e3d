"""Plans of GPU templates in lowering: sizes to choose by, and the choice."""

from __future__ import annotations

from typing import overload

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.attention_plan import AttentionPlan, AttentionShape
from hardtack.codegen.tune.candidates import Plan, Shape
from hardtack.codegen.tune.conv_plan import ConvShape
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape


def hint(low: Lowering, e: Expr) -> int:
    """A size for choosing kernels: symbols take their example values."""
    return size_hint(e, low.hints)


def gpu(low: Lowering) -> Gpu:
    """The machine that the graph is lowered for."""
    assert isinstance(low.machine, Gpu), f"a rule for GPUs on {low.machine.target}"
    return low.machine


@overload
def chosen(low: Lowering, shape: GemmShape | ConvShape) -> GemmPlan: ...


@overload
def chosen(low: Lowering, shape: AttentionShape) -> AttentionPlan: ...


def chosen(low: Lowering, shape: Shape) -> Plan:
    """The plan for a shape, from a tuning table or by cost; how it came about is recorded."""
    plan, decisions = low.tuning.choose(shape, gpu(low))
    low.decisions += decisions
    return plan
