"""Scans and sorts as Triton kernels: scan.triton, sort_rows.triton, sort_merge.triton, sort_count.triton."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div
from hardtack.codegen.backends.triton.triton_spelling import MEMORY, REGISTER, number
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.neutral import neutral_value
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.lower.gpu_rows import BlockScan, SortCount, SortedRows, SortMerge, SortRows
from hardtack.codegen.lower.operands import around

Holes = dict[str, str | list[str]]
COMBINE = {"sum": "plus", "prod": "times", "max": "larger", "min": "smaller", "logsumexp": "log_plus"}


@renders(BlockScan)
def render_scan(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operand: x, dense and row-major; the result likewise. Floats are summed in f32, f64 in f64."""
    anchor, what = anchored(kernel, BlockScan)
    sketch = Sketch(kernel, buffers)
    x, out = anchor.operands[0], buffers[anchor.result]
    outer, length, inner = around(x.shape, what.dim)
    kind, block = what.scan, what.block
    register = REGISTER[out.dtype]
    neutral = number(neutral_value(kind, out.dtype))
    holes: Holes = {
        "length": sketch.i32("length", length),
        "inner": sketch.i32("inner", inner),
        "identity": neutral,
        "type": register,
        "x": sketch.operand(0),
        "out": sketch.pointer(anchor.result),
        "load": f".to({register})",
        "store": f".to({MEMORY[out.dtype]})",
        "combine": COMBINE[kind],
    }
    constexprs = {"BLOCK_N": block[0], "BLOCK_I": block[1]}
    return sketch.finish(fill(read("scan"), holes), constexprs, outer * ceil_div(inner, block[1]), 4, 1)


def key_lines(dtype: DType, descending: bool) -> list[str]:
    """`key`: an integer in the order of `value`, NaN above all, -0 as 0; complemented for descending order."""
    if dtype.is_float:
        wide, sign, most = ("int64", 63, 0x7FFFFFFFFFFFFFFF) if dtype is DType.F64 else ("int32", 31, 0x7FFFFFFF)
        widened = "value.to(tl.float32)" if dtype in HALF else "value"
        lines = [
            f"real = {widened}",
            f"key = tl.where(real == 0.0, 0.0, real).to(tl.{wide}, bitcast=True)",
            f"key = key ^ ((key >> {sign}) & {most:#x})",
            f"key = tl.where(real != real, {most:#x}, key)",
        ]
    elif dtype is DType.U32:
        lines = ["key = value.to(tl.int32, bitcast=True) ^ -0x80000000"]
    else:
        lines = [f"key = value.to(tl.{'int64' if dtype is DType.I64 else 'int32'})"]
    return [*lines, "key = ~key"] if descending else lines


def _emit(sketch: Sketch, anchor: TemplateNest, rows: SortedRows) -> list[str]:
    """Write the elements whose `place` is below the count asked for: x[index of item] and the index."""
    _, length, inner = around(rows.shape, rows.dim)
    count = around(tuple(sketch.buffers[anchor.result].shape), rows.dim)[1]
    k, step = sketch.i32("kept", count), sketch.i32("inner", inner)
    x, x_size = sketch.operand(0), sketch.i32("length", length)
    return [
        f"wanted = lines_inside[:, None] & (place < {k})",
        "index = item & 0xFFFFFFFF",
        f"wanted = wanted & (index < {x_size})",
        f"to_line = (lines // inner).to(tl.int64) * {k} * {step} + lines % inner",
        f"to = to_line[:, None] + place.to(tl.int64) * {step}",
        f"found = tl.load({x} + from_line[:, None] + index * {step}, mask=wanted, other=0)",
        f"tl.store({sketch.pointer(anchor.result)} + to, found, mask=wanted)",
        f"tl.store({sketch.pointer(anchor.results[0])} + to, index, mask=wanted)",
    ]


def _common(sketch: Sketch, rows: SortedRows) -> tuple[Holes, Expr, Expr]:
    """What all sorts share; the number of rows, and their length."""
    outer, length, inner = around(rows.shape, rows.dim)
    holes: Holes = {
        "length": sketch.i32("length", length),
        "inner": sketch.i32("inner", inner),
        "lines": sketch.i32("lines", outer * inner),
    }
    return holes, outer * inner, length


@renders(SortRows)
def render_sort(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operand: x, dense and row-major. Results: values and i64 indices; for the first step of a merge, sorted runs of
    items [lines, length] of i64, the key in the upper half and the index in the lower."""
    anchor, what = anchored(kernel, SortRows)
    sketch = Sketch(kernel, buffers)
    holes, lines, length = _common(sketch, what)
    block_n, block_r = what.block_n, what.block_r
    holes["x"] = sketch.operand(0)
    holes["key"] = key_lines(anchor.operands[0].dtype, what.descending)
    if anchor.results:
        holes["emit"] = _emit(sketch, anchor, what)
    else:
        place = f"{sketch.pointer(anchor.result)} + lines.to(tl.int64)[:, None] * length + place"
        holes["emit"] = [f"tl.store({place}, item, mask=inside)"]
    constexprs = {"BLOCK_R": block_r, "BLOCK_N": block_n}
    programs = ceil_div(lines, block_r) * ceil_div(length, block_n)
    warps = 8 if block_n * block_r >= 2048 else 4
    return sketch.finish(fill(read("sort_rows"), holes), constexprs, programs, warps, 1)


@renders(SortMerge)
def render_merge(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: x, then items in runs of `run`. The result: items in runs twice as long, or values and indices."""
    anchor, what = anchored(kernel, SortMerge)
    sketch = Sketch(kernel, buffers)
    holes, lines, length = _common(sketch, what)
    run = what.run
    holes["items"] = sketch.operand(1)
    holes["search"] = str(run.bit_length())
    if anchor.results:
        holes["emit"] = ["lines_inside = lines_inside & (lines >= 0)", *_emit(sketch, anchor, what)]
    else:
        holes["emit"] = [f"tl.store({sketch.pointer(anchor.result)} + row + place, item, mask=inside)"]
    constexprs = {"BLOCK_N": 512, "RUN": run}
    return sketch.finish(fill(read("sort_merge"), holes), constexprs, lines * ceil_div(length, 512), 4, 1)


@renders(SortCount)
def render_count(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operand: x, dense and row-major. Results: values and i64 indices."""
    anchor, what = anchored(kernel, SortCount)
    sketch = Sketch(kernel, buffers)
    holes, lines, length = _common(sketch, what)
    block_n = what.block_n
    holes["x"] = sketch.operand(0)
    holes["key"] = key_lines(anchor.operands[0].dtype, what.descending)
    holes["emit"] = ["place = tl.where(inside, place, length)", *_emit(sketch, anchor, what)]
    constexprs = {"BLOCK_N": block_n}
    return sketch.finish(fill(read("sort_count"), holes), constexprs, lines * ceil_div(length, block_n), 4, 1)
