"""A nest beside the nests that it was made of: the same statements in their order, at points that number theirs.

Verifiers of nests and of schedules walk both side by side, and differ in what they ask of an index: nest_verify.py that
it is the source's at the source's point, schedule_verify.py that all accesses of a buffer are moved alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hardtack.codegen.ir.expr import Expr, int_value, sym
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.loops import (
    Arg,
    Assert,
    Axis,
    Compute,
    Load,
    LoopError,
    LoopNest,
    Reduce,
    Source,
    Stmt,
    Store,
    args_of,
    exact,
    exprs_of,
    out_of,
)
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.reindex import equal, why_not_one_to_one

Seen = Callable[[Expr], Expr]
"""An Expr of a source as it is in the nest made of it."""


def bodies(nest: LoopNest) -> Iterator[tuple[Source, tuple[Stmt, ...]]]:
    """Each source with the statements that stand for its own, as many as there are."""
    rest = nest.body
    for source in nest.sources:
        body, rest = rest[: len(source.nest.body)], rest[len(source.nest.body) :]
        yield source, body
    if rest:
        raise LoopError(f"{nest.name} computes more than what it was made of: {stmt_text(rest[0])}")


def statements(body: Sequence[Stmt], source: Source) -> Iterator[tuple[Stmt, Stmt, Seen]]:
    """Each statement of a source, the one that stands for it, and how its Exprs are seen there. Raises LoopError unless
    the two are one statement, their Exprs aside."""
    syms: dict[Expr, Expr] = dict(zip((a.sym for a in source.nest.axes), source.points, strict=True))
    names: dict[str, str] = {}
    for old, new in zip(source.nest.body, body, strict=False):
        if not _same_statement(old, new, names):
            raise LoopError(f"{stmt_text(new)} stands for: {stmt_text(old)}")
        yield old, new, lambda e: _renamed(e, syms, names)
    if len(body) != len(source.nest.body):
        raise LoopError(f"it lacks what {source.nest.name} computes: {stmt_text(source.nest.body[len(body)])}")


def verify_exprs(old: Stmt, new: Stmt, seen: Seen) -> None:
    """Raise LoopError unless the Exprs of the two statements are equal."""
    was, now = exprs_of(old), exprs_of(new)
    if len(was) != len(now):
        raise LoopError(f"{stmt_text(new)} stands for: {stmt_text(old)}")
    if not all(equal(seen(a), b) for a, b in zip(was, now, strict=True)):
        raise LoopError(f"{stmt_text(new)} is at another place than: {stmt_text(old)}")


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


def _renamed(e: Expr, syms: Mapping[Expr, Expr], names: Mapping[str, str]) -> Expr:
    """An Expr of a source in the nest made of it: other axes, other names of checked indices."""
    moved = {s: names[s.name] for s in free_syms(e) if s not in syms and s.name in names}
    checked: dict[Expr, Expr] = {s: sym(name, s.lo, s.hi, s.extent) for s, name in moved.items()}
    return substitute(e, {**syms, **checked})


def _same_statement(old: Stmt, new: Stmt, names: dict[str, str]) -> bool:
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
