"""Products of int8 for GPUs: as products of f32, for which there are kernels, exact for so many columns at once.

    y = matmul(a, b)  of int8, added up in int32
becomes
    y = cast(matmul(cast(a[:, :1024]), cast(b[:1024]))) + cast(matmul(cast(a[:, 1024:]), cast(b[1024:]))) + ...

A product whose depth is known at run time only stays: loops add it up.
"""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.ir.expr import Expr, const, int_value
from hardtack.codegen.ir.graph import Graph, Op, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass

_EXACT_K = 1024
"""So many products of two int8, 2**14 at most each, add up to 2**24 at most: f32 has each whole number up to that."""


class _Widened:
    """The ops of one product, as they are made, with the types of their values."""

    def __init__(self, graph: Graph, op: Op) -> None:
        self.types = graph.types
        self.op = op
        self.made: dict[str, TensorType] = {}
        self.ops: list[Op] = []

    def value(self, kind: str, inputs: tuple[str, ...], t: TensorType, name: str = "", **attrs: object) -> str:
        out = name or f"{self.op.outputs[0]}.wide{len(self.ops)}"
        self.ops.append(replace(self.op, kind=kind, inputs=inputs, attrs=make_attrs(**attrs), outputs=(out,)))
        self.made[out] = t
        return out

    def part(self, x: str, dim: int, begin: int, count: int) -> str:
        """A run of x's columns or rows, as f32."""
        t = self.types[x]
        shape: list[Expr] = list(t.shape)
        shape[dim] = const(count)
        if t.shape[dim] is not const(count):
            x = self.value("slice", (x,), TensorType(t.dtype, tuple(shape)), dim=dim, start=begin, step=1)
        return self.value("cast", (x,), TensorType(DType.F32, tuple(shape)), dtype=DType.F32)

    def product(self, depth: int) -> None:
        a, b = self.op.value(0), self.op.value(1)
        out = self.op.outputs[0]
        result, rank = self.types[out], len(self.types[out].shape)
        total = ""
        for begin in range(0, depth, _EXACT_K):
            count = min(_EXACT_K, depth - begin)
            parts = (self.part(a, rank - 1, begin, count), self.part(b, rank - 2, begin, count))
            summed = self.value("matmul", parts, TensorType(DType.F32, result.shape))
            last = begin + count == depth
            part = self.value("cast", (summed,), result, out if last and not total else "", dtype=DType.I32)
            total = self.value("add", (total, part), result, out if last else "") if total else part


def widen_bytes(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph without products of int8 of a depth that is known."""
    ops: list[Op] = []
    types = dict(graph.types)
    for op in graph.ops:
        bytes_ = op.kind == "matmul" and graph.types[op.value(0)].dtype is DType.I8
        depth = int_value(graph.types[op.value(0)].shape[-1]) if bytes_ else None
        if not depth:
            ops.append(op)
            continue
        widened = _Widened(graph, op)
        widened.product(depth)
        ops += widened.ops
        types |= widened.made
    return (graph if len(ops) == len(graph.ops) else replace(graph, ops=tuple(ops), types=types)), ()


WIDEN_BYTES = GraphPass("bytes", widen_bytes)
"""Products of int8 become products of f32."""
