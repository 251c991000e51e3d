"""Views are free: where an element of a view lies in the value that it looks at.

Each rule maps an index of the output to an index of the input, as Exprs. `resolve` follows a chain of views to the
value that is really in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, floordiv, mod
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.graph_ops import is_view

Idx = tuple[Expr, ...]
Shape = tuple[Expr, ...]


def reshape_index(out_shape: Shape, in_shape: Shape, index: Idx) -> Idx:
    """Row-major renumbering. Runs of dimensions with equal products are renumbered apart: indices stay simple."""
    result: list[Expr] = []
    o = i = 0
    while o < len(out_shape) or i < len(in_shape):
        o_end, i_end = _matching_run(out_shape, in_shape, o, i)
        linear: Expr = ZERO
        for d in range(o, o_end):
            linear = linear * out_shape[d] + index[d]
        result.extend(delinearize(linear, in_shape[i:i_end]))
        o, i = o_end, i_end
    return tuple(result)


def _matching_run(out_shape: Shape, in_shape: Shape, o: int, i: int) -> tuple[int, int]:
    """The shortest next runs of both shapes with equal products; everything left where there is none."""
    products: dict[Expr, int] = {}
    p: Expr = ONE
    for end in range(o, len(out_shape) + 1):
        if end > o:
            p = p * out_shape[end - 1]
        products.setdefault(p, end)
    q: Expr = ONE
    for end in range(i, len(in_shape) + 1):
        if end > i:
            q = q * in_shape[end - 1]
        if q in products and (end > i or products[q] > o):
            o_end = products[q]
            if o_end == o and end == i:
                continue
            if q is ZERO:
                break
            return o_end, end
    return len(out_shape), len(in_shape)


def delinearize(linear: Expr, shape: Shape) -> Idx:
    """The index of row-major element `linear` in `shape`."""
    out: list[Expr] = []
    rest = linear
    for d in range(len(shape) - 1, -1, -1):
        size = shape[d]
        if size is ONE or size is ZERO:
            out.append(ZERO)
        elif all(s is ONE for s in shape[:d]):
            out.append(rest)
            rest = ZERO
        else:
            out.append(mod(rest, size))
            rest = floordiv(rest, size)
    return tuple(reversed(out))


def broadcast_index(shape: Shape, index: Idx) -> Idx:
    """The index into an operand of `shape` that numpy's broadcasting rules give for an output index."""
    tail = index[len(index) - len(shape) :]
    return tuple(ZERO if s is ONE else i for s, i in zip(shape, tail, strict=True))


def _permute(op: Op, index: Idx, in_shape: Shape, out_shape: Shape) -> Idx:
    dims = op.tuple_attr("dims")
    source: dict[int, Expr] = dict(zip(dims, index, strict=True))
    return tuple(source[d] for d in range(len(dims)))


def _slice(op: Op, index: Idx, in_shape: Shape, out_shape: Shape) -> Idx:
    dim, start, step = op.int_attr("dim"), op.expr_attr("start"), op.int_attr("step")
    return tuple(i * step + start if d == dim else i for d, i in enumerate(index))


def _flip(op: Op, index: Idx, in_shape: Shape, out_shape: Shape) -> Idx:
    dims = op.tuple_attr("dims")
    return tuple(in_shape[d] - 1 - i if d in dims else i for d, i in enumerate(index))


INDEX_MAPS: dict[str, Callable[[Op, Idx, Shape, Shape], Idx]] = {
    "reshape": lambda op, index, in_shape, out_shape: reshape_index(out_shape, in_shape, index),
    "permute": _permute,
    "expand": lambda op, index, in_shape, out_shape: broadcast_index(in_shape, index),
    "slice": _slice,
    "flip": _flip,
}
"""View op kind -> (op, output index, input shape, output shape) -> input index."""


def resolve(graph: Graph, producers: Mapping[str, Op], value: str, index: Idx) -> tuple[str, Idx]:
    """The value in memory, and the index into it, behind `value[index]`."""
    op = producers.get(value)
    while op is not None and is_view(op):
        source = op.value(0)
        index = INDEX_MAPS[op.kind](op, index, graph.types[source].shape, graph.types[value].shape)
        value, op = source, producers.get(source)
    return value, index


def base_of(producers: Mapping[str, Op], value: str) -> str:
    """The value in memory that a view looks at; the value itself if it is no view."""
    op = producers.get(value)
    while op is not None and is_view(op):
        source = op.value(0)
        value, op = source, producers.get(source)
    return value
