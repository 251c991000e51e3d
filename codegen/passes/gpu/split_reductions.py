"""Splits a long reduction with few results in two, as split-K does a product: partial results of many programs, and
their reduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import ONE, ZERO, Expr, Sym, const, floordiv, mod, sym
from hardtack.codegen.ir.expr_walk import free_syms, stride_along
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import (
    Arg,
    Axis,
    Buffer,
    Compute,
    Index,
    Load,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    dtypes,
    map_stmt,
    phases,
)
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.ir.neutral import neutral_value
from hardtack.codegen.ir.types import HALF, INT_RANGE, DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, NestPass, Scope
from hardtack.codegen.schedule.axes import points, split_into
from hardtack.codegen.schedule.gpu_tile import COLUMNS

LONG = 256
"""Points of a reduction below which it is never split."""
WORK = 1 << 16
"""Points that one program reduces faster than two kernels start."""
SHORTEST_PART = 64
"""Points of a reduction that are left to each part."""


def split_reductions(
    nests: tuple[Nest, ...], buffers: Mapping[str, Buffer], hints: Mapping[str, int], machine: Gpu
) -> tuple[tuple[Nest, ...], Mapping[str, Buffer]]:
    """The nests with long reductions in two parts, and all buffers, those for partial results included."""
    out: list[Nest] = []
    more = dict(buffers)
    for n in nests:
        if not isinstance(n, LoopNest) or not n.reduced or n.serial:
            out.append(n)
            continue
        parts = _parts(n, buffers, hints, machine)
        out += _split(n, parts, more) if parts > 1 else [n]
    return tuple(out), more


def _parts(nest: LoopNest, buffers: Mapping[str, Buffer], hints: Mapping[str, int], machine: Gpu) -> int:
    """Into how many parts the reduction is split; 1 for none."""
    results = size_hint(points(nest.parallel), hints)
    length = size_hint(points(nest.reduced), hints)
    if length < LONG or any(isinstance(s, Reduce) and s.dtype is DType.BOOL for s in nest.body):
        return 1
    programs = results
    read = [s for s in nest.loads() if _varies(s, nest)]
    if nest.parallel and any(_stride(buffers, s, nest.parallel[-1].sym) is ONE for s in read):
        programs = -(-results // COLUMNS)
    if programs >= machine.multiprocessors // 2 or results * length < WORK * programs:
        return 1
    parts = 1
    while programs * parts < 2 * machine.multiprocessors and parts < 512 and length // (2 * parts) >= SHORTEST_PART:
        parts *= 2
    return parts


def _varies(load: Load, nest: LoopNest) -> bool:
    """True if the load reads along the axes that are reduced."""
    return any(free_syms(e) & {a.sym for a in nest.reduced} for e in load.index)


def _stride(buffers: Mapping[str, Buffer], load: Load, s: Sym) -> Expr | None:
    return stride_along(buffers[load.buffer].offset(load.index), s)


def _split(nest: LoopNest, parts: int, buffers: dict[str, Buffer]) -> list[Nest]:
    """The nest of the parts and the nest that joins them. Adds the buffers of partial results."""
    total = points(nest.reduced)
    length = floordiv(total + parts - 1, parts)
    part, step = sym("part", extent=parts), sym("step", extent=length)
    at = part * length + step
    syms: dict[Expr, Expr] = split_into([a.sym for a in nest.reduced], at)
    reduces, before, after = phases(nest)
    body: list[Stmt] = []
    inside: str | None = None
    if mod(total, parts) is not ZERO:
        inside = "inside"
        body += [
            Index("inside.at", at),
            Index("inside.end", total),
            Compute(inside, "lt", ("inside.at", "inside.end"), DType.BOOL),
        ]
    for s in before:
        moved = map_stmt(s, {}, syms)
        if isinstance(moved, Load) and inside is not None:
            moved = _masked(body, moved, inside)
        body.append(moved)
    joined: list[Stmt] = []
    shape = (*(a.extent for a in nest.parallel), const(parts))
    first_axes = (*nest.parallel, Axis(part, const(parts)), Axis(step, length, "reduce"))
    index = (*(a.sym for a in nest.parallel), part)
    for r in reduces:
        _split_one(nest.name, r, inside, index, shape, buffers, body, joined)
    last = (*nest.parallel, Axis(part, const(parts), "reduce"))
    first = replace(nest, name=f"{nest.name}.parts", axes=first_axes, body=tuple(body))
    return [first, replace(nest, axes=last, body=(*joined, *after))]


def _masked(body: list[Stmt], load: Load, inside: str) -> Load:
    if load.mask is None:
        return replace(load, mask=inside)
    both = f"{load.out}.inside"
    body.append(Compute(both, "and", (inside, load.mask), DType.BOOL))
    return replace(load, mask=both)


def _split_one(
    stem: str,
    r: Reduce,
    inside: str | None,
    index: tuple[Expr, ...],
    shape: tuple[Expr, ...],
    buffers: dict[str, Buffer],
    body: list[Stmt],
    joined: list[Stmt],
) -> None:
    """One reduction: its partial results, stored by `body`, and their reduction, appended to `joined`."""
    is_arg = r.kind.startswith("arg")
    types = _types(r, body, buffers)
    args: list[Arg] = []
    for k, (a, t) in enumerate(zip(r.args, types, strict=True)):
        neutral = Lit(INT_RANGE[DType.I64][1], t) if k else neutral_value(r.kind, t)
        if inside is not None:
            name = f"{r.out}.arg{k}"
            body.append(Compute(name, "where", (inside, a, neutral), t))
            a = name
        args.append(a)
    # partial results of half types are kept in f32, as sums are
    values = [(r.kind, tuple(args), types[1] if is_arg else types[0])]
    if is_arg:
        values.insert(0, ("max" if r.kind == "argmax" else "min", (args[0],), types[0]))
    loaded: list[Arg] = []
    for k, (kind, given, t) in enumerate(values):
        wide = DType.F32 if t in HALF else t
        name = f"{stem}.{r.out}.{k}"
        buffers[name] = Buffer(name, wide, shape, tuple(range(len(shape))))
        body.append(Reduce(f"{r.out}.{k}", kind, given, t))
        value = f"{r.out}.{k}"
        if wide is not t:
            body.append(Compute(f"{value}.wide", "cast", (value,), wide))
            value = f"{value}.wide"
        body.append(Store(name, index, value))
        joined.append(Load(f"{r.out}.in{k}", name, index))
        loaded.append(f"{r.out}.in{k}")
    wide = DType.F32 if r.dtype in HALF else r.dtype
    if wide is r.dtype:
        joined.append(Reduce(r.out, r.kind, tuple(loaded), r.dtype))
    else:
        joined.append(Reduce(f"{r.out}.wide", r.kind, tuple(loaded), wide))
        joined.append(Compute(r.out, "cast", (f"{r.out}.wide",), r.dtype))


def _types(r: Reduce, body: list[Stmt], buffers: Mapping[str, Buffer]) -> list[DType]:
    known = dtypes(body, buffers)
    return [a.dtype if isinstance(a, Lit) else known[a] for a in r.args]


def _run(
    nests: tuple[Nest, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Nest, ...], Buffers, Decisions]:
    return (*split_reductions(nests, buffers, context.hints, context.gpu), ())


SPLIT_REDUCTIONS = NestPass("split", _run)
"""A long reduction with few results is done in parts, by many programs."""
