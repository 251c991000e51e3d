"""Attention on CPUs: the template, whose sums are f32; loops for f64."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, Expr
from hardtack.codegen.ir.graph import Op, uses
from hardtack.codegen.ir.nests import Operand, TemplateNest, Workspace
from hardtack.codegen.ir.roles import need
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.attention import AnyAttention
from hardtack.codegen.lower.attention_sums import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_workspace import attention_nbytes
from hardtack.codegen.lower.operands import copied, operand
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.machine.machine import Cpu


@dataclass(frozen=True)
class Attention(AnyAttention):
    """attention.h: see AnyAttention. scale: of the scores. order: of the result's dimensions in memory."""

    scale: float
    causal: bool
    order: tuple[int, ...]

    kind = "attention"
    machine = Cpu
    dtypes = (DType.F32, DType.BF16, DType.F16)

    def shape(self, nest: TemplateNest) -> tuple[Expr, ...]:
        """The result's, [B, H, T, E]."""
        in_order = sorted(zip(self.order, nest.axes, strict=True), key=lambda pair: pair[0])
        return tuple(axis.extent for _, axis in in_order)

    def workspace(self, nest: TemplateNest) -> Workspace:
        q, k, _ = nest.operands[:3]
        return Workspace(per_worker=attention_nbytes(k.shape[-2], q.shape[-1], self.shape(nest)[-1], q.dtype))

    def verify_order(self, order: tuple[int, ...]) -> None:
        super().verify_order(order)
        need(order == self.order, f"its result is in the order {order}, expected {self.order}")


@lowers("attention", on=Cpu)
def lower_attention(low: Lowering, op: Op) -> None:
    """softmax(q k^T * scale + mask) v; a query that no key answers gives zeros."""
    out = low.buffers[op.outputs[0]]
    if first_that_can(low, op, (Attention,)) is None:
        attention_as_reductions(low, op)
        return
    views: list[Operand] = []
    for x in uses(op):
        view = operand(low, x, op)
        is_mask = len(views) == 3
        if not is_mask and view.strides[-1] is not ONE and view.shape[-1] is not ONE:
            view = copied(low, x, op, None)
        views.append(view)
    scale = op.float_attr("scale")
    template(low, op, Attention(scale, op.bool_attr("causal"), out.order), out, tuple(views))
