"""The rules of nests: the grammar of loops.py, one writer for each element, nothing lost where axes were changed."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import Expr, const, int_value, sym
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.loops import (
    Arg,
    Assert,
    Axis,
    Buffer,
    Check,
    Compute,
    ControlNest,
    Index,
    Load,
    LoopError,
    LoopNest,
    Nest,
    Reduce,
    Source,
    Stmt,
    Store,
    TemplateNest,
    args_of,
    exact,
    exprs_of,
    out_of,
    stmt_text,
    to_text_nest,
)
from hardtack.codegen.ir.reindex import equal, why_not_injective, why_not_one_to_one, within
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import SCALAR_OPS, result_dtype


def verify_nest(nest: Nest, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the nest's text, where a nest breaks the rules of the module's grammar."""
    if isinstance(nest, (TemplateNest, ControlNest)):
        for name in nest.reads() | nest.writes():
            if name not in buffers:
                raise LoopError(f"{nest.kind} {nest.name}: unknown buffer {name}\n{to_text_nest(nest)}")
        return
    try:
        _verify_loop_nest(nest, buffers)
        _verify_stores(nest, buffers)
        verify_sources(nest)
    except LoopError as e:
        raise LoopError(f"nest {nest.name}: {e}\n{to_text_nest(nest)}") from None


def _verify_loop_nest(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    kinds = [a.kind for a in nest.axes]
    if kinds != sorted(kinds):
        raise LoopError("parallel axes must come before reduce axes")
    types: dict[str, DType] = {}
    axis_names = {a.sym.name for a in nest.axes}
    after_reduce: set[str] = set()
    reduce_names = {a.sym.name for a in nest.reduced}
    for s in nest.body:
        for a in args_of(s):
            if isinstance(a, str) and a not in types:
                raise LoopError(f"{a} is used before it is defined in: {stmt_text(s)}")
        _verify_indices(s, axis_names, types, buffers)
        _verify_stored(s, types, buffers)
        late = any(a in after_reduce for a in args_of(s)) or isinstance(s, Reduce)
        if late and not isinstance(s, Reduce):
            used = {y.name for e in exprs_of(s) for y in free_syms(e)}
            if used & reduce_names:
                raise LoopError(f"a reduce axis is used after the reduction in: {stmt_text(s)}")
        out = out_of(s)
        if out is not None:
            if out in types:
                raise LoopError(f"{out} is defined twice")
            types[out] = _verified_dtype(s, types, buffers)
            if late:
                after_reduce.add(out)


def _verify_indices(s: Stmt, axis_names: set[str], types: Mapping[str, DType], buffers: Mapping[str, Buffer]) -> None:
    for e in exprs_of(s):
        for y in free_syms(e):
            if y.extent is not None and y.name not in axis_names and y.name not in types:
                raise LoopError(f"unknown axis or index {y.name} in: {stmt_text(s)}")
    if isinstance(s, (Load, Store)):
        if s.buffer not in buffers:
            raise LoopError(f"unknown buffer {s.buffer} in: {stmt_text(s)}")
        if len(s.index) != len(buffers[s.buffer].shape):
            raise LoopError(f"{s.buffer} has rank {len(buffers[s.buffer].shape)} in: {stmt_text(s)}")


def _verify_stored(s: Stmt, types: Mapping[str, DType], buffers: Mapping[str, Buffer]) -> None:
    """A value in a register is not converted on its way: it must have the buffer's type."""
    if isinstance(s, Store):
        given = types[s.value] if isinstance(s.value, str) else s.value.dtype
        if given is not buffers[s.buffer].dtype:
            raise LoopError(f"{s.buffer} is of {buffers[s.buffer].dtype}, not {given}, in: {stmt_text(s)}")
    if isinstance(s, Reduce) and s.kind in ("sum", "prod") and s.dtype.is_half:
        raise LoopError(f"a {s.kind} in {s.dtype} in: {stmt_text(s)}")


def _verified_dtype(s: Stmt, types: Mapping[str, DType], buffers: Mapping[str, Buffer]) -> DType:
    if isinstance(s, Load):
        return buffers[s.buffer].dtype
    if isinstance(s, (Index, Check)):
        return DType.I64
    assert isinstance(s, (Compute, Reduce))
    args = tuple(types[a] if isinstance(a, str) else a.dtype for a in s.args)
    if isinstance(s, Compute):
        got = result_dtype(SCALAR_OPS[s.op], args, s.dtype)
        if got is not s.dtype:
            raise LoopError(f"dtype {s.dtype} where {s.op} gives {got} in: {stmt_text(s)}")
    return s.dtype


def _verify_stores(nest: LoopNest, buffers: Mapping[str, Buffer]) -> None:
    """Points that run in any order set no element twice, and none outside of its buffer."""
    if nest.serial or any(a.extent is const(0) for a in nest.axes):
        return
    reduced = {a.sym for a in nest.reduced}
    for s in nest.stores():
        if s.mode != "set":
            raise LoopError(f"points in any order update {s.buffer} in: {stmt_text(s)}")
        each = any(free_syms(e) & reduced for e in s.index)
        axes = {a.sym: a.extent for a in (nest.axes if each else nest.parallel)}
        why = why_not_injective(s.index, axes)
        if why is not None:
            raise LoopError(f"{why} in: {stmt_text(s)}")
        for e, n in zip(s.index, buffers[s.buffer].shape, strict=True):
            if free_syms(e) & axes.keys() and not within(e, n):
                raise LoopError(f"{e} may leave [0, {n}) in: {stmt_text(s)}")


def verify_sources(nest: LoopNest) -> None:
    """Raise LoopError unless the nest computes what its sources do: at points that number theirs one to one, the same
    statements at the same elements."""
    if not nest.sources:
        return
    rest = nest.body
    for source in nest.sources:
        verify_walk(nest.axes, source)
        body, rest = rest[: len(source.nest.body)], rest[len(source.nest.body) :]
        _verify_body(body, source, nest.axes)
    if rest:
        raise LoopError(f"it computes more than what it was made of: {stmt_text(rest[0])}")


def verify_walk(axes: tuple[Axis, ...], source: Source) -> None:
    """Raise LoopError unless the points of `axes` are those of the source, one for one, and reduce what it reduces."""
    nest = source.nest
    new = {a.sym: a.extent for a in axes}
    why = why_not_one_to_one(source.points, [a.extent for a in nest.axes], new)
    if why is not None:
        raise LoopError(f"it does not walk the points of {nest.name}: {why}")
    reduced = {a.sym for a in axes if a.kind == "reduce"}
    for axis, e in zip(nest.axes, source.points, strict=True):
        if nest.reduced and free_syms(e) & new.keys() - {s for s in new if int_value(new[s]) == 1}:
            inside = free_syms(e) & reduced
            if bool(inside) != (axis.kind == "reduce") or (inside and free_syms(e) & new.keys() - reduced):
                raise LoopError(f"it reduces other points than {nest.name} does, at {e}")


def _verify_body(body: tuple[Stmt, ...], source: Source, axes: tuple[Axis, ...]) -> None:
    """Every statement is the source's, over the other axes."""
    syms: dict[Expr, Expr] = dict(zip((a.sym for a in source.nest.axes), source.points, strict=True))
    names: dict[str, str] = {}
    for old, new in zip(source.nest.body, body, strict=False):
        if not same_statement(old, new, names) or len(exprs_of(old)) != len(exprs_of(new)):
            raise LoopError(f"{stmt_text(new)} stands for: {stmt_text(old)}")
        for was, now in zip(exprs_of(old), exprs_of(new), strict=True):
            if not equal(renamed(was, syms, names), now):
                raise LoopError(f"{stmt_text(new)} is at another place than: {stmt_text(old)}")
    if len(body) != len(source.nest.body):
        raise LoopError(f"it lacks what {source.nest.name} computes: {stmt_text(source.nest.body[len(body)])}")


def renamed(e: Expr, syms: Mapping[Expr, Expr], names: Mapping[str, str]) -> Expr:
    """An Expr of a source in the nest made of it: other axes, other names of checked indices."""
    moved = {s: names[s.name] for s in free_syms(e) if s not in syms and s.name in names}
    checked: dict[Expr, Expr] = {s: sym(name, s.lo, s.hi, s.extent) for s, name in moved.items()}
    return substitute(e, {**syms, **checked})


def same_statement(old: Stmt, new: Stmt, names: dict[str, str]) -> bool:
    """True if the two are one statement, their Exprs aside; `names`: values of the old body in the new one."""

    def arg(a: Arg | None) -> object:
        return names.get(a, a) if isinstance(a, str) else exact(a)

    out = out_of(old)
    if type(old) is not type(new) or (out is None) != (out_of(new) is None):
        return False
    if [arg(a) for a in args_of(old)] != [a if isinstance(a, str) else exact(a) for a in args_of(new)]:
        return False
    if out is not None:
        names[out] = str(out_of(new))
    return _facts(old) == _facts(new)


def _facts(s: Stmt) -> object:
    """What a statement has besides names and Exprs."""
    if isinstance(s, Load):
        return s.buffer, s.mask is None, exact(s.other)
    if isinstance(s, Compute):
        return s.op, s.dtype
    if isinstance(s, Reduce):
        return s.kind, s.dtype
    if isinstance(s, Store):
        return s.buffer, s.mode
    return s.message if isinstance(s, Assert) else None
