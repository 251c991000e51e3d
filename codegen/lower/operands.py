"""Operands of templates: a value as a buffer seen through strides, copied first where views have no strides."""

from __future__ import annotations

import hashlib

from hardtack.codegen.ir.expr import Expr, const, int_value, split_linear, sym
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.loops import Buffer, Operand
from hardtack.codegen.lower.builder import Lowering, NestBuilder, Prepack
from hardtack.codegen.lower.views import ONE, ZERO, base_of


def try_operand(low: Lowering, value: str) -> Operand | None:
    """The value as a strided view of its buffer; None where the views in between are not affine."""
    shape = low.graph.types[value].shape
    axes = [sym(f"a{d}", extent=n) for d, n in enumerate(shape)]
    index = tuple(ZERO if n is ONE else a for a, n in zip(axes, shape, strict=True))
    name, at = low.locate(value, index)
    offset = low.buffers[name].offset(at)
    strides: list[Expr] = []
    for a in axes:
        parts = split_linear(offset, a)
        if parts is None:
            return None
        strides.append(parts[0])
        offset = parts[1]
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
    """True if the value is a constant of the graph, or a view of one."""
    return base_of(low.producers, value) in low.constants


def prepacked(low: Lowering, kind: str, source: Operand, shape: tuple[int, ...], params: tuple[int, ...]) -> Operand:
    """A constant packed at export into a buffer of `shape`; the same request twice gives the same buffer."""
    numbers = [int_value(e) for e in (source.offset, *source.shape, *source.strides)]
    assert all(n is not None for n in numbers), "constants have constant sizes"
    known = [n for n in numbers if n is not None]
    rank = len(source.shape)
    request = Prepack(kind, source.buffer, known[0], tuple(known[1 : 1 + rank]), tuple(known[1 + rank :]), params)
    # named by the request, so that entry points that pack a weight alike share the result
    name = f"{source.buffer}.{kind}.{hashlib.sha256(repr(request).encode()).hexdigest()[:8]}"
    if name not in low.prepacks:
        low.buffers[name] = Buffer(name, source.dtype, tuple(const(n) for n in shape), tuple(range(len(shape))))
        low.prepacks[name] = request
    return whole(low.buffers[name])
