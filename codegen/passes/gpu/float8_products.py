"""Products of floats of 8 bits that a model converts first, for GPUs whose tensor cores take them as they are.

    y = matmul(cast(a), cast(b), sums="float8")  of f8, as f32
becomes
    y = matmul(a, b, sums="float8")

Both multiply the same numbers. Tensor cores keep fewer bits of the sums than f32 has, so that the graph must have said
that they may (FLOAT8_SUMS): `_scaled_mm` says so, a product of numbers that a model widens itself does not. Views
between the conversion and the product move in front of it; b may also be a constant that codes were converted to, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.expr import ONE
from hardtack.codegen.ir.graph import Constant, Graph, Op, TensorType, make_attrs, uses
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass


@dataclass(frozen=True)
class _Source:
    """Codes that an operand was converted from. views: between them and the operand, the first one first. constant:
    what they are where no op makes them."""

    name: str
    type: TensorType
    views: tuple[Op, ...]
    constant: Constant | None = None


@dataclass
class _Rewriter:
    """The graph while its ops are copied. known: its constants. constants: those of codes that products read now, by
    name."""

    graph: Graph
    types: dict[str, TensorType]
    producers: Mapping[str, Op]
    known: Mapping[str, Constant]
    ops: list[Op] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)

    def source(self, value: str) -> _Source | None:
        """What an operand was converted from; None where that is no value of floats of 8 bits."""
        views: list[Op] = []
        while (op := self.producers.get(value)) is not None and is_view(op):
            views.insert(0, op)
            value = op.value(0)
        if op is None:
            return self._constant(value, tuple(views))
        while (inner := self._conversion_before(op)) is not None:
            op = inner
        codes = self.types[op.value(0)] if op.kind == "cast" else None
        return _Source(op.value(0), codes, tuple(views)) if codes is not None and codes.dtype.is_float8 else None

    def _conversion_before(self, op: Op) -> Op | None:
        """A conversion from one float of 16 bits or more to another whose operand was converted, too: all of them have
        every number that 8 bits have."""
        if op.kind != "cast" or not self.types[op.value(0)].dtype.is_float:
            return None
        inner = self.producers.get(op.value(0))
        return inner if inner is not None and inner.kind == "cast" else None

    def _constant(self, name: str, views: tuple[Op, ...]) -> _Source | None:
        c = self.known.get(name)
        q = c.quantized if c is not None else None
        if c is None or q is None or q.steps or not q.dtype.is_float8:
            return None
        codes = c.parts()[0]
        return _Source(codes.name, TensorType(q.dtype, self.types[name].shape), views, codes)

    def operand(self, source: _Source, stem: str) -> str:
        """The codes as the product reads them: behind the same views."""
        if source.constant is not None:
            self.constants[source.name] = source.constant
            self.types[source.name] = source.type
        value = source.name
        for k, view in enumerate(source.views):
            out = f"{stem}{k}"
            self.ops.append(replace(view, inputs=(value, *view.inputs[1:]), outputs=(out,)))
            self.types[out] = TensorType(source.type.dtype, self.types[view.outputs[0]].shape)
            value = out
        return value

    def product(self, op: Op) -> bool:
        """Rewrite a product of two operands that were of the same 8 bits; False if it is no such product."""
        left, right = self.source(op.value(0)), self.source(op.value(1))
        if left is None or right is None or left.type.dtype is not right.type.dtype:
            return False
        out = op.outputs[0]
        inputs = (self.operand(left, f"{out}.left"), self.operand(right, f"{out}.right"))
        attrs = make_attrs(dtype=DType.F32, sums=op.attr("sums"))
        self.ops.append(replace(op, inputs=inputs, attrs=attrs))
        return True


def multiply_float8(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    """The graph with products of floats of 8 bits, where the machine has any."""
    if not context.gpu.tensor_flops.float8:
        return graph, ()
    producers = {out: op for op in graph.ops for out in op.outputs}
    known = {c.name: c for c in graph.constants}
    rewriter, decisions = _Rewriter(graph, dict(graph.types), producers, known), list[Decision]()
    for op in graph.ops:
        if _may_multiply(graph, op) and rewriter.product(op):
            reason = "tensor cores take what its operands were converted from"
            decisions.append(Decision("float8", op.outputs[0], "codes", True, reason))
        else:
            rewriter.ops.append(op)
    if not decisions:
        return graph, ()
    ops = _read(graph, rewriter.ops)
    values = {n for op in ops for n in (*uses(op), *op.outputs)} | set(graph.types) & _kept(graph)
    constants = (*graph.constants, *rewriter.constants.values())
    return replace(graph, ops=ops, constants=constants, types={n: rewriter.types[n] for n in values}), tuple(decisions)


def _may_multiply(graph: Graph, op: Op) -> bool:
    """True for a product that may be added up so; one of a row is bound by reading its matrix, which a kernel of its
    own reads as codes."""
    return op.kind == "matmul" and "sums" in dict(op.attrs) and graph.types[op.outputs[0]].shape[-2] is not ONE


def _kept(graph: Graph) -> set[str]:
    """Values that are there whether or not an op reads them."""
    given = {*(i.name for i in graph.inputs), *(s.name for s in graph.states), *(c.name for c in graph.constants)}
    return {*graph.outputs, *graph.finals().values(), *given}


def _read(graph: Graph, ops: list[Op]) -> tuple[Op, ...]:
    """The ops without conversions and views that nothing reads any more."""
    wanted, found = _kept(graph), list[Op]()
    for op in reversed(ops):
        if (op.kind == "cast" or is_view(op)) and not wanted & {*op.outputs}:
            continue
        wanted |= set(uses(op))
        found.append(op)
    return tuple(reversed(found))


MULTIPLY_FLOAT8 = GraphPass("bytes", multiply_float8)
"""Products of converted floats of 8 bits become products of these."""
