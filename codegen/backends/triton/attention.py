"""Attention as Triton kernels: attention.triton, and attention_combine.triton where keys are attended to in parts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hardtack.codegen.backends.triton.gemm import ceil_div
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read, strides_of
from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.loops import Buffer, TemplateNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.attention import AttentionPlan
from hardtack.codegen.tune.machine import power_of_two_from

LOG2E = math.log2(math.e)


def render_attention(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: q [B, H, T, D], k [B, G, S, D], v [B, G, S, E], dense in their last dimension, and perhaps a mask
    [B, H, T, S], broadcast by strides; the result [B, H, T, E], or with splits [parts, B, H, T, E] and the weights."""
    anchor = kernel.anchor
    assert anchor is not None
    plan, causal = anchor.attr("plan"), bool(anchor.attr("causal"))
    assert isinstance(plan, AttentionPlan)
    sketch = Sketch(kernel, buffers)
    q, k, v = anchor.operands[:3]
    batch, heads, tq, d = q.shape
    kv_heads, tk, e = k.shape[1], k.shape[2], v.shape[3]
    group = heads // kv_heads
    pack = sketch.i32("pack", group) if plan.packed else "1"
    units = kv_heads if plan.packed else heads
    edges = {"d": int_value(d) != plan.block_d, "e": int_value(e) != plan.block_e}
    size_d, size_e = sketch.i32("size_d", d), sketch.i32("size_e", e)
    holes: dict[str, str | list[str]] = {
        "tq": sketch.i32("queries", tq),
        "tk": sketch.i32("keys_end", tk),
        "pack": pack,
        "splits": str(plan.splits),
        # the last blocks of a causal row of blocks have most to do: they start first
        "block": "blocks - 1 - unit % blocks" if causal else "unit % blocks",
        "units": sketch.i32("units", units),
        "shared": "1" if plan.packed else sketch.i32("group", group),
        "d_columns": f" & (d < {size_d})[None, :]" if edges["d"] else "",
        "mask_rows": _mask_rows(sketch, anchor),
        "range": _range(plan, causal, pack),
        "output": _output(sketch, anchor, plan, buffers, size_e),
    }
    for name, o, index in (("q", q, 0), ("k", k, 1), ("v", v, 2)):
        steps = strides_of(o.shape, o.strides)
        holes[name] = sketch.operand(index)
        for letter, step in zip("bht" if name == "q" else "bhs", steps, strict=False):
            holes[f"{name}_{letter}"] = sketch.i64(f"{name}_{letter}", step)
    scale = anchor.attr("scale")
    assert isinstance(scale, float)
    for edge in (False, True):
        inner = {**holes, "scale": repr(scale * LOG2E), "masking": _masking(sketch, anchor, causal and edge, edge)}
        inner["k_mask"] = _inside("(keys < tk)[None, :]" if edge else "", f"(d < {size_d})[:, None]", edges["d"])
        inner["v_mask"] = _inside("(keys < tk)[:, None]" if edge else "", f"(e < {size_e})[None, :]", edges["e"])
        step_lines = fill(read("attention_step"), inner).splitlines()
        holes["edge_step" if edge else "whole_step"] = step_lines
    rows = tq * group if plan.packed else tq
    programs = batch * units * ceil_div(rows, plan.block_m) * plan.splits
    constexprs = {
        "BLOCK_M": plan.block_m,
        "BLOCK_N": plan.block_n,
        "BLOCK_D": plan.block_d,
        "BLOCK_E": plan.block_e,
    }
    return sketch.finish(fill(read("attention"), holes), constexprs, programs, plan.warps, plan.stages)


def _inside(keys: str, columns: str, partial: bool) -> str:
    parts = [p for p in (keys, columns if partial else "") if p]
    return f", mask={' & '.join(parts)}, other=0.0" if parts else ""


def _range(plan: AttentionPlan, causal: bool, pack: str) -> list[str]:
    """first, whole, last: every row sees all keys of the blocks in [first, whole), [whole, last) need a look each."""
    lines = ["first = 0", "last = tk"]
    if plan.splits > 1:
        lines = [
            f"part = tl.cdiv(tl.cdiv(tk, {plan.splits}), BLOCK_N) * BLOCK_N",
            "first = split * part",
            "last = tl.minimum(first + part, tk)",
        ]
    if not causal:
        return [*lines, "whole = first + tl.maximum(last - first, 0) // BLOCK_N * BLOCK_N"]
    if plan.packed:
        return [*lines, "last = tl.minimum(last, tq)", "whole = first"]
    return [
        *lines,
        "last = tl.minimum(last, tl.minimum((block + 1) * BLOCK_M, tq))",
        "whole = tl.minimum(last, block * BLOCK_M + 1)",
        "whole = first + tl.maximum(whole - first, 0) // BLOCK_N * BLOCK_N",
    ]


def _mask_rows(sketch: Sketch, anchor: TemplateNest) -> list[str]:
    if len(anchor.operands) < 4:
        return []
    mask = anchor.operands[3]
    steps = strides_of(mask.shape, mask.strides)
    steps = [const(0)] * (4 - len(steps)) + steps
    b, h, t = (sketch.i64(f"mask_{x}", s) for x, s in zip("bht", steps[:3], strict=True))
    return [f"mask_at = {sketch.operand(3)} + batch * {b} + head * {h} + query.to(tl.int64) * {t}"]


def _masking(sketch: Sketch, anchor: TemplateNest, causal: bool, edge: bool) -> list[str]:
    """What becomes of the scores `s` where the keys are masked, and beyond the last key."""
    lines: list[str] = []
    if len(anchor.operands) > 3:
        mask = anchor.operands[3]
        step = sketch.i64("mask_s", strides_of(mask.shape, mask.strides)[-1])
        inside = "inside[:, None]" + (" & (keys < tk)[None, :]" if edge else "")
        lines.append(f"given = tl.load(mask_at[:, None] + (wide * {step})[None, :], mask={inside}, other=0)")
        if mask.dtype is DType.BOOL:
            lines.append('s = tl.where(given != 0, s, float("-inf"))')
        else:
            lines.append(f"s += given.to(tl.float32) * {LOG2E!r}")
    if edge:
        seen = "(keys < last)[None, :]" + (" & (keys[None, :] <= query[:, None])" if causal else "")
        lines.append(f's = tl.where({seen}, s, float("-inf"))')
    return lines


def _output(
    sketch: Sketch, anchor: TemplateNest, plan: AttentionPlan, buffers: Mapping[str, Buffer], size_e: str
) -> list[str]:
    result = buffers[anchor.result]
    steps = result.strides()[-4:]
    b, h, t = (sketch.i64(f"o_{x}", s) for x, s in zip("bht", steps, strict=False))
    start = sketch.pointer(result.name)
    lines = [
        "acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]",
        f"out = batch * {b} + head * {h} + query.to(tl.int64) * {t}",
    ]
    if plan.splits > 1:
        weights = buffers[anchor.results[0]]
        part, *outer = weights.strides()
        b, h, t = (sketch.i64(f"w_{x}", s) for x, s in zip("bht", outer, strict=True))
        at = f"batch * {b} + head * {h} + query.to(tl.int64) * {t} + split * {sketch.i64('w_part', part)}"
        lines += [
            f"out += tl.cast(split, tl.int64) * {sketch.i64('o_part', result.strides()[0])}",
            'weight = tl.where(total == 0.0, float("-inf"), peak + tl.log2(tl.where(total == 0.0, 1.0, total)))',
            f"tl.store({sketch.pointer(weights.name)} + {at}, weight, mask=inside)",
        ]
    columns = f" & (e < {size_e})[None, :]" if size_e != str(plan.block_e) else ""
    lines.append(f"tl.store({start} + out[:, None] + e[None, :], acc, mask=inside[:, None]{columns})")
    return lines


def render_combine(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: values [parts, B, H, T, E] and weights [parts, B, H, T] in f32; the result [B, H, T, E]."""
    anchor = kernel.anchor
    assert anchor is not None
    sketch = Sketch(kernel, buffers)
    values, _ = anchor.operands
    parts, batch, heads, tq, e = values.shape
    rows = batch * heads * tq
    count = int_value(parts)
    size_e = int_value(e)
    assert count is not None and size_e is not None
    b, h, t, _ = buffers[anchor.result].strides()
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i64("rows", rows),
        "values": sketch.operand(0),
        "weights": sketch.operand(1),
        "splits": str(count),
        "columns": str(size_e),
        "tq": sketch.i32("queries", tq),
        "heads": sketch.i32("heads", heads),
        "out": sketch.pointer(anchor.result),
        "o_b": sketch.i64("o_b", b),
        "o_h": sketch.i64("o_h", h),
        "o_t": sketch.i64("o_t", t),
    }
    constexprs = {"BLOCK_S": power_of_two_from(count), "BLOCK_E": power_of_two_from(size_e)}
    return sketch.finish(fill(read("attention_combine"), holes), constexprs, rows, 4, 1)
