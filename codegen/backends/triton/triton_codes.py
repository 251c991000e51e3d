"""Products of few rows with codes as Triton kernels: the template gemm_code_tile.triton with its holes filled."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.backends.triton.code_tables import step_table
from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, masks, scaled, split_range
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8, MEMORY, rounded
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.lower.gpu_quantized import CodeTile

_SIGNS = {"sub": "-", "mul": "*", "add": "+"}


@renders(CodeTile)
def render_code_tile(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [M, K], the rest as for one row."""
    anchor, gemm = anchored(kernel, CodeTile)
    plan, sketch = gemm.plan, Sketch(kernel, buffers)
    a = anchor.operands[0]
    (batch, _, n), (m, k) = (x.extent for x in kernel.outer), a.shape
    columns = "" if int_value(n % plan.block_n) == 0 else ", mask=columns[:, None] < N, other=0"
    per_byte = 8 // gemm.bits
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "range": split_range(sketch, plan, batch, k),
        "a": sketch.operand(0),
        "a_row": sketch.i64("a_row", a.strides[-2]),
        "a_depth": scaled("depth[None, :]", a.strides[-1], sketch, "a_step"),
        "a_step": sketch.i64("a_step", a.strides[-1]),
        "a_mask": masks(plan, m, n, k)["a_mask"],
        "codes": sketch.operand(1),
        "row_bytes": str((int_value(k) or 0) // per_byte),
        "per_byte": str(per_byte),
        "mask": columns,
        "numbers": _numbers(gemm, sketch, columns),
        "start": sketch.start(("acc", "BLOCK_M")),
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    sizes = {"BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k}
    programs = ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_tile"), holes), sizes, programs, plan.warps, plan.stages)


def _numbers(gemm: CodeTile, sketch: Sketch, columns: str) -> list[str]:
    """`right` [BLOCK_N, BLOCK_K] of `bytes`, in the type of a; a block has one number of each table."""
    assert sketch.kernel.anchor is not None
    a, codes = sketch.kernel.anchor.operands[:2]
    bias = 8 if codes.dtype is DType.I8 else 0
    lines = ["right = bytes.to(tl.float32)" if gemm.bits == 8 else f"right = halves_of_bytes(bytes, {bias})"]
    if codes.dtype.is_float8:
        float8 = f"right = float_of_{FLOAT8[codes.dtype]}(bytes)"
        lines = [float8 if gemm.bits == 8 else "right = float4_of_bytes(bytes)"]
    for i, step in enumerate(gemm.steps):
        table = step_table(gemm, sketch, i, "columns[:, None]")
        number = table.wide(f"tl.load({table.start} + {table.at} + k // {step.run}{columns})")
        exact = f"(right {_SIGNS[step.kind]} {number})"
        lines.append(f"right = {rounded(exact, step.result) if step.result in HALF else exact}")
    return [*lines, f"right = right.to({MEMORY[a.dtype]})"]
