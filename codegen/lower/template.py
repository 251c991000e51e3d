"""Templates in lowering: which of them can compute an op, and the nest that has it do so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hardtack.codegen.ir.expr import sym
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Axis, Buffer
from hardtack.codegen.ir.nests import Operand, Request, Template, TemplateNest
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.lower.operands import is_constant

T = TypeVar("T", bound=Template)


def template(
    low: Lowering,
    op: Op,
    what: Template,
    result: Buffer,
    operands: tuple[Operand, ...],
    results: tuple[str, ...] = (),
) -> None:
    """Emit a TemplateNest whose axes walk `result` in memory order.

    Raises UnsupportedOp where the class does not take the dtype on the machine: the last one to ask. A rule that has
    something else for such an op has asked before (first_that_can).
    """
    why = what.why_not_of(operands[0].dtype, low.machine)
    if why is not None:
        raise UnsupportedOp(op.origin, low.machine.name, why)
    axes = tuple(Axis(sym(f"i{d}", extent=result.shape[d]), result.shape[d]) for d in result.order)
    low.emit(TemplateNest(result.name, what, axes, operands, result.name, results, op.origin))


def request(low: Lowering, op: Op) -> Request:
    """What templates are asked about an op."""
    constant = tuple(isinstance(x, str) and is_constant(low, x) for x in op.inputs)
    types = tuple(low.graph.type_of(x) for x in op.inputs)
    return Request(op, types, constant, low.graph.types[op.outputs[0]])


def demand(low: Lowering, op: Op, what: type[Template]) -> None:
    """Raise UnsupportedOp, with the reason, where a template does not compute an op that nothing else computes."""
    why = what.why_not(request(low, op), low.machine)
    if why is not None:
        raise UnsupportedOp(op.origin, low.machine.name, why)


def first_that_can(low: Lowering, op: Op, candidates: Sequence[type[T]]) -> type[T] | None:
    """The first template that computes the op on the machine; None, with a Decision that says why, where none does:
    loops compute it then."""
    asked = request(low, op)
    reasons: list[str] = []
    for candidate in candidates:
        reason = candidate.why_not(asked, low.machine)
        if reason is None:
            return candidate
        reasons.append(reason)
    low.decide(op.outputs[0], "reductions", "; ".join(dict.fromkeys(reasons)))
    return None
