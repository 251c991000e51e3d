"""Which values are ranked or cut to whole numbers that the graph goes on with: the scores of a router, distances to a
codebook, places to sample at. A rounded score picks another expert or code, which is no small error any more."""

from __future__ import annotations

from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter.rewrite.edit import Facts

_FOLLOWED = ("cat", "reduce", "topk", "sort", "gather")
"""What else a score goes through on its way from the product that made it."""


def deciding_values(facts: Facts) -> set[str]:
    """The floats whose order or whole part decides what a later op reads or computes."""
    graph, found = facts.graph, set[str]()
    for op in reversed(graph.ops):
        through = op.kind in SCALAR_OPS or op.kind in _FOLLOWED or is_view(op)
        if _decides(op, facts) or (through and found.intersection(op.outputs)):
            found |= {x for x in op.inputs if isinstance(x, str) and graph.types[x].dtype.is_float}
    return found


def _decides(op: Op, facts: Facts) -> bool:
    """True if op makes whole numbers of floats, and another op reads them."""
    ranks = op.kind in ("topk", "sort") or (op.kind == "reduce" and op.attr("kind") in ("argmax", "argmin"))
    return (ranks or op.kind == "cast") and _whole_and_read(op.outputs[-1], facts)


def _whole_and_read(value: str, facts: Facts) -> bool:
    graph: Graph = facts.graph
    return graph.types[value].dtype.is_int and bool(facts.users.get(value))
