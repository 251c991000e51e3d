"""Steps in front of a conversion to integers that change none of them are left out: limits that numbers keep anyway.

    u8(clamp(round(min(max(x, 0), 6) * 21.2) + 0, 0, 127))   becomes   u8(round(min(max(x, 0), 6) * 21.2))

since 6 * 21.2 is rounded to 127; and of relu and a clamp at the zero point one is left. Only steps are looked through
that never make a larger number smaller, so that what holds for a limit holds for all numbers beyond it. A conversion
gives the same integers, of NaN, too; numbers that something else reads, whose zeros would get another sign, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hardtack.codegen.ir.graph import Graph, Lit, Op, uses
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.value_ranges import MOST_OPS, STEPS, Range, literal_number, literal_of, range_of, stepped
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.passes.shared.affine_codes import Facts, facts_of
from hardtack.codegen.passes.shared.code_values import edit_of

KIND = "clamps"
"""Of the Decisions that are made here: subject is the conversion."""


def leave_out_clamps(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph with conversions to integers of fewer steps."""
    facts, edit, readers = facts_of(graph), edit_of(graph), readers_of(graph)
    decisions: list[Decision] = []
    for op in graph.ops:
        steps = steps_of(facts, readers, op)
        kept = _needed(facts, steps)
        if len(kept) == len(steps):
            edit.ops.append(op)
            continue
        found = value_of(steps[0])
        for step in kept:
            found = edit.emit(step, step.kind, *(x if isinstance(x, Lit) else found for x in step.inputs))
        edit.emit(op, op.kind, found, attrs=op.attrs, name=op.outputs[0])
        reason = f"{len(steps) - len(kept)} of {len(steps)} steps in front of it change no integer"
        decisions.append(Decision(KIND, op.outputs[0], "fewer steps", True, reason))
    return (edit.done() if decisions else graph), tuple(decisions)


def readers_of(graph: Graph) -> Counter[str]:
    """How many ops, outputs, states and written inputs are a value."""
    readers = Counter((*(x for op in graph.ops for x in uses(op)), *graph.outputs))
    readers.update(graph.finals().values())
    return readers


def value_of(op: Op) -> str:
    """The operand that is no literal."""
    return next(x for x in op.inputs if isinstance(x, str))


def steps_of(facts: Facts, readers: Mapping[str, int], op: Op) -> list[Op]:
    """The steps in front of a conversion of f32 to integers that nothing else reads, the first one first; none for any
    other op. readers: readers_of."""
    steps: list[Op] = []
    if op.kind != "cast" or not facts.type_of(op.outputs[0]).dtype.is_int:
        return steps
    value = op.inputs[0]
    while isinstance(value, str) and (made := facts.producers.get(value)) is not None and len(steps) < MOST_OPS:
        if readers[value] > 1 or not _ascends(facts, made):
            break
        steps.insert(0, made)
        value = value_of(made)
    return steps


def _ascends(facts: Facts, op: Op) -> bool:
    """Whether a step of f32 gives no smaller number for a larger one, and no NaN for a number."""
    if op.kind not in STEPS or facts.type_of(op.outputs[0]).dtype is not DType.F32:
        return False
    if op.kind == "round":
        return True
    literal = literal_of(op)
    if literal is None or not abs(literal_number(literal)) < float("inf"):
        return False
    if op.kind == "mul":
        return literal_number(literal) > 0
    return op.kind != "sub" or isinstance(op.inputs[1], Lit)


def _needed(facts: Facts, steps: Sequence[Op]) -> list[Op]:
    """The steps without those that change no integer."""
    if not steps:
        return []
    limits = range_of(facts.graph, facts.producers, value_of(steps[0]))
    kept: list[Op] = []
    for step in steps:
        if not _is_idle(step, limits):
            kept.append(step)
            limits = stepped(step, limits)
    return [step for k, step in enumerate(kept) if not _is_overtaken(step, kept[k + 1 :])]


def _is_idle(step: Op, limits: Range) -> bool:
    """Whether a step leaves all numbers within limits as they are, but for the sign of a zero."""
    literal = literal_of(step)
    if literal is None:
        return False
    number = literal_number(literal)
    if step.kind in ("add", "sub"):
        return number == 0
    return number <= limits[0] if step.kind == "max" else step.kind == "min" and number >= limits[1]


def _is_overtaken(step: Op, behind: Sequence[Op]) -> bool:
    """Whether a later clamp gives its own limit for all numbers that this one changes, as it does for this one's."""
    literal = literal_of(step)
    if step.kind not in ("min", "max") or literal is None:
        return False
    limits: Range = (literal_number(literal), literal_number(literal))
    for later in behind:
        other = literal_of(later)
        if later.kind == step.kind and other is not None:
            number = literal_number(other)
            if (limits[1] <= number) if step.kind == "max" else (number <= limits[0]):
                return True
        limits = stepped(later, limits)
    return False


CODE_CLAMPS = GraphPass("clamps", leave_out_clamps)
"""Conversions to integers have no steps in front that change none."""
