"""Nests as text, as in dumps and in the messages of verifiers."""

from __future__ import annotations

from collections.abc import Iterable

from hardtack.codegen.ir.expr import Expr, to_text
from hardtack.codegen.ir.loops import Assert, Check, Compute, Index, Load, Reduce, Stmt
from hardtack.codegen.ir.nests import ControlNest, Nest, ReadNest, TemplateNest


def to_text_nest(nest: Nest) -> str:
    """The nest as a listing, as in dumps."""
    if isinstance(nest, ControlNest):
        given = ", ".join(((nest.predicate,) if nest.predicate else ()) + nest.operands)
        return f"control {nest.name}: {nest.kind}({given}) -> {', '.join(nest.results)}   # {nest.origin}"
    if isinstance(nest, ReadNest):
        return f"read {nest.sym.name} from {nest.source}   # {nest.origin}"
    if isinstance(nest, TemplateNest):
        ops = ", ".join(f"{o.buffer}[{to_text(o.offset)}; {_exprs(o.strides)}]" for o in nest.operands)
        attrs = ", ".join(f"{k}={v}" for k, v in nest.template.parameters() if v is not None)
        axes = ", ".join(f"{a.sym.name}<{to_text(a.extent)}" for a in nest.axes)
        call = f"template {nest.name}: {nest.template.label}({ops}) over ({axes})"
        return f"{call} -> {nest.result} [{attrs}]   # {nest.origin}"
    axes = ", ".join(f"{a.kind} {a.sym.name}<{to_text(a.extent)}" for a in nest.axes)
    head = f"nest {nest.name} ({axes}){' serial' if nest.serial else ''}   # {nest.origin}"
    return "\n".join([head, *("  " + stmt_text(s) for s in nest.body)])


def _exprs(es: Iterable[Expr]) -> str:
    return ", ".join(to_text(e) for e in es)


def stmt_text(s: Stmt) -> str:
    """One statement as text."""
    if isinstance(s, Load):
        mask = "" if s.mask is None else f" if {s.mask} else {s.other}"
        return f"{s.out} = load {s.buffer}[{_exprs(s.index)}]{mask}"
    if isinstance(s, Compute):
        return f"{s.out}: {s.dtype} = {s.op}({', '.join(map(str, s.args))})"
    if isinstance(s, Index):
        return f"{s.out} = index {to_text(s.expr)}"
    if isinstance(s, Check):
        return f"{s.out} = check {s.arg} in {to_text(s.size)}"
    if isinstance(s, Assert):
        return f"assert {s.arg}: {s.message!r}"
    if isinstance(s, Reduce):
        return f"{s.out}: {s.dtype} = reduce {s.kind}({', '.join(map(str, s.args))})"
    mode = "" if s.mode == "set" else f" {s.mode}="
    return f"store {s.buffer}[{_exprs(s.index)}]{mode} {s.value}"
