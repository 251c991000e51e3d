"""Attention on GPUs: a template, and one that combines parts of the keys; what it cannot do is loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nests import Request, Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Memory, Role, Sizes, only
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.attention import AnyAttention, attention_views, has_codes, verify_heads_inside
from hardtack.codegen.lower.attention_sums import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_plans import chosen, hint, verify_plan
from hardtack.codegen.lower.operands import whole
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import first_that_can, template
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.tune.attention_plan import LARGEST_HEAD, AttentionPlan, AttentionShape

PARTS = Role("parts", "parts B H T E", only(DType.F32))
WEIGHTS = Role("weights", "parts B H T", only(DType.F32))


@dataclass(frozen=True)
class TiledAttention(AnyAttention):
    """See AnyAttention. With a plan that splits the keys the results are [parts, B, H, T, E] and the parts' weights
    [parts, B, H, T].

    scale: of the scores.
    """

    plan: AttentionPlan
    scale: float
    causal: bool

    kind = "attention"
    machine = Gpu
    dtypes = (DType.F32, DType.F16, DType.BF16)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        heads = [t.shape[3] for t in (request.operands[0], request.operands[2])]
        sizes = [int_value(n) for n in heads]
        if any(n is None or not 0 < n <= LARGEST_HEAD for n in sizes):
            return f"heads of {heads[0]} and {heads[1]} elements in {request.result.dtype}"
        return super().why_not(request, machine)

    def result_roles(self, nest: TemplateNest) -> tuple[Role, ...]:
        return self.results if self.plan.splits == 1 else (PARTS, WEIGHTS)

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        verify_plan(self.plan)
        return {"parts": const(self.plan.splits)}

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        super().verify_sizes(nest, sizes)
        for name, block in (("D", self.plan.block_d), ("E", self.plan.block_e)):
            length = int_value(sizes[name])
            if length is None or not 0 < length <= block:
                raise LoopError(f"its plan is for {name} up to {block}, not {sizes[name]}")


class AttentionCombine(Template):
    """Parts of attention and their weights as one result."""

    kind = "attention_combine"
    machine = Gpu
    roles = (replace(PARTS, memory=Memory.WHOLE), replace(WEIGHTS, memory=Memory.WHOLE))
    results = (Role("result", "B H T E", only(DType.F32, DType.F16, DType.BF16)),)
    dtypes = (DType.F32,)

    def verify_order(self, order: tuple[int, ...]) -> None:
        verify_heads_inside(order)


@lowers("attention", on=Gpu)
def lower_attention(low: Lowering, op: Op) -> None:
    """softmax(q k^T * scale + mask) v; a query that no key answers gives zeros."""
    out = low.buffers[op.outputs[0]]
    q, k, v = (low.graph.type_of(x) for x in op.inputs[:3])
    if first_that_can(low, op, (TiledAttention,)) is None:
        attention_as_reductions(low, op)
        return
    d, e = int_value(q.shape[3]) or 0, int_value(v.shape[3]) or 0
    views = attention_views(low, op)
    sizes = (*q.shape[:2], views[1].shape[1], q.shape[2], k.shape[2])
    batch, heads, kv_heads, tq, tk = (hint(low, n) for n in sizes)
    causal = op.bool_attr("causal")
    plan = chosen(low, AttentionShape(batch, heads, kv_heads, tq, tk, d, e, q.dtype, causal))
    low.decide(out.name, f"attention {plan.block_m}x{plan.block_n}, {plan.splits} parts", plan.reason)
    scale = op.float_attr("scale")
    what = TiledAttention(has_codes(op), plan, scale, causal)
    if plan.splits == 1:
        template(low, op, what, out, views)
        return
    parts = low.temporary(f"{out.name}.parts", DType.F32, (const(plan.splits), *out.shape))
    weights = low.temporary(f"{out.name}.weights", DType.F32, (const(plan.splits), *out.shape[:-1]))
    template(low, op, what, parts, views, (weights.name,))
    template(low, op, AttentionCombine(), out, (whole(parts), whole(weights)))
