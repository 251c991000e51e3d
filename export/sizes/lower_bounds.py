"""The lowest size of each dimension, as far as conditions tell it: of x[2:], which needs two rows, that n >= 2.

A guard alone says this to whoever runs the program. As a bound of the symbol it says so to every later stage, too: then
min(7, n) is 7 where n >= 7, and n - 2 is a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hardtack.codegen.ir.expr import Add, Expr, FloorDiv, Min, Mul, Sym, int_value
from hardtack.codegen.ir.graph import Guard, SymBinding

Place = tuple[str, int | None]
"""(input, dimension), or (input, None) for an integer input."""


def raised(guards: Iterable[Guard], bindings: Iterable[SymBinding]) -> Mapping[Place, int]:
    """The new lowest size of each dimension for which a guard asks for more than its symbol's bound does."""
    places = {b.sym: (b.input, b.dim) for b in bindings if b.input is not None}
    found: dict[Place, int] = {}
    for guard in guards:
        sym, least = _bound(guard)
        if sym in places and sym.lo < least and (sym.hi is None or least <= sym.hi):
            found[places[sym]] = max(least, found.get(places[sym], least))
    return found


_NONE = (None, 0)


def _bound(guard: Guard) -> tuple[Sym | None, int]:
    """(symbol, its lowest size) of a guard that tells one; (None, 0) of any other."""
    if guard.relation == "ne" and isinstance(guard.a, Sym):
        return (guard.a, guard.a.lo + 1) if int_value(guard.b) == guard.a.lo else _NONE
    if guard.relation == "eq":  # one of the two differences grows with its symbol
        above = _solved(guard.b - guard.a, 0)
        return above if above[0] is not None else _solved(guard.a - guard.b, 0)
    if guard.relation not in ("le", "lt"):
        return _NONE
    return _solved(guard.b - guard.a, int(guard.relation == "lt"))


def _solved(e: Expr, least: int) -> tuple[Sym | None, int]:
    """The symbol with which e grows, and the size from which on e is at least `least`."""
    if isinstance(e, Sym):
        return e, least
    if isinstance(e, Add):
        free = [t for t in e.terms if int_value(t) is None]
        return _solved(free[0], least - sum(int_value(t) or 0 for t in e.terms)) if len(free) == 1 else _NONE
    if isinstance(e, Mul) and len(e.factors) == 2:
        factor = int_value(e.factors[0]) or 0
        return _solved(e.factors[1], -(-least // factor)) if factor > 0 else _NONE
    if isinstance(e, Min):  # at least so much where each of its arguments is
        free = [a for a in e.args if int_value(a) is None]
        low = any((int_value(a) or 0) < least for a in e.args if a not in free)
        return _solved(free[0], least) if len(free) == 1 and not low else _NONE
    if isinstance(e, FloorDiv):
        divisor = int_value(e.b) or 0
        return _solved(e.a, least * divisor) if divisor > 0 else _NONE
    return _NONE
