"""How graph ops are lowered for CPUs."""

from __future__ import annotations

from collections.abc import Callable

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.lower import control, moments, pointwise, resize, windows
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_attention import lower_attention
from hardtack.codegen.lower.cpu_conv import lower_conv
from hardtack.codegen.lower.cpu_matmul import lower_matmul
from hardtack.codegen.lower.cpu_recurrence import lower_recurrent
from hardtack.codegen.lower.cpu_rows import lower_scan, lower_sorted
from hardtack.codegen.lower.grouped_sums import grouped_as_reduction
from hardtack.codegen.ops import SCALAR_OPS


def lower_grouped(low: Lowering, op: Op) -> None:
    low.decide(op.outputs[0], "reductions", "grouped products have no template on CPUs")
    grouped_as_reduction(low, op)


RULES: dict[str, Callable[[Lowering, Op], None]] = {
    **dict.fromkeys(SCALAR_OPS, pointwise.lower_scalar),
    "full": pointwise.lower_full,
    "iota": pointwise.lower_iota,
    "cat": pointwise.lower_cat,
    "pad": pointwise.lower_pad,
    "take": pointwise.lower_take,
    "put": pointwise.lower_put,
    "gather": pointwise.lower_gather,
    "scatter": pointwise.lower_scatter,
    "assert": pointwise.lower_assert,
    "reduce": windows.lower_reduce,
    "moments": moments.lower_moments,
    "pool": windows.lower_pool,
    "pool_index": windows.lower_pool_index,
    "adaptive_pool": windows.lower_adaptive_pool,
    "resize": resize.lower_resize,
    "matmul": lower_matmul,
    "grouped_matmul": lower_grouped,
    "conv": lower_conv,
    "attention": lower_attention,
    **dict.fromkeys(GATES, lower_recurrent),
    "sort": lower_sorted,
    "topk": lower_sorted,
    "scan": lower_scan,
    "cond": control.lower_cond,
    "while": control.lower_while,
}
"""Graph op kind -> its rule. Views (views.py) have none."""
