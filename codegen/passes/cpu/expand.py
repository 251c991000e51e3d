"""Expansion: a small table that is read at a quotient of the axis of the lanes is written out first, point by point.

Statistics of a group of channels, `mean[c // 3]` beside `x[c]`, cut the lanes into rows of three: scheduling has to
split c for the index to be linear. Of the table written out, `mean'[c] = mean[c // 3]`, it is linear as it is. That
costs a nest of as many points as the table then has, so its reader must have many times more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.expr import ONE, Expr, const, int_value
from hardtack.codegen.ir.expr_walk import divisors_along, free_syms, stride_along
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest, Store, exprs_of
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope
from hardtack.codegen.passes.shared.inline import inline_into, tidy

LANES = 16
"""Of the widest CPU, in float32: a part as long as this fills them."""
LONG = 4 * LANES
"""A part of an axis whose last lanes may stay empty."""
TIMES = 8
"""How many times as many points as the table's a reader has at least."""


def expand(
    nests: Sequence[Nest], buffers: Mapping[str, Buffer]
) -> tuple[tuple[Nest, ...], dict[str, Buffer], tuple[Decision, ...]]:
    """The nests, and those that write tables out in front of their readers; the buffers with the tables written out."""
    out: list[Nest] = []
    named, decisions = dict(buffers), []
    for nest in nests:
        tables = _tables(nest, buffers) if isinstance(nest, LoopNest) else []
        for load, axes in tables:
            assert isinstance(nest, LoopNest)
            name = _name(load.buffer, named)
            table = _table(load, axes, name, buffers[load.buffer])
            writer = _writer(nest, load, axes, name)
            reader = _reader(nest, load, axes, name)
            verify_expanded(nest, reader, writer)
            named[name] = table
            out.append(writer)
            decisions.append(
                Decision("expand", load.buffer, nest.name, True, "lanes run along a quotient of its index")
            )
            nest = reader
        out.append(nest)
    return tuple(out), named, tuple(decisions)


def verify_expanded(nest: LoopNest, reader: LoopNest, writer: LoopNest) -> None:
    """Raise LoopError unless the reader is the nest once its table is computed where it is read."""
    (table,) = writer.writes()
    if tidy(inline_into(reader, writer, table)) != tidy(nest):
        raise LoopError(f"{nest.name} reads something else from {table}")


def _tables(nest: LoopNest, buffers: Mapping[str, Buffer]) -> list[tuple[Load, tuple[Axis, ...]]]:
    """The loads whose tables are worth it, one a table, and the axes that each is written out along."""
    if nest.serial:
        return []
    for lanes in _contiguous(nest, buffers):
        dividing = [s for s in nest.body if any(_parts(e, lanes) for e in exprs_of(s))]
        if not dividing:
            continue
        tables = [(s, _along(s, nest)) for s in dividing if isinstance(s, Load)]
        if len(tables) == len(dividing) and all(_pays(s, axes, nest, lanes) for s, axes in tables):
            return list({(s.buffer, s.index): (s, axes) for s, axes in tables}.values())
    return []


def _contiguous(nest: LoopNest, buffers: Mapping[str, Buffer]) -> list[Axis]:
    """The parallel axes along which something is read or written element by element."""
    offsets = [buffers[s.buffer].offset(s.index) for s in nest.body if isinstance(s, (Load, Store))]
    return [a for a in nest.parallel if any(stride_along(e, a.sym) is ONE for e in offsets)]


def _parts(e: Expr, axis: Axis) -> set[int]:
    """Lengths of the parts that e would split the axis into."""
    return divisors_along(e, axis.sym) - {1}


def _along(load: Load, nest: LoopNest) -> tuple[Axis, ...]:
    used = set().union(*map(free_syms, load.index))
    return tuple(a for a in nest.axes if a.sym in used)


def _pays(load: Load, axes: tuple[Axis, ...], nest: LoopNest, lanes: Axis) -> bool:
    short = all(d % LANES and d < LONG for e in load.index for d in _parts(e, lanes))
    own = set().union(*(free_syms(e) for e in load.index)) - {a.sym for a in axes}
    if not short or load.mask is not None or load.buffer in nest.writes() or any(s.extent is not None for s in own):
        return False
    repeated: Expr = const(1)
    for a in nest.axes:
        repeated = repeated if a in axes else repeated * a.extent
    known = int_value(repeated)
    return all(a.kind == "parallel" for a in axes) and (known is None or known >= TIMES)


def _name(buffer: str, taken: Mapping[str, Buffer]) -> str:
    k = 0
    while f"{buffer}.expanded.{k}" in taken:
        k += 1
    return f"{buffer}.expanded.{k}"


def _table(load: Load, axes: tuple[Axis, ...], name: str, whole: Buffer) -> Buffer:
    return Buffer(name, whole.dtype, tuple(a.extent for a in axes), tuple(range(len(axes))))


def _writer(nest: LoopNest, load: Load, axes: tuple[Axis, ...], name: str) -> LoopNest:
    value = replace(load, out="v0")
    return LoopNest(name, axes, (value, Store(name, tuple(a.sym for a in axes), "v0")), origin=nest.origin)


def _reader(nest: LoopNest, load: Load, axes: tuple[Axis, ...], name: str) -> LoopNest:
    at = tuple(a.sym for a in axes)
    same = (load.buffer, load.index)
    body = tuple(
        replace(s, buffer=name, index=at) if isinstance(s, Load) and (s.buffer, s.index) == same else s
        for s in nest.body
    )
    return replace(nest, body=body)


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    return expand(nests, buffers)


EXPAND = NestPass("expand", _run)
"""Small tables that are read at a quotient of the axis of the lanes are written out first."""
