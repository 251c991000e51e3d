"""Writes to indexed places where points run in any order: of those that hit one element the last one wins all the same.

First each point puts its number where it would write, the largest staying; then each writes the value of the point
whose number stayed: points that hit one element all write the same. Where indices can't be equal one nest is enough.
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, never_negative, product
from hardtack.codegen.ir.graph import Op, Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of
from hardtack.codegen.lower.pointwise import PutPlaces, copy_value, fixed_place, lower_put, lower_scatter
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.views import Idx, broadcast_index, delinearize
from hardtack.codegen.machine.machine import Gpu


@lowers("put", on=Gpu)
def lower_put_last(low: Lowering, op: Op) -> None:
    """As pointwise.lower_put."""
    value, where = op.inputs[1], PutPlaces(low, op)
    if op.bool_attr("accumulate") or _distinct(low, where):
        lower_put(low, op)
        return
    out = low.buffers[op.outputs[0]]
    if out.name not in low.in_place:
        copy_value(low, op.value(0), out.name, op)
    tensors = [d for d, p in where.indices.items() if fixed_place(p, where.shape[d]) is None]
    picked = tuple(where.shape[d] for d in tensors)
    key = ("put", tuple(where.indices[d] for d in tensors), where.picks, picked, where.wraps)
    owners = low.owners.get(key)
    if owners is None:  # writes at the same places, as of keys and values in every layer, share it
        owners = low.owners[key] = low.temporary(f"{out.name}.owner", DType.I64, picked).name
        _clear(low, op, owners)
        b = NestBuilder(low, low.fresh(out.name), op.origin)
        index = b.loop(where.picks, tuple(range(len(where.picks))))
        places = tuple(b.check(b.broadcast(where.indices[d], index), where.shape[d], where.wraps) for d in tensors)
        b.store(owners, places, b.index(_number(index, where.picks)), "max")
        b.done(serial=True)

    b = NestBuilder(low, low.fresh(out.name), op.origin)
    index = b.loop(where.points, tuple(range(len(where.points))))
    target = where.target(b, index)
    last = b.check(b.load_buffer(owners, tuple(target[d] for d in tensors)), product(where.picks))
    behind = where.at + len(where.picks)
    source: Idx = (*index[: where.at], *delinearize(last, where.picks), *index[behind:])
    given = b.load(value, ()) if not isinstance(value, str) else b.load(value, _broadcast(low, value, source))
    b.store(out.name, target, given)
    b.done(serial=True)


def _distinct(low: Lowering, where: PutPlaces) -> bool:
    """Whether no two of the indices are equal, as far as can be told: along each of their dimensions one of them
    counts, no further than what it indexes is long: beyond that a negative index and another one are one place."""
    counted = [n is ONE for n in where.picks]
    for d, p in where.indices.items():
        shape = low.graph.type_of(p).shape
        live = [k for k, n in enumerate(shape) if n is not ONE]
        if len(live) == 1 and never_negative(where.shape[d] - shape[live[0]]) and _counts(low, p):
            counted[len(counted) - len(shape) + live[0]] = True
    return all(counted)


def _counts(low: Lowering, value: Operand) -> bool:
    """True for a tensor with one dimension that is not of size 1, along which it counts upwards from any number."""
    op = low.producers.get(value) if isinstance(value, str) else None
    if op is None:
        return False
    if op.kind == "iota":
        shape = low.graph.types[op.outputs[0]].shape
        return all(n is ONE for d, n in enumerate(shape) if d != op.int_attr("dim"))
    if op.kind == "reshape":
        return _counts(low, op.value(0))
    tensors = [x for x in op.inputs if isinstance(x, str)]
    return op.kind == "add" and len(tensors) == 1 and _counts(low, tensors[0])


@lowers("scatter", on=Gpu)
def lower_scatter_last(low: Lowering, op: Op) -> None:
    """As pointwise.lower_scatter."""
    if op.str_attr("reduce") != "none":
        lower_scatter(low, op)
        return
    x, picks, source = op.value(0), op.value(1), op.inputs[2]
    out = low.buffers[op.outputs[0]]
    copy_value(low, x, out.name, op)
    dim = op.int_attr("dim")
    shape = low.graph.types[picks].shape
    key = ("scatter", picks, dim, out.shape)
    passes = (True,) if key in low.owners else (False, True)
    if key not in low.owners:
        low.owners[key] = low.temporary(f"{out.name}.owner", DType.I64, out.shape).name
        _clear(low, op, low.owners[key])
    owners = low.owners[key]
    for second in passes:
        b = NestBuilder(low, low.fresh(out.name), op.origin)
        index = b.loop(shape, tuple(range(len(shape))))
        at = b.check(b.load(picks, index), out.shape[dim], wraps=False)
        target = tuple(at if d == dim else i for d, i in enumerate(index))
        if second:
            last = b.check(b.load_buffer(owners, target), product(shape))
            b.store(out.name, target, b.load(source, delinearize(last, shape)))
        else:
            b.store(owners, target, b.index(_number(index, shape)), "max")
        b.done(serial=True)


def _clear(low: Lowering, op: Op, buffer: str) -> None:
    """Zeros: the number of the first point, which any other is larger than."""
    owners = low.buffers[buffer]
    b = NestBuilder(low, buffer, op.origin)
    b.store(buffer, b.loop(owners.shape, owners.order), lit_of(0, DType.I64))
    b.done()


def _number(index: Idx, shape: tuple[Expr, ...]) -> Expr:
    """The row-major number of a point."""
    total: Expr = ZERO
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def _broadcast(low: Lowering, value: str, index: Idx) -> Idx:
    return broadcast_index(low.graph.types[value].shape, index)
