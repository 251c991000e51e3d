"""Grouped products as Triton kernels: grouped.triton with its holes filled."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, scaled
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_grouped import Grouped


@renders(Grouped)
def render_grouped(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [M, K], b [G, K, N] and the rows [G] at which the groups end, ascending.

    A group has tiles of its own; a program counts them to find which one is its. There are at most M / BLOCK_M whole
    tiles, and one that is not whole for each group and for what lies behind the last.
    """
    anchor, grouped = anchored(kernel, Grouped)
    plan = grouped.plan
    sketch = Sketch(kernel, buffers)
    a, b, ends = anchor.operands
    (m, k), n = a.shape, b.shape[-1]
    count = int_value(b.shape[0])
    assert count is not None
    holes: dict[str, str | list[str]] = {
        "a": sketch.operand(0),
        "b": sketch.operand(1),
        "ends": sketch.operand(2),
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "depth": sketch.i32("depth_k", k),
        "count": str(count),
        "ends_step": sketch.i64("ends_step", ends.strides[0]),
        "a_row": sketch.i64("a_row", a.strides[0]),
        "a_step": sketch.i64("a_step", a.strides[1]),
        "a_depth": scaled("depth[None, :]", a.strides[1], sketch, "a_step"),
        "b_group": sketch.i64("b_group", b.strides[0]),
        "b_step": sketch.i64("b_step", b.strides[1]),
        "b_depth": scaled("depth[:, None]", b.strides[1], sketch, "b_step"),
        "b_column": scaled("columns[None, :]", b.strides[2], sketch, "b_column"),
        "wide": sketch.wide(),
    }
    holes["epilogue"] = sketch.epilogue()
    constexprs: dict[str, object] = {
        "BLOCK_M": plan.block_m,
        "BLOCK_N": plan.block_n,
        "BLOCK_K": plan.block_k,
        "GROUPS": power_of_two_from(count + 1),
    }
    programs = (m // plan.block_m + (count + 1)) * ceil_div(n, plan.block_n)
    return sketch.finish(fill(read("grouped"), holes), constexprs, programs, plan.warps, plan.stages)
