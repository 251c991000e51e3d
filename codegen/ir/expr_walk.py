"""Walks over expressions: the symbols in one, other values for them, the number that results, linear form in one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hardtack.codegen.ir.expr import (
    ONE,
    ZERO,
    Add,
    Const,
    Expr,
    ExprLike,
    FloorDiv,
    Min,
    Mod,
    Mul,
    Sym,
    add,
    as_expr,
    children,
    divide_exactly,
    floordiv,
    int_value,
    maximum,
    minimum,
    mod,
    mul,
    terms_of,
)


@cache
def free_syms(e: Expr) -> frozenset[Sym]:
    """The symbols that e mentions (extents of symbols are not looked into)."""
    if isinstance(e, Sym):
        return frozenset((e,))
    return frozenset().union(*(free_syms(c) for c in children(e)))


def substitute(e: Expr, values: Mapping[Expr, ExprLike]) -> Expr:
    """e with symbols replaced, simplified again."""
    if not values:
        return e
    memo: dict[Expr, Expr] = {}

    def go(x: Expr) -> Expr:
        if x in values:
            return as_expr(values[x])
        if not children(x):
            return x
        if x not in memo:
            memo[x] = rebuild(x, tuple(go(c) for c in children(x)))
        return memo[x]

    return go(e)


def rebuild(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """The node e with other children, through the normalising constructors."""
    if isinstance(e, Add):
        return add(*args)
    if isinstance(e, Mul):
        return mul(*args)
    if isinstance(e, FloorDiv):
        return floordiv(*args)
    if isinstance(e, Mod):
        return mod(*args)
    return minimum(*args) if isinstance(e, Min) else maximum(*args)


def evaluate(e: ExprLike, values: Mapping[str, int]) -> int:
    """The value of e with symbols looked up by name. KeyError for a missing symbol."""
    e = as_expr(e)
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Sym):
        return values[e.name]
    parts = [evaluate(c, values) for c in children(e)]
    if isinstance(e, Add):
        return sum(parts)
    if isinstance(e, Mul):
        out = 1
        for p in parts:
            out *= p
        return out
    if isinstance(e, FloorDiv):
        return parts[0] // parts[1]
    if isinstance(e, Mod):
        return parts[0] % parts[1]
    return min(parts) if isinstance(e, Min) else max(parts)


def split_linear(e: Expr, s: Sym) -> tuple[Expr, Expr] | None:
    """e = coefficient * s + rest with s in neither; None where e is not linear in s by form."""
    coefficient: list[Expr] = []
    rest: list[Expr] = []
    for term in terms_of(e):
        if s not in free_syms(term):
            rest.append(term)
            continue
        q = divide_exactly(term, s)
        if q is None or s in free_syms(q):
            return None
        coefficient.append(q)
    return add(*coefficient), add(*rest)


def divisors_along(e: Expr, s: Sym) -> set[int]:
    """Constants by which e divides s itself."""
    found: set[int] = set()
    if isinstance(e, (FloorDiv, Mod)):
        d = int_value(e.b)
        if d is not None and s in free_syms(e.a) and split_linear(e.a, s) == (ONE, ZERO):
            found.add(d)
    for c in children(e):
        found |= divisors_along(c, s)
    return found


def stride_along(offset: Expr, s: Sym) -> Expr | None:
    """How far a step of s moves an offset; None where that is not the same everywhere by form."""
    parts = split_linear(offset, s)
    return None if parts is None else parts[0]
