"""Attention on CPUs: the template, whose sums are f32; loops for f64."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import TemplateNest, Workspace
from hardtack.codegen.ir.roles import need
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.attention import AnyAttention, attention_views, has_codes
from hardtack.codegen.lower.attention_sums import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_workspace import attention_nbytes
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
        sizes = (k.shape[-2], q.shape[-1], self.shape(nest)[-1])
        return Workspace(per_worker=attention_nbytes(*sizes, q.dtype, self.codes))

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
    what = Attention(has_codes(op), op.float_attr("scale"), op.bool_attr("causal"), out.order)
    template(low, op, what, out, attention_views(low, op))
