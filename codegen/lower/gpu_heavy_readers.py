"""What a graph computes from a product right behind it: a backend may compute that in the product's kernel."""

from __future__ import annotations

from hardtack.codegen.ir.graph_ops import Elements, facts
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.ops import SCALAR_OPS

HEAVY_COST = 10
"""Of a scalar op: exponentials and everything that takes one."""


def heavy_behind(low: Lowering, value: str) -> bool:
    """True if a function as costly as an exponential is computed of each element of `value`, point by point."""
    todo, seen = [value], {value}
    while todo:
        for op in low.readers.get(todo.pop(), ()):
            row = SCALAR_OPS.get(op.kind)
            if row is not None and row.cost >= HEAVY_COST:
                return True
            if (row is not None or facts(op).elements is Elements.KEPT) and op.outputs[0] not in seen:
                seen.add(op.outputs[0])
                todo.append(op.outputs[0])
    return False
