"""Products of few rows with codes as Triton kernels: the templates gemm_code_*.triton with their holes filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, masks, row_lines, scaled, split_range
from hardtack.codegen.backends.triton.triton_spelling import MEMORY, rounded
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.backends.triton.waits import WAIT_HERE
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.lower.gpu_code_rows import TableStep
from hardtack.codegen.lower.gpu_quantized import CodeGemm, CodeRow, CodeTile
from hardtack.codegen.tune.code_plan import WORD_BITS

_SIGNS = {"sub": "-", "mul": "*", "add": "+"}


@renders(CodeRow)
def render_code_row(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [1, K], codes in rows of bytes, and the tables of its steps; see lower/gpu_quantized.py."""
    anchor, gemm = anchored(kernel, CodeRow)
    plan, sketch = gemm.plan, Sketch(kernel, buffers)
    (batch, _, n), a = (x.extent for x in kernel.outer), anchor.operands[0]
    k = int_value(a.shape[-1]) or 0
    run, per_word = gemm.run(k), WORD_BITS // gemm.bits
    even = int_value(n % plan.block_n) == 0
    tables = _tables(gemm, sketch)
    following = [f"codes_next = tl.load(words + word[None, :]{_mask(f'word[None, :] * {per_word} < end', even)})"]
    holes: dict[str, str | list[str]] = {
        "columns": sketch.i32("columns", n),
        "range": split_range(sketch, plan, batch, a.shape[-1]),
        "codes": sketch.operand(1),
        "row_words": str(k // per_word),
        "per_word": str(per_word),
        "next": [*following, *(t.load(plan.block_k, even) for t in tables)],
        "taken": ["codes = codes_next", *(f"{t.name} = {t.name}_next.to(tl.float32)" for t in tables)],
        "sums": _sums(gemm, anchor.operands[1].dtype, tables),
        "wait": [WAIT_HERE],
        "wide": sketch.wide(),
    }
    lines, row = row_lines(sketch, a, plan.block_k)
    holes |= lines
    holes["epilogue"] = sketch.epilogue()
    sizes = {"BLOCK_M": 1, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k, "RUN": run} | ({"ROW": row} if row else {})
    programs = ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_row"), holes), sizes, programs, plan.warps, plan.stages)


@renders(CodeTile)
def render_code_tile(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [M, K], the rest as for one row."""
    anchor, gemm = anchored(kernel, CodeTile)
    plan, sketch = gemm.plan, Sketch(kernel, buffers)
    a, codes = anchor.operands[:2]
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
        "numbers": _numbers(gemm, a.dtype, codes.dtype, _tables(gemm, sketch), columns),
        "start": sketch.start(("acc", "BLOCK_M")),
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    sizes = {"BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k}
    programs = ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_tile"), holes), sizes, programs, plan.warps, plan.stages)


def _numbers(gemm: CodeTile, dtype: DType, codes: DType, tables: Sequence[_Table], columns: str) -> list[str]:
    """`right` [BLOCK_N, BLOCK_K] of `bytes`, in the type of a; a block has one number of each table."""
    bias = 8 if codes is DType.I8 else 0
    lines = ["right = bytes.to(tl.float32)" if gemm.bits == 8 else f"right = halves_of_bytes(bytes, {bias})"]
    for t in tables:
        number = f"tl.load({t.start} + {t.at} + k // {t.step.run}{columns}).to(tl.float32)"
        exact = f"(right {_SIGNS[t.step.kind]} {number})"
        lines.append(f"right = {rounded(exact, t.step.result) if t.step.result in HALF else exact}")
    return [*lines, f"right = right.to({MEMORY[dtype]})"]


def _tables(gemm: CodeGemm, sketch: Sketch) -> list[_Table]:
    """Of all steps, in turn."""
    anchor = sketch.kernel.anchor
    assert anchor is not None
    views = anchor.operands[2:]
    return [
        _Table(i, s, scaled("columns[:, None]", view.strides[0], sketch, f"table_row{i}"), sketch.operand(2 + i))
        for i, (s, view) in enumerate(zip(gemm.steps, views, strict=True))
    ]


def _mask(inside: str, even: bool, evict: bool = True) -> str:
    columns = "" if even else " & (columns[:, None] < N)"
    return f", mask=({inside}){columns}, other=0" + (', eviction_policy="evict_first"' if evict else "")


@dataclass(frozen=True)
class _Table:
    """A step's numbers in a kernel. at: offsets of its rows; start: where it starts."""

    index: int
    step: TableStep
    at: str
    start: str

    @property
    def name(self) -> str:
        return f"table{self.index}"

    def load(self, block_k: int, even: bool) -> str:
        """Those of the part at `block`, for each column and run; for each column, where a block has no more."""
        if self.step.run % block_k == 0:
            place, inside = f"block // {self.step.run}", "block < end"
        else:
            place, inside = f"(run * RUN // {self.step.run})[None, :]", "(run * RUN)[None, :] < end"
        return f"{self.name}_next = tl.load({self.start} + {self.at} + {place}{_mask(inside, even, evict=False)})"


def _sums(gemm: CodeRow, dtype: DType, tables: Sequence[_Table]) -> list[str]:
    """acc += scale * the runs' sums of left * code + shift * those of left, as the steps make scale and shift."""
    bias = 1 << (gemm.bits - 1) if dtype is DType.I8 else 0
    words = "codes ^ 0x80808080" if bias == 128 else "codes"  # halves of a byte have their bias already
    lines = [f"sums = code_sums(wide_left, {words}, {gemm.bits}, {bias}, RUN)"]
    scale, shift = "", ""
    for t in tables:
        if t.step.kind == "mul":
            lines += [f"scale = scale * {t.name}"] if scale else [f"scale = {t.name}"]
            lines += [f"shift = shift * {t.name}"] if shift else []
            scale = "scale"
        else:
            sign = "-" if t.step.kind == "sub" else ""
            lines.append(f"shift = shift {sign or '+'} {t.name}" if shift else f"shift = {sign}{t.name}")
            shift = "shift"
    lines.append(f"acc += sums * {scale}" if scale else "acc += sums")
    if shift:
        lines.append("acc += tl.sum(tl.reshape(wide_left, (1, BLOCK_K // RUN, RUN)), axis=2) * shift")
    return lines
