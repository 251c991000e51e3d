"""Special functions that are made of the scalar op table: the modified Bessel functions, digamma and trigamma.

Half types are computed in f32 and rounded once, as in eager. The tables are Chebyshev coefficients of the functions
themselves; tests/export/test_special.py works them out again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg, promoted
from hardtack.exporter.convert.table import Value, converts
from hardtack.exporter.errors import Refusal

_I0_SMALL = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I0_LARGE = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
    9.921475412173699e-19,
    1.193650890845982e-18,
)
_I1_SMALL = (
    0.12629359322181682,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
    2.7779141127610464e-18,
)
_I1_LARGE = (
    0.38928811750914005,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
    -9.314178867326884e-19,
    -1.242193275194891e-18,
)
"""exp(-x) I(x), of order 1 divided by x, for x from 0 to 8, in x / 4 - 1: `_SMALL`. sqrt(x) exp(-x) I(x) from 8 on, in
16 / x - 1: `_LARGE`. The first is halved, as the series needs it."""

_TERMS: dict[DType, float] = {DType.F32: 1e-11, DType.F64: 0.0}
"""Coefficients below are no matter to a type: of f32, with more of them i0(0) is not 1."""

_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2k) / 2k, for the powers of 1 / x^2, from 10 on."""
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B(2k)."""
_STEPS = 10


def _in_float(b: Builder, x: Arg, function: Callable[[Value], Value]) -> Value:
    """function(x) in f32 or f64, as the type that torch gives."""
    _, result = promoted(x, kind=KIND.INT_TO_FLOAT)
    return b.to(function(b.wide(b.tensor(b.cast(x, result)))), result)


def _series(b: Builder, coefficients: Sequence[float], u: Value) -> Value:
    """The sum of coefficients times Chebyshev polynomials of u, between -1 and 1, by Clenshaw's recurrence."""
    last = max(i for i, c in enumerate(coefficients) if abs(c) > _TERMS[u.dtype])
    twice = b.pw("mul", u, 2.0)
    one = two = b.full(u.shape, 0.0, u.dtype)
    for c in coefficients[last:0:-1]:
        one, two = b.pw("add", b.pw("sub", b.pw("mul", twice, one), two), c), one
    return b.pw("add", b.pw("sub", b.pw("mul", u, one), two), coefficients[0])


def _bessel(b: Builder, x: Value, order: int, scaled: bool) -> Value:
    """The modified Bessel function of the first kind; `scaled`: times exp(-|x|)."""
    small, large = ((_I0_SMALL, _I0_LARGE), (_I1_SMALL, _I1_LARGE))[order]
    size = b.pw("abs", x)
    near = _series(b, small, b.pw("sub", b.pw("mul", b.pw("min", size, 8.0), 0.25), 1.0))
    far = _series(b, large, b.pw("sub", b.pw("div", 16.0, b.pw("max", size, 8.0), dtype=x.dtype), 1.0))
    if not scaled:
        power = b.pw("exp", size)
        near, far = b.pw("mul", power, near), b.pw("mul", power, far)
    if order == 1:
        near = b.pw("mul", size, near)
    found = b.where(b.pw("le", size, 8.0), near, b.pw("div", far, b.pw("sqrt", size)), x.dtype)
    return found if order == 0 else b.where(b.pw("lt", x, 0.0), b.pw("neg", found), found, x.dtype)


@converts("aten.i0.default")
def _i0(b: Builder, x: Arg) -> Value:
    return _in_float(b, x, lambda v: _bessel(b, v, 0, False))


@converts("aten.special_i0e.default")
def _i0e(b: Builder, x: Arg) -> Value:
    return _in_float(b, x, lambda v: _bessel(b, v, 0, True))


@converts("aten.special_i1.default")
def _i1(b: Builder, x: Arg) -> Value:
    return _in_float(b, x, lambda v: _bessel(b, v, 1, False))


@converts("aten.special_i1e.default")
def _i1e(b: Builder, x: Arg) -> Value:
    return _in_float(b, x, lambda v: _bessel(b, v, 1, True))


def _moved_up(b: Builder, y: Value, term: Callable[[Value], Value]) -> tuple[Value, Value]:
    """(y plus whole numbers until it is 10 or more, the sum of term over what was below)."""
    total = b.full(y.shape, 0.0, y.dtype)
    for _ in range(_STEPS):
        below = b.pw("lt", y, float(_STEPS))
        total = b.where(below, b.pw("add", total, term(y)), total, y.dtype)
        y = b.where(below, b.pw("add", y, 1.0), y, y.dtype)
    return y, total


def _power_series(b: Builder, coefficients: Sequence[float], z: Value) -> Value:
    """z times the polynomial of z."""
    total = b.pw("mul", z, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = b.pw("mul", b.pw("add", total, c), z)
    return total


def _digamma(b: Builder, x: Value) -> Value:
    """By reflection below 0, then ln y - 1 / 2y - ... far from 0. NaN at its poles, but at 0 infinite, as in torch."""
    negative = b.pw("lt", x, 0.0)
    y, low = _moved_up(b, b.where(negative, b.pw("sub", 1.0, x), x, x.dtype), lambda v: b.pw("reciprocal", v))
    far = _power_series(b, _DIGAMMA, b.pw("reciprocal", b.pw("mul", y, y)))
    found = b.pw("sub", b.pw("sub", b.pw("log", y), b.pw("div", 0.5, y, dtype=x.dtype)), b.pw("add", far, low))
    rest = b.pw("sub", x, b.pw("round", x))
    turned = b.pw("sub", found, b.pw("div", math.pi, b.pw("tan", b.pw("mul", rest, math.pi)), dtype=x.dtype))
    turned = b.where(b.pw("eq", rest, 0.0), math.nan, turned, x.dtype)
    pole = b.pw("copysign", b.cast(math.inf, x.dtype), b.pw("neg", x))
    return b.where(b.pw("eq", x, 0.0), pole, b.where(negative, turned, found, x.dtype), x.dtype)


def _trigamma(b: Builder, x: Value) -> Value:
    """By reflection below 1/2, then 1 / y + 1 / 2y^2 + ... far from 0. Infinite at its poles."""
    low = b.pw("lt", x, 0.5)
    y, near = _moved_up(
        b, b.where(low, b.pw("sub", 1.0, x), x, x.dtype), lambda v: b.pw("reciprocal", b.pw("mul", v, v))
    )
    one = b.pw("reciprocal", y)
    square = b.pw("mul", one, one)
    far = b.pw("mul", one, b.pw("add", b.pw("add", _power_series(b, _TRIGAMMA, square), b.pw("mul", one, 0.5)), 1.0))
    found = b.pw("add", near, far)
    sine = b.pw("sin", b.pw("mul", b.pw("sub", x, b.pw("round", x)), math.pi))
    turned = b.pw("sub", b.pw("div", math.pi**2, b.pw("mul", sine, sine), dtype=x.dtype), found)
    return b.where(low, turned, found, x.dtype)


@converts("aten.digamma.default", "aten.special_digamma.default")
def _convert_digamma(b: Builder, x: Arg) -> Value:
    return _in_float(b, x, lambda v: _digamma(b, v))


@converts("aten.polygamma.default", "aten.special_polygamma.default")
def _polygamma(b: Builder, order: int, x: Arg) -> Value:
    if order > 1:
        raise Refusal(f"polygamma of order {order}: orders 0 and 1 are supported")
    return _in_float(b, x, lambda v: (_trigamma if order else _digamma)(b, v))
