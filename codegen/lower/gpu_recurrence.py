"""Recurrences on GPUs: the input projections of all steps in one product, then a program for a block of sequences."""

from __future__ import annotations

from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.roles import Role
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.gpu_matmul import FLOATS, emit_gemm
from hardtack.codegen.lower.operands import is_constant, operand, whole
from hardtack.codegen.lower.recurrence import (
    PROJECTED,
    STATES,
    AnyRecurrence,
    inner_bias,
    parts_of,
    projection,
    states_of,
    with_biases,
)
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.template import demand, template
from hardtack.codegen.machine.machine import Gpu


class TiledRecurrence(AnyRecurrence):
    """See AnyRecurrence; w [gates * H, H] through strides."""

    kind = "recurrence"
    machine = Gpu
    roles = (PROJECTED, Role("w", "gates*H H"), *STATES)
    dtypes = FLOATS


@lowers(*GATES, on=Gpu)
def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one product, then the recurrence."""
    demand(low, op, TiledRecurrence)
    parts, y = parts_of(op), low.buffers[op.outputs[0]]
    given = projection(low, op, parts)
    emit_gemm(low, op, given.result, given.rows, given.weights, is_constant(low, parts.w_ih))
    gated = with_biases(low, op, given.result, parts.biases)
    w = operand(low, parts.w_hh, op)
    views = (whole(gated), w, *states_of(low, op, parts), *inner_bias(low, op, parts, y.shape[2]))
    low.decide(y.name, f"{op.kind} by sequences", "one program keeps the state of a block of sequences")
    template(low, op, TiledRecurrence(op.kind, op.bool_attr("reverse")), y, views, op.outputs[1:])
