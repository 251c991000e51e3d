"""How graph ops are lowered for GPUs: as for CPUs, but for templates, joins, and writes to places in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.lower import cpu_rules
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_attention import lower_attention
from hardtack.codegen.lower.gpu_conv import lower_conv
from hardtack.codegen.lower.gpu_grouped import lower_grouped
from hardtack.codegen.lower.gpu_matmul import lower_matmul
from hardtack.codegen.lower.gpu_recurrence import lower_recurrent
from hardtack.codegen.lower.gpu_rows import lower_moments, lower_scan, lower_sorted
from hardtack.codegen.lower.last_writes import lower_put_last, lower_scatter_last
from hardtack.codegen.lower.operands import join_constants
from hardtack.codegen.lower.pointwise import lower_cat_selected


def lower_cat(low: Lowering, op: Op) -> None:
    """A cat of constants is made at export, as joined products have it; any other one selects by index."""
    if not join_constants(low, op):
        lower_cat_selected(low, op)


RULES: Mapping[str, Callable[[Lowering, Op], None]] = {
    **cpu_rules.RULES,
    "matmul": lower_matmul,
    "grouped_matmul": lower_grouped,
    "conv": lower_conv,
    "attention": lower_attention,
    **dict.fromkeys(GATES, lower_recurrent),
    "moments": lower_moments,
    "sort": lower_sorted,
    "topk": lower_sorted,
    "scan": lower_scan,
    "cat": lower_cat,
    "put": lower_put_last,
    "scatter": lower_scatter_last,
}
"""Graph op kind -> its rule. Views (views.py) have none."""
