"""Recurrences on GPUs: the input projections of all steps in one product, then a program for a block of sequences."""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_matmul import emit_gemm
from hardtack.codegen.lower.operands import copied, is_constant, operand, whole
from hardtack.codegen.lower.recurrence import Recurrence, dense_rows, with_biases
from hardtack.codegen.lower.template import template


def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one product, then the recurrence."""
    lstm = op.kind == "lstm"
    names = [x for x in op.inputs if isinstance(x, str)]
    x, states, (w_ih, w_hh, *biases) = names[0], names[1 : 3 if lstm else 2], names[3 if lstm else 2 :]
    y = low.buffers[op.outputs[0]]
    steps, batch, _ = low.graph.types[x].shape
    gates = low.graph.types[w_ih].shape[0]
    projected = low.temporary(f"{y.name}.gates", y.dtype, (steps * batch, gates))
    rows = operand(low, x, op) if dense_rows(low, x) else copied(low, x, op, None)
    flat = Operand(rows.buffer, rows.dtype, rows.offset, (steps * batch, rows.shape[2]), rows.strides[1:])
    ih = operand(low, w_ih, op)
    ih_t = Operand(ih.buffer, ih.dtype, ih.offset, ih.shape[::-1], ih.strides[::-1])
    emit_gemm(low, op, projected, flat, ih_t, is_constant(low, w_ih))
    gated = with_biases(low, op, projected, biases)
    views = [whole(gated), operand(low, w_hh, op)]
    for name in states:
        view = operand(low, name, op)
        views.append(view if view.strides[-1] is ONE or view.shape[-1] is ONE else copied(low, name, op, None))
    if biases and op.kind == "gru":
        bias, hidden = operand(low, biases[1], op), y.shape[2]
        views.append(Operand(bias.buffer, bias.dtype, bias.offset + hidden * 2 * bias.strides[0], (hidden,), (ONE,)))
    low.decide(y.name, f"{op.kind} by sequences", "one program keeps the state of a block of sequences")
    template(low, op, Recurrence(op.kind, bool(op.attr("reverse"))), y, tuple(views), tuple(op.outputs[1:]))
