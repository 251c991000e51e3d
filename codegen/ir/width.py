"""Which expressions are computed in 32 bits: those that are known to lie there, with what they divide and compare."""

from __future__ import annotations

from functools import cache

from hardtack.codegen.ir.expr import Expr, FloorDiv, Max, Min, Mod, bounds, children, sym
from hardtack.codegen.ir.expr_walk import free_syms, substitute


@cache
def fits_32_bits(e: Expr) -> bool:
    """True if e, and what it divides and compares on the way, is known to lie within 32 bits."""
    lo, hi = bounds(_bounded(e))
    if lo is None or hi is None or lo < -(1 << 31) or hi >= 1 << 31:
        return False
    if isinstance(e, (FloorDiv, Mod, Min, Max)):
        return all(map(fits_32_bits, children(e)))
    return all(map(_parts_fit, children(e)))


def _bounded(e: Expr) -> Expr:
    """e with each axis of unknown length replaced by one as long as its extent may become."""
    swap: dict[Expr, Expr] = {}
    for s in free_syms(e):
        if s.hi is None and s.extent is not None:
            longest = bounds(s.extent)[1]
            swap[s] = sym(f"{s.name}.", 0, None if longest is None else max(0, longest - 1))
    return substitute(e, swap) if swap else e


def _parts_fit(e: Expr) -> bool:
    """As fits_32_bits, for a part of a sum or product, which may wrap around: the whole does not."""
    if isinstance(e, (FloorDiv, Mod, Min, Max)):
        return all(map(fits_32_bits, children(e)))
    return all(map(_parts_fit, children(e)))
