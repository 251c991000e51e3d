"""Writes to indexed places where points run in any order: of those that hit one element the last one wins all the same.

First each point puts its number where it would write, the largest staying; then each writes the value of the point
whose number stayed: points that hit one element all write the same. Where indices can't be equal one nest is enough.
"""

from __future__ import annotations

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, product
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering, NestBuilder, lit_of
from hardtack.codegen.lower.pointwise import broadcast_shape, copy_value, lower_put, lower_scatter, put_parts
from hardtack.codegen.lower.rules import lowers
from hardtack.codegen.lower.views import Idx, broadcast_index, delinearize
from hardtack.codegen.machine.machine import Gpu


@lowers("put", on=Gpu)
def lower_put_last(low: Lowering, op: Op) -> None:
    """As pointwise.lower_put."""
    _, value, *picks = op.inputs
    pick_shape = broadcast_shape(low.graph, tuple(picks))
    if op.bool_attr("accumulate") or product(pick_shape) is ONE:
        lower_put(low, op)
        return
    out = low.buffers[op.outputs[0]]
    if out.name not in low.in_place:
        copy_value(low, op.value(0), out.name, op)
    front, picked, rest = put_parts(low, op)
    key = ("put", tuple(picks), picked)
    owners = low.owners.get(key)
    if owners is None:  # writes at the same places, as of keys and values in every layer, share it
        owners = low.owners[key] = low.temporary(f"{out.name}.owner", DType.I64, picked).name
        _clear(low, op, owners)
        b = NestBuilder(low, low.fresh(out.name), op.origin)
        index = b.loop(pick_shape, tuple(range(len(pick_shape))))
        places = tuple(b.check(b.broadcast(p, index), n) for p, n in zip(picks, picked, strict=True))
        b.store(owners, places, b.index(_number(index, pick_shape)), "max")
        b.done(serial=True)

    b = NestBuilder(low, low.fresh(out.name), op.origin)
    shape = (*front, *pick_shape, *rest)
    index = b.loop(shape, tuple(range(len(shape))))
    head, tail = index[: len(front)], index[len(front) + len(pick_shape) :]
    at = index[len(front) : len(front) + len(pick_shape)]
    places = tuple(b.check(b.broadcast(p, at), n) for p, n in zip(picks, picked, strict=True))
    last = b.check(b.load_buffer(owners, places), product(pick_shape))
    source: Idx = (*head, *delinearize(last, pick_shape), *tail)
    given = b.load(value, ()) if not isinstance(value, str) else b.load(value, _broadcast(low, value, source))
    b.store(out.name, (*head, *places, *tail), given)
    b.done(serial=True)


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
        at = b.check(b.load(picks, index), out.shape[dim])
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
