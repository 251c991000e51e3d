"""Reindexing: a nest walked over other axes. Which point of the old axes a point of the new ones is, and the proof that
each old point is visited exactly once.

    Source ::= Source(nest, points)     points: one Expr for each axis of `nest`, over the axes of the nest made of it

The proof of `why_not_one_to_one` is by form: there are as many new points as old ones, each is an old one (its
coordinates lie within the extents), and no two are the same: every new axis can be recovered from the coordinates. A
sum c1*a1 + c2*a2 + ... gives its terms, as a number gives its digits, where each ck is more than the terms below it can
reach; x // k and x % k give x.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from hardtack.codegen.ir.expr import (
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Sym,
    add,
    bounds,
    const,
    divide_exactly,
    floordiv,
    int_value,
    known_in_range,
    mod,
    mul,
    product,
    terms_of,
)
from hardtack.codegen.ir.expr_walk import evaluate, free_syms

SAMPLES = 48
"""Points at which two expressions of unlike form are compared."""
LARGEST_SIZE = 11
"""Size up to which unknown sizes are tried there."""


def why_not_one_to_one(points: Sequence[Expr], sizes: Sequence[Expr], axes: Mapping[Sym, Expr]) -> str | None:
    """Why `points` might not number a space of `sizes` one to one from `axes` (symbol -> extent); None if they do.

    points: one coordinate for each of `sizes`. Spaces without points are alike.
    """
    old, new = product(sizes), product(axes.values())
    if old is not new:
        return f"{new} points in place of {old}"
    if int_value(old) == 0:
        return None
    for e, n in zip(points, sizes, strict=True):
        if int_value(e) != 0 and not within(e, n):  # where there are points, every size has its 0
            return f"{e} may leave [0, {n})"
    lost = _unrecovered(points, axes)
    return f"{lost.name} cannot be told from {', '.join(map(str, points))}" if lost is not None else None


def why_not_injective(points: Sequence[Expr], axes: Mapping[Sym, Expr]) -> str | None:
    """Why two points of `axes` (symbol -> extent) might have the same coordinates; None if no two have."""
    if any(int_value(e) == 0 for e in axes.values()):
        return None
    lost = _unrecovered(points, axes)
    return None if lost is None else f"points along {lost.name} may coincide"


def _unrecovered(points: Sequence[Expr], axes: Mapping[Sym, Expr]) -> Sym | None:
    wanted = {s for s, e in axes.items() if int_value(e) != 1}
    known = _recovered(points, frozenset(axes), tuple(axes.values()))
    return next((s for s in axes if s in wanted and s not in known), None)


def within(e: Expr, size: Expr) -> bool:
    """True if 0 <= e < size is known: by bounds, or since a // b < n where a < b * n."""
    if known_in_range(e, size):
        return True
    return isinstance(e, FloorDiv) and within(e.a, e.b * size)


def _recovered(exprs: Iterable[Expr], axes: frozenset[Sym], extents: tuple[Expr, ...]) -> set[Expr]:
    """What follows from the values of `exprs`: these, the digits of each, and what their digits make up."""
    known: set[Expr] = set(exprs)
    while True:
        found: set[Expr] = set()
        for e in known:
            found |= _digits(e, known, axes, extents)
            if isinstance(e, (FloorDiv, Mod)):
                other = floordiv(e.a, e.b) if isinstance(e, Mod) else mod(e.a, e.b)
                found |= {e.a} if _follows(other, known, axes) else set()
        if found <= known:
            return known
        known |= found


def _follows(e: Expr, known: set[Expr], axes: frozenset[Sym]) -> bool:
    """True if e's value follows from those known."""
    return e in known or all(a in known for _, a in _varying(e, axes))


def _varying(e: Expr, axes: frozenset[Sym]) -> list[tuple[Expr, Expr]]:
    """The terms of e that vary along the axes, as coefficient and what varies."""
    out: list[tuple[Expr, Expr]] = []
    for term in terms_of(e):
        if not free_syms(term) & axes:
            continue
        factors = term.factors if isinstance(term, Mul) else (term,)
        inside = [f for f in factors if free_syms(f) & axes]
        out.append((product(f for f in factors if f not in inside), product(inside)))
    return out


def _digits(e: Expr, known: set[Expr], axes: frozenset[Sym], extents: tuple[Expr, ...]) -> set[Expr]:
    """The terms of e that can be told from its value and from what is known."""
    left = [(c, a) for c, a in _varying(e, axes) if a not in known]
    if len(left) == 1:
        (c, a) = left[0]
        return {a} if _never_zero(c, extents) else set()
    below: Expr = const(0)
    for c, a in sorted(left, key=lambda t: _magnitude(t[0])):
        step = -c if _negative(c) else c  # -a counts as many places as a, from the other end
        if not _never_zero(c, extents) or not (below is const(0) or known_in_range(below, step)):
            return set()
        below = below + mul(step, a)
    return {a for _, a in left}


def _negative(c: Expr) -> bool:
    hi = bounds(c)[1]
    return hi is not None and hi < 0


def _magnitude(c: Expr) -> tuple[int, int]:
    """An order in which coefficients grow: more sizes in the product, then a larger number before it."""
    factors = c.factors if isinstance(c, Mul) else (c,)
    numbers = [abs(n) for f in factors if (n := int_value(f)) is not None]
    return len(factors) - len(numbers), numbers[0] if numbers else 1


def _never_zero(c: Expr, extents: tuple[Expr, ...]) -> bool:
    """True if c is not 0 where the axes have points at all."""
    for f in c.factors if isinstance(c, Mul) else (c,):
        lo, hi = bounds(f)
        positive = (lo is not None and lo > 0) or (hi is not None and hi < 0)
        if not positive and not any(divide_exactly(e, f) is not None for e in extents):
            return False
    return True


@cache
def equal(a: Expr, b: Expr) -> bool:
    """True if a and b have one value everywhere: by form, or, since one value may have several forms (of // and %),
    at SAMPLES points, the corners among them."""
    if a is b or add(a, -b) is const(0):
        return True
    names = sorted(free_syms(a) | free_syms(b), key=lambda s: s.name)
    if not names:
        return False
    chosen = random.Random(0)
    return all(_agree(a, b, names, chosen, k) for k in range(SAMPLES))


def _agree(a: Expr, b: Expr, names: Sequence[Sym], chosen: random.Random, k: int) -> bool:
    values: dict[str, int] = {}
    outer = {s for n in names if n.extent is not None for s in free_syms(n.extent)} | set(names)
    for s in sorted((s for s in outer if s.extent is None), key=lambda s: s.name):
        values[s.name] = chosen.randint(max(s.lo, 1), max(s.lo, 1, min(LARGEST_SIZE, s.hi or LARGEST_SIZE)))
    for s in names:
        if s.extent is None:
            continue
        last = evaluate(s.extent, values) - 1
        if last < 0:
            return True
        values[s.name] = (0, last)[k >> 1 & 1] if k < 4 else chosen.randint(0, last)
    return evaluate(a, values) == evaluate(b, values)
