"""Recurrences on CPUs: the input projections of all steps in one product, then the steps."""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE, const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_matmul import PackedGemm, pack_matrix
from hardtack.codegen.lower.operands import copied, operand, prepacked, whole
from hardtack.codegen.lower.recurrence import Recurrence, dense_rows, with_biases
from hardtack.codegen.lower.template import template
from hardtack.codegen.lower.workspace import PANEL


def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one GEMM, then the recurrence."""
    lstm = op.kind == "lstm"
    names = [x for x in op.inputs if isinstance(x, str)]
    x, h0 = names[0], names[1]
    c0 = names[2] if lstm else None
    w_ih, w_hh, *biases = names[3:] if lstm else names[2:]
    y = low.buffers[op.outputs[0]]
    steps, batch, _ = low.graph.types[x].shape
    gates = low.graph.types[w_ih].shape[0]
    projected = low.temporary(f"{y.name}.gates", y.dtype, (steps * batch, gates))
    x_rows = copied(low, x, op, None) if not dense_rows(low, x) else operand(low, x, op)
    flat = Operand(x_rows.buffer, x_rows.dtype, x_rows.offset, (steps * batch, x_rows.shape[2]), x_rows.strides[1:])
    ih = operand(low, w_ih, op)
    ih_t = Operand(ih.buffer, ih.dtype, ih.offset, ih.shape[::-1], ih.strides[::-1])
    template(low, op, PackedGemm(), projected, (flat, pack_matrix(low, ih_t)))
    gated = with_biases(low, op, projected, biases)
    hidden = int_value(low.graph.types[w_hh].shape[1]) or 0
    count = GATES[op.kind]
    packed = (-(-hidden // PANEL), count, hidden, PANEL)
    weights = prepacked(low, "recurrent", operand(low, w_hh, op), packed, (count,))
    states = []
    for name in (h0, c0):
        if name is not None:
            view = operand(low, name, op)
            states.append(view if view.strides[-1] is ONE or view.shape[-1] is ONE else copied(low, name, op, None))
    extra: tuple[Operand, ...] = ()
    if biases and op.kind == "gru":
        whole_bias = operand(low, biases[1], op)
        extra = (
            Operand(whole_bias.buffer, whole_bias.dtype, whole_bias.offset + 2 * hidden, (const(hidden),), (ONE,)),
        )
    views = (whole(gated), weights, *states, *extra)
    template(low, op, Recurrence(op.kind, bool(op.attr("reverse"))), y, views, tuple(op.outputs[1:]))
