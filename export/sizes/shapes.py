"""torch's symbolic sizes as Exprs.

A `Sizes` holds the symbols of one program: which Sym stands for which of torch's symbols, and turns any size that torch
computed into an Expr, any condition on sizes into Guards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

import sympy
import torch
from torch.utils._sympy import functions as sf

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr, Sym, int_value
from hardtack.codegen.ir.graph import Guard
from hardtack.exporter.errors import Refusal, ValueSize
from hardtack.exporter.sizes.factors import MOST, scaling
from hardtack.exporter.sizes.float_folds import MAX_DENOMINATOR, is_short, within
from hardtack.exporter.sizes.text import size_text

_RELATIONS: dict[type, str] = {
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.Le: "le",
    sympy.Lt: "lt",
}
_MIRRORED = {sympy.Ge: sympy.Le, sympy.Gt: sympy.Lt}
_TEXT = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}
_HOLDS: dict[str, Callable[[int, int], bool]] = {"eq": int.__eq__, "ne": int.__ne__, "le": int.__le__, "lt": int.__lt__}
VALUE_SIZE = (
    "a size depends on values of tensors, where only sizes of inputs will do: make it an int input, or keep "
    "the whole length and mask it, as in torch.where(torch.arange(x.shape[0]) < n, ...)"
)
NO_NUMBER = (KeyError, TypeError, ValueError, ArithmeticError, AssertionError)
"""What sympy and torch's functions raise where an expression is no number: for the value of a tensor, a size by which
something is divided that is 0, a power of a negative one.
"""
LARGEST_INT = 2**53
"""The largest value of an int input: floating point has each number up to it."""
_LARGEST_PRODUCT = 2**61
"""Of products with int inputs, which kernels go on with: sums of a few of them fit into 64 bits."""
_LARGEST_NUMEL = 2**42
"""Of one tensor: with 16 bytes each, and room for what is computed beside them, within the file's 2**48 bytes."""

_Fraction = tuple[Expr, Expr, bool]
"""(numerator, denominator, whether floating point has it exactly for all sizes). One that it has not is rounded for
some sizes, but for none for which it is a whole number or a half: so it goes down or up as the fraction does.
"""


class Sizes:
    """The symbols of one program and the conversion of torch's sizes to Exprs; `limits` are conditions under which the
    Exprs that `of` gave are right. `folded`: expressions that are not rounded where the program's numbers are.
    """

    def __init__(self, folded: frozenset[sympy.Basic] = frozenset()) -> None:
        self.symbols: dict[sympy.Symbol, Expr] = {}
        self.found: Mapping[sympy.Symbol, tuple[int, int | None]] = {}
        """torch's symbols for numbers of a run that are sizes of tensors, with their bounds."""
        self.limits: dict[Guard, None] = {}
        self._ints: set[sympy.Symbol] = set()
        self._folded = folded
        self._memo: dict[sympy.Basic, Expr] = {}
        self._tried: dict[sympy.Basic, list[Guard]] = {}

    def known(self, size: torch.SymInt | torch.SymFloat | torch.SymBool) -> bool:
        """True if only sizes of inputs make up the expression; false for one that contains the value of a tensor."""
        return all(s in self.symbols for s in sympy_of(size).free_symbols)

    def bind(self, symbol: sympy.Symbol, value: Expr, *, is_int: bool = False) -> None:
        """From now on `symbol` means `value`. is_int: an input's value and no size, which may be large."""
        self.symbols[symbol] = value
        if is_int:
            self._ints.add(symbol)

    def state(self, size: sympy.Basic, number: int) -> None:
        """From now on `size` means `number`, wherever it stands in other expressions, too."""
        self._memo[size] = ex.const(number)

    def of(self, size: int | torch.SymInt | sympy.Basic) -> Expr:
        """A size as an Expr. Refusal for sizes that depend on tensor values or need floating point."""
        if isinstance(size, torch.SymInt):
            size = sympy_of(size)
        if isinstance(size, int):
            return ex.const(size)
        found = self._of(size)
        self.limits.update(dict.fromkeys(self.limits_of(size)))
        return found

    def limit_to_floats(self, size: sympy.Basic) -> None:
        """Notes the guards that keep a number made of int inputs within 2**53: floating point has each of those."""
        if size.free_symbols & self._ints:
            self.limits.update(dict.fromkeys(_within(self.of(size), LARGEST_INT)))

    def limits_of(self, e: sympy.Basic) -> list[Guard]:
        """The conditions under which the Exprs of e's parts are right."""
        parts = sympy.preorder_traversal(e) if self._tried else ()
        return [g for part in parts for g in self._tried.get(part, ())]

    def _of(self, size: sympy.Basic) -> Expr:
        if size not in self._memo:
            self._memo[size] = made = self._convert(size)
            if isinstance(size, (sympy.Mul, sympy.Pow, sf.PowByNatural)) and size.free_symbols & self._ints:
                self._tried[size] = [*self._tried.get(size, ()), *_within(made, _LARGEST_PRODUCT)]
        return self._memo[size]

    def shape(self, shape: Iterable[int | torch.SymInt]) -> tuple[Expr, ...]:
        """A tensor's shape. Refusal for one whose constant sizes are more than a file can state."""
        shape = tuple(shape)
        if math.prod(s for s in shape if isinstance(s, int) and s) > _LARGEST_NUMEL:
            raise Refusal(f"a tensor of {list(shape)}: its sizes, but for those of 0, must multiply to at most 2**42")
        return tuple(self.of(s) for s in shape)

    def _convert(self, e: sympy.Basic) -> Expr:
        if e.is_Integer:
            return ex.const(int(e))
        if isinstance(e, sympy.Symbol):
            if e not in self.symbols:
                raise ValueSize(VALUE_SIZE)
            return self.symbols[e]
        if isinstance(e, sympy.Add):
            return ex.add(*map(self._of, e.args))
        if isinstance(e, sympy.Mul):
            return self._product(e)
        if isinstance(e, (sympy.Pow, sf.PowByNatural)) and e.args[1].is_Integer and int(e.args[1]) >= 0:
            return ex.mul(*([self._of(e.args[0])] * int(e.args[1])))
        if isinstance(e, (sf.FloorDiv, sf.CleanDiv)):
            return self._divide(e.args[0], e.args[1])
        if isinstance(e, (sf.Mod, sf.PythonMod, sympy.Mod)):
            return ex.mod(self._of(e.args[0]), self._divisor(e.args[1]))
        if isinstance(e, (sf.Max, sympy.Max)):
            return ex.maximum(*map(self._of, e.args))
        if isinstance(e, (sf.Min, sympy.Min)):
            return ex.minimum(*map(self._of, e.args))
        if isinstance(e, (sf.FloorToInt, sf.TruncToInt, sf.CeilToInt, sf.RoundToInt)):
            return self._rounded(e)
        raise Refusal(f"the size {e} cannot be written with whole numbers ({type(e).__name__})")

    def _product(self, e: sympy.Basic) -> Expr:
        """A product; torch's rational factors are divisions that it knows to be exact."""
        numerator, denominator = e.as_numer_denom()
        if denominator == 1:
            return ex.mul(*map(self._of, e.args))
        return self._divide(numerator, denominator)

    def _divisor(self, e: sympy.Basic) -> Expr:
        """A divisor: positive by the symbols' bounds, or made so (a size of 0 divides nothing)."""
        d = self._of(e)
        lo = ex.bounds(d)[0]
        return d if lo is not None and lo >= 1 else ex.maximum(d, 1)

    def _divide(self, a: sympy.Basic, b: sympy.Basic) -> Expr:
        if b.is_Integer and int(b) < 0:
            return ex.floordiv(-self._of(a), -int(b))
        return ex.floordiv(self._of(a), self._divisor(b))

    def _rounded(self, e: sympy.Basic) -> Expr:
        """floor, trunc, ceil or round of a size times a float, or of a fraction as floating point has it."""
        if within(e.args[0], self._folded):
            raise self._rounded_often(e)
        scaled = self._scaled(e)
        if scaled is not None:
            return scaled
        top, bottom, _ = self._fraction(e.args[0])
        if isinstance(e, sf.CeilToInt):
            return ex.floordiv(top + bottom - 1, bottom)
        if isinstance(e, sf.RoundToInt):
            return _nearest(top, bottom)
        lo = ex.bounds(top)[0]
        if isinstance(e, sf.TruncToInt) and (lo is None or lo < 0):
            raise Refusal(f"the size {e} may be negative")
        return ex.floordiv(top, bottom)

    def _scaled(self, e: sympy.Basic) -> Expr | None:
        """floor, trunc or ceil of a size times a float that is no short fraction: a guard then limits the size to those
        that have been tried. None for anything else.
        """
        product = e.args[0]
        if not isinstance(product, sympy.Mul) or len(product.args) != 2 or isinstance(e, sf.RoundToInt):
            return None
        factor, size = product.args
        if isinstance(size, sf.ToFloat):
            size = size.args[0]
        if not factor.is_Float or is_short(factor) or not size.is_integer:
            return None
        n = self._of(size)
        lo, hi = ex.bounds(n)
        if lo is None or lo < 0:
            raise Refusal(f"the size {e} may be negative")
        found = scaling(float(factor), isinstance(e, sf.CeilToInt), min(hi or MOST, MOST))
        if found is None:
            return None
        self._tried[e] = make_guards("le", n, ex.const(MOST))
        return found.of(n)

    def _fraction(self, e: sympy.Basic) -> _Fraction:
        """e, a real number. Refusal where floating point may give another whole number than the fraction is."""
        if isinstance(e, (sf.IntTrueDiv, sf.FloatTrueDiv)):
            return self._quotient(self._fraction(e.args[0]), self._fraction(e.args[1]), e)
        if isinstance(e, sf.ToFloat):
            return self._fraction(e.args[0])
        if e.is_Float or e.is_Rational:
            value = Fraction(float(e)) if e.is_Float else Fraction(int(e.p), int(e.q))
            if value.denominator > MAX_DENOMINATOR:
                raise Refusal(f"the size factor {e} is no short fraction: give sizes instead of a scale factor")
            return ex.const(value.numerator), ex.const(value.denominator), _is_power(value.denominator)
        if isinstance(e, (sympy.Mul, sympy.Add)):
            combine = self._times if isinstance(e, sympy.Mul) else self._plus
            return functools.reduce(lambda x, y: combine(x, y, e), map(self._fraction, e.args))
        return self._of(e), ex.const(1), True

    def _quotient(self, x: _Fraction, y: _Fraction, e: sympy.Basic) -> _Fraction:
        (a, b, _), (c, d, exact) = x, y
        if not exact:
            raise self._rounded_often(e)
        divisor = int_value(b * c)
        return a * d, b * c, x[2] and divisor is not None and _is_power(abs(divisor))

    def _times(self, x: _Fraction, y: _Fraction, e: sympy.Basic) -> _Fraction:
        """A rounded number times m / 2^k: no whole number of it is missed where m has no factor of the divisor."""
        (a, b, _), (c, d, exact) = (x, y) if y[2] else (y, x)
        bottom, factor = int_value(b), int_value(c)
        whole = bottom is not None and factor is not None and math.gcd(factor, _odd(bottom)) == 1
        if not exact or not ((x[2] and y[2]) or whole):
            raise self._rounded_often(e)
        return a * c, b * d, x[2] and y[2]

    def _plus(self, x: _Fraction, y: _Fraction, e: sympy.Basic) -> _Fraction:
        (a, b, _), (c, d, _) = x, y
        if not (x[2] or y[2]):
            raise self._rounded_often(e)
        return a * d + c * b, b * d, x[2] and y[2]

    def _rounded_often(self, e: sympy.Basic) -> Refusal:
        return Refusal(
            f"the size {size_text(e, self.symbols)} is rounded more than once in floating point, and which of the "
            "results would be right is not known: compute it in whole numbers, as in n * 7 // 100, or with one factor"
        )

    def guards(self, condition: sympy.Basic | torch.SymBool) -> list[Guard]:
        """A condition on sizes as Guards that all must hold; [] for one that always does. Refusal if it has no such
        form.
        """
        if isinstance(condition, torch.SymBool):
            condition = condition.node.expr
        condition = _plain(condition)
        if condition in (True, sympy.true):
            return []
        if isinstance(condition, sympy.And):
            return [g for part in condition.args for g in self.guards(part)]
        if isinstance(condition, (sympy.Not, sympy.Or)):
            return make_guards("le", self._excess(condition), ex.const(0))
        sides = self._comparison(condition)
        text = size_text(condition, self.symbols) if within(condition, self._tried.keys()) else ""
        return make_guards(*sides, text)

    def _comparison(self, condition: sympy.Basic) -> tuple[str, Expr, Expr]:
        """(relation, left side, right side)."""
        kind = type(condition)
        if kind in (sympy.Ge, sympy.Gt):
            return _RELATIONS[_MIRRORED[kind]], self._of(condition.args[1]), self._of(condition.args[0])
        if kind not in _RELATIONS:
            raise _no_comparison(condition)
        return _RELATIONS[kind], self._of(condition.args[0]), self._of(condition.args[1])

    def _excess(self, condition: sympy.Basic) -> Expr:
        """A number that is at most 0 exactly where the condition holds."""
        condition = _plain(condition)
        if isinstance(condition, sympy.Not):
            (inner,) = condition.args
            if not isinstance(inner, (sympy.And, sympy.Or)):
                raise _no_comparison(condition)
            dual = ex.maximum if isinstance(inner, sympy.Or) else ex.minimum
            return dual(*(self._excess(sympy.Not(part)) for part in inner.args))
        if isinstance(condition, (sympy.And, sympy.Or)):
            extreme = ex.maximum if isinstance(condition, sympy.And) else ex.minimum
            return extreme(*map(self._excess, condition.args))
        relation, a, b = self._comparison(condition)
        if relation in ("le", "lt"):
            return a - b + (relation == "lt")
        apart = ex.maximum(a - b, b - a)
        return apart if relation == "eq" else 1 - apart


def _within(value: Expr, most: int) -> list[Guard]:
    """That a number's size is `most` at most; [] where its bounds say so. The runtime computes guards with checks, so
    that one whose own value does not fit into 64 bits refuses the call, too.
    """
    lo, hi = ex.bounds(value)
    found = []
    if hi is None or hi > most:
        found.append(Guard("le", value, ex.const(most), f"{ex.to_text(value)} <= {most}"))
    if lo is None or lo < -most:
        found.append(Guard("le", ex.const(-most), value, f"{-most} <= {ex.to_text(value)}"))
    return found


def _plain(condition: sympy.Basic) -> sympy.Basic:
    """A comparison for one that is negated: torch keeps some as it has noted them."""
    negated = isinstance(condition, sympy.Not) and condition.args[0].is_Relational
    return condition.args[0].negated if negated else condition


def _is_power(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _odd(n: int) -> int:
    """n without its factors of 2."""
    return n // (n & -n) if n else 0


def _no_comparison(condition: sympy.Basic) -> Refusal:
    return Refusal(f"the condition {condition} on sizes is not a comparison")


def _nearest(top: Expr, bottom: Expr) -> Expr:
    """top / bottom rounded to the nearest whole number, to the even one of two: half up, less 1 where that is a tie and
    odd.
    """
    twice, rest = 2 * top + bottom, ex.mod(2 * top + bottom, 2 * bottom)
    up = ex.floordiv(twice, 2 * bottom)
    return up - (1 - ex.minimum(rest, 1)) * ex.mod(up, 2)


def make_guards(relation: str, a: Expr, b: Expr, text: str = "") -> list[Guard]:
    """[Guard], or [] for a condition that always holds by form or by bounds. Refusal for one that never does. text: how
    to say it, by default as the Exprs are, with nothing subtracted: n < 12 for -12 < -n.
    """
    a, b = _without_differences(a, b)
    lo, hi = ex.bounds(a - b)
    if (relation == "eq" and a is b) or (relation == "ne" and (lo or 0) > 0):
        return []
    if (relation == "le" and hi is not None and hi <= 0) or (relation == "lt" and hi is not None and hi < 0):
        return []
    x, y = ex.int_value(a), ex.int_value(b)
    if x is not None and y is not None:
        if not _HOLDS[relation](x, y):
            raise Refusal(f"{x} {_TEXT[relation]} {y} never holds")
        return []
    return [Guard(relation, a, b, text or f"{ex.to_text(a)} {_TEXT[relation]} {ex.to_text(b)}")]


def _without_differences(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both sides with the sizes that are subtracted from one added to the other, so that each grows with its sizes."""
    moved = [
        t for t in (*ex.terms_of(a), *ex.terms_of(b)) if isinstance(t, ex.Mul) and (ex.int_value(t.factors[0]) or 0) < 0
    ]
    for term in moved:
        a, b = a - term, b - term
    offset = sum(ex.int_value(t) or 0 for t in ex.terms_of(a))
    if moved and ex.int_value(b) is not None and offset:
        a, b = a - offset, b - offset
    return a, b


def sympy_of(size: torch.SymInt | torch.SymFloat | torch.SymBool) -> sympy.Basic:
    """torch's expression, with what the tracer has learned about symbols put in."""
    expression: sympy.Basic = size.node.expr
    return expression


def new_symbol(name: str, lo: int, hi: int | None) -> Sym:
    """A Sym for an input dimension."""
    return ex.sym(name, lo, hi)
