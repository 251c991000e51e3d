"""What the recurrences of CPUs and GPUs have in common: the template, the biases, the rows of all steps."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Template
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of
from hardtack.codegen.lower.operands import try_operand


@dataclass(frozen=True)
class Recurrence(Template):
    """All steps of a recurrence: the inputs are projected already, [T * B, gates * H], and w is the hidden weights: in
    panels on a CPU, [gates * H, H] on a GPU. h0 [B, H]; then c0 of an lstm, or the n gate's hidden bias of a gru.
    Results: y [T, B, H], the last h, and of an lstm the last c.

    cell: the graph op's kind. reverse: from the last step to the first.
    """

    cell: str
    reverse: bool

    kind = "recurrence"
    roles = ("projected", "w", "h0", "c0 or bias?")
    dtypes = (DType.F32, DType.F64, DType.F16, DType.BF16)

    @property
    def label(self) -> str:
        return self.cell


def with_biases(low: Lowering, op: Op, projected: Buffer, biases: list[str]) -> Buffer:
    """The projections with b_ih, and with b_hh but for the GRU's n gate, which adds it inside the reset."""
    if not biases:
        return projected
    gated = low.temporary(f"{op.outputs[0]}.biased", projected.dtype, projected.shape)
    b = NestBuilder(low, gated.name, op.origin)
    row, gate = b.loop(gated.shape, gated.order)
    value = b.load_buffer(projected.name, (row, gate))
    value = b.compute("add", value, b.load(biases[0], (gate,)))
    mask, other = None, None
    if op.kind == "gru":
        mask, other = b.compute("lt", b.index(gate), b.index(projected.shape[1] // 3 * 2)), lit_of(0, projected.dtype)
    hidden_bias = b.load(biases[1], (gate,), mask, other)
    b.store(gated.name, (row, gate), b.compute("add", value, hidden_bias))
    b.done()
    return gated


def dense_rows(low: Lowering, x: str) -> bool:
    """True if x [T, B, I] is row-major as it stands, so that [T*B, I] is a view."""
    view = try_operand(low, x)
    if view is None:
        return False
    steps, batch, width = view.strides
    return (width is ONE or view.shape[2] is ONE) and (steps is batch * view.shape[1] or view.shape[0] is ONE)
