"""Attention as Triton kernels: attention.triton, and attention_combine.triton where keys are attended to in parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, divisor, fill, read, strides_of
from hardtack.codegen.backends.triton.triton_gemm import ceil_div
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8, MEMORY
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import ONE, ZERO, Expr, int_value
from hardtack.codegen.ir.graph_infer_nn import AttentionOperands
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand, TemplateNest
from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_attention import AttentionCombine, TiledAttention
from hardtack.codegen.tune.attention_plan import AttentionPlan

LOG2E = math.log2(math.e)


@renders(TiledAttention)
def render_attention(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: q [B, H, T, D], k [B, G, S, D], v [B, G, S, E], dense in their last dimension, of codes the scales
    [B, G, S] of k and v, and perhaps a mask [B, H, T, S], broadcast by strides; the result [B, H, T, E], or with splits
    [parts, B, H, T, E] and the weights."""
    anchor, what = anchored(kernel, TiledAttention)
    plan, causal, scale = what.plan, what.causal, what.scale
    sketch = Sketch(kernel, buffers)
    x = what.operands_of(anchor)
    q, k, v = x.q, x.k, x.v
    batch, heads, tq, d = q.shape
    kv_heads, tk, e = k.shape[1], k.shape[2], v.shape[3]
    group = heads // kv_heads
    pack = sketch.i32("pack", group) if plan.packed else "1"
    units = kv_heads if plan.packed else heads
    edges = {"d": int_value(d) != plan.block_d, "e": int_value(e) != plan.block_e}
    size_d, size_e = sketch.i32("size_d", d), sketch.i32("size_e", e)
    mask = None if x.mask is None else Mask(x.mask, len(anchor.operands) - 1)
    scan = _scan(sketch, k, mask) if plan.splits == 1 else []
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
        "mask_rows": _mask_rows(sketch, mask),
        "range": _range(plan, causal, scan),
        "output": _output(sketch, anchor, what, buffers, size_e),
    }
    for name, o, index in (("q", q, 0), ("k", k, 1), ("v", v, 2)):
        steps = strides_of(o.shape, o.strides)
        holes[name] = sketch.operand(index)
        for letter, step in zip("bht" if name == "q" else "bhs", steps, strict=False):
            holes[f"{name}_{letter}"] = sketch.i64(f"{name}_{letter}", step)
    holes |= _scale_rows(sketch, x)
    folded = _folded(x.mask, scale)
    holes |= _powers(scale * LOG2E, folded)
    for edge in (False, True):
        inner = {
            **holes,
            "masking": _masking(sketch, mask, causal, edge, edge or not scan, "" if folded else repr(scale * LOG2E)),
        }
        inner["k_mask"] = _inside("(keys < tk)[None, :]" if edge else "", f"(d < {size_d})[:, None]", edges["d"])
        inner["v_mask"] = _inside("(keys < tk)[:, None]" if edge else "", f"(e < {size_e})[None, :]", edges["e"])
        inner |= _numbers(sketch, x, edge)
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


@dataclass(frozen=True)
class Mask:
    """The operand that is an attention's mask, and which one it is."""

    operand: Operand
    index: int

    @property
    def strides(self) -> list[Expr]:
        """Of four dimensions; 0 for those that are broadcast."""
        given = strides_of(self.operand.shape, self.operand.strides)
        return [ZERO] * (4 - len(given)) + given


def _scale_rows(sketch: Sketch, x: AttentionOperands[Operand]) -> dict[str, str | list[str]]:
    """Where the scales of a head's keys and values start; nothing where these are no codes."""
    lines: list[str] = []
    for index, (side, scales) in enumerate(zip("kv", x.scales, strict=False), 3):
        b, h, _ = (sketch.i64(f"{side}_scale_{d}", s) for d, s in zip("bhs", _scale_strides(scales), strict=True))
        lines.append(f"{side}_scale_at = {sketch.operand(index)} + batch * {b} + kv_head * {h}")
    return {"scale_rows": lines}


def _scale_strides(scales: Operand) -> list[Expr]:
    return strides_of(scales.shape, scales.strides)


def _numbers(sketch: Sketch, x: AttentionOperands[Operand], edge: bool) -> dict[str, str | list[str]]:
    """Lines that make a block of codes the numbers that they stand for; none where keys and values are no codes."""
    found: dict[str, str | list[str]] = {"k_numbers": [], "v_numbers": []}
    inside = ", mask=keys < tk, other=0.0" if edge else ""
    for side, scales, spread in zip("kv", x.scales, ("[None, :]", "[:, None]"), strict=False):
        step = sketch.i64(f"{side}_scale_s", _scale_strides(scales)[2])
        codes = f"float_of_{FLOAT8[x.k.dtype]}({side})" if x.k.dtype.is_float8 else f"{side}.to(tl.float32)"
        found[f"{side}_numbers"] = [
            f"{side}_scale = tl.load({side}_scale_at + wide * {step}{inside})",
            f"{side} = ({codes} * {side}_scale{spread}).to({MEMORY[x.q.dtype]})",
        ]
    return found


def _folded(mask: Operand | None, scale: float) -> bool:
    """True if scores stay unscaled until they are exponents: one operation less for each."""
    return scale > 0.0 and (mask is None or mask.dtype is DType.BOOL)


def _powers(scale: float, folded: bool) -> dict[str, str | list[str]]:
    """How `s` and the running maximum become exponents of two."""
    if not folded:
        return {"level_scale": "", "exponent": "s - level[:, None]", "factor": "peak - level"}
    return {
        "level_scale": f" * {scale!r}",
        "exponent": f"tl.fma(s, {scale!r}, -level[:, None])",
        "factor": f"tl.fma(peak, {scale!r}, -level)",
    }


def _inside(keys: str, columns: str, partial: bool) -> str:
    parts = [p for p in (keys, columns if partial else "") if p]
    return f", mask={' & '.join(parts)}, other=0.0" if parts else ""


def _range(plan: AttentionPlan, causal: bool, scan: list[str]) -> list[str]:
    """first, whole, last: every row sees all keys of the blocks in [first, whole), [whole, last) need a look each.
    scan: lines that lower `last` and give `visible`, see _scan."""
    lines = ["first = 0", "last = tk"]
    if plan.splits > 1:
        lines = [
            f"part = tl.cdiv(tl.cdiv(tk, {plan.splits}), BLOCK_N) * BLOCK_N",
            "first = split * part",
            "last = tl.minimum(first + part, tk)",
        ]
    whole = "last"
    if causal and plan.packed:
        lines.append("last = tl.minimum(last, tq)")
        whole = "first"
    elif causal:
        lines.append("last = tl.minimum(last, tl.minimum((block + 1) * BLOCK_M, tq))")
        whole = "tl.minimum(last, block * BLOCK_M + 1)"
    lines += [*scan, f"whole = {whole}"]
    if scan:
        lines.append("whole = tl.minimum(whole, tl.minimum(visible, last))")
    return [*lines, "whole = first + tl.maximum(whole - first, 0) // BLOCK_N * BLOCK_N"]


def _mask_rows(sketch: Sketch, mask: Mask | None) -> list[str]:
    if mask is None:
        return []
    b, h, t = (sketch.i64(f"mask_{x}", s) for x, s in zip("bht", mask.strides[:3], strict=True))
    return [f"mask_at = {sketch.operand(mask.index)} + batch * {b} + head * {h} + query.to(tl.int64) * {t}"]


SCANNED_WORDS = 32
"""Words of eight keys that a step of the scan of a mask looks at."""
LONG = 256
"""Keys from which on a mask that differs from query to query is scanned."""
ALL_SEEN = 0x0101010101010101
NEVER = 1 << 28


def _scan(sketch: Sketch, k: Operand, mask: Mask | None) -> list[str]:
    """Lines that look through the rows of a mask before any keys are read: `last` becomes the end of the last word of
    which a query of the tile sees a key, and `visible` the start of the first of which one does not see all. None where
    a mask cannot be read in words, or where that is not worth it."""
    if mask is None or mask.operand.dtype is not DType.BOOL:
        return []
    steps, o = mask.strides, mask.operand
    keys = int_value(k.shape[2])
    words = all(divisor(e) % 8 == 0 for e in (o.offset, *steps[:-1], o.shape[-1])) and steps[-1] is ONE
    alike = steps[-3] is ZERO and steps[-2] is ZERO  # all heads and queries
    if not words or (not alike and keys is not None and keys < LONG):
        return []
    rows = "1" if alike else "BLOCK_M"
    starts = (
        f"({sketch.operand(mask.index)} + batch * {sketch.i64('mask_b', steps[0])} + tl.zeros((1,), tl.int64))"
        if alike
        else "mask_at"
    )
    inside = "" if alike else " & inside[:, None]"
    full = f"(some == {ALL_SEEN})" + ("" if alike else " | (inside[:, None] == 0)")
    return [
        f"mask_words = {starts}.to(tl.pointer_type(tl.int64))[:, None]",
        f"far = tl.zeros(({rows}, {SCANNED_WORDS}), tl.int32)",
        f"near = tl.full(({rows}, {SCANNED_WORDS}), {NEVER}, tl.int32)",
        f"for at in range(0, tk // 8, {SCANNED_WORDS}):",
        f"    words = (at + tl.arange(0, {SCANNED_WORDS}))[None, :]",
        f"    some = tl.load(mask_words + words, mask=(words < tk // 8){inside}, other=0)",
        "    far = tl.maximum(far, tl.where(some != 0, words + 1, 0))",
        f"    near = tl.minimum(near, tl.where({full}, {NEVER}, words))",
        "last = tl.minimum(last, tl.max(tl.max(far, axis=1), axis=0) * 8)",
        "visible = tl.min(tl.min(near, axis=1), axis=0) * 8",
    ]


def _masking(sketch: Sketch, mask: Mask | None, causal: bool, edge: bool, masked: bool, scale: str) -> list[str]:
    """What becomes of the scores `s` where the keys are masked, and beyond the last key. edge: a block of the second
    loop; masked: the mask is read. scale: what scores are multiplied with first; "" for nothing."""
    lines: list[str] = []
    plain = not scale
    if mask is not None and masked:
        step = sketch.i64("mask_s", mask.strides[-1])
        inside = "inside[:, None]" + (" & (keys < tk)[None, :]" if edge else "")
        lines.append(f"given = tl.load(mask_at[:, None] + (wide * {step})[None, :], mask={inside}, other=0)")
        if mask.operand.dtype is DType.BOOL:
            lines.append('s = tl.where(given != 0, s, float("-inf"))')
        else:
            lines.append(f"s = tl.fma(s, {scale}, given.to(tl.float32) * {LOG2E!r})")
            plain = True
    if not plain:
        lines.insert(0, f"s = s * {scale}")
    if edge:
        seen = "(keys < last)[None, :]" + (" & (keys[None, :] <= query[:, None])" if causal else "")
        lines.append(f's = tl.where({seen}, s, float("-inf"))')
    return lines


def _output(
    sketch: Sketch, anchor: TemplateNest, what: TiledAttention, buffers: Mapping[str, Buffer], size_e: str
) -> list[str]:
    plan, scale = what.plan, what.scale
    result = buffers[anchor.result]
    steps = result.strides()[-4:]
    b, h, t = (sketch.i64(f"o_{x}", s) for x, s in zip("bht", steps, strict=False))
    start = sketch.pointer(result.name)
    lines = [
        "acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]",
        f"out = batch * {b} + head * {h} + query.to(tl.int64) * {t}",
    ]
    if plan.splits > 1:
        peak = f"peak * {scale * LOG2E!r}" if _folded(what.operands_of(anchor).mask, scale) else "peak"
        weights = buffers[anchor.results[0]]
        part, *outer = weights.strides()
        b, h, t = (sketch.i64(f"w_{x}", s) for x, s in zip("bht", outer, strict=True))
        at = f"batch * {b} + head * {h} + query.to(tl.int64) * {t} + split * {sketch.i64('w_part', part)}"
        lines += [
            f"out += tl.cast(split, tl.int64) * {sketch.i64('o_part', result.strides()[0])}",
            f'weight = tl.where(total == 0.0, float("-inf"), {peak} + tl.log2(tl.where(total == 0.0, 1.0, total)))',
            f"tl.store({sketch.pointer(weights.name)} + {at}, weight, mask=inside)",
        ]
    columns = f" & (e < {size_e})[None, :]" if size_e != str(plan.block_e) else ""
    lines.append(f"tl.store({start} + out[:, None] + e[None, :], acc, mask=inside[:, None]{columns})")
    return lines


@renders(AttentionCombine)
def render_combine(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: values [parts, B, H, T, E] and weights [parts, B, H, T] in f32; the result [B, H, T, E]."""
    anchor, _ = anchored(kernel, AttentionCombine)
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
