"""Operands of templates: a value as a buffer seen through strides, copied first where views have no strides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from hardtack.codegen.ir.constants import COMPUTED, View
from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, const, int_value, product, sym
from hardtack.codegen.ir.expr_walk import free_syms, split_linear
from hardtack.codegen.ir.graph import Lit, Op, uses
from hardtack.codegen.ir.loops import Buffer, exact
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Join, JoinPart, Lowering, NestBuilder, Prepack
from hardtack.codegen.lower.views import base_of


def try_operand(low: Lowering, value: str) -> Operand | None:
    """The value as a strided view of its buffer; None where the views in between are not affine."""
    shape = low.graph.types[value].shape
    axes = [sym(f"a{d}", extent=n) for d, n in enumerate(shape)]
    return _strided(low, value, tuple(ZERO if n is ONE else a for a, n in zip(axes, shape, strict=True)), axes)


def try_once(low: Lowering, value: str, dim: int, repeats: int) -> Operand | None:
    """A view of every repeats-th index along a dimension, where all between it and the next are the same elements, and
    the rest is a strided view; else None. repeats divides the dimension's size."""
    shape = list(low.graph.types[value].shape)
    shape[dim] = shape[dim] // repeats
    axes = [sym(f"a{d}", extent=n) for d, n in enumerate(shape)]
    index: list[Expr] = [ZERO if n is ONE else a for a, n in zip(axes, shape, strict=True)]
    index[dim] = index[dim] * repeats + sym("repeat", extent=const(repeats))
    return _strided(low, value, tuple(index), axes)


def _strided(low: Lowering, value: str, index: tuple[Expr, ...], axes: Sequence[Sym]) -> Operand | None:
    """value[index] for all values of the axes; None where it is not affine in them, or not the same for all values of
    what else the index has."""
    name, at = low.locate(value, index)
    offset = low.buffers[name].offset(at)
    strides: list[Expr] = []
    for a in axes:
        parts = split_linear(offset, a)
        if parts is None:
            return None
        strides.append(parts[0])
        offset = parts[1]
    if any(s.extent is not None for e in (offset, *strides) for s in free_syms(e)):
        return None
    shape = tuple(a.extent or ONE for a in axes)
    return Operand(name, low.buffers[name].dtype, offset, shape, tuple(strides))


def operand(low: Lowering, value: str, op: Op) -> Operand:
    """The value as a strided view; where its views are not affine, of a row-major copy."""
    found = try_operand(low, value)
    return found or copied(low, value, op, None)


def copied(low: Lowering, value: str, op: Op, order: tuple[int, ...] | None) -> Operand:
    """A copy of the value in memory, dense in `order` (row-major for None)."""
    t = low.graph.types[value]
    buffer = low.temporary(f"{value}.copy", t.dtype, t.shape, order)
    b = NestBuilder(low, buffer.name, op.origin)
    index = b.loop(t.shape, buffer.order)
    b.store(buffer.name, index, b.load(value, index))
    b.done()
    return whole(buffer)


def whole(buffer: Buffer) -> Operand:
    """All of a buffer."""
    return Operand(buffer.name, buffer.dtype, const(0), buffer.shape, buffer.strides())


def is_constant(low: Lowering, value: str) -> bool:
    """True if the value is a constant, of the graph or made at export, or a view of one with known place and sizes."""
    base = base_of(low.producers, value)
    if base not in low.constants and base not in low.prepacks:
        return False
    view = try_operand(low, value)
    return view is None or all(int_value(e) is not None for e in (view.offset, *view.shape, *view.strides))


def prepacked(low: Lowering, kind: str, source: Operand, shape: tuple[int, ...], params: tuple[int, ...]) -> Operand:
    """A constant packed at export into a buffer of `shape`, of the source's dtype or what the packing computes; the
    same request twice gives the same buffer."""
    view = numbers_of(source)
    request = Prepack(kind, source.buffer, view.offset, view.shape, view.strides, params)
    # named by the request, so that entry points that pack a weight alike share the result
    name = f"{request.source}.{kind}.{hashlib.sha256(repr(request).encode()).hexdigest()[:8]}"
    if name not in low.prepacks:
        dtype = COMPUTED.get(kind, source.dtype)
        low.buffers[name] = Buffer(name, dtype, tuple(const(n) for n in shape), tuple(range(len(shape))))
        low.prepacks[name] = request
    return whole(low.buffers[name])


def sum_of_constant(low: Lowering, op: Op) -> bool:
    """A sum of int8 in int32, of a constant, is made at export; False for any other reduction."""
    x, out, dims = op.value(0), low.buffers[op.outputs[0]], op.tuple_attr("dims")
    if out.dtype is not DType.I32 or low.graph.types[x].dtype is not DType.I8 or not is_constant(low, x):
        return False
    view = try_operand(low, x)
    if view is None or view.buffer in low.prepacks:
        return False
    dims = (*(d for d in range(len(view.shape)) if d not in dims), *dims)
    kept = len(dims) - len(op.tuple_attr("dims"))
    shape, strides = (tuple(of[d] for d in dims) for of in (view.shape, view.strides))
    source = Operand(view.buffer, view.dtype, view.offset, shape, strides)
    sums = prepacked(low, "sums", source, _known(out.shape), (kept,))
    b = NestBuilder(low, out.name, op.origin)
    index = b.loop(out.shape, out.order)
    b.store(out.name, index, b.load_buffer(sums.buffer, index))
    b.done()
    return True


def join_constants(low: Lowering, op: Op) -> bool:
    """A `cat` of constants, views of them, and zeros as a constant that is made at export; False for any other cat."""
    out, dim = low.buffers[op.outputs[0]], op.int_attr("dim")
    if any(int_value(n) is None for n in out.shape):
        return False
    parts: list[JoinPart] = []
    zeros: set[str] = set()
    at = 0
    for piece in uses(op):
        source = try_operand(low, piece) if is_constant(low, piece) else None
        if source is not None and source.buffer in low.constants and _once(source):
            view = numbers_of(source)
            strides = _known(out.strides())
            parts.append(JoinPart(source.buffer, view, View(at * strides[dim], view.shape, strides)))
        elif _zeros(low, piece):
            zeros.add(piece)
        else:
            return False
        at += int_value(low.graph.types[piece].shape[dim]) or 0
    if not parts:
        return False
    low.prepacks[out.name] = Join(_known(out.shape), tuple(parts))
    if zeros:
        zeros -= {x for other in low.graph.ops if other is not op for x in uses(other)} | set(low.graph.outputs)
        low.nests[:] = [n for n in low.nests if n.name not in zeros]  # nothing else reads them
    return True


def _once(o: Operand) -> bool:
    """True if no element is repeated: what is expanded stays small in the bundle."""
    return all(n is ONE or int_value(s) != 0 for n, s in zip(o.shape, o.strides, strict=True))


def _zeros(low: Lowering, value: str) -> bool:
    made = low.producers.get(value)
    fill = made.inputs[0] if made is not None and made.kind == "full" else None
    return isinstance(fill, Lit) and exact(fill) == exact(Lit(0.0, fill.dtype))


def numbers_of(o: Operand) -> View:
    """Where the elements of a constant's view lie."""
    (offset,) = _known((o.offset,))
    return View(offset, _known(o.shape), _known(o.strides))


def _known(sizes: Iterable[Expr]) -> tuple[int, ...]:
    numbers = [int_value(e) for e in sizes]
    assert all(n is not None for n in numbers), "constants have constant sizes"
    return tuple(n for n in numbers if n is not None)


def row_major_operand(low: Lowering, x: str, op: Op) -> Operand:
    """The value dense and row-major, copied where it is not."""
    view = try_operand(low, x)
    step: Expr = ONE
    for n, stride in reversed(list(zip(view.shape, view.strides, strict=True))) if view is not None else ():
        if n is not ONE and stride is not step:
            view = None
            break
        step = step * n
    return view or copied(low, x, op, None)


def around(shape: tuple[Expr, ...], dim: int) -> tuple[Expr, Expr, Expr]:
    """A dense shape as (outer, length, inner) around a dimension; a scalar is one row of one element."""
    return product(shape[:dim]), shape[dim] if shape else ONE, product(shape[dim + 1 :])
