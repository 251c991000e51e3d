"""Products of matrices that an index picks, as experts are, with a column each: of a row each with the matrices turned.

    matmul(views(take(w, ids)) [S, M, K], x [S, K, 1])   ->   matmul(x [S, 1, K], the same [S, K, M]), reshaped

So the matrices are always on the right, where products read what they pick where it lies (lower/picked_products.py).
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE
from hardtack.codegen.ir.graph import Graph, Op, make_attrs
from hardtack.codegen.lower.views import base_of
from hardtack.exporter.rewrite.edit import Edit, Facts


def turn_picked_columns(graph: Graph) -> Graph:
    """The rule; see the module."""
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        if op.kind == "matmul" and _picks(facts, op):
            edit.renamed[op.outputs[0]] = _turned(edit, op)
        else:
            edit.keep(op)
    return edit.done()


def _picks(facts: Facts, op: Op) -> bool:
    """True for matrices that are picked, several rows of each, times a column each."""
    left, right = facts.shape(op.inputs[0]), facts.shape(op.inputs[1])
    picked = facts.made_by(base_of(facts.producer, op.value(0)), "take")
    return picked is not None and len(left) == 3 and right[-1] is ONE and left[-2] is not ONE


def _turned(edit: Edit, op: Op) -> str:
    batch, _, depth = edit.graph.types[op.value(0)].shape
    row = edit.reshape(op.value(1), (batch, ONE, depth), op)
    matrices = edit.emit("permute", op.value(0), like=op, attrs=make_attrs(dims=(0, 2, 1)))
    product = edit.emit("matmul", row, matrices, like=op, attrs=op.attrs)
    return edit.reshape(product, edit.graph.types[op.outputs[0]].shape, op)
