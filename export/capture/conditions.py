"""The conditions on sizes under which torch traced a program, as Guards.

torch notes many that do not matter here: that a size is not 0 or 1, that a stride differs from another. Kept are
equalities, upper bounds and lower bounds above 2, every condition that a line of the user's code asked for, those that
torch notes nowhere (small/sizes.py, small/small_shapes.py), and of the others those without which a run goes wrong
(small/guards.py). A RangeError tells of one that matters and has no form in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from hardtack.codegen.ir.equalities import solved
from hardtack.codegen.ir.expr import Expr, Mul, children, int_value
from hardtack.codegen.ir.expr_walk import free_syms, substitute
from hardtack.codegen.ir.graph import Guard
from hardtack.exporter.capture.small.sizes import Decision
from hardtack.exporter.errors import RangeError, Refusal, SourceLine
from hardtack.exporter.origin import asked_line, frame_line, user_frame
from hardtack.exporter.sizes.shapes import Sizes, make_guards
from hardtack.exporter.sizes.text import size_text

_SPECIALISED = 2


def shape_env(ep: ExportedProgram) -> Any:
    """The ShapeEnv in which a program was traced; None for one without dynamic sizes."""
    for node in ep.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return value.node.shape_env
        if isinstance(value, torch.Tensor):
            for size in value.shape:
                if isinstance(size, torch.SymInt):
                    return size.node.shape_env
    return None


def program_guards(
    ep: ExportedProgram, source: ExportedProgram, decided: tuple[Decision, ...], sizes: Sizes
) -> Iterator[tuple[Guard, SourceLine | None]]:
    """The guards of a program, with the user's line where torch has noted one. `decided` are conditions that torch has
    not noted itself.
    """
    env = shape_env(source) or shape_env(ep)
    if env is None:
        return
    for found in env.guards:
        where = asked_line(found.sloc)
        expression = env.replace(found.expr)  # not simplified: torch would take ranges that it has not noted for given
        if expression in (True, sympy.true):
            continue
        try:
            guards = sizes.guards(expression)
        except Refusal:
            known = isinstance(expression, sympy.Eq) and expression.free_symbols <= sizes.symbols.keys()
            if known or asked_by_user(found.sloc):
                raise _unchecked(expression, sizes, where) from None
            continue  # about a symbol that no input has, or in no whole numbers: torch's own bookkeeping
        kept = [g for g in guards if asked_by_user(found.sloc) or _matters(g)]
        yield from ((g, where) for g in kept)
        if kept:
            yield from ((g, None) for g in sizes.limits_of(expression))
    for decision in decided:
        expression = env.replace(decision.expr)
        try:
            guards = sizes.guards(expression)
        except Refusal:
            raise _unchecked(expression, sizes, decision.where) from None
        yield from ((g, decision.where) for g in guards)
        yield from ((g, None) for g in sizes.limits_of(expression))


def _unchecked(condition: sympy.Basic, sizes: Sizes, where: SourceLine | None) -> RangeError:
    return RangeError(
        f"the program holds only where {size_text(condition, sizes.symbols)}, which no run can check",
        where,
        "give sizes in place of a scale factor, or leave the dimension static",
    )


def asked_by_user(sloc: Any) -> bool:
    """True for a comparison that a line of the user's code makes; false for one made inside of a torch op."""
    found = frame_line(getattr(sloc, "framework_loc", None))
    return found is not None and (user_frame([found]) is not None or "_dynamo/" in found.file)


def _matters(guard: Guard) -> bool:
    """False for what torch asks only because it treats sizes 0 and 1 apart, or compares strides."""
    if guard.relation == "ne" or not (free_syms(guard.a) or free_syms(guard.b)):
        return False
    least = int_value(guard.a)
    if guard.relation in ("le", "lt") and _nonlinear(guard.a - guard.b):
        return False  # torch sorting strides
    if guard.relation == "le" and least is not None:
        return least > _SPECIALISED
    if guard.relation == "lt" and least is not None:
        return least >= _SPECIALISED
    return True


def _nonlinear(e: Expr) -> bool:
    """True if e multiplies sizes with each other."""
    if isinstance(e, Mul) and sum(int_value(f) is None for f in e.factors) > 1:
        return True
    return any(_nonlinear(c) for c in children(e))


def without_implied(guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The guards without those that follow from the equalities among them."""
    known: dict[Expr, Expr] = {}
    for g in guards:
        if g.relation == "eq":
            known.update(solved(g))
    kept: list[Guard] = []
    for g in guards:
        if known and not (g.relation == "eq" and solved(g)):
            try:
                if not make_guards(g.relation, substitute(g.a, known), substitute(g.b, known)):
                    continue
            except Refusal:
                pass  # contradicts the equalities: no size is accepted, and the guard says why
        kept.append(g)
    return tuple(kept)


def fixing_line(ep: ExportedProgram, size: int) -> SourceLine | None:
    """The user's line of a guard that equates something with `size`."""
    env = shape_env(ep)
    for found in env.guards if env is not None else ():
        if isinstance(found.expr, sympy.Eq) and sympy.Integer(size) in found.expr.args:
            return asked_line(found.sloc)
    return None
