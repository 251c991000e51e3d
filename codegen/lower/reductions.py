"""Lowering for GPUs without templates: products, convolutions and attention as reductions, joins as selections, writes
to indexed places in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.lower import RULES as CPU_RULES
from hardtack.codegen.lower.attention import attention_as_reductions
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.matrix import conv_as_reduction, matmul_as_reduction
from hardtack.codegen.lower.ordered import lower_put_last, lower_scatter_last
from hardtack.codegen.lower.pointwise import lower_cat_selected

TEMPLATES_ONLY = (*GATES, "sort", "topk", "scan")
"""Graph op kinds that only a template computes."""

RULES: Mapping[str, Callable[[Lowering, Op], None]] = {
    **{kind: rule for kind, rule in CPU_RULES.items() if kind not in TEMPLATES_ONLY},
    "matmul": matmul_as_reduction,
    "conv": conv_as_reduction,
    "attention": attention_as_reductions,
    "cat": lower_cat_selected,
    "put": lower_put_last,
    "scatter": lower_scatter_last,
}
"""Graph op kind -> its rule; kinds that only a template computes have none."""
