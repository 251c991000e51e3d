"""Expr: the one integer language for shapes, strides, indices, grids, offsets and guards.

    Expr ::= Const(value)
           | Sym(name, lo, hi, extent)        lo <= sym <= hi; hi None: unbounded; extent: sym < extent also holds
           | Add(terms) | Mul(factors)        flat, sorted; products are distributed over sums
           | FloorDiv(a, b) | Mod(a, b)       Python's: rounds down, the result of Mod has b's sign; b >= 1 always
           | Min(args) | Max(args)

Values are mathematical integers that must fit in 64 bits at the symbols' bounds (the plan verifier proves it).
Expressions are interned: equal expressions are the same object, so `is` and `==` agree and memoising is cheap. They are
built with Python's operators; every constructor normalises, so a sum of products has one form and two equal polynomials
are equal objects. Simplification of // and % uses what is known of the symbols: their bounds, and for a loop axis its
extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from math import gcd
from typing import TypeGuard, Union

from hardtack.codegen.ir import intervals
from hardtack.codegen.ir.intervals import Interval

ExprLike = Union["Expr", int]
_table: dict[tuple[object, ...], Expr] = {}


class Expr:
    """An interned integer expression; see the module's grammar. Never instantiate directly."""

    __slots__ = ("_hash", "key")
    key: tuple[object, ...]

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __add__(self, other: ExprLike) -> Expr:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: ExprLike) -> Expr:
        return add(self, mul(-1, other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return add(other, mul(-1, self))

    def __neg__(self) -> Expr:
        return mul(-1, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, other)

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, other)

    def __repr__(self) -> str:
        return to_text(self)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.key[1:]))


class Const(Expr):
    """An integer literal."""

    __slots__ = ("value",)
    value: int


class Sym(Expr):
    """A named integer with lo <= sym <= hi (hi None: no upper bound) and, if `extent` is given, sym < extent."""

    __slots__ = ("extent", "hi", "lo", "name")
    name: str
    lo: int
    hi: int | None
    extent: Expr | None


class Add(Expr):
    """A sum of at least two terms."""

    __slots__ = ("terms",)
    terms: tuple[Expr, ...]


class Mul(Expr):
    """A product; a constant factor, if any, comes first; never contains an Add."""

    __slots__ = ("factors",)
    factors: tuple[Expr, ...]


class FloorDiv(Expr):
    __slots__ = ("a", "b")
    a: Expr
    b: Expr


class Mod(Expr):
    __slots__ = ("a", "b")
    a: Expr
    b: Expr


class Min(Expr):
    __slots__ = ("args",)
    args: tuple[Expr, ...]


class Max(Expr):
    __slots__ = ("args",)
    args: tuple[Expr, ...]


_FIELDS: dict[type[Expr], tuple[str, ...]] = {
    Const: ("value",),
    Sym: ("name", "lo", "hi", "extent"),
    Add: ("terms",),
    Mul: ("factors",),
    FloorDiv: ("a", "b"),
    Mod: ("a", "b"),
    Min: ("args",),
    Max: ("args",),
}


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions."""
    if isinstance(e, Add):
        return e.terms
    if isinstance(e, Mul):
        return e.factors
    if isinstance(e, (FloorDiv, Mod)):
        return (e.a, e.b)
    if isinstance(e, (Min, Max)):
        return e.args
    return ()


def _make(kind: type[Expr], *fields: object) -> Expr:
    key = (kind, *fields)
    found = _table.get(key)
    if found is not None:
        return found
    node = object.__new__(kind)
    node.key = key
    object.__setattr__(node, "_hash", hash((kind.__name__, *fields)))
    for name, value in zip(_FIELDS[kind], fields, strict=True):
        object.__setattr__(node, name, value)
    # setdefault: two threads that build the same node agree on one object
    return _table.setdefault(key, node)


def _rebuild(kind: type[Expr], fields: tuple[object, ...]) -> Expr:
    return _make(kind, *fields)


def const(value: int) -> Const:
    """The literal `value`."""
    return _make(Const, int(value))  # type: ignore[return-value]


def sym(name: str, lo: int = 0, hi: int | None = None, extent: ExprLike | None = None) -> Sym:
    """A symbol. `extent`, when given, states 0 <= sym < extent, as for a loop axis."""
    ext = None if extent is None else as_expr(extent)
    if isinstance(ext, Const):
        hi = ext.value - 1 if hi is None else min(hi, ext.value - 1)
    return _make(Sym, name, lo, hi, ext)  # type: ignore[return-value]


def as_expr(value: ExprLike) -> Expr:
    """An int as Const; an Expr as it is."""
    return value if isinstance(value, Expr) else const(value)


def _order(e: Expr) -> tuple[int, str]:
    """A total order that does not depend on object identity: dumps and plans are the same in every process."""
    rank = (Const, Sym, Mul, Add, FloorDiv, Mod, Min, Max).index(type(e))
    return rank, to_text(e)


def _split_coefficient(term: Expr) -> tuple[int, Expr | None]:
    """term as (constant coefficient, rest); rest None for a constant."""
    if isinstance(term, Const):
        return term.value, None
    if isinstance(term, Mul) and isinstance(term.factors[0], Const):
        rest = term.factors[1:]
        return term.factors[0].value, rest[0] if len(rest) == 1 else _make(Mul, rest)
    return 1, term


def terms_of(e: Expr) -> tuple[Expr, ...]:
    """What e is the sum of."""
    return e.terms if isinstance(e, Add) else (e,)


def _factors_of(e: Expr | None) -> tuple[Expr, ...]:
    """What e is the product of; None is the empty product."""
    if e is None:
        return ()
    return e.factors if isinstance(e, Mul) else (e,)


def _from_linear(coefficients: Mapping[Expr | None, int]) -> Expr:
    """The sum of coefficient * rest, in canonical order."""
    terms: list[Expr] = []
    constant = coefficients.get(None, 0)
    for rest, c in coefficients.items():
        if rest is None or c == 0:
            continue
        if c == 1:
            terms.append(rest)
        else:
            factors = _factors_of(rest)
            terms.append(_make(Mul, (const(c), *factors)))
    terms.sort(key=_order)
    if constant or not terms:
        terms.append(const(constant))
    return terms[0] if len(terms) == 1 else _make(Add, tuple(terms))


def add(*args: ExprLike) -> Expr:
    """The sum, like terms collected; k*(a // b)*b + k*(a % b) becomes k*a."""
    coefficients: dict[Expr | None, int] = {}
    for arg in args:
        for term in terms_of(as_expr(arg)):
            c, rest = _split_coefficient(term)
            coefficients[rest] = coefficients.get(rest, 0) + c
    coefficients = {r: c for r, c in coefficients.items() if c}
    joined = _join_divmod(coefficients)
    return _from_linear(coefficients) if joined is None else joined


def _join_divmod(coefficients: dict[Expr | None, int]) -> Expr | None:
    """k*b*(a//b) + k*(a%b) = k*a. None where no such pair of terms stands in the sum."""
    for rest, c in coefficients.items():
        factors = _factors_of(rest)
        for factor in factors:
            if not isinstance(factor, (FloorDiv, Mod)):
                continue
            others = [f for f in factors if f is not factor]
            if len(others) != len(factors) - 1:
                continue
            partners = _scale_and_partner(mul(c, *others), factor)
            if partners is None:
                continue
            scale, other = partners
            partner_c, partner = _split_coefficient(other)
            if partner is not None and coefficients.get(partner) == partner_c:
                remaining = {r: k for r, k in coefficients.items() if r is not rest and r is not partner}
                return add(_from_linear(remaining), mul(scale, factor.a))
    return None


def _scale_and_partner(coefficient: Expr, factor: FloorDiv | Mod) -> tuple[Expr, Expr] | None:
    """For coefficient * factor, a term of a sum: k, and the other term of k*b*(a//b) + k*(a%b). None for no k."""
    if isinstance(factor, Mod):
        return coefficient, mul(coefficient, factor.b, floordiv(factor.a, factor.b))
    scale = divide_exactly(coefficient, factor.b)
    # the remainder need not look like one of a: (i % 12) % 3 is i % 3
    return None if scale is None else (scale, mul(scale, mod(factor.a, factor.b)))


def mul(*args: ExprLike) -> Expr:
    """The product, distributed over sums."""
    constant = 1
    factors: list[Expr] = []
    for index, arg in enumerate(args):
        e = as_expr(arg)
        if isinstance(e, Const):
            constant *= e.value
        elif isinstance(e, Mul):
            for f in e.factors:
                if isinstance(f, Const):
                    constant *= f.value
                else:
                    factors.append(f)
        elif isinstance(e, Add):
            others = mul(constant, *factors, *args[index + 1 :])
            return add(*(mul(t, others) for t in e.terms))
        else:
            factors.append(e)
    if constant == 0 or not factors:
        return const(constant)
    factors.sort(key=_order)
    if constant == 1 and len(factors) == 1:
        return factors[0]
    return _make(Mul, ((const(constant),) if constant != 1 else ()) + tuple(factors))


def divide_exactly(term: Expr, divisor: Expr) -> Expr | None:
    """term / divisor if it is exact by form, else None."""
    c, rest = _split_coefficient(term)
    dc, drest = _split_coefficient(divisor)
    if c % dc:
        return None
    factors = list(_factors_of(rest))
    for d in _factors_of(drest):
        if d not in factors:
            return None
        factors.remove(d)
    return mul(c // dc, *factors)


def _partition(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a = quotient * b + rest, where quotient gathers the terms that b divides by form."""
    quotient: list[Expr] = []
    rest: list[Expr] = []
    for term in terms_of(a):
        if isinstance(term, Const) and isinstance(b, Const):
            quotient.append(const(term.value // b.value))
            rest.append(const(term.value % b.value))
            continue
        q = None if isinstance(b, Add) else divide_exactly(term, b)
        (rest if q is None else quotient).append(term if q is None else q)
    if isinstance(b, Add) and a is b:
        return const(1), const(0)
    return add(*quotient), add(*rest)


def floordiv(a: ExprLike, b: ExprLike) -> Expr:
    """a // b, b >= 1, simplified by divisibility and by the bounds of a's symbols."""
    a, b = as_expr(a), as_expr(b)
    if isinstance(b, Const):
        if b.value < 1:
            raise ValueError(f"division of {a} by {b.value}: divisors in shape expressions are positive")
        if b.value == 1:
            return a
        if isinstance(a, Const):
            return const(a.value // b.value)
    quotient, rest = _partition(a, b)
    if rest is const(0) or known_in_range(rest, b):
        return quotient
    if quotient is not const(0):
        return quotient + floordiv(rest, b)
    if isinstance(rest, FloorDiv):
        return floordiv(rest.a, rest.b * b)
    common = _common_factor(rest, b)
    if common > 1 and isinstance(b, Const):
        return floordiv(_scale_down(rest, common), const(b.value // common))
    return _make(FloorDiv, rest, b)


def mod(a: ExprLike, b: ExprLike) -> Expr:
    """a % b, b >= 1, simplified by divisibility and by the bounds of a's symbols."""
    a, b = as_expr(a), as_expr(b)
    if isinstance(b, Const):
        if b.value < 1:
            raise ValueError(f"remainder of {a} by {b.value}: divisors in shape expressions are positive")
        if b.value == 1:
            return const(0)
        if isinstance(a, Const):
            return const(a.value % b.value)
    _, rest = _partition(a, b)
    if rest is const(0) or known_in_range(rest, b):
        return rest
    if isinstance(rest, Mod) and divide_exactly(rest.b, b) is not None:
        return mod(rest.a, b)
    common = _common_factor(rest, b)
    if common > 1 and isinstance(b, Const):
        return mul(common, mod(_scale_down(rest, common), const(b.value // common)))
    return _make(Mod, rest, b)


def _common_factor(a: Expr, b: Expr) -> int:
    """The greatest constant that divides every coefficient of a, and b when b is a constant."""
    common = b.value if isinstance(b, Const) else 1
    for term in terms_of(a):
        common = gcd(common, _split_coefficient(term)[0])
    return common


def _scale_down(a: Expr, factor: int) -> Expr:
    scaled = [divide_exactly(t, const(factor)) for t in terms_of(a)]
    return add(*(t for t in scaled if t is not None))


def minimum(*args: ExprLike) -> Expr:
    """The smallest argument."""
    return _extreme(Min, [as_expr(a) for a in args])


def maximum(*args: ExprLike) -> Expr:
    """The largest argument."""
    return _extreme(Max, [as_expr(a) for a in args])


def _extreme(kind: type[Expr], args: Iterable[Expr]) -> Expr:
    flat: list[Expr] = []
    for a in args:
        flat.extend(a.args if isinstance(a, kind) else (a,))  # type: ignore[attr-defined]
    kept: list[Expr] = []
    sign = 1 if kind is Max else -1
    for a in dict.fromkeys(flat):
        # drop what another argument is known to reach or pass
        if any(_never_less(sign, k, a) for k in kept):
            continue
        kept = [k for k in kept if not _never_less(sign, a, k)]
        kept.append(a)
    kept.sort(key=_order)
    return kept[0] if len(kept) == 1 else _make(kind, tuple(kept))


def _never_less(sign: int, a: Expr, b: Expr) -> bool:
    """True if sign * (a - b) >= 0 is known."""
    lo, hi = bounds(a - b)
    return (lo is not None and lo >= 0) if sign > 0 else (hi is not None and hi <= 0)


@cache
def bounds(e: Expr) -> Interval:
    """Known inclusive bounds of e from its symbols' bounds; None where there is none."""
    if isinstance(e, Const):
        return e.value, e.value
    if isinstance(e, Sym):
        return e.lo, e.hi
    return _BOUNDS[type(e)](*(bounds(c) for c in children(e)))


_BOUNDS: dict[type[Expr], Callable[..., Interval]] = {
    Add: intervals.add,
    Mul: intervals.mul,
    FloorDiv: intervals.floordiv,
    Mod: intervals.mod,
    Min: intervals.minimum,
    Max: intervals.maximum,
}


def largest(e: Expr, digits: bool) -> Expr | None:
    """An upper bound of e as a polynomial, by putting extent - 1 for each axis and, for `digits`, b - 1 for a % b, and
    for a // b with a size b what a is at most, over b; None where some sign is unknown."""
    terms: list[Expr] = []
    for term in terms_of(e):
        c, rest = _split_coefficient(term)
        if rest is None:
            terms.append(term)
            continue
        factors = _factors_of(rest)
        if not any(_varies(f, digits) or (c > 0 and digits and _by_size(f)) for f in factors):
            terms.append(term)
            continue
        if c < 0:
            if any((bounds(f)[0] or -1) < 0 and bounds(f)[0] != 0 for f in factors):
                return None
            terms.append(mul(c, *(_least_factor(f, digits) for f in factors)))
            continue
        tops: list[Expr] = []
        for f in factors:
            lo = bounds(f)[0]
            if lo is None or lo < 0:
                return None
            if isinstance(f, Sym) and f.extent is not None:
                tops.append(f.extent - 1)
            elif isinstance(f, Mod) and digits:
                tops.append(f.b - 1)
            elif _by_size(f) and digits:
                top = largest(f.a, digits)
                tops.append(f if top is None else floordiv(top, f.b))
            else:
                tops.append(f)
        terms.append(mul(c, *tops))
    return add(*terms)


def _least_factor(f: Expr, digits: bool) -> Expr:
    """What a factor is at least: axes and digits by their bounds, anything else exactly."""
    return const(bounds(f)[0] or 0) if _varies(f, digits) else f


def _by_size(f: Expr) -> TypeGuard[FloorDiv]:
    """True of a quotient by what is no number: of those by numbers never_negative knows more."""
    return isinstance(f, FloorDiv) and not isinstance(f.b, Const)


def _varies(f: Expr, digits: bool) -> bool:
    return (isinstance(f, Sym) and f.extent is not None) or (isinstance(f, Mod) and digits)


@cache
def known_in_range(e: Expr, end: Expr) -> bool:
    """True if 0 <= e < end is known from bounds and extents."""
    if not never_negative(e):
        return False
    hi = bounds(e)[1]
    end_lo = bounds(end)[0]
    if hi is not None and end_lo is not None and hi < end_lo:
        return True
    # an extent may have a remainder of its own, which another term takes off again, or which has a bound in turn
    by_axes = largest(e, digits=False)
    tops = (by_axes, largest(e, digits=True), None if by_axes is None else largest(by_axes, digits=True))
    return any(top is not None and never_negative(end - 1 - top) for top in tops)


_SUBSTITUTIONS = 256
"""Of one question: more are no proof in reasonable time, for each minimum of a sum doubles them."""


def never_negative(e: Expr) -> bool:
    """True if e >= 0 is known from bounds, whichever argument of a maximum that it subtracts is the largest. With a
    quotient of a and b in place of c*(a // b): what is above -1 is not below 0, and a // b is at most a / b, at least
    (a - b + 1) / b. A minimum is at most each of its arguments, a % b at most b - 1, and a where that is not
    negative, an axis at most its extent - 1. False, too, where this takes more than _SUBSTITUTIONS.
    """
    return _never_negative(e, [_SUBSTITUTIONS])


def _never_negative(e: Expr, left: list[int]) -> bool:
    """left: how many substitutions may still be made."""
    lo = bounds(e)[0]
    if lo is not None and lo >= 0:
        return True
    left[0] -= 1
    if left[0] < 0:
        return False
    for term in terms_of(e):
        c, rest = _split_coefficient(term)
        if c < 0 and isinstance(rest, Max):
            return all(_never_negative(e - term + a * c, left) for a in rest.args)
        if c < 0 and isinstance(rest, FloorDiv) and isinstance(rest.b, Const):
            return _never_negative((e - term) * rest.b + rest.a * c + (rest.b - 1), left)
    for term in terms_of(e):
        c, rest = _split_coefficient(term)
        if c < 0 and isinstance(rest, Min):
            return any(_never_negative(e - term + a * c, left) for a in rest.args)
        if c < 0 and isinstance(rest, Mod):
            tops = [rest.b - 1, *([rest.a] if _never_negative(rest.a, left) else [])]
            return any(_never_negative(e - term + top * c, left) for top in tops)
    if (least := _without_axes(e)) is not e and _never_negative(least, left):
        return True
    for term in terms_of(e):
        c, rest = _split_coefficient(term)
        if c > 0 and isinstance(rest, FloorDiv) and isinstance(rest.b, Const):
            return _never_negative((e - term) * rest.b + (rest.a - rest.b + 1) * c + (rest.b - 1), left)
    return False


def _without_axes(e: Expr) -> Expr:
    """At most e: with the last place of each axis that e subtracts."""
    for term in terms_of(e):
        c, rest = _split_coefficient(term)
        if c < 0 and isinstance(rest, Sym) and rest.extent is not None:
            e = e - term + (rest.extent - 1) * c
    return e


def product(values: Iterable[ExprLike]) -> Expr:
    """The product of the values; 1 when there is none."""
    return mul(1, *values)


def int_value(e: ExprLike) -> int | None:
    """The value if e is a constant, else None."""
    e = as_expr(e)
    return e.value if isinstance(e, Const) else None


def to_text(e: ExprLike) -> str:
    """Infix text, as in dumps: `s0*64 + j`, `min(a, b)`, `(a + 1)//2`."""
    return _text(as_expr(e))


@cache
def _text(e: Expr) -> str:
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Sym):
        return e.name
    if isinstance(e, Add):
        out = _text(e.terms[0])
        for t in e.terms[1:]:
            s = _text(t)
            out += f" - {s[1:]}" if s.startswith("-") else f" + {s}"
        return out
    if isinstance(e, Mul):
        return "*".join(_atom(f) for f in e.factors)
    if isinstance(e, FloorDiv):
        return f"{_atom(e.a)}//{_atom(e.b)}"
    if isinstance(e, Mod):
        return f"{_atom(e.a)}%{_atom(e.b)}"
    assert isinstance(e, (Min, Max))
    name = "min" if isinstance(e, Min) else "max"
    return f"{name}({', '.join(_text(a) for a in e.args)})"


def _atom(e: Expr) -> str:
    return _text(e) if isinstance(e, (Const, Sym, Min, Max)) else f"({_text(e)})"


ZERO, ONE = const(0), const(1)
