"""Layout: which dimension order each value has in memory. A pure function of the graph.

Convolutions and pools run channels-last, so their results, and whatever is computed from them point by point, are kept
in the order (N, *S, C). Attention writes (B, T, H, E), so that joining the heads again is a view. Everything else is
row-major, and so is every output of the graph: that is the contract with the caller. What an input becomes is laid out
as the input is.
"""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import as_expr, const
from hardtack.codegen.ir.graph import Graph, Op, uses
from hardtack.codegen.ir.graph_ops import Order as Kept
from hardtack.codegen.ir.graph_ops import facts

Order = tuple[int, ...]


def row_major(rank: int) -> Order:
    """0, 1, ..., rank - 1."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """(0, 2, ..., rank - 1, 1)."""
    return (0, *range(2, rank), 1)


def choose_orders(graph: Graph) -> dict[str, Order]:
    """value -> dimension order, outermost first."""
    orders: dict[str, Order] = {}
    given = [i.name for i in graph.inputs] + [c.name for c in graph.constants] + [s.name for s in graph.states]
    for name in given:
        orders[name] = row_major(len(graph.types[name].shape))
    for i in graph.inputs:
        orders[i.name] = _order_of_strides(graph, i.name, i.strides)
    fixed = {final: orders[name] for name, final in graph.finals().items()}
    fixed |= {out: row_major(len(graph.types[out].shape)) for out in graph.outputs}
    for op in graph.ops:
        for out in op.outputs:
            rank = len(graph.types[out].shape)
            orders[out] = fixed[out] if out in fixed else _order(graph, op, rank, orders)
    return orders


def _order_of_strides(graph: Graph, name: str, strides: tuple[object, ...]) -> Order:
    """The order that an input's declared strides describe; row-major where they do not say."""
    shape = graph.types[name].shape
    for order in (row_major(len(shape)), channels_last(len(shape)) if len(shape) >= 3 else ()):
        step = const(1)
        matches = bool(order) or not shape
        for d in reversed(order):
            matches = matches and (as_expr(strides[d]) is step or shape[d] is const(1))  # type: ignore[arg-type]
            step = step * shape[d]  # type: ignore[assignment]
        if matches:
            return order
    raise ValueError(f"input {name}: strides {strides} are neither row-major nor channels-last")


def _order(graph: Graph, op: Op, rank: int, orders: Mapping[str, Order]) -> Order:
    kept = facts(op).order
    if kept is Kept.CHANNELS_LAST and rank >= 3:
        return channels_last(rank)
    if kept is Kept.HEADS_INSIDE:
        return (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    if kept in (Kept.OF_OPERAND, Kept.OF_EQUAL):
        for name in uses(op):
            order = orders[name]
            reordered = len(order) == rank and order != row_major(rank)
            if reordered and (kept is Kept.OF_OPERAND or _spans(graph, name, op)):
                return order
    return row_major(rank)


def _spans(graph: Graph, operand: str, op: Op) -> bool:
    """True if the operand is as large as the result: a broadcast vector does not decide the layout."""
    a, b = graph.types[operand].shape, graph.types[op.outputs[0]].shape
    return all(x is y for x, y in zip(a, b, strict=True))
