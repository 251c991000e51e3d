"""What integer products are made of, as ops: codes as int8, the numbers that go with them, views of both, sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.equalities import equality
from hardtack.codegen.ir.expr import ONE, Expr, const, int_value
from hardtack.codegen.ir.graph import Constant, Graph, Lit, Op, Operand, TensorType, make_attrs, uses
from hardtack.codegen.ir.graph_infer import literal_type
from hardtack.codegen.ir.graph_ops import derive
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.shared.affine_codes import AffineCodes, Viewed

Attrs = tuple[tuple[str, object], ...]


@dataclass
class Edit:
    """The ops of a graph while products are replaced. parts: of constants by name, their codes and tables; shifted:
    codes of u8 -> the same as i8."""

    graph: Graph
    types: dict[str, TensorType]
    ops: list[Op] = field(default_factory=list)
    parts: dict[str, tuple[Constant, TensorType]] = field(default_factory=dict)
    added: dict[str, Constant] = field(default_factory=dict)
    shifted: dict[str, str] = field(default_factory=dict)

    def emit(
        self,
        like: Op,
        kind: str,
        /,
        *inputs: Operand,
        attrs: Attrs = (),
        shape: Sequence[Expr] = (),
        name: str = "",
    ) -> str:
        """A new op with the origin of `like`; its type rule says what it gives, in `shape` where that is free."""
        for x in inputs:
            if isinstance(x, str) and x not in self.types:
                self.added[x], self.types[x] = self.parts[x]
        op = Op(kind, inputs, attrs, (), like.origin)
        given = tuple(self.types[x] if isinstance(x, str) else literal_type(x) for x in inputs)
        stated = TensorType(given[0].dtype, tuple(shape))
        (found,) = derive(op, given, (stated,), equality(self.graph.guards))
        out = name or self._fresh(like.outputs[0])
        self.types[out] = found
        self.ops.append(replace(op, outputs=(out,)))
        return out

    def _fresh(self, stem: str) -> str:
        n = 0
        while f"{stem}.int{n}" in self.types:
            n += 1
        return f"{stem}.int{n}"

    def done(self) -> Graph:
        """The edited graph, without the ops that made numbers of codes for the products alone."""
        needed = {*self.graph.outputs, *self.graph.finals().values()}
        kept: list[Op] = []
        for op in reversed(self.ops):
            if not op.outputs or needed.intersection(op.outputs):
                kept.append(op)
                needed.update(uses(op))
        made = (*self.graph.ops, *self.ops)
        gone = {out for op in made for out in op.outputs} - {out for op in kept for out in op.outputs}
        types = {name: t for name, t in self.types.items() if name not in gone}
        constants = (*self.graph.constants, *self.added.values())
        graph = replace(self.graph, ops=tuple(reversed(kept)), types=types, constants=constants)
        for base, signed in self.shifted.items():
            graph = _stored_once(graph, base, signed)
        return graph


def _stored_once(graph: Graph, base: str, signed: str) -> Graph:
    """The graph with all that reads the codes `base` of u8 reading the same as i8, so that these alone are in memory.
    As it is where nothing but products reads them, and where they are in memory anyway."""
    producers = {out: op for op in graph.ops for out in op.outputs}
    if base not in producers or base in {*graph.outputs, *graph.finals().values()}:
        return graph
    chain = [producers[signed]]
    while chain[0].value(0) != base:
        chain.insert(0, producers[chain[0].value(0)])
    if not any(base in op.inputs for op in graph.ops if op not in chain):
        return graph
    edit, maker = edit_of(graph), producers[base]
    again: str | None = None
    for op in graph.ops:
        if op is maker:
            edit.ops += [maker, *chain]
            less = [x for made in chain[1:] for x in made.inputs if isinstance(x, Lit)]
            found = edit.emit(maker, "xor", signed, *less) if less else signed
            again = edit.emit(maker, "bitcast", found, attrs=make_attrs(dtype=DType.U8))
        elif op not in chain:
            edit.ops.append(replace(op, inputs=tuple(again if x == base and again else x for x in op.inputs)))
    return edit.done()


def edit_of(graph: Graph) -> Edit:
    """An edit of a graph that has no op yet."""
    parts: dict[str, tuple[Constant, TensorType]] = {}
    for c in graph.constants:
        if c.quantized is not None:
            q, shape = c.quantized, graph.types[c.name].shape
            codes, *others = c.parts()
            parts[codes.name] = codes, TensorType(q.dtype, shape)
            if q.signed is not None:
                parts[others[-1].name] = others[-1], TensorType(DType.I8, shape)
            for step, table in zip(q.steps, others, strict=False):
                blocks = ((int_value(n) or 0) // run for n, run in zip(shape, step.runs, strict=True))
                parts[table.name] = table, TensorType(step.number, tuple(map(const, blocks)))
    return Edit(graph, dict(graph.types), parts=parts)


def codes_of(edit: Edit, like: Op, x: AffineCodes) -> str:
    """The codes of a product's operand as i8, in the operand's shape."""
    base = x.codes.operand
    assert isinstance(base, str)
    if x.dtype is DType.U8:
        if base not in edit.shifted:
            bits = edit.emit(like, "bitcast", base, attrs=make_attrs(dtype=DType.I8))
            edit.shifted[base] = edit.emit(like, "xor", bits, Lit(-x.less, DType.I8)) if x.less else bits
        base = edit.shifted[base]
    return _viewed(edit, like, base, x.codes)


def zero_of(edit: Edit, like: Op, x: AffineCodes, dims: Sequence[int]) -> Operand | None:
    """The zero point of those codes, an i32 without the dimensions `dims`, which are of size 1 then; None for 0."""
    less = x.less
    given: Operand = Lit(0, DType.I32) if x.zero is None else x.zero.operand
    if isinstance(given, Lit):
        number = int(given.value) - less
        return Lit(number, DType.I32) if number else None
    assert x.zero is not None
    found = number_of(edit, like, x.zero, dims)
    assert isinstance(found, str)
    if edit.types[found].dtype is not DType.I32:
        found = edit.emit(like, "cast", found, attrs=make_attrs(dtype=DType.I32))
    if x.zero.operand in edit.graph.types:  # made of a NaN it would be none of the numbers that the sums have room for
        least, most = (Lit(n, DType.I32) for n in x.zeros)
        found = edit.emit(like, "min", edit.emit(like, "max", found, least), most)
    return edit.emit(like, "sub", found, Lit(less, DType.I32)) if less else found


def number_of(edit: Edit, like: Op, x: Viewed, dims: Sequence[int]) -> Operand:
    """Numbers that go with codes, in the shape of the product's operand, but of size 1 in `dims`; one for all of them
    as a scalar."""
    if not isinstance(x.operand, str):
        return x.operand
    t = edit.types[x.operand] if x.operand in edit.types else edit.parts[x.operand][1]
    if all(n is ONE for n in t.shape):
        return edit.emit(like, "reshape", x.operand, shape=()) if t.shape else x.operand
    found = x.operand if t.shape == x.shape.shape else edit.emit(like, "expand", x.operand, shape=x.shape.shape)
    found = _viewed(edit, like, found, x)
    for d in dims:
        shape = edit.types[found].shape
        if shape[d] is not ONE:
            narrow = (*shape[:d], ONE, *shape[d + 1 :])
            found = edit.emit(like, "slice", found, attrs=make_attrs(dim=d, start=0, step=1), shape=narrow)
    return found


def _viewed(edit: Edit, like: Op, found: str, x: Viewed) -> str:
    for view in x.views:
        shape = edit.graph.types[view.outputs[0]].shape
        found = edit.emit(like, view.kind, found, attrs=view.attrs, shape=shape)
    return found
