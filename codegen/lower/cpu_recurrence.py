"""Recurrences on CPUs: the input projections of all steps in one product, then the steps."""

from __future__ import annotations

from hardtack.codegen.ir.expr import const, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.nests import Request
from hardtack.codegen.ir.roles import Memory, Role
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_matmul import PackedGemm, pack_matrix
from hardtack.codegen.lower.cpu_workspace import PANEL
from hardtack.codegen.lower.operands import operand, prepacked, whole
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
from hardtack.codegen.machine.machine import Cpu, Machine


class PackedRecurrence(AnyRecurrence):
    """recurrent.h: see AnyRecurrence; w in panels [ceil(H/32), gates, H, 32]."""

    kind = "recurrence"
    machine = Cpu
    roles = (PROJECTED, Role("w", f"H/{PANEL} gates H {PANEL}", memory=Memory.WHOLE), *STATES)
    dtypes = (DType.F32,)

    @classmethod
    def why_not(cls, request: Request, machine: Machine) -> str | None:
        parts, constant = parts_of(request.op), dict(zip(request.op.inputs, request.constant, strict=True))
        if not (constant[parts.w_ih] and constant[parts.w_hh]):
            return f"{request.op.kind} takes only constant weights (make them parameters of the module)"
        return super().why_not(request, machine)


@lowers(*GATES, on=Cpu)
def lower_recurrent(low: Lowering, op: Op) -> None:
    """Input projections of all steps in one GEMM, then the recurrence."""
    demand(low, op, PackedRecurrence)
    parts, y = parts_of(op), low.buffers[op.outputs[0]]
    given = projection(low, op, parts)
    template(low, op, PackedGemm(), given.result, (given.rows, pack_matrix(low, given.weights)))
    gated = with_biases(low, op, given.result, parts.biases)
    hidden = int_value(low.graph.types[parts.w_hh].shape[1]) or 0
    count = GATES[op.kind]
    packed = (-(-hidden // PANEL), count, hidden, PANEL)
    weights = prepacked(low, "recurrent", operand(low, parts.w_hh, op), packed, (count,))
    views = (whole(gated), weights, *states_of(low, op, parts), *inner_bias(low, op, parts, const(hidden)))
    template(low, op, PackedRecurrence(op.kind, op.bool_attr("reverse")), y, views, op.outputs[1:])
