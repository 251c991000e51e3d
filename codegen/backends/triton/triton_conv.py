"""Convolutions as Triton kernels: conv.triton, for all but depthwise ones (triton_depthwise.py).

Results are channels-last: row m of the tile is an output point of an image, column n an output channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_conv import TiledConv

DIMS = "zyx"


def _places(sketch: Sketch, sizes: list[Expr]) -> list[str]:
    """The image and the output coordinates o_z, o_y, o_x of each row."""
    lines = []
    rest = "rows"
    for d in range(len(sizes) - 1, -1, -1):
        letter = DIMS[3 - len(sizes) + d]
        size = sketch.i32(f"out_{letter}", sizes[d])
        lines += [f"o_{letter} = {rest} % {size}", f"rest_{letter} = {rest} // {size}"]
        rest = f"rest_{letter}"
    return [*lines, f"image = {rest}"]


def _tap_lines(sketch: Sketch, anchor: TemplateNest, tap: str, flat: bool) -> list[str]:
    """`reach` (the input's offset) and `seen` (whether it lies inside) for tap number `tap`."""
    x, conv = anchor.operands[0], anchor.template
    assert isinstance(conv, TiledConv)
    kernel, stride, padding, dilation = conv.kernel, conv.stride, conv.before, conv.dilation
    lines, seen, offsets = [], [], []
    rest = tap
    wide = sketch.wide()
    wider = [d for d, k in enumerate(kernel) if k > 1]
    for d in range(len(kernel) - 1, -1, -1):
        letter = DIMS[3 - len(kernel) + d]
        single = kernel[d] == 1
        if not single:
            last = d == wider[0]
            lines.append(f"t_{letter} = {rest if last else f'{rest} % {kernel[d]}'}")
            if not last:
                lines.append(f"taps_{letter} = {rest} // {kernel[d]}")
                rest = f"taps_{letter}"
        out = f"o_{letter}[:, None]"
        step = "0" if single else f"t_{letter}[None, :]" if flat else f"t_{letter}"
        size = sketch.i32(f"in_{letter}", x.shape[2 + d])
        if conv.transposed:
            lines.append(f"r_{letter} = {out} + {padding[d]} - {step} * {dilation[d]}")
            lines.append(f"i_{letter} = r_{letter} // {stride[d]}")
            seen.append(f"(r_{letter} >= 0) & (i_{letter} < {size})")
            if stride[d] > 1:
                seen.append(f"(r_{letter} % {stride[d]} == 0)")
        else:
            lines.append(f"i_{letter} = {out} * {stride[d]} - {padding[d]} + {step} * {dilation[d]}")
            seen.append(f"(i_{letter} >= 0) & (i_{letter} < {size})")
        offsets.append(f"i_{letter}{wide} * {sketch.i64(f'x_{letter}', x.strides[2 + d])}")
    return [*lines, f"seen = rows_inside[:, None] & {' & '.join(seen)}", f"reach = {' + '.join(offsets)}"]


@dataclass(frozen=True)
class _Sum:
    """The loop over taps and input channels: its steps, the lines of one, the weights' mask ("" where none is due)."""

    steps: Expr
    lines: list[str]
    mask: str


def _flat_sum(sketch: Sketch, anchor: TemplateNest, block_k: int) -> _Sum:
    """A step is BLOCK_K pairs of a tap and a channel: for few channels."""
    _, _, channels, taps = anchor.operands[1].shape
    size_c, wide = sketch.i32("channels", channels), sketch.wide()
    w_c, w_tap, x_c = _strides(sketch, anchor)
    tap_count = int_value(taps)
    assert tap_count is not None
    inside = f"(depth < {size_c} * {tap_count})"
    lines = [
        "depth = step * BLOCK_K + lanes",
        f"c = depth % {size_c}",
        f"tap = depth // {size_c}",
        *_tap_lines(sketch, anchor, "tap", True),
        f"inside = seen & {inside}[None, :]",
        f"at = x + reach + (c{wide} * {x_c})[None, :]",
        f"w_at = w + (c{wide} * {w_c} + tap{wide} * {w_tap})[:, None]",
    ]
    return _Sum(ceil_div(channels * taps, block_k), lines, f"{inside}[:, None]")


def _taps_sum(sketch: Sketch, anchor: TemplateNest, block_k: int) -> _Sum:
    """A step is BLOCK_K channels of one tap."""
    _, _, channels, taps = anchor.operands[1].shape
    size_c, wide = sketch.i32("channels", channels), sketch.wide()
    w_c, w_tap, x_c = _strides(sketch, anchor)
    blocks = ceil_div(channels, block_k)
    count = sketch.i32("channel_blocks", blocks)
    whole = int_value(channels % block_k) == 0
    lines = [
        f"c = step % {count} * BLOCK_K + lanes",
        f"tap = step // {count}",
        *_tap_lines(sketch, anchor, "tap", False),
        "inside = seen" if whole else f"inside = seen & (c < {size_c})[None, :]",
        f"at = x + reach + (c{wide} * {x_c})[None, :]",
        f"w_at = w + (c{wide} * {w_c})[:, None] + tap * {w_tap}",
    ]
    return _Sum(blocks * taps, lines, "" if whole else f"(c < {size_c})[:, None]")


def _strides(sketch: Sketch, anchor: TemplateNest) -> tuple[str, str, str]:
    """From channel to channel and from tap to tap of the weights, from channel to channel of x."""
    x, w = anchor.operands
    return sketch.i64("w_c", w.strides[2]), sketch.i64("w_tap", w.strides[3]), sketch.i64("x_c", x.strides[1])


def _range(sketch: Sketch, steps: Expr, splits: int) -> list[str]:
    """The steps from `begin` to `end` that a program takes: all, or part number `batch`."""
    total = sketch.i32("steps", steps)
    if splits == 1:
        return ["begin = 0", f"end = {total}"]
    return [
        f"part = tl.cdiv({total}, {splits})",
        "begin = batch * part",
        f"end = tl.minimum(begin + part, {total})",
    ]


@renders(TiledConv)
def render_conv(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: x [N, C, *S] and the weights [groups, O/groups, C/groups, taps] through strides."""
    anchor, conv = anchored(kernel, TiledConv)
    plan = conv.plan
    sketch = Sketch(kernel, buffers)
    x, w = anchor.operands
    groups, columns, channels, _ = w.shape
    m = kernel.outer[1].extent
    sizes = [a.extent for a in anchor.axes[-1 - (len(x.shape) - 2) : -1]]
    wide = sketch.wide()
    sums = (_flat_sum if plan.variant == "flat" else _taps_sum)(sketch, anchor, plan.block_k)
    inside_columns = "" if int_value(columns % plan.block_n) == 0 else "(columns < group_columns)[None, :]"
    masks = [p for p in (sums.mask, inside_columns) if p]
    part = _range(sketch, sums.steps, plan.splits)
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i32("rows", m),
        "group_columns": sketch.i32("group_columns", columns),
        "groups": sketch.i32("groups", groups),
        "places": _places(sketch, sizes),
        "x": sketch.operand(0),
        "w": sketch.operand(1),
        "x_n": sketch.i64("x_n", x.strides[0]),
        "x_group": sketch.i64("x_group", channels * x.strides[1]),
        "w_group": sketch.i64("w_group", w.strides[0]),
        "w_o": sketch.i64("w_o", w.strides[1]),
        "range": part,
        "step": sums.lines,
        "w_mask": f", mask={' & '.join(masks)}, other=0.0" if masks else "",
        "wide": wide,
        "wide_scalar": wide,
        "epilogue": sketch.epilogue(),
    }
    programs = ceil_div(m, plan.block_m) * ceil_div(columns, plan.block_n) * groups * plan.splits
    constexprs = {
        "BLOCK_M": plan.block_m,
        "BLOCK_N": plan.block_n,
        "BLOCK_K": plan.block_k,
        "GROUP_M": plan.group_m,
    }
    return sketch.finish(fill(read("conv"), holes), constexprs, programs, plan.warps, plan.stages)
