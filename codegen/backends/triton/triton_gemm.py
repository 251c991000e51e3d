"""Matrix products as Triton kernels: the templates gemm*.triton with their holes filled."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.prologue import render_held, render_prologue
from hardtack.codegen.backends.triton.sketch import Sketch, batch_lines, fill, read, strides_of
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.backends.triton.waits import WAIT_HERE
from hardtack.codegen.ir.expr import ONE, Expr, int_value, minimum
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.tune.gemm_plan import GemmPlan

FLOAT8_TERMS = 128
"""Of a sum of floats of 8 bits that tensor cores keep, until it is added to one of f32: what cuBLAS does."""
FILES = {"tile": "gemm", "outer": "gemm_outer", "vector": "gemm_vector"}


@renders(Gemm)
def render_gemm(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [..., M, K] and b [..., K, N], their leading dimensions the batch; see lower/gpu_matmul.py."""
    anchor, gemm = anchored(kernel, Gemm)
    plan = gemm.plan
    if plan.variant == "stream":
        return _render_stream(kernel, buffers)
    if gemm.holds_row(anchor):
        return _render_row(kernel, buffers)
    sketch = Sketch(kernel, buffers)
    a, b = anchor.operands
    (batch, _, n), (m, k) = (x.extent for x in kernel.outer), a.shape[-2:]
    holes: dict[str, str | list[str]] = {
        "b": sketch.typed_operand(1),
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "range": split_range(sketch, plan, batch, k),
        "b_step": sketch.i64("b_step", b.strides[-2]),
        "wide": sketch.wide(),
        "accumulate": "tl.float64" if a.dtype is DType.F64 else "tl.float32",
    }
    holes |= {
        "b_depth": scaled(
            "depth[None, :]" if plan.variant == "vector" else "depth[:, None]", b.strides[-2], sketch, "b_step"
        ),
        "b_column": scaled(
            "columns[:, None]" if plan.variant == "vector" else "columns[None, :]", b.strides[-1], sketch, "b_column"
        ),
    }
    strides = {x: strides_of(o.shape[:-2], o.strides[:-2]) for x, o in (("a", a), ("b", b))}
    extents = batch_extents(a, b)
    holes["batches"] = batch_lines(sketch, extents, strides, "slice" if plan.splits > 1 else "batch")
    holes |= masks(plan, m, n, k)
    row = 0
    if plan.variant == "vector":
        lines, row = _row_lines(sketch, a, plan.block_k)
        holes |= lines
    else:
        holes |= _loaded_a(sketch, a)
    # a constant B may be read before the kernel in front has ended, all else may not
    holes["wait"] = [WAIT_HERE] if plan.variant == "vector" and gemm.constant else []
    if plan.variant == "tile":
        holes["start"] = sketch.start(("acc", "BLOCK_M"))
        holes |= _product(gemm, a.dtype)
    holes["epilogue"] = sketch.epilogue()
    tiles = ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n) * batch
    constexprs: dict[str, object] = {"BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n}
    if plan.variant != "outer":
        constexprs["BLOCK_K"] = plan.block_k
    if plan.variant == "tile":
        constexprs["GROUP_M"] = plan.group_m
    if row:
        constexprs["ROW"] = row
    text = fill(read(FILES[plan.variant]), holes)
    return sketch.finish(text, constexprs, tiles, plan.warps, plan.stages)


def _render_row(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    anchor, gemm = anchored(kernel, Gemm)
    plan = gemm.plan
    sketch = Sketch(kernel, buffers)
    a, b = anchor.operands
    n, length = kernel.outer[-1].extent, int_value(a.shape[-1])
    whole = length == plan.block_k
    inside = "k[None, :] < K"
    row = "" if whole else f", mask={inside}, other=0.0"
    depth = scaled("depth[None, :]", a.strides[-1], sketch, "a_step")
    holes: dict[str, str | list[str]] = {
        "columns": sketch.i32("columns", n),
        "length": str(length),
        "b": sketch.operand(1),
        "b_column": scaled("columns[:, None]", b.strides[-1], sketch, "b_column"),
        "b_depth": scaled("depth[None, :]", b.strides[-2], sketch, "b_step"),
        "b_mask": "(columns[:, None] < N)" + ("" if whole else f" & ({inside})"),
        "wait": [WAIT_HERE] if gemm.constant else [],
        "wide": sketch.wide(),
    }
    if kernel.prologue:
        holes["ahead"], holes["row"] = render_held(sketch, None if whole else inside)
    else:
        holes["ahead"], holes["row"] = [], [f"left = tl.load({sketch.operand(0)} + {depth}{row})"]
    holes["epilogue"] = sketch.epilogue()
    constexprs: dict[str, object] = {"BLOCK_M": 1, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k}
    programs = minimum(ceil_div(n, plan.block_n), plan.programs)
    return sketch.finish(fill(read("gemm_row"), holes), constexprs, programs, plan.warps, plan.stages)


def _loaded_a(sketch: Sketch, a: Operand) -> dict[str, str | list[str]]:
    """A as it is read from memory."""
    start, step = sketch.typed_operand(0), sketch.i64("a_step", a.strides[-1])
    depth = scaled("depth[None, :]", a.strides[-1], sketch, "a_step")
    return {"a": start, "a_row": sketch.i64("a_row", a.strides[-2]), "a_step": step, "a_depth": depth}


def _row_lines(sketch: Sketch, a: Operand, block_k: int) -> tuple[dict[str, list[str]], int]:
    """Lines that read one row a block at a time, or that compute it where the kernel has a prologue; RowText.row."""
    if sketch.kernel.prologue:
        computed = render_prologue(sketch, block_k)
        return {"row": computed.once, "left": computed.each}, computed.row
    step = sketch.i64("a_step", a.strides[-1])
    depth = scaled("depth[None, :]", a.strides[-1], sketch, "a_step")
    read = "left = tl.load(a, mask=k[None, :] < end, other=0.0)"
    return {"row": [f"a = {sketch.operand(0)} + a_at + {depth}"], "left": [read, f"a += BLOCK_K * {step}"]}, 0


def _render_stream(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """One matrix by another, both read by bulk copies: by a persistent grid, or with a program for each tile."""
    anchor, gemm = anchored(kernel, Gemm)
    plan = gemm.plan
    sketch = Sketch(kernel, buffers)
    a, b = anchor.operands
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    height = power_of_two_from(plan.block_m + 1) // 2  # the tile's rows, or of two tiles the larger one's
    rest = plan.block_m - height
    batch = kernel.outer[0].extent
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "load_a": _bulk(sketch, "a_map", 0, (height, plan.block_k), ("row", "k")),
        "load_b": _bulk(sketch, "b_map", 1, (plan.block_k, plan.block_n), ("k", "column")),
        "wide": sketch.wide(),
        "sums": _product(gemm, a.dtype)["sums"],
    }
    constexprs: dict[str, object] = {"BLOCK_M": height, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k}
    name, programs = "gemm_bulk", ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n)
    if plan.programs:
        name, programs = "gemm_stream", minimum(programs, plan.programs)
        holes["depth"] = sketch.i32("depth_k", k)
    else:
        programs = programs * batch
        holes["range"] = split_range(sketch, plan, batch, k)
    holes["start"] = sketch.start(("acc", "BLOCK_M"), *([("rest", "BLOCK_R")] if rest else []))
    if rest:
        name = "gemm_pair"
        holes["load_rest"] = _bulk(sketch, "rest_map", 0, (rest, plan.block_k), ("rest_row", "k"))
        holes["rest_epilogue"] = sketch.epilogue("rest", "BLOCK_R")
        constexprs["BLOCK_R"] = rest
    holes["epilogue"] = sketch.epilogue()
    text = fill(read(name), holes)
    return sketch.finish(text, {**constexprs, "GROUP_M": plan.group_m}, programs, plan.warps, plan.stages)


def _product(gemm: Gemm, dtype: DType) -> dict[str, str]:
    """What multiplies two tiles, and how it adds up: int8 in int32; floats of 8 bits as tensor cores do, into f32 after
    FLOAT8_TERMS or never."""
    if dtype is DType.I8:
        return {"product": "tl.dot", "sums": ", out_dtype=tl.int32"}
    if dtype.is_float8:
        exact = f", max_num_imprecise_acc={min(FLOAT8_TERMS, gemm.plan.block_k)}"
        return {"product": "tl.dot", "sums": exact if gemm.sums == "float8" else ""}
    return {"product": "tile_product", "sums": ""}


def _bulk(sketch: Sketch, name: str, k: int, block: tuple[int, int], at: tuple[str, str]) -> str:
    straight = sketch.map(name, k, block)
    return f"{name}.load([{at[0]}, {at[1]}])" if straight else f"{name}.load([{at[1]}, {at[0]}]).T"


def split_range(sketch: Sketch, plan: GemmPlan, batch: Expr, k: Expr) -> list[str]:
    """The part [begin, end) of K that a program sums."""
    depth = sketch.i32("depth_k", k)
    if plan.splits == 1:
        return ["begin = 0", f"end = {depth}"]
    slices = sketch.i32("slices", batch // plan.splits)
    return [
        f"part = tl.cdiv(tl.cdiv({depth}, {plan.splits}), {plan.block_k}) * {plan.block_k}",
        f"slice = batch % {slices}",
        f"begin = batch // {slices} * part",
        f"end = tl.minimum(begin + part, {depth})",
    ]


def masks(plan: GemmPlan, m: Expr, n: Expr, k: Expr) -> dict[str, str]:
    """What the loads of A and B must not read; nothing where sizes are multiples of the tile's."""

    def multiple(e: Expr, block: int) -> bool:
        value = int_value(e % block)
        return value == 0

    even_k = multiple(k, plan.block_k * plan.splits) and plan.variant == "tile"
    if plan.variant == "vector":
        columns = "" if multiple(n, plan.block_n) else " & (columns[:, None] < N)"
        first = f", mask=(k[None, :] < end){columns}, other=0.0"
        return {"b_mask": first + ', eviction_policy="evict_first"'}
    out = {}
    for side, size, block, inside, depth in (
        ("a_mask", m, plan.block_m, "(rows[:, None] < M)", "((k + lanes)[None, :] < end)"),
        ("b_mask", n, plan.block_n, "(columns[None, :] < N)", "((k + lanes)[:, None] < end)"),
    ):
        parts = ([] if multiple(size, block) else [inside]) + ([] if even_k else [depth])
        out[side] = f", mask={' & '.join(parts)}, other=0.0" if parts else ""
    return out


def scaled(index: str, stride: Expr, sketch: Sketch, name: str) -> str:
    """index * stride, in 64 bits unless the stride is 1."""
    if stride is ONE:
        return index
    if int_value(stride) == 0:
        return f"{index} * 0"
    return f"{index}.to(tl.int64) * {sketch.i64(name, stride)}"


def batch_extents(*operands: Operand) -> list[Expr]:
    """The leading dimensions of all operands, broadcast: all but the last two."""
    rank = len(operands[0].shape) - 2
    out: list[Expr] = []
    for d in range(rank):
        sizes = [o.shape[d] for o in operands]
        out.append(next((s for s in sizes if s is not ONE), ONE))
    return out


def ceil_div(e: Expr, block: int) -> Expr:
    """e / block rounded up."""
    return (e + (block - 1)) // block if block > 1 else e
