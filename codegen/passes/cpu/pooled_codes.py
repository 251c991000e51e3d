"""Maxima of what codes stand for are what the largest codes stand for: windows read a byte for each number, not four.

    max over a window of (codes - zero) * scale   becomes   (max over the window of codes - zero) * scale

What is done to each number by a literal, and never makes a larger one smaller, is done behind the window: each result
is the number that it was before, bit by bit. Windows that may lie beside the image as a whole, whose largest number is
infinite, stay as they are.
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Graph, Lit, Op
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.passes.shared.affine_codes import CODES, Facts, facts_of
from hardtack.codegen.passes.shared.code_values import edit_of

KIND = "pools"
"""Of the Decisions that are made here: subject is the pool."""
MOST_FACTOR, MOST_STEPS = 2.0**24, 4
"""Of a literal, or its inverse, and how many steps: no product is infinite or rounded to zero."""
_WIDE = (DType.I32, DType.I64, DType.F32)
"""Types that have all codes, and those less what literals take."""


def pool_codes(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph with maxima of codes in the place of maxima of what they stand for."""
    facts, edit = facts_of(graph), edit_of(graph)
    decisions: list[Decision] = []
    for op in graph.ops:
        found, views, steps = _steps(facts, op.value(0)) if _is_maximum(facts, op) else ("", [], [])
        if not steps:
            edit.ops.append(op)
            continue
        for view in views:
            found = edit.emit(op, view.kind, found, attrs=view.attrs, shape=facts.type_of(view.outputs[0]).shape)
        found = edit.emit(op, "pool", found, attrs=op.attrs)
        for k, step in enumerate(steps):
            inputs = [found if isinstance(x, str) else x for x in step.inputs]
            name = op.outputs[0] if k + 1 == len(steps) else ""
            found = edit.emit(op, step.kind, *inputs, attrs=step.attrs, name=name)
        decisions.append(Decision(KIND, op.outputs[0], "codes", True, "the largest code stands for the largest number"))
    return (edit.done() if decisions else graph), tuple(decisions)


def _is_maximum(facts: Facts, op: Op) -> bool:
    """Whether each result is the largest of some elements of an image: no window has none."""
    if op.kind != "pool" or op.str_attr("kind") != "max" or any(n != 1 for n in op.tuple_attr("dilation")):
        return False
    sides = zip(op.tuple_attr("kernel"), op.tuple_attr("padding"), strict=True)
    within = all(isinstance(n, int) and n < size for size, pair in sides for n in pair)
    return within and all(int_value(n) for n in facts.type_of(op.inputs[0]).shape[2:])


def _steps(facts: Facts, value: str) -> tuple[str, list[Op], list[Op]]:
    """The codes that a value is made of, the views on the way, and what makes numbers of them, the first one first; the
    latter is empty where larger codes may make smaller numbers."""
    views: list[Op] = []
    steps: list[Op] = []
    while is_view(op := facts.producers.get(value)) or facts.type_of(value).dtype not in CODES:
        if op is None or not (is_view(op) or (value in facts.chains and _ascends(facts, op))):
            return value, [], []
        (views if is_view(op) else steps).insert(0, op)
        if len(steps) > MOST_STEPS:
            return value, [], []
        value = next(x for x in op.inputs if isinstance(x, str))
    return value, views, steps


def _ascends(facts: Facts, op: Op) -> bool:
    """Whether an op of one value and a literal gives no smaller number for a larger one."""
    if op.kind == "cast":
        return facts.type_of(op.inputs[0]).dtype.is_int and facts.type_of(op.outputs[0]).dtype in _WIDE
    literals = [float(x.value) for x in op.inputs if isinstance(x, Lit)]
    if len(op.inputs) != 2 or len(literals) != 1 or facts.type_of(op.outputs[0]).dtype is not DType.F32:
        return False
    if op.kind == "mul":
        return 1 / MOST_FACTOR <= literals[0] <= MOST_FACTOR
    moves = op.kind == "add" or (op.kind == "sub" and isinstance(op.inputs[1], Lit))
    return moves and abs(literals[0]) <= MOST_FACTOR


POOLED_CODES = GraphPass("pools", pool_codes)
"""Maxima of what codes stand for become maxima of codes."""
