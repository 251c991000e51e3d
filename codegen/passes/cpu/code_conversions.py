"""Numbers that are rounded, moved by a zero point and held to what codes reach become codes by one op.

    u8(min(max(round(x) + zero, 0), most))   becomes   code(x, zero, most)

which CPUs compute as they convert: the instructions round, and narrow with limits. Codes that become float again, and
nothing else, are made as float. Any order of sums and limits that comes to the same is taken, and limits that are not
there where numbers keep them anyway. Codes are the same bit for bit, also those of NaN, which are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.graph import Graph, Lit, Op, make_attrs
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.codegen.lower.value_ranges import literal_number, literal_of, range_of
from hardtack.codegen.passes.cpu.code_clamps import readers_of, steps_of, value_of
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.passes.shared.affine_codes import Facts, facts_of
from hardtack.codegen.passes.shared.code_values import edit_of

KIND = "codes"
"""Of the Decisions that are made here: subject is the conversion."""
_MOST_ZERO = 1 << 14
"""Sums with larger numbers may be rounded; what is left of a code less a zero point has 16 bits."""
_LEAST, _MOST = INT_RANGE[DType.U8]


@dataclass(frozen=True)
class _Held:
    """What is done to a rounded number: max(min(number + zero, most), least)."""

    zero: float = 0
    least: float = -float("inf")
    most: float = float("inf")

    def then(self, step: Op) -> _Held | None:
        """With a step behind it; None for one that this cannot have."""
        literal = literal_of(step)
        number = literal_number(literal) if literal is not None else 0.5
        if not number.is_integer():
            return None
        if step.kind == "max":
            return _Held(self.zero, max(self.least, number), max(self.most, number))
        if step.kind == "min":
            return _Held(self.zero, min(self.least, number), min(self.most, number))
        if step.kind not in ("add", "sub") or abs(number) > _MOST_ZERO:
            return None
        moved = number if step.kind == "add" else -number
        return _Held(self.zero + moved, self.least + moved, self.most + moved)


def convert_to_codes(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph with conversions to codes that round by themselves."""
    facts, edit, readers = facts_of(graph), edit_of(graph), readers_of(graph)
    decisions: list[Decision] = []
    widened = {op.inputs[0]: op for op in graph.ops if op.kind == "cast" and op.attr("dtype") is DType.F32}
    made: set[str] = set()
    for op in graph.ops:
        if op.outputs and op.outputs[0] in made:
            continue
        found = _held(facts, op, steps_of(facts, readers, op))
        if found is None:
            edit.ops.append(op)
            continue
        first, held = found
        behind = widened.get(op.outputs[0])
        last = behind if behind is not None and readers[op.outputs[0]] == 1 else op
        numbers = (Lit(float(n), DType.F32) for n in (held.zero, held.most))
        dtype = DType.U8 if last is op else DType.F32
        edit.emit(last, "code", value_of(first), *numbers, attrs=make_attrs(dtype=dtype), name=last.outputs[0])
        made.add(last.outputs[0])
        decisions.append(Decision(KIND, op.outputs[0], f"{dtype}", True, "rounded and held as it is converted"))
    return (edit.done() if decisions else graph), tuple(decisions)


def _held(facts: Facts, op: Op, steps: Sequence[Op]) -> tuple[Op, _Held] | None:
    """The rounding in front of a conversion to u8, and what is done behind it, with limits of codes; None where that is
    another conversion."""
    if not steps or facts.type_of(op.outputs[0]).dtype is not DType.U8:
        return None
    last = max((k for k, step in enumerate(steps) if step.kind == "round"), default=-1)
    held: _Held | None = _Held()
    for step in steps[last + 1 :]:
        held = held and held.then(step)
    if last < 0 or held is None or abs(held.zero) > _MOST_ZERO:
        return None
    least, most = range_of(facts.graph, facts.producers, op.inputs[0])
    if held.least > _LEAST or least < _LEAST or most > _MOST:
        return None
    return steps[last], _Held(held.zero, _LEAST, max(_LEAST, min(held.most, _MOST)))


CODE_CONVERSIONS = GraphPass("codes", convert_to_codes)
"""Conversions to codes round and hold numbers by themselves."""
