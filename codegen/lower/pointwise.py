"""Lowering of ops that compute each output element by itself: scalar ops, fills, joins, pads and indexing."""

from __future__ import annotations

from hardtack.codegen.ir.expr import ZERO, Expr, as_expr, const, int_value, known_in_range, maximum, minimum, mod, sym
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, uses
from hardtack.codegen.ir.loops import Arg, Assert
from hardtack.codegen.ir.reindex import within
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of, start
from hardtack.codegen.lower.operands import join_constants
from hardtack.codegen.lower.picked_codes import load_picked
from hardtack.codegen.lower.picked_products import read_by_products_only
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.views import Idx
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.ops import SCALAR_OPS


@lowers(*SCALAR_OPS)
def lower_scalar(low: Lowering, op: Op) -> None:
    """Any row of the scalar op table, operands broadcast."""
    b, out, index = start(low, op)
    args = [b.broadcast(x, index) for x in op.inputs]
    dtype = out.dtype if SCALAR_OPS[op.kind].result == "attr" else None
    b.store(out.name, index, b.compute(op.kind, *args, dtype=dtype))
    b.done()


@lowers("full")
def lower_full(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    value = b.broadcast(op.inputs[0], index)
    b.store(out.name, index, b.cast(value, out.dtype) if isinstance(value, str) else lit_of(value.value, out.dtype))
    b.done()


@lowers("iota")
def lower_iota(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    dim = op.int_attr("dim")
    b.store(out.name, index, b.index(index[dim]))
    b.done()


def copy_value(low: Lowering, source: str, target: str, op: Op) -> None:
    """target[...] = source[...], the same logical shape."""
    b, out, index = start(low, op, target)
    b.store(out.name, index, b.load(source, index))
    b.done()


MOST_SELECTED = 8
"""Pieces of a cat that one nest chooses among where it need not."""


@lowers("cat")
def lower_cat(low: Lowering, op: Op) -> None:
    """One nest a piece, each writing its part of the result."""
    if _fit(low, op):
        _lower_cat_by_parts(low, op)
    else:
        _lower_cat_selected(low, op)


def lower_cat_selected(low: Lowering, op: Op) -> None:
    """One nest that chooses each element's piece: unlike writes by parts, it can be computed inside its readers."""
    if len(op.inputs) <= MOST_SELECTED or not _fit(low, op):
        _lower_cat_selected(low, op)
    else:
        _lower_cat_by_parts(low, op)


def _fit(low: Lowering, op: Op) -> bool:
    """Whether each part is known to lie within the result by the form of its sizes: not for x[n - m:] and x[:n - m],
    whose place is there only where m is at most n.
    """
    dim = op.int_attr("dim")
    whole = low.graph.types[op.outputs[0]].shape[dim]
    at: Expr = ZERO
    for piece in uses(op):
        size = low.graph.types[piece].shape[dim]
        if int_value(size) != 0 and not within(sym("i", 0, None, extent=size) + at, whole):
            return False
        at = at + size
    return True


def _lower_cat_by_parts(low: Lowering, op: Op) -> None:
    out = low.buffers[op.outputs[0]]
    dim = op.int_attr("dim")
    at: Expr = ZERO
    for piece in uses(op):
        shape = low.graph.types[piece].shape
        b = NestBuilder(low, low.fresh(out.name), op.origin)
        index = b.loop(shape, out.order)
        shifted = tuple(i + at if d == dim else i for d, i in enumerate(index))
        b.store(out.name, shifted, b.load(piece, index))
        b.done()
        at = at + shape[dim]


def _lower_cat_selected(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    dim = op.int_attr("dim")
    ends: list[Expr] = []
    for piece in uses(op):
        ends.append((ends[-1] if ends else ZERO) + low.graph.types[piece].shape[dim])
    value: Arg = lit_of(0, out.dtype)
    at = b.index(index[dim])
    for k in reversed(range(len(ends))):
        first = ends[k - 1] if k else ZERO
        conditions = [b.compute("ge", at, b.index(first))] if k else []
        if k < len(ends) - 1:
            conditions.append(b.compute("lt", at, b.index(ends[k])))
        source = tuple(i - first if d == dim else i for d, i in enumerate(index))
        loaded = b.load(op.inputs[k], source, b.all_of(conditions), lit_of(0, out.dtype))
        value = loaded if k == len(ends) - 1 else b.compute("where", conditions[-1], loaded, value)
    b.store(out.name, index, value)
    b.done()


@lowers("cat", on=Gpu)
def lower_cat_joined(low: Lowering, op: Op) -> None:
    """A cat of constants is made at export, as joined products have it; any other one selects by index."""
    if not join_constants(low, op):
        lower_cat_selected(low, op)


@lowers("pad")
def lower_pad(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    x = op.value(0)
    shape = low.graph.types[x].shape
    lo, mode = op.tuple_attr("lo"), op.str_attr("mode")
    source = tuple(i - as_expr(p) for i, p in zip(index, lo, strict=True))
    if mode == "constant":
        conditions = [c for i, n in zip(source, shape, strict=True) for c in b.inside(i, n)]
        other, inside = op.inputs[1], b.all_of(conditions)
        number = other.value if isinstance(other, Lit) else 0
        value = b.load(x, source, inside, lit_of(number, out.dtype))
        if inside is not None and not isinstance(other, Lit):
            value = b.compute("where", inside, value, b.load(other, ()))
    else:
        value = b.load(x, tuple(_fold_index(mode, i, n) for i, n in zip(source, shape, strict=True)))
    b.store(out.name, index, value)
    b.done()


def _fold_index(mode: str, i: Expr, n: Expr) -> Expr:
    """An index outside [0, n) brought back in: reflect without the edge, replicate the edge, or wrap around."""
    if mode == "reflect":
        distance = maximum(i, -i)  # |i|
        beyond = n - 1 - distance
        return n - 1 - maximum(beyond, -beyond)
    if mode == "replicate":
        return maximum(minimum(i, n - 1), 0)
    return mod(i + n, n)


@lowers("take")
def lower_take(low: Lowering, op: Op) -> None:
    if read_by_products_only(low, op):
        return
    b, out, index = start(low, op)
    x, picks = op.value(0), op.inputs[1:]
    dims, at = op.tuple_attr("dims"), op.int_attr("at")
    rank = index_rank(low.graph, picks)
    picked = index[at : at + rank]
    rest = list(index[:at] + index[at + rank :])
    shape = low.graph.types[x].shape
    symbols = [b.check(b.broadcast(p, picked), shape[d], op.wraps) for p, d in zip(picks, dims, strict=True)]
    source = [symbols[dims.index(d)] if d in dims else rest.pop(0) for d in range(len(shape))]
    b.store(out.name, index, load_picked(b, x, tuple(source)))
    b.done()


def index_rank(graph: Graph, picks: tuple[object, ...]) -> int:
    """The rank of index tensors after broadcasting."""
    return max(len(graph.type_of(p).shape) for p in picks)  # type: ignore[arg-type]


@lowers("gather")
def lower_gather(low: Lowering, op: Op) -> None:
    b, out, index = start(low, op)
    x, picks, dim = op.value(0), op.value(1), op.int_attr("dim")
    at = b.check(b.load(picks, index), low.graph.types[x].shape[dim], wraps=False)
    b.store(out.name, index, load_picked(b, x, tuple(at if d == dim else i for d, i in enumerate(index))))
    b.done()


@lowers("put")
def lower_put(low: Lowering, op: Op) -> None:
    """A copy of x, then the values in order: where two indices agree the later one wins, or both add up."""
    value = op.inputs[1]
    out = low.buffers[op.outputs[0]]
    if out.name not in low.in_place:
        copy_value(low, op.value(0), out.name, op)
    where = PutPlaces(low, op)
    b = NestBuilder(low, low.fresh(out.name), op.origin)
    index = b.loop(where.points, tuple(range(len(where.points))))
    target = where.target(b, index)
    b.store(out.name, target, b.broadcast(value, index), "add" if op.bool_attr("accumulate") else "set")
    b.done(serial=True)


class PutPlaces:
    """Where the points of a put write. points: their sizes, the index dims, `picks`, at `at` among the dims that are
    not indexed."""

    def __init__(self, low: Lowering, op: Op) -> None:
        self.shape = low.graph.types[op.value(0)].shape
        self.indices = dict(zip(op.tuple_attr("dims"), op.inputs[2:], strict=True))
        self.at, self.wraps = op.int_attr("at"), op.wraps
        self.picks = broadcast_shape(low.graph, op.inputs[2:])
        rest = [n for d, n in enumerate(self.shape) if d not in self.indices]
        self.points = (*rest[: self.at], *self.picks, *rest[self.at :])

    def picked(self, index: Idx) -> Idx:
        """The part of a point's index that the indices have."""
        return index[self.at : self.at + len(self.picks)]

    def target(self, b: NestBuilder, index: Idx) -> Idx:
        """The element that a point writes. An index that is a size or a number, and known to lie inside, is not
        looked at."""
        rest = list(index[: self.at] + index[self.at + len(self.picks) :])
        found: list[Expr] = []
        for d, n in enumerate(self.shape):
            if d not in self.indices:
                found.append(rest.pop(0))
                continue
            pick = self.indices[d]
            known = fixed_place(pick, n)
            if known is None:
                known = b.check(b.broadcast(pick, self.picked(index)), n, self.wraps)
            found.append(known)
        return tuple(found)


def fixed_place(pick: Operand, size: Expr) -> Expr | None:
    """An index that is no tensor, where it is known to be one of a dimension of that size."""
    place = const(int(pick.value)) if isinstance(pick, Lit) else pick
    return place if isinstance(place, Expr) and known_in_range(place, size) else None


def broadcast_shape(graph: Graph, operands: tuple[object, ...]) -> tuple[Expr, ...]:
    """numpy's broadcast of the operands' shapes."""
    shapes = [graph.type_of(p).shape for p in operands]  # type: ignore[arg-type]
    rank = max(len(s) for s in shapes)
    out: list[Expr] = []
    for d in range(rank):
        sizes = [s[d - rank + len(s)] for s in shapes if d - rank + len(s) >= 0]
        out.append(next((n for n in sizes if n is not as_expr(1)), as_expr(1)))
    return tuple(out)


SCATTER_MODES = {"none": "set", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@lowers("scatter")
def lower_scatter(low: Lowering, op: Op) -> None:
    x, picks, source = op.value(0), op.value(1), op.inputs[2]
    out = low.buffers[op.outputs[0]]
    copy_value(low, x, out.name, op)
    dim = op.int_attr("dim")
    shape = low.graph.types[picks].shape
    b = NestBuilder(low, low.fresh(out.name), op.origin)
    index = b.loop(shape, tuple(range(len(shape))))
    at = b.check(b.load(picks, index), out.shape[dim], wraps=False)
    target = tuple(at if d == dim else i for d, i in enumerate(index))
    value: Arg = b.load(source, index)
    b.store(out.name, target, value, SCATTER_MODES[op.str_attr("reduce")])
    b.done(serial=True)


@lowers("assert")
def lower_assert(low: Lowering, op: Op) -> None:
    condition = op.value(0)
    shape = low.graph.types[condition].shape
    b = NestBuilder(low, low.fresh("assert"), op.origin)
    index = b.loop(shape, tuple(range(len(shape))))
    b.body.append(Assert(b.cast(b.load(condition, index), DType.BOOL), op.str_attr("message")))
    b.done(serial=True)
