"""Special functions that are made of the scalar op table: digamma and its derivatives, and Hurwitz' zeta function."""

from __future__ import annotations

import math
from collections.abc import Callable

from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg
from hardtack.exporter.convert.real import Real, in_float
from hardtack.exporter.convert.table import Value, converts

_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2k) / 2k, for the powers of 1 / x^2, from 10 on."""
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B(2k)."""
_BERNOULLI = (*_TRIGAMMA, 43867 / 798, -174611 / 330)
"""B(2k), for Euler and Maclaurin's formula."""
_STEPS = 10


def _moved_up(y: Real, term: Callable[[Real], Real]) -> tuple[Real, Real]:
    """(y plus whole numbers until it is 10 or more, the sum of term over what was below)."""
    total = y.constant(0.0)
    for _ in range(_STEPS):
        below = y < float(_STEPS)
        total = below.where(total + term(y), total)
        y = below.where(y + 1.0, y)
    return y, total


def _digamma(x: Real) -> Real:
    """By reflection below 0, then ln y - 1 / 2y - ... far from 0. NaN at its poles, but at 0 infinite, as in torch."""
    negative = x < 0.0
    y, low = _moved_up(negative.where(1.0 - x, x), lambda v: v.apply("reciprocal"))
    far = (y * y).apply("reciprocal").polynomial((0.0, *_DIGAMMA))
    found = y.apply("log") - 0.5 / y - (far + low)
    rest = x - x.apply("round")
    turned = rest.equals(0.0).where(math.nan, found - math.pi / (rest * math.pi).apply("tan"))
    pole = x.constant(math.inf).apply("copysign", -x)
    return x.equals(0.0).where(pole, negative.where(turned, found))


def _trigamma(x: Real) -> Real:
    """By reflection below 1/2, then 1 / y + 1 / 2y^2 + ... far from 0. Infinite at its poles."""
    low = x < 0.5
    y, near = _moved_up(low.where(1.0 - x, x), lambda v: (v * v).apply("reciprocal"))
    one = y.apply("reciprocal")
    found = near + one * ((one * one).polynomial((0.0, *_TRIGAMMA)) + one * 0.5 + 1.0)
    sine = ((x - x.apply("round")) * math.pi).apply("sin")
    return low.where(math.pi**2 / (sine * sine) - found, found)


def _positive_zeta(x: Real, q: Real) -> Real:
    """The sum of (q + k)^-x, k from 0 on, for x > 1 and q > 0: ten terms, then Euler and Maclaurin's formula."""
    power = -x
    total = q.apply("pow", power)
    for k in range(1, _STEPS):
        total = total + (q + float(k)).apply("pow", power)
    a = q + float(_STEPS)
    last = a.apply("pow", power)
    total = total + last * a / (x - 1.0) + last * 0.5
    term, inverse = last * x / a, (a * a).apply("reciprocal")
    for k, number in enumerate(_BERNOULLI):
        total = total + term * (number / math.factorial(2 * k + 2))
        term = term * (x + float(2 * k + 1)) * (x + float(2 * k + 2)) * inverse
    return total


def _zeta(x: Real, q: Real) -> Real:
    """Below 0, with q = f - m, 0 < f < 1, the m terms of negative numbers are those of numbers j - f, j from 1 to m,
    with a sign where x is odd: what is between two sums of positive numbers. Only whole x have powers of them."""
    negative, distance = q < 0.0, q - q.apply("round")  # exact, of which 1 - f must not lose anything beside 0
    above = distance >= 0.0
    fraction, missing = above.where(distance, distance + 1.0), above.where(1.0 - distance, -distance)
    first = _positive_zeta(x, negative.where(fraction, q))
    between = _positive_zeta(x, missing) - _positive_zeta(x, negative.where(1.0 - q, missing))
    odd = (x * 0.5).apply("floor") * 2.0
    found = negative.where(first + odd.equals(x).where(between, -between), first)
    whole, pole = x.equals(x.apply("floor")), (q <= 0.0) & q.equals(q.apply("floor"))
    found = (whole | (q > 0.0)).where(found, math.nan)
    found = pole.where(math.inf, found)
    found = (x > 1.0).where(found, x.equals(1.0).where(math.inf, x.constant(math.nan)))
    return q.differs(q).where(q, found)


@converts("aten.digamma.default", "aten.special_digamma.default")
def _convert_digamma(b: Builder, x: Arg) -> Value:
    return in_float(b, _digamma, x)


@converts("aten.polygamma.default", "aten.special_polygamma.default")
def _convert_polygamma(b: Builder, order: int, x: Arg) -> Value:
    if order < 2:
        return in_float(b, _trigamma if order else _digamma, x)
    factor = float(math.factorial(order)) if order < 171 else math.inf
    signed = factor if order % 2 else -factor
    return in_float(b, lambda q: _zeta(q.constant(order + 1.0), q) * signed, x, within=DType.F64)


@converts("aten.special_zeta.default", "aten.special_zeta.other_scalar", "aten.special_zeta.self_scalar")
def _convert_zeta(b: Builder, x: Arg, q: Arg) -> Value:
    return in_float(b, _zeta, x, q, within=DType.F64)
