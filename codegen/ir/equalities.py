"""What the equalities among a graph's guards tell: which sizes are one."""

from __future__ import annotations

from collections.abc import Iterable

from hardtack.codegen.ir.expr import Expr, FloorDiv, Max, Min, Mul, Sym, children, const, int_value, terms_of
from hardtack.codegen.ir.expr_walk import substitute
from hardtack.codegen.ir.graph import Guard
from hardtack.codegen.ir.graph_infer import Same

_ATOMS = (Sym, FloorDiv, Min, Max)
_ROUNDS = 3
"""How often equalities are put into what others gave."""


def equality(guards: Iterable[Guard]) -> Same:
    """a == b by normal form, because a guard states it (up to sign), or with what guards state put into both."""
    equal = [g for g in guards if g.relation == "eq"]
    stated = {d for g in equal for d in (g.a - g.b, g.b - g.a)}
    known = {atom: value for g in equal for atom, value in _replacements(g)}
    for _ in range(_ROUNDS if known else 0):
        stated |= {substitute(d, known) for d in stated}

    def same(a: Expr, b: Expr) -> bool:
        if a is b or (stated and a - b in stated):
            return True
        for _ in range(_ROUNDS if known else 0):
            a, b = substitute(a, known), substitute(b, known)
            if a is b or a - b in stated:
                return True
        return False

    return same


def solved(guard: Guard) -> dict[Expr, Expr]:
    """{a quotient or symbol: its constant value} where the equality says that; {} where it says something else."""
    terms = terms_of(guard.a - guard.b)
    free = [t for t in terms if int_value(t) is None]
    if len(free) != 1:
        return {}
    rest = sum(int_value(t) or 0 for t in terms if t is not free[0])
    if isinstance(free[0], (Sym, FloorDiv)):
        return {free[0]: const(-rest)}
    if isinstance(free[0], Mul) and len(free[0].factors) == 2 and isinstance(free[0].factors[1], (Sym, FloorDiv)):
        factor = int_value(free[0].factors[0]) or 1
        return {free[0].factors[1]: const(-rest // factor)} if rest % factor == 0 else {}
    return {}


def _replacements(guard: Guard) -> list[tuple[Expr, Expr]]:
    """What an equality lets stand for something that it says more simply."""
    constant = list(solved(guard).items())
    if constant:
        return constant
    for atom, value in ((guard.a, guard.b), (guard.b, guard.a)):
        if isinstance(atom, _ATOMS) and not _contains(value, atom) and _depth(value) < _depth(atom):
            return [(atom, value)]
    return []


def _contains(e: Expr, part: Expr) -> bool:
    return e is part or any(_contains(c, part) for c in children(e))


def _depth(e: Expr) -> int:
    return 1 + max(map(_depth, children(e)), default=0)
