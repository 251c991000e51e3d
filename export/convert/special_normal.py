"""Functions of the normal distribution that lose nothing far out: erfcx, log_ndtr and ndtri."""

from __future__ import annotations

import math

from hardtack.exporter.convert import special_tables as tables
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg
from hardtack.exporter.convert.real import Real, in_float
from hardtack.exporter.convert.table import Value, converts

_NEAR, _FAR, _FARTHEST = 2.0, 8.0, 40.0
"""Of sqrt(-2 log p): from the first on p is exp(-2) or less, and the quantile is a series of its reciprocal."""


def _erfcx(x: Real) -> Real:
    """exp(x^2) erfc(x): a series of 1 - 7.5 / (x + 3.75) from 0 on, and below what is missing of 2 exp(x^2)."""
    size = abs(x)
    found = (1.0 - 7.5 / (size + 3.75)).series(tables.ERFCX) / (size * 2.0 + 1.0)
    return (x < 0.0).where((x * x).apply("exp") * 2.0 - found, found)


def _log_ndtr(x: Real) -> Real:
    """The logarithm of the distribution: by erfcx where it is small."""
    t = x * math.sqrt(0.5)
    low = (_erfcx(-t) * 0.5).apply("log") - t * t
    high = (t.apply("erf") * 0.5 - 0.5).apply("log1p")
    return (x < -1.0).where(low, high)


def _tail(x: Real) -> Real:
    """The quantile of exp(-x^2 / 2), less than 0."""
    one = 1.0 / x

    def within(low: float, high: float) -> Real:
        start, end = 1 / high, 1 / low
        inside = one.apply("max", start).apply("min", end)
        return (inside - start) * (2 / (end - start)) - 1.0

    near = within(_NEAR, _FAR).series(tables.QUANTILE_NEAR)
    far = within(_FAR, _FARTHEST).series(tables.QUANTILE_FAR)
    return x.apply("log") * one - x + (x < _FAR).where(near, far) * one


def _ndtri(p: Real) -> Real:
    """The quantile of p: by erfinv in the middle, where 2 p - 1 has what p has."""
    upper = p > 0.5
    low = upper.where(1.0 - p, p)
    tail = _tail((low.apply("log") * -2.0).apply("sqrt").apply("max", _NEAR))
    tail = upper.where(-tail, tail)
    found = (low > math.exp(-2)).where((p * 2.0 - 1.0).apply("erfinv") * math.sqrt(2), tail)
    found = p.equals(0.0).where(-math.inf, p.equals(1.0).where(math.inf, found))
    return ((p >= 0.0) & (p <= 1.0)).where(found, math.nan)


@converts("aten.special_erfcx.default")
def _convert_erfcx(b: Builder, x: Arg) -> Value:
    return in_float(b, _erfcx, x)


@converts("aten.special_log_ndtr.default")
def _convert_log_ndtr(b: Builder, x: Arg) -> Value:
    return in_float(b, _log_ndtr, x)


@converts("aten.special_ndtri.default")
def _convert_ndtri(b: Builder, x: Arg) -> Value:
    return in_float(b, _ndtri, x)
