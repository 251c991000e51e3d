"""torch's size expressions as Exprs: equal for all sizes; conditions as guards; what follows from what."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy import functions as sf

from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Guard
from hardtack.exporter.capture.conditions import without_implied
from hardtack.exporter.errors import Refusal
from hardtack.exporter.sizes.ranges import samples
from hardtack.exporter.sizes.shapes import Sizes, make_guards

S, T = (sympy.Symbol(n, integer=True, positive=True) for n in ("s", "t"))


_largest: Any = sf.Max
_smallest: Any = sf.Min


def sizes() -> Sizes:
    """Both symbols bound."""
    found = Sizes()
    found.bind(S, sym("s", 0, None))
    found.bind(T, sym("t", 0, None))
    return found


def trees() -> st.SearchStrategy[sympy.Basic]:
    """Expressions of the kinds that torch makes of two sizes."""
    leaves = st.one_of(st.sampled_from([S, T]), st.integers(0, 9).map(sympy.Integer))
    divisors = st.integers(1, 7).map(sympy.Integer)

    def larger(children: st.SearchStrategy[sympy.Basic]) -> st.SearchStrategy[sympy.Basic]:
        pairs = st.tuples(children, children)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            pairs.map(lambda p: _largest(*p)),
            pairs.map(lambda p: _smallest(*p)),
            st.tuples(children, divisors).map(lambda p: sf.FloorDiv(*p)),
            st.tuples(children, divisors).map(lambda p: sf.PythonMod(*p)),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(trees(), st.integers(0, 20), st.integers(0, 20))
def test_same_value_as_torch(tree: sympy.Basic, s: int, t: int) -> None:
    # at once: one after the other, sympy would use that the second is positive, which a size of 0 is not
    expected = int(tree.subs({S: s, T: t}, simultaneous=True))
    assert evaluate(sizes().of(tree), {"s": s, "t": t}) == expected


@pytest.mark.parametrize("relation", [sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])
def test_a_negated_comparison_is_the_opposite_one(relation: Any) -> None:
    """torch keeps some as it has noted them, where sympy would turn them around."""
    plain = relation(S, T, evaluate=False)
    (want,), (got,) = sizes().guards(plain.negated), sizes().guards(sympy.Not(plain, evaluate=False))
    assert got == want
    either = sympy.Or(sympy.Not(plain, evaluate=False), sympy.Eq(S, 7), evaluate=False)
    (guard,) = sizes().guards(either)
    for s in range(10):
        for t in range(1, 4):
            values = {"s": s, "t": t}
            holds = not bool(plain.subs({S: s, T: t}, simultaneous=True)) or s == 7
            assert (evaluate(guard.a, values) <= evaluate(guard.b, values)) == holds


@pytest.mark.parametrize("size", range(14))
@pytest.mark.parametrize("divisor", [2, 3])
def test_rounding(size: int, divisor: int) -> None:
    """floor, ceil, trunc and round (ties to even) of a quotient and of a size times a short fraction."""
    quotient, exact = sf.IntTrueDiv(S, sympy.Integer(divisor)), Fraction(size, divisor)
    for kind, want in ((sf.FloorToInt, floor), (sf.CeilToInt, ceil), (sf.TruncToInt, int), (sf.RoundToInt, round)):
        assert evaluate(sizes().of(kind(quotient)), {"s": size}) == want(exact)
    scaled = sf.FloorToInt(sympy.Float(1.5) * sf.ToFloat(S))
    assert evaluate(sizes().of(scaled), {"s": size}) == floor(1.5 * size)


def test_what_is_no_size() -> None:
    with pytest.raises(Refusal, match="no short fraction"):
        sizes().of(sf.RoundToInt(sympy.Float(0.1) * sf.ToFloat(S)))
    with pytest.raises(Refusal, match="depends on values of tensors"):
        sizes().of(sympy.Symbol("u0", integer=True))


def test_guards_are_left_out_when_they_always_hold() -> None:
    n = sym("n", 1, 64)
    assert make_guards("le", const(1), n) == []
    assert make_guards("le", n, const(64)) == []
    assert [g.text for g in make_guards("le", n, const(63))] == ["n <= 63"]
    with pytest.raises(Refusal, match="3 == 4 never holds"):
        make_guards("eq", const(3), const(4))


def test_guards_subtract_no_sizes() -> None:
    n, m = sym("n", 0, 64), sym("m", 0, 64)
    assert [g.text for g in make_guards("lt", const(-12), n * -1)] == ["n < 12"]
    assert [g.text for g in make_guards("le", n * 2 - m + 3, const(0))] == ["2*n + 3 <= m"]
    assert [g.text for g in make_guards("le", const(2), n - 3)] == ["2 <= n - 3"]


def test_guards_that_follow_from_an_equality() -> None:
    n = sym("n", 0, None)
    fixed = Guard("eq", n // 4 - 1, const(79), "")
    implied = Guard("le", (n // 4 + 78) % 79, const(5), "")
    other = Guard("le", n, const(322), "")
    assert without_implied((fixed, implied, other)) == (fixed, other)


def test_samples_stay_in_range() -> None:
    assert samples(3, 6) == [3, 4, 5, 6]
    assert samples(0, None)[:3] == [0, 1, 2]
    assert samples(7, 7) == [7]
