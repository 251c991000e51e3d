"""Products: those of one activation with several constant weights become one, for GPUs.

    q = x @ wq + bq;  k = x @ wk;  v = x @ wv + bv
becomes
    j = x @ cat(wq, wk, wv) + cat(bq, 0, bv);  q, k, v = slices of j

A small product takes as long as its launch, and one of a few columns leaves multiprocessors idle. The joined constants
are made at export (lower/operands.py); the slices are views, which templates and nests read in place. Whether it pays
is estimated (product_profit.py) and recorded. Factors that are powers of two go from queries into the scale of their
attention first, which changes no bit and leaves nothing to compute between a product and its attention.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.expr import ONE, Expr, const, int_value
from hardtack.codegen.ir.graph import Constant, Graph, Lit, Op, Operand, Origin, TensorType, make_attrs, uses
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.passes.gpu.product_profit import Branch, profit
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.tune.choice import Tuning

KIND = "products"
"""Of the Decisions that are made here: subject is the first product, partner the number of products."""


Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class _Product:
    """x @ w, or x @ w + b where nothing else reads the product. `ops`: the outputs of the ops that compute it, the last
    one its result."""

    op: Op
    weight: str
    bias: str | None
    ops: tuple[str, ...]

    @property
    def result(self) -> str:
        return self.ops[-1]


def join_products(
    graph: Graph, hints: Mapping[str, int], machine: Gpu, tuning: Tuning
) -> tuple[Graph, tuple[Decision, ...]]:
    """The graph with products joined where that pays, and what was decided about each set of products."""
    graph = scale_in_attention(graph)
    readers = readers_of(graph)
    sets = [s for s in _siblings(graph, readers) if len(s) > 1]
    decisions: list[Decision] = []
    joined: list[Sequence[_Product]] = []
    for products in sets:
        accepted, reason = profit(graph, _branches(products), readers, hints, machine, tuning)
        decisions.append(Decision(KIND, products[0].op.outputs[0], f"{len(products)} products", accepted, reason))
        if accepted:
            joined.append(products)
    return (_rewritten(graph, joined) if joined else graph), tuple(decisions)


def readers_of(graph: Graph) -> dict[str, list[Op]]:
    """value -> the ops that read it, once for each operand."""
    readers: dict[str, list[Op]] = {}
    for op in graph.ops:
        for name in uses(op):
            readers.setdefault(name, []).append(op)
    return readers


def _siblings(graph: Graph, readers: Mapping[str, Sequence[Op]]) -> list[list[_Product]]:
    """Products of matrices by constants that nothing else reads, by activation."""
    constants = {c.name: _codes_of(c) for c in graph.constants}
    kept = _kept(graph)
    found: dict[tuple[object, ...], list[_Product]] = {}
    for op in graph.ops:
        if op.kind != "matmul":
            continue
        a, w = op.value(0), op.value(1)
        left, right = graph.types[a], graph.types[w]
        plain = len(left.shape) == len(right.shape) == 2 and left.dtype is right.dtype
        if plain and left.dtype.is_float and w in constants and len(readers[w]) == 1 and w not in kept:
            product = _with_bias(graph, op, w, constants, readers, kept)
            if graph.types[product.result].dtype is left.dtype:
                found.setdefault((a, left.dtype, constants[w]), []).append(product)
    return list(found.values())


def _codes_of(c: Constant) -> tuple[object, ...]:
    """What the codes of weights that are joined have in common; empty for numbers."""
    q = c.quantized
    return () if q is None else (q.dtype, q.bits, *((s.kind, s.runs[:1], s.number, s.result) for s in q.steps))


def _with_bias(
    graph: Graph, op: Op, weight: str, constants: Iterable[str], readers: Mapping[str, Sequence[Op]], kept: set[str]
) -> _Product:
    """The product and, where it is added to right away, its bias; of half types both are in f32, and rounded behind."""

    def behind(value: str, kind: str) -> Op | None:
        after = readers.get(value, ())
        return after[0] if len(after) == 1 and after[0].kind == kind and value not in kept else None

    out, dtype = op.outputs[0], graph.types[weight].dtype
    alone = _Product(op, weight, None, (out,))
    add = behind(out, "add")
    if add is None:
        return alone
    given = add.inputs[1] if add.inputs[0] == out else add.inputs[0]
    cast = next((o for o in graph.ops if o.kind == "cast" and o.outputs == (given,)), None)
    bias = given if cast is None else cast.inputs[0]
    t = graph.types[out]
    wanted = TensorType(dtype, t.shape[1:])
    same = isinstance(bias, str) and bias in constants and graph.types[bias] == wanted
    if not same or graph.types[add.outputs[0]] != t:
        return alone
    ops: tuple[str, ...] = (out, add.outputs[0])
    if t.dtype is dtype:
        return _Product(op, weight, str(bias), ops)
    narrow = behind(add.outputs[0], "cast")
    if cast is not None and len(readers[cast.outputs[0]]) == 1:
        ops = (*cast.outputs, *ops)
    return alone if narrow is None else _Product(op, weight, str(bias), (*ops, *narrow.outputs))


def _kept(graph: Graph) -> set[str]:
    return {*graph.outputs, *(s.final for s in graph.states if s.final is not None)}


def _branches(products: Sequence[_Product]) -> tuple[Branch, ...]:
    return tuple(Branch(p.op, p.result) for p in products)


def _rewritten(graph: Graph, joined: Sequence[Sequence[_Product]]) -> Graph:
    types = dict(graph.types)
    coded = frozenset(c.name for c in graph.constants if c.quantized is not None)
    first: dict[str, list[Op]] = {}
    slices: dict[str, Op] = {}
    gone: set[str] = set()
    for products in joined:
        ops, sliced = _joined(products, types, coded)
        first[products[0].op.outputs[0]] = ops
        slices |= {op.outputs[0]: op for op in sliced}
        gone |= {name for p in products for name in p.ops}
    out: list[Op] = []
    for op in graph.ops:
        name = op.outputs[0] if op.outputs else ""
        out += first.get(name, ())
        if name in slices:
            out.append(slices[name])
        elif name not in gone:
            out.append(op)
    left = {value for op in out for value in (*uses(op), *op.outputs)}
    unread = gone - left
    return replace(graph, ops=tuple(out), types={n: t for n, t in types.items() if n not in unread})


@dataclass
class _Emitter:
    """Ops of one dtype and origin, put behind each other; `types` takes the types of what they compute."""

    dtype: DType
    origin: Origin
    types: dict[str, TensorType]
    ops: list[Op] = field(default_factory=list)

    def __call__(
        self,
        kind: str,
        inputs: Sequence[Operand],
        name: str,
        shape: tuple[Expr, ...],
        wide: bool = False,
        **attrs: object,
    ) -> str:
        """wide: in f32, for half types."""
        self.types[name] = TensorType(DType.F32 if wide and self.dtype.is_half else self.dtype, shape)
        self.ops.append(Op(kind, tuple(inputs), make_attrs(**attrs), (name,), self.origin))
        return name


def _joined(
    products: Sequence[_Product], types: dict[str, TensorType], coded: frozenset[str]
) -> tuple[list[Op], list[Op]]:
    """The ops that compute the joined product, and the slices of it; `types` takes their types. coded: the constants
    that have codes."""
    head = products[0].op
    a = head.value(0)
    emit = _Emitter(types[a].dtype, head.origin, types)
    rows = types[a].shape[0]
    columns = [int_value(types[p.weight].shape[1]) or 0 for p in products]
    total = const(sum(columns))
    stem = head.outputs[0]
    by_columns = rows is ONE or emit.dtype is DType.F32 or head.value(1) in coded
    operands = (a, _weight(emit, products, by_columns))
    if not any(p.bias for p in products):
        result = emit("matmul", operands, f"{stem}.joined", (rows, total))
    else:
        result = _biased(emit, operands, _bias(emit, products, columns), stem, (rows, total))
    slices: list[Op] = []
    start = 0
    for p, n in zip(products, columns, strict=True):
        attrs = make_attrs(dim=1, start=start, step=1)
        slices.append(Op("slice", (result,), attrs, (p.result,), p.op.origin))
        start += n
    return emit.ops, slices


def _biased(emit: _Emitter, operands: Sequence[Operand], bias: str, stem: str, shape: tuple[Expr, ...]) -> str:
    """The product with its bias; of half types rounded once."""
    if not emit.dtype.is_half:
        return emit("add", (emit("matmul", operands, f"{stem}.joined", shape), bias), f"{stem}.biased", shape)
    joined = emit("matmul", operands, f"{stem}.joined", shape, wide=True, dtype=DType.F32)
    added = emit("cast", (bias,), f"{bias}.wide", shape[1:], wide=True, dtype=DType.F32)
    total = emit("add", (joined, added), f"{stem}.biased", shape, wide=True)
    return emit("cast", (total,), f"{stem}.rounded", shape, dtype=emit.dtype)


def _weight(emit: _Emitter, products: Sequence[_Product], by_columns: bool) -> str:
    """The weights [K, N] side by side. by_columns: with K innermost, as one row, f32 and codes are read."""
    weights = [p.weight for p in products]
    shapes = [emit.types[w].shape for w in weights]
    depth, total = shapes[0][0], _sum(n for _, n in shapes)
    if not by_columns:
        return emit("cat", weights, _name(weights, "by rows"), (depth, total), dim=1)
    name = _name(weights, "by columns")
    turned = [
        emit("permute", (w,), f"{name}.{k}", (n, depth), dims=(1, 0))
        for k, (w, (_, n)) in enumerate(zip(weights, shapes, strict=True))
    ]
    return emit(
        "permute", (emit("cat", turned, name, (total, depth), dim=0),), f"{name}.t", (depth, total), dims=(1, 0)
    )


def _bias(emit: _Emitter, products: Sequence[_Product], columns: Sequence[int]) -> str:
    """The biases one after another, zeros for a product that has none."""
    name = _name([p.bias or str(n) for p, n in zip(products, columns, strict=True)], "biases")
    zero = Lit(0.0, emit.dtype)
    biases = [
        p.bias or emit("full", (zero,), f"{name}.{k}", (const(n),))
        for k, (p, n) in enumerate(zip(products, columns, strict=True))
    ]
    return emit("cat", biases, name, (const(sum(columns)),), dim=0)


def _sum(sizes: Iterable[Expr]) -> Expr:
    return const(sum(int_value(n) or 0 for n in sizes))


def _name(sources: Sequence[str], how: str) -> str:
    """The name of a joined constant says what it is made of: entry points that join alike share it."""
    return f"{sources[0]}.joined.{hashlib.sha256(repr((how, *sources)).encode()).hexdigest()[:8]}"


def scale_in_attention(graph: Graph) -> Graph:
    """Queries times a power of two that one attention reads: the factor goes into its scale, exactly."""
    readers, producers = readers_of(graph), {o: op for op in graph.ops for o in op.outputs}
    kept = _kept(graph)
    scales: dict[str, float] = {}
    renamed: dict[str, str] = {}
    for op in graph.ops:
        made = _alone_behind(op.inputs[0], producers, readers, kept) if op.kind == "attention" else None
        factor = _power_of_two(made) if made is not None else None
        if made is not None and factor is not None:
            scales[op.outputs[0]] = op.float_attr("scale") * factor
            renamed[made.outputs[0]] = made.value(0)
    if not renamed:
        return graph
    ops: list[Op] = []
    for op in graph.ops:
        name = op.outputs[0] if op.outputs else ""
        if name not in renamed:
            inputs = tuple(renamed.get(x, x) if isinstance(x, str) else x for x in op.inputs)
            attrs = make_attrs(**{**dict(op.attrs), "scale": scales[name]}) if name in scales else op.attrs
            ops.append(replace(op, inputs=inputs, attrs=attrs))
    return replace(graph, ops=tuple(ops), types={n: t for n, t in graph.types.items() if n not in renamed})


def _alone_behind(
    value: Operand, producers: Mapping[str, Op], readers: Mapping[str, Sequence[Op]], kept: set[str]
) -> Op | None:
    """The op behind a value and its views, if nothing else reads any of them."""
    while isinstance(value, str) and value in producers and value not in kept and len(readers[value]) == 1:
        made = producers[value]
        if not is_view(made):
            return made
        value = made.inputs[0]
    return None


def _power_of_two(op: Op) -> float | None:
    """The factor of `value * 2^n`."""
    if op.kind != "mul" or not isinstance(op.inputs[0], str) or not isinstance(op.inputs[1], Lit):
        return None
    factor = float(op.inputs[1].value)
    return factor if factor > 0 and math.isfinite(factor) and math.frexp(factor)[0] == 0.5 else None


def _run(graph: Graph, context: Context) -> tuple[Graph, Decisions]:
    return join_products(graph, context.hints, context.gpu, context.tuning)


JOIN_PRODUCTS = GraphPass("products", _run)
"""Products of one activation with several weights become one: everything behind it sees a single product."""
