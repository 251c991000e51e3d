"""Attention on GPUs: a template, and one that combines parts of the keys; what it cannot do is loops."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Operand, Request, Template
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.attention_sums import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.operands import copied, operand, whole
from hardtack.codegen.lower.plans import chosen, hint
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.machine.machine import Machine
from hardtack.codegen.tune.attention_plan import LARGEST_HEAD, AttentionPlan, AttentionShape


@dataclass(frozen=True)
class TiledAttention(Template):
    """q [B, H, T, D], k [B, G, S, D], v [B, G, S, E], dense in their last dimension, and perhaps a mask [B, H, T, S];
    broadcast by strides. The result is [B, H, T, E], or with a plan that splits the keys [parts, B, H, T, E] and the
    parts' weights [parts, B, H, T].

    scale: of the scores.
    """

    plan: AttentionPlan
    scale: float
    causal: bool

    kind = "attention"
    roles = ("q", "k", "v", "mask?")
    dtypes = (DType.F32, DType.F16, DType.BF16)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        heads = [t.shape[3] for t in (request.operands[0], request.operands[2])]
        sizes = [int_value(n) for n in heads]
        if any(n is None or not 0 < n <= LARGEST_HEAD for n in sizes) or request.result.dtype not in cls.dtypes:
            return f"heads of {heads[0]} and {heads[1]} elements in {request.result.dtype}"
        return None


class AttentionCombine(Template):
    """Parts of attention [parts, B, H, T, E] and their weights [parts, B, H, T] as one result [B, H, T, E]."""

    kind = "attention_combine"
    roles = ("values", "weights")
    dtypes = (DType.F32,)


def lower_attention(low: Lowering, op: Op) -> None:
    """softmax(q k^T * scale + mask) v; a query that no key answers gives zeros."""
    out = low.buffers[op.outputs[0]]
    q, k, v = (low.graph.type_of(x) for x in op.inputs[:3])
    if first_that_can(low, op, (TiledAttention,)) is None:
        attention_as_reductions(low, op)
        return
    d, e = int_value(q.shape[3]) or 0, int_value(v.shape[3]) or 0
    views: list[Operand] = []
    for x in op.inputs:
        assert isinstance(x, str)
        view = operand(low, x, op)
        if len(views) < 3 and view.strides[-1] is not ONE and view.shape[-1] is not ONE:
            view = copied(low, x, op, None)
        views.append(view)
    batch, heads, kv_heads, tq, tk = (hint(low, x) for x in (*q.shape[:2], k.shape[1], q.shape[2], k.shape[2]))
    causal = bool(op.attr("causal"))
    plan = chosen(low, AttentionShape(batch, heads, kv_heads, tq, tk, d, e, out.dtype, causal))
    low.decide(out.name, f"attention {plan.block_m}x{plan.block_n}, {plan.splits} parts", plan.reason)
    scale = op.float_attr("scale")
    what = TiledAttention(plan, scale, causal)
    if plan.splits == 1:
        template(low, op, what, out, tuple(views))
        return
    parts = low.temporary(f"{out.name}.parts", DType.F32, (const(plan.splits), *out.shape))
    weights = low.temporary(f"{out.name}.weights", DType.F32, (const(plan.splits), *out.shape[:-1]))
    template(low, op, what, parts, tuple(views), (weights.name,))
    template(low, op, AttentionCombine(), out, (whole(parts), whole(weights)))
