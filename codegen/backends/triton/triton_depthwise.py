"""Depthwise convolutions as Triton kernels: depthwise.triton with its holes filled.

A run is a few neighbouring outputs along the last dimension. Kernel rows are the filter's taps along that dimension,
one row for each place in the other dimensions; a row of too many taps is cut into equal chunks, each a row of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_conv import DIMS
from hardtack.codegen.backends.triton.triton_gemm import ceil_div
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.expr import Expr, int_value, product
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.lower.gpu_conv import TiledDepthwise
from hardtack.codegen.tune.conv_plan import DepthwisePlan, row_taps

INDENT = "    "


@dataclass(frozen=True)
class _Window:
    """What a kernel row of a run reads. sizes: of the output; columns: their distances from the run's first."""

    sketch: Sketch
    anchor: TemplateNest
    plan: DepthwisePlan
    sizes: Sequence[Expr]
    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]

    @property
    def taps(self) -> int:
        """The taps of a kernel row."""
        return row_taps(self.kernel[-1])

    @property
    def chunks(self) -> int:
        return self.kernel[-1] // self.taps

    @property
    def rows(self) -> int:
        """The kernel rows."""
        total = self.chunks
        for k in self.kernel[:-1]:
            total *= k
        return total

    def column(self, p: int, tap: int) -> int:
        """Where output p of a run reads for a tap."""
        return p * self.stride[-1] + tap * self.dilation[-1]

    @property
    def columns(self) -> list[int]:
        return sorted({self.column(p, k) for p in range(self.plan.run) for k in range(self.taps)})

    @property
    def run_count(self) -> Expr:
        """Runs of a line of outputs."""
        return ceil_div(self.sizes[-1], self.plan.run)


@renders(TiledDepthwise)
def render_depthwise(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: x [N, C, *S] and the weights [C, taps] through strides."""
    anchor, what = anchored(kernel, TiledDepthwise)
    plan = what.plan
    sketch = Sketch(kernel, buffers)
    x, w = anchor.operands
    n = kernel.outer[2].extent
    sizes = [a.extent for a in anchor.axes[1:-1]]
    window = _Window(sketch, anchor, plan, sizes, what.kernel, what.stride, what.before, what.dilation)
    runs = product((anchor.axes[0].extent, *sizes[:-1], window.run_count))
    holes: dict[str, str | list[str]] = {
        "columns": sketch.i32("columns", n),
        "places": [*_places(window, "runs", ""), f"inside = runs < {sketch.i32('runs', runs)}"],
        "x": sketch.operand(0),
        "w": sketch.operand(1),
        "x_n": sketch.i64("x_n", x.strides[0]),
        "x_c": sketch.i64("x_c", x.strides[1]),
        "w_c": sketch.i64("w_c", w.strides[0]),
        "sum": _sum(window, runs, n),
        "point": _point(window, runs),
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    constexprs = {
        "RUNS": plan.runs,
        "SHARE": plan.share,
        "BLOCK_M": plan.runs * plan.run,
        "BLOCK_N": plan.block_n,
    }
    programs = ceil_div(runs, plan.runs) * ceil_div(n, plan.block_n)
    return sketch.finish(fill(read("depthwise"), holes), constexprs, programs, plan.warps, 1)


def _places(window: _Window, number: str, suffix: str) -> list[str]:
    """The image and the output coordinates o_z, o_y, o_x of the first output of run `number`.

    Runs are numbered down the columns first, then along the lines: neighbours share most of the rows that they read.
    """
    count = len(window.sizes)
    letters = DIMS[3 - count :]
    lengths = dict(zip(letters, window.sizes, strict=True)) | {"x": window.run_count}
    fast_first = ["y", "x", "z"] if count > 1 else ["x"]
    lines = []
    rest = number
    for letter in (x for x in fast_first if x in lengths):
        size = window.sketch.i32(f"runs_{letter}", lengths[letter])
        times = f" * {window.plan.run}" if letter == "x" else ""
        lines += [f"o_{letter}{suffix} = {rest} % {size}{times}", f"rest_{letter}{suffix} = {rest} // {size}"]
        rest = f"rest_{letter}{suffix}"
    return [*lines, f"image{suffix} = {rest}"]


def _point(window: _Window, runs: Expr) -> list[str]:
    """m and m_inside: the number of each output point of the tile, row-major, and whether it exists."""
    run = window.plan.run
    lines = [f"point_run = first_run + point // {run}", *_places(window, "point_run", "m")]
    letters = DIMS[3 - len(window.sizes) :]
    row = "imagem"
    for letter, size in zip(letters, window.sizes, strict=True):
        row = f"({row} * {window.sketch.i32(f'out_{letter}', size)} + o_{letter}m)"
    size_x = window.sketch.i32("out_x", window.sizes[-1])
    inside = f"(point_run < {window.sketch.i32('runs', runs)}) & (o_xm < {size_x})"
    return [
        *lines,
        f"o_xm += point % {run}",
        f"m = {row}[:, None]{window.sketch.wide()}",
        f"m_inside = ({inside})[:, None]",
    ]


def _sum(window: _Window, runs: Expr, n: Expr) -> list[str]:
    """The lines that leave the outputs of the tile [BLOCK_M, BLOCK_N] in `acc`."""
    plan = window.plan
    shape = "(RUNS, SHARE, BLOCK_N)"
    zeros = [f"acc{p} = tl.zeros({shape}, dtype=tl.float32)" for p in range(plan.run)]
    steps = -(-window.rows // plan.share)
    step = _step(window, runs, n, shape)
    if steps > 1:
        lines = [*zeros, f"for step in range({steps}):", *(INDENT + line for line in step)]
    else:
        lines = [*zeros, "step = 0", *step]
    names = [f"acc{p}" for p in range(plan.run)]
    bits = 0
    while len(names) > 1:
        names = [f"tl.join({a}, {b})" for a, b in zip(names[::2], names[1::2], strict=True)]
        bits += 1
    total = names[0]
    if plan.share > 1:
        total = f"tl.sum({total}, 1)"
    # the k-th bit of an output's number is dimension first + k by now
    first = 2 if plan.share > 1 else 3
    order = [0, *range(first + bits - 1, first - 1, -1), *range(1, first)]
    lines.append(f"acc = tl.reshape(tl.permute({total}, {tuple(order)}), (BLOCK_M, BLOCK_N))")
    return lines


def _step(window: _Window, runs: Expr, n: Expr, shape: str) -> list[str]:
    """SHARE rows of the filter, each by all outputs of the runs."""
    sketch, plan = window.sketch, window.plan
    x, w = window.anchor.operands
    wide = sketch.wide()
    letters = DIMS[3 - len(window.sizes) :]
    lines = ["row = step * SHARE + part"]
    seen = [] if _divides(plan.runs, runs) else ["inside"]
    by_channel = [] if _divides(plan.block_n, n) else ["n_inside[None, :, :]"]
    real = [] if window.rows % plan.share == 0 else [f"(row < {window.rows})"]
    rest = "row"
    chunk = ""
    if window.chunks > 1:
        lines += [f"chunk = {rest} % {window.chunks}", f"rows_x = {rest} // {window.chunks}"]
        rest, chunk = "rows_x", f" + chunk * {window.taps * window.dilation[-1]}"
    offsets = []
    for d in range(len(letters) - 2, -1, -1):
        letter, k = letters[d], window.kernel[d]
        lines += [f"t_{letter} = {rest} % {k}", f"rows_{letter} = {rest} // {k}"]
        rest = f"rows_{letter}"
        lines.append(
            f"i_{letter} = o_{letter} * {window.stride[d]} - {window.padding[d]} + t_{letter} * {window.dilation[d]}"
        )
        size = sketch.i32(f"in_{letter}", x.shape[2 + d])
        seen.append(f"(i_{letter} >= 0) & (i_{letter} < {size})")
        offsets.append(f"i_{letter}{wide} * {sketch.i64(f'x_{letter}', x.strides[2 + d])}")
    step_x, w_tap = sketch.i64("x_x", x.strides[-1]), sketch.i64("w_tap", w.strides[1])
    lines.append(f"i_x = o_x * {window.stride[-1]} - {window.padding[-1]}{chunk}")
    offsets.append(f"i_x{wide} * {step_x}")
    base = seen + real
    if base:
        lines.append(f"seen = {' & '.join(base)}")
    lines.append(f"x_at = x + ({' + '.join(offsets)})")
    lines.append(f"w_at = tl.broadcast_to(w + row{wide} * {_times(window.taps, w_tap)}, {shape})")
    w_mask = _mask([*real, *by_channel])
    for k in range(window.taps):
        lines.append(f"w{k} = tl.load(w_at + {_times(k, w_tap)}{w_mask}).to(tl.float32)")
    for j in window.columns:
        mask = _mask([*(["seen"] if base else []), *_column_masks(window, j), *by_channel])
        lines.append(f"x{j} = tl.load(x_at + {_times(j, step_x)}{mask}).to(tl.float32)")
    for k in range(window.taps):
        for p in range(plan.run):
            lines.append(f"acc{p} = tl.fma(x{window.column(p, k)}, w{k}, acc{p})")
    return lines


def _column_masks(window: _Window, j: int) -> list[str]:
    """What must hold for column j of the runs to lie inside the input; nothing where it always does."""
    plan, size = window.plan, window.anchor.operands[0].shape[-1]
    out = []
    if j < window.padding[-1]:
        out.append(f"(i_x >= {-j})")
    last = (window.run_count - 1) * (plan.run * window.stride[-1]) - window.padding[-1]
    furthest = int_value(last + (window.chunks - 1) * window.taps * window.dilation[-1] + j)
    width = int_value(size)
    if furthest is None or width is None or furthest >= width:
        out.append(f"(i_x < {window.sketch.i32('in_x', size)} - {j})")
    return out


def _mask(parts: Sequence[str]) -> str:
    return f", mask={' & '.join(parts)}, other=0.0" if parts else ""


def _times(n: int, step: str) -> str:
    return str(n * int(step)) if step.isdigit() else f"{n} * {step}"


def _divides(block: int, e: Expr) -> bool:
    return int_value(e % block) == 0
