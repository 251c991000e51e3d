"""Plans of GPU templates in lowering: sizes to choose by, and the choice."""

from __future__ import annotations

from dataclasses import fields
from typing import overload

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.roles import need
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.attention_plan import AttentionPlan, AttentionShape
from hardtack.codegen.tune.candidates import Plan, Shape
from hardtack.codegen.tune.conv_plan import ConvShape, DepthwisePlan
from hardtack.codegen.tune.gemm_plan import PAIR_ROWS, GemmPlan, GemmShape


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


def verify_plan(plan: Plan | DepthwisePlan) -> None:
    """Raise LoopError for numbers of a plan with which there is no kernel: tiles have sides that are powers of two, but
    for the pair of tiles that PAIR_ROWS is."""
    for f in fields(plan):
        n = getattr(plan, f.name)
        if not isinstance(n, int) or isinstance(n, bool):
            continue
        need(n >= (f.name != "programs"), f"its plan has {f.name} {n}")
        if f.name.startswith(("block_", "warps", "run", "share")):
            need(is_power_of_two(n) or n == PAIR_ROWS, f"its plan has {f.name} {n}, no power of two")


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0
