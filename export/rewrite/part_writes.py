"""Writes to parts of a value as one op.

What functionalisation makes of `cache[i][:, pos] = k` is the part written (a put to a view of cache) and then the whole
joined again from what lies in front of the part, the part and what lies behind. That is one put to the cache, at an
index more, which may be done where the cache lies:

    cat(x[:b], views(put(views(x[b:b+1]), v, ..)), x[b+1:])   ->   put(x, v, b, ..)
    cat(x[:b], y, x[b+n:])                                    ->   put(x, y, b)  or  put(x, y, b + iota(n))
    put(views(x), v, ..)                                      ->   views(put(x, v, ..))

The last is of views that have all of x, permuted or with other dimensions of size 1: the part of a stack that has no
other has nothing that it is joined with. The second and the last only where x is a state or what a put has made of one:
elsewhere they would be a copy and a write where one nest does both. Which elements are where is read off the views' own
index arithmetic, whatever views they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, const, int_value, sym
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, TensorType, make_attrs
from hardtack.codegen.ir.graph_ops import changed, is_view
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.views import INDEX_MAPS, Idx, base_of
from hardtack.exporter.rewrite.edit import Edit, index_shape

_WHOLE_VIEWS = ("permute", "reshape")
"""Views that have each element once."""


def write_parts(graph: Graph) -> Graph:
    """The rule; see the module. What is not needed any more is left for remove_dead."""
    edit = Edit(graph)
    makers: dict[str, Op] = {}
    states = {s.name for s in graph.states} | graph.finals().keys()
    for old in graph.ops:
        op = edit.resolved(old)
        before = len(edit.ops)
        part = _part(op, makers, edit.types)
        made = _seen_whole(edit, op, makers, states)
        if part is not None:
            made = _nested(edit, part, op, makers) or _plain(edit, part, op, makers, states)
            if made is not None:  # which may be a put to a view itself
                made = _seen_whole(edit, edit.ops[-1], makers, states) or made
        if made is None:
            edit.ops.append(op)
        else:
            edit.renamed[op.outputs[0]] = made
        makers.update((out, new) for new in edit.ops[before:] for out in new.outputs)
    return edit.done()


@dataclass(frozen=True)
class _Part:
    """A value that is x but for `new` at [begin, begin + length) of dimension `dim`."""

    x: str
    new: str
    dim: int
    begin: Expr
    length: Expr


def _part(op: Op, makers: Mapping[str, Op], types: Mapping[str, TensorType]) -> _Part | None:
    """A cat as x with a part replaced; None for any other op."""
    if op.kind != "cat":
        return None
    dim, whole = op.int_attr("dim"), types[op.outputs[0]]
    for x in _sliced(op, makers):
        if types[x] != whole:
            continue
        at: Expr = ZERO
        new: list[tuple[str, Expr]] = []
        for piece in op.inputs:
            assert isinstance(piece, str)
            if not _lies_at(makers.get(piece), x, dim, at):
                new.append((piece, at))
            at = at + types[piece].shape[dim]
        if len(new) == 1:
            (piece, begin), = new  # fmt: skip
            return _Part(x, piece, dim, begin, types[piece].shape[dim])
    return None


def _sliced(op: Op, makers: Mapping[str, Op]) -> Sequence[str]:
    """What the pieces of a cat are slices of."""
    pieces = (makers.get(p) for p in op.inputs if isinstance(p, str))
    return list(dict.fromkeys(p.value(0) for p in pieces if p is not None and p.kind == "slice"))


def _lies_at(piece: Op | None, x: str, dim: int, at: Expr) -> bool:
    """True for a slice of x at its place there."""
    if piece is None or piece.kind != "slice" or piece.inputs[0] != x:
        return False
    return piece.int_attr("dim") == dim and piece.int_attr("step") == 1 and piece.expr_attr("start") is at


def _nested(edit: Edit, part: _Part, op: Op, makers: Mapping[str, Op]) -> str | None:
    """The whole as a put to x, where the part is views of a put to the same part of x."""
    inner = makers.get(base_of(makers, part.new))
    if part.length is not ONE or inner is None or inner.kind != "put":
        return None
    shape = edit.types[part.new].shape
    point = tuple(ZERO if d == part.dim or n is ONE else sym(f"a{d}", extent=n) for d, n in enumerate(shape))
    at = _resolved(part.new, point, inner.outputs[0], makers, edit.types)
    there = None if at is None else _resolved(inner.value(0), at, part.x, makers, edit.types)
    wanted = tuple(part.begin if d == part.dim else i for d, i in enumerate(point))
    if at is None or there != wanted:
        return None
    units = [d for d, n in enumerate(shape) if d != part.dim and n is ONE]
    dims = _dims_in_x(inner, at, point, units, edit.types[inner.outputs[0]].shape, shape)
    return None if dims is None else _put(edit, part.x, op, inner, dims, {part.dim: _place(part.begin)})


def _seen_whole(edit: Edit, op: Op, makers: Mapping[str, Op], states: set[str]) -> str | None:
    """What a put to views of all of x gives, as these views of a put to x; None for any other op."""
    if op.kind != "put":
        return None
    views: list[Op] = []
    while (view := makers.get(views[-1].value(0) if views else op.value(0))) is not None and view.kind in _WHOLE_VIEWS:
        views.append(view)
    if not views or not _is_written(views[-1].value(0), makers, states):
        return None
    x, types = views[-1].value(0), edit.types
    dims = _dims_behind(op, x, makers, types)
    if dims is None:
        return None
    made = _put(edit, x, op, op, dims, {})
    for view in reversed(views):
        made = edit.emit(view.kind, made, *view.inputs[1:], like=op, attrs=view.attrs, stated=types[view.outputs[0]])
    return made


def _dims_behind(op: Op, x: str, makers: Mapping[str, Op], types: Mapping[str, TensorType]) -> dict[int, int] | None:
    """Each dimension of what a put writes to, views of x, -> that of x, as _dims_in_x has it."""
    shape, whole = types[op.outputs[0]].shape, types[x].shape
    point = tuple(ZERO if n is ONE else sym(f"a{d}", extent=n) for d, n in enumerate(shape))
    at = _resolved(op.value(0), point, x, makers, types)
    if at is None:
        return None
    found: dict[int, int] = {}
    for e, i in enumerate(at):
        if whole[e] is not ONE:
            if i not in point or shape[point.index(i)] is not whole[e]:
                return None
            found[point.index(i)] = e
    units = [e for e, n in enumerate(whole) if n is ONE]
    indexed = [d for d in op.tuple_attr("dims") if shape[d] is ONE]
    return found | dict(zip(indexed, units, strict=False)) if len(indexed) <= len(units) else None


def _resolved(
    value: str, index: Idx, source: str, makers: Mapping[str, Op], types: Mapping[str, TensorType]
) -> Idx | None:
    """Where value[index] lies in `source`, which it is views of; None if it is not."""
    while value != source:
        op = makers.get(value)
        if op is None or not is_view(op):
            return None
        index = INDEX_MAPS[op.kind](op, index, types[op.value(0)].shape, types[value].shape)
        value = op.value(0)
    return index


def _dims_in_x(
    inner: Op, at: Idx, point: Idx, units: Sequence[int], shape: Sequence[Expr], part: Sequence[Expr]
) -> dict[int, int] | None:
    """Each dimension of what a put writes to, of a shape, -> that of x, whose part has another. Of those of size 1, of
    x `units`, only indexed ones count, and any stands for any; None where a dimension is none of x, as behind views
    that join or split some, or longer than that of the part: an index counts from its end, and may lie behind the
    part's."""
    found: dict[int, int] = {}
    for d, e in enumerate(at):
        if shape[d] is not ONE:
            if not isinstance(e, Sym) or e not in point or part[point.index(e)] is not shape[d]:
                return None
            if point.index(e) in found.values():
                return None
            found[d] = point.index(e)
    indexed = [d for d in inner.tuple_attr("dims") if shape[d] is ONE]
    if len(indexed) > len(units):
        return None
    return found | dict(zip(indexed, units, strict=False))


def _put(edit: Edit, x: str, op: Op, inner: Op, dims: Mapping[int, int], places: Mapping[int, Operand]) -> str:
    """The put to x. Index dims come first in the values, then what is not indexed, as x has it. places: of x, by
    dimension, beside those that `inner` writes to."""
    types, indices = edit.types, dict(zip(inner.tuple_attr("dims"), inner.inputs[2:], strict=True))
    taken = {**places, **{dims[d]: i for d, i in indices.items()}}
    whole, at = types[x].shape, inner.int_attr("at")
    written = types[inner.outputs[0]].shape
    rest = [d for d in range(len(written)) if d not in indices]
    picks = index_shape([types[i].shape for i in indices.values() if isinstance(i, str)])
    full = (*(written[d] for d in rest[:at]), *picks, *(written[d] for d in rest[at:]))
    value = inner.inputs[1]
    if isinstance(value, str):
        value = edit.emit("expand", value, like=op, stated=TensorType(types[str(edit.resolve(value))].dtype, full))
        picked = [*range(at, at + len(picks))]
        others = [k for k in range(len(full)) if k not in picked]
        kept = [k for k, d in zip(others, rest, strict=True) if d in dims]
        units = [k for k, d in zip(others, rest, strict=True) if d not in dims]
        kept.sort(key=lambda k: dims[rest[others.index(k)]])
        order = (*picked, *kept, *units)
        if order != tuple(range(len(full))):
            value = edit.emit("permute", value, like=op, attrs=make_attrs(dims=order))
        unpicked = tuple(n for d, n in enumerate(whole) if d not in taken)
        value = edit.reshape(value, (*picks, *unpicked), op)
    wraps = {} if inner.wraps else {"wraps": False}
    attrs = make_attrs(dims=tuple(sorted(taken)), at=0, accumulate=inner.bool_attr("accumulate"), **wraps)
    return edit.emit("put", x, value, *(taken[d] for d in sorted(taken)), like=op, attrs=attrs)


def _place(begin: Expr) -> Operand:
    """A place as an index: a number, or a size."""
    known = int_value(begin)
    return begin if known is None else Lit(known, DType.I64)


def _is_written(value: str, makers: Mapping[str, Op], states: set[str]) -> bool:
    """True for a state, and for what is written to where it lies."""
    return value in states or value in changed(makers.get(value))


def _plain(edit: Edit, part: _Part, op: Op, makers: Mapping[str, Op], states: set[str]) -> str | None:
    """The whole as a put of the part to x, where x may be written to where it lies."""
    if not _is_written(base_of(makers, part.x), makers, states):
        return None
    if part.length is ONE:
        shape = edit.types[part.x].shape
        value = edit.reshape(part.new, (*shape[: part.dim], *shape[part.dim + 1 :]), op)
        index = _place(part.begin)
    else:
        value = part.new
        counted = TensorType(DType.I64, (part.length,))
        index = edit.emit("iota", like=op, attrs=make_attrs(dim=0), stated=counted)
        if part.begin is not const(0):
            index = edit.emit("add", index, _place(part.begin), like=op)
    attrs = make_attrs(dims=(part.dim,), at=part.dim, accumulate=False)
    return edit.emit("put", part.x, value, index, like=op, attrs=attrs)
