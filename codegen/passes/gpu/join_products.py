"""Products: those of one activation with several constant weights become one, for GPUs.

    q = x @ wq + bq;  k = x @ wk;  v = x @ wv + bv
becomes
    j = x @ cat(wq, wk, wv) + cat(bq, 0, bv);  q, k, v = slices of j

A small product takes as long as its launch, and one of a few columns leaves multiprocessors idle. What follows each of
them by constants of its columns alone is joined, too (product_chains.py). The joined constants are made at export
(lower/operands.py); the slices are views, which templates and nests read in place. Whether it pays is estimated
(product_profit.py) and recorded. Factors that are powers of two go from queries into the scale of their
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
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.passes.gpu.product_chains import Chain, Chains, outputs_of, shared_values, with_inputs
from hardtack.codegen.passes.gpu.product_profit import Branch, profit
from hardtack.codegen.passes.passes import Context, Decisions, GraphPass
from hardtack.codegen.tune.choice import Tuning

KIND = "products"
"""Of the Decisions that are made here: subject is the first product, partner the number of products."""


Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class _Product:
    """x @ w and the chain behind it. ops: what both of them compute."""

    op: Op
    weight: str
    chain: Chain
    ops: tuple[str, ...]

    @property
    def result(self) -> str:
        return self.chain[-1].result if self.chain else self.op.outputs[0]


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
    """Products of matrices by constants that nothing else reads, by activation, with chains that are alike."""
    constants, kept = {c.name: _codes_of(c) for c in graph.constants}, _kept(graph)
    constants |= {p.name: () for c in graph.constants for p in c.parts()}
    chains = Chains(graph, {o: op for op in graph.ops for o in op.outputs}, readers, kept, frozenset(constants))
    place = {op.outputs: k for k, op in enumerate(graph.ops)}
    found: dict[tuple[object, ...], list[_Product]] = {}
    for op in graph.ops:
        if op.kind != "matmul":
            continue
        a, w = op.value(0), op.value(1)
        left, right = graph.types[a], graph.types[w]
        plain = len(left.shape) == len(right.shape) == 2 and left.dtype is right.dtype
        if not plain or w not in constants or len(readers[w]) != 1 or w in kept:
            continue
        chain = chains.behind(op)
        product = _Product(op, w, chain, (*op.outputs, *outputs_of(chain, readers)))
        result = graph.types[product.result].dtype
        narrow = left.dtype.is_float and result is left.dtype
        kind = (a, left.dtype, op.attr("sums") if left.dtype.is_float8 else None, constants[w], result)
        key: tuple[object, ...] = (*kind, *_like(chains, chain, kind, found))
        first = found.get(key, [product])[0]
        given = [place[chains.producers[x].outputs] for x in shared_values(chain) if x in chains.producers]
        if (narrow or left.dtype in BYTES) and all(k < place[first.op.outputs] for k in given):
            found.setdefault(key, []).append(product)  # no key without a product, whose chain is the key's
    return list(found.values())


def _like(
    chains: Chains, chain: Chain, kind: tuple[object, ...], found: Mapping[tuple[object, ...], Sequence[_Product]]
) -> tuple[object, ...]:
    """The signature of the chain; where there is none, or where it is a bias and there was none before, that of the
    other: zeros are a bias."""
    own = chains.signature(chain)
    if chain and not chains.is_bias(chain):
        return own
    for other, products in found.items():
        known = next((p.chain for p in products if p.chain), ())
        alike = not chain or not known or chains.signature(known) == own
        if alike and other[: len(kind)] == kind and (not known or chains.is_bias(known)):
            return other[len(kind) :]
    return own


def _codes_of(c: Constant) -> tuple[object, ...]:
    """What the codes of weights that are joined have in common; empty for numbers. A factor is one weight's own."""
    q = c.quantized
    if q is None:
        return ()
    own = (c.name,) if any(s.factor is not None for s in q.steps) else ()
    return (q.dtype, q.bits, *own, *((s.kind, s.runs[:1], s.number, s.result) for s in q.steps))


def _kept(graph: Graph) -> frozenset[str]:
    return frozenset({*graph.outputs, *graph.finals().values()})


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
    """Ops of one origin, put behind each other; `types` takes the types of what they compute."""

    origin: Origin
    types: dict[str, TensorType]
    ops: list[Op] = field(default_factory=list)

    def __call__(self, kind: str, inputs: Sequence[Operand], name: str, t: TensorType, **attrs: object) -> str:
        return self.add(Op(kind, tuple(inputs), make_attrs(**attrs), (name,), self.origin), t)

    def add(self, op: Op, t: TensorType) -> str:
        """The op's only result, of type t."""
        (name,) = op.outputs
        self.types[name] = t
        self.ops.append(op)
        return name


def _joined(
    products: Sequence[_Product], types: dict[str, TensorType], coded: frozenset[str]
) -> tuple[list[Op], list[Op]]:
    """The ops that compute the joined product and its chain, and the slices of that; `types` takes their types. coded:
    the constants that have codes."""
    first = next((p for p in products if p.chain), products[0])
    emit = _Emitter(products[0].op.origin, types)
    a = types[first.op.value(0)]
    columns = [int_value(types[p.weight].shape[1]) or 0 for p in products]
    total = const(sum(columns))
    stem = products[0].op.outputs[0]
    by_columns = a.shape[0] is ONE or a.dtype in (DType.F32, *BYTES) or first.op.value(1) in coded

    def wide(t: TensorType) -> TensorType:
        return replace(t, shape=(*t.shape[:-1], total))

    inputs: dict[int, Operand] = {1: _weight(emit, products, by_columns)}
    value = emit.add(with_inputs(first.op, inputs, f"{stem}.joined"), wide(types[first.op.outputs[0]]))
    for k, step in enumerate(first.chain):
        inputs = {step.value: value, **{x: _vector(emit, products, k, x, columns) for x in step.vectors}}
        value = emit.add(with_inputs(step.op, inputs, f"{stem}.joined.{k}"), wide(types[step.result]))
    slices: list[Op] = []
    start = 0
    for p, n in zip(products, columns, strict=True):
        attrs = make_attrs(dim=len(types[value].shape) - 1, start=start, step=1)
        slices.append(Op("slice", (value,), attrs, (p.result,), p.op.origin))
        types[p.result] = replace(types[value], shape=(*types[value].shape[:-1], const(n)))
        start += n
    return emit.ops, slices


def _vector(emit: _Emitter, products: Sequence[_Product], k: int, at: int, columns: Sequence[int]) -> str:
    """The constants that the k-th steps of the products take as operand `at`, side by side, and converted as they are;
    zeros for a product that has no chain."""
    one = next(p.chain for p in products if p.chain)[k].vectors[at]
    t = emit.types[one.constant]
    parts = [p.chain[k].vectors[at].constant if p.chain else "" for p in products]
    name = _name([x or str(n) for x, n in zip(parts, columns, strict=True)], f"vectors of {k}, {at}")
    made = [
        x or emit("full", (Lit(0.0, t.dtype),), f"{name}.{i}", replace(t, shape=(*t.shape[:-1], const(n))))
        for i, (x, n) in enumerate(zip(parts, columns, strict=True))
    ]
    whole = replace(t, shape=(*t.shape[:-1], const(sum(columns))))
    found = emit("cat", made, name, whole, dim=len(t.shape) - 1)
    if one.cast is None:
        return found
    converted = replace(whole, dtype=emit.types[one.cast.outputs[0]].dtype)
    return emit.add(with_inputs(one.cast, {0: found}, f"{name}.converted"), converted)


def _weight(emit: _Emitter, products: Sequence[_Product], by_columns: bool) -> str:
    """The weights [K, N] side by side. by_columns: with K innermost, as one row, f32, bytes and codes are read."""
    weights = [p.weight for p in products]
    dtype = emit.types[weights[0]].dtype
    shapes = [emit.types[w].shape for w in weights]
    depth, total = shapes[0][0], _sum(n for _, n in shapes)
    whole, turned = TensorType(dtype, (depth, total)), TensorType(dtype, (total, depth))
    if not by_columns:
        return emit("cat", weights, _name(weights, "by rows"), whole, dim=1)
    name = _name(weights, "by columns")
    rows = [
        emit("permute", (w,), f"{name}.{k}", TensorType(dtype, (n, depth)), dims=(1, 0))
        for k, (w, (_, n)) in enumerate(zip(weights, shapes, strict=True))
    ]
    return emit("permute", (emit("cat", rows, name, turned, dim=0),), f"{name}.t", whole, dims=(1, 0))


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
    value: Operand, producers: Mapping[str, Op], readers: Mapping[str, Sequence[Op]], kept: frozenset[str]
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
