"""Recurrences as Triton kernels: recurrent.triton, one program for a block of sequences."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_recurrence import TiledRecurrence

BLOCK_B = 16


@renders(TiledRecurrence)
def render_recurrent(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: projected inputs [T * B, gates * H], w_hh [gates * H, H] through strides, h0 [B, H] (, c0 for lstm; the
    n gate's hidden bias [H] for a gru with biases). Results: y [T, B, H], hT (, cT)."""
    anchor, what = anchored(kernel, TiledRecurrence)
    gates = GATES[what.cell]
    sketch = Sketch(kernel, buffers)
    w, h0 = anchor.operands[1], anchor.operands[2]
    steps, batch, hidden = (a.extent for a in anchor.axes)
    work = "tl.float64" if w.dtype is DType.F64 else "tl.float32"
    reverse = what.reverse
    holes: dict[str, str | list[str]] = {
        "steps": sketch.i32("steps", steps),
        "batch": sketch.i64("batch", batch),
        "hidden": sketch.i32("hidden", hidden),
        "time": "steps - 1 - step" if reverse else "step",
        "previous": "+ 1" if reverse else "- 1",
        "last": "0" if reverse else "steps - 1",
        "gates": str(gates),
        "x": sketch.operand(0),
        "h0": sketch.operand(2),
        "h0_row": sketch.i64("h0_row", h0.strides[0]),
        "y": sketch.pointer(anchor.result),
        "h_out": sketch.pointer(anchor.results[0]),
        "zero": [f"acc{g} = tl.zeros((BLOCK_B, BLOCK_H), {work})" for g in range(gates)],
        "products": _products(sketch, gates, w.dtype),
        "cell": _cell(sketch, what.cell, work),
        "final": _final_cell(sketch) if what.cell == "lstm" else [],
    }
    wide = w.dtype in (DType.F32, DType.F64)
    constexprs = {"BLOCK_B": BLOCK_B, "BLOCK_H": 32 if wide else 64}
    if w.dtype is not DType.F64:
        constexprs["BLOCK_K"] = 32 if wide else 64
    return sketch.finish(fill(read("recurrent"), holes), constexprs, ceil_div(batch, BLOCK_B), 4, 2)


def _products(sketch: Sketch, gates: int, dtype: DType) -> list[str]:
    """acc<g> += h W_hh[gate g]^T for the units at hand."""
    anchor = sketch.kernel.anchor
    assert anchor is not None
    w = anchor.operands[1]
    row, column, start = sketch.i64("w_row", w.strides[0]), sketch.i64("w_column", w.strides[1]), sketch.operand(1)
    if dtype is DType.F64:
        lines = [
            "for k in range(0, hidden):",
            "    h = tl.load(before + row * before_row + k, mask=inside, other=0.0)",
            "    h = tl.broadcast_to(h, (BLOCK_B, BLOCK_H))",
        ]
        for g in range(gates):
            at = f"{start} + (units[None, :] + {g} * hidden).to(tl.int64) * {row} + k * {column}"
            lines.append(f"    w{g} = tl.broadcast_to(tl.load({at}, mask=columns, other=0.0), (BLOCK_B, BLOCK_H))")
            lines.append(f"    acc{g} = tl.fma(h, w{g}, acc{g})")
        return lines
    lines = [
        "for start in range(0, hidden, BLOCK_K):",
        "    k = start + tl.arange(0, BLOCK_K)",
        "    h = tl.load(before + row * before_row + k[None, :], mask=inside & (k < hidden)[None, :], other=0.0)",
    ]
    for g in range(gates):
        at = f"{start} + (units[None, :] + {g} * hidden).to(tl.int64) * {row} + k[:, None].to(tl.int64) * {column}"
        lines.append(f"    w{g} = tl.load({at}, mask=(k < hidden)[:, None] & columns, other=0.0)")
        lines.append(f"    acc{g} = tile_product(h, w{g}, acc{g})")
    return lines


def _gate(g: int, work: str) -> str:
    return f"tl.load(gates + {g} * hidden, mask=inside & columns, other=0.0).to({work})"


def _sigmoid(text: str) -> str:
    return f"1.0 / (1.0 + tl.exp(-({text})))"


def _cell(sketch: Sketch, cell: str, work: str) -> list[str]:
    anchor = sketch.kernel.anchor
    assert anchor is not None
    if cell == "lstm":
        return _lstm(sketch, work)
    if cell == "gru":
        return _gru(sketch, work, len(anchor.operands) > 3)
    total = f"acc0 + {_gate(0, work)}"
    if cell == "rnn_tanh":
        return [f"fresh = libdevice.tanh({total})"]
    return [f"fresh = {total}", "fresh = tl.where(fresh < 0, 0.0, fresh)"]  # NaN stays


def _lstm(sketch: Sketch, work: str) -> list[str]:
    """c' = f c + i g, h' = o tanh(c'), gates in torch's order i, f, g, o."""
    anchor = sketch.kernel.anchor
    assert anchor is not None
    c_out = sketch.pointer(anchor.results[1])
    row = sketch.i64("c0_row", anchor.operands[3].strides[0])
    return [
        "if step == 0:",
        f"    cell_at = {sketch.operand(3)}",
        f"    cell_row = tl.cast({row}, tl.int64)",
        "else:",
        f"    cell_at = {c_out}",
        "    cell_row = tl.cast(hidden, tl.int64)",
        f"cell = tl.load(cell_at + row * cell_row + units[None, :], mask=inside & columns, other=0.0).to({work})",
        f"cell = cell * ({_sigmoid(f'acc1 + {_gate(1, work)}')})",
        f"cell += ({_sigmoid(f'acc0 + {_gate(0, work)}')}) * libdevice.tanh(acc2 + {_gate(2, work)})",
        f"tl.store({c_out} + row * hidden + units[None, :], cell, mask=inside & columns)",
        f"fresh = ({_sigmoid(f'acc3 + {_gate(3, work)}')}) * libdevice.tanh(cell)",
    ]


def _gru(sketch: Sketch, work: str, biased: bool) -> list[str]:
    """h' = n + z (h - n), gates in torch's order r, z, n; the hidden bias of n stands inside the reset."""
    lines = ["from_h = acc2"]
    if biased:
        lines.append(f"from_h += tl.load({sketch.operand(3)} + units[None, :], mask=columns, other=0.0).to({work})")
    return [
        *lines,
        f"reset = {_sigmoid(f'acc0 + {_gate(0, work)}')}",
        f"update = {_sigmoid(f'acc1 + {_gate(1, work)}')}",
        f"new = libdevice.tanh({_gate(2, work)} + reset * from_h)",
        f"old = tl.load(before + row * before_row + units[None, :], mask=inside & columns, other=0.0).to({work})",
        "fresh = new + update * (old - new)",
    ]


def _final_cell(sketch: Sketch) -> list[str]:
    """Without steps the last cell state is the first one."""
    anchor = sketch.kernel.anchor
    assert anchor is not None
    row = sketch.i64("c0_row", anchor.operands[3].strides[0])
    mask = "mask=inside & (units < hidden)[None, :]"
    return [
        "if steps == 0:",
        f"    given = tl.load({sketch.operand(3)} + row * {row} + units[None, :], {mask})",
        f"    tl.store({sketch.pointer(anchor.results[1])} + row * hidden + units[None, :], given, {mask})",
    ]
