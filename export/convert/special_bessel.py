"""Bessel functions of orders 0 and 1, ordinary and modified, the spherical one of order 0, and Airy's Ai.

Near 0 a Chebyshev series takes the square of x, beside the logarithm or the pole that a function has there; far from it
another takes 1 / x, beside the function's root, exponential or phase. The phases' sines are made of those of x itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hardtack.exporter.convert import special_tables as tables
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg
from hardtack.exporter.convert.real import Real, in_float
from hardtack.exporter.convert.table import Value, converts

_I = ((tables.I0_SMALL, tables.I0_LARGE), (tables.I1_SMALL, tables.I1_LARGE))
_J = (tables.J0_SMALL, tables.J1_SMALL)
_Y = (tables.Y0_SMALL, tables.Y1_SMALL)
_H = ((tables.H0_REAL, tables.H0_IMAGINARY), (tables.H1_REAL, tables.H1_IMAGINARY))
_K = ((tables.K0_SMALL, tables.K0_LARGE), (tables.K1_SMALL, tables.K1_LARGE))
_ZEROS = (
    ((5.783185958862305, 4.084479833675995e-09), (30.471261978149414, 3.655126723365782e-07)),
    ((14.681970596313477, 4.581041669471978e-08), (49.21845626831055, 5.3384056795267086e-08)),
)
"""Squares of J's zeros below 8, each as a number of f32 and what is left."""
_FAR, _FAR_K = 8.0, 2.0
_AIRY_LEFT, _AIRY_RIGHT = -5.0, 2.0


def _small_i(size: Real, order: int) -> Real:
    """exp(-x) I(x) for x from 0 to 8."""
    found = (size.apply("min", _FAR) * 0.25 - 1.0).series(_I[order][0])
    return size * found if order else found


def _i(x: Real, order: int, scaled: bool) -> Real:
    """The modified function of the first kind; `scaled`: times exp(-|x|)."""
    size = abs(x)
    near, far = _small_i(size, order), (16.0 / size.apply("max", _FAR) - 1.0).series(_I[order][1])
    if not scaled:
        power = size.apply("exp")
        near, far = power * near, power * far
    found = (size <= _FAR).where(near, far / size.apply("sqrt"))
    return (x < 0.0).where(-found, found) if order else found


def _small_j(size: Real, order: int) -> Real:
    """J(x) for x from 0 to 8."""
    square = size * size
    found = (square.apply("min", _FAR * _FAR) * (1 / 32) - 1.0).series(_J[order])
    for zero, rest in _ZEROS[order]:
        found = found * (square - zero - rest)
    return size * found if order else found


def _far(size: Real, order: int) -> tuple[Real, Real]:
    """J(x) and Y(x) for x from 8 on; of infinity NaN, as in torch."""
    x = size.apply("max", _FAR)
    one = _FAR / x
    u = one * one * 2.0 - 1.0
    real, imaginary = u.series(_H[order][0]), u.series(_H[order][1]) / x
    sine, cosine = size.apply("sin"), size.apply("cos")
    cosine, sine = (sine - cosine, -(sine + cosine)) if order else (cosine + sine, sine - cosine)
    root = (x * math.pi).apply("rsqrt")
    return root * (real * cosine - imaginary * sine), root * (real * sine + imaginary * cosine)


def _j(x: Real, order: int) -> Real:
    size = abs(x)
    found = (size <= _FAR).where(_small_j(size, order), _far(size, order)[0])
    return (x < 0.0).where(-found, found) if order else found


def _y(x: Real, order: int) -> Real:
    """NaN below 0, and minus infinity there."""
    rest = ((x * x).apply("min", _FAR * _FAR) * (1 / 32) - 1.0).series(_Y[order])
    log = x.apply("log") * _small_j(x, order)
    near = (log - 1.0 / x) * (2 / math.pi) + rest * x if order else log * (2 / math.pi) + rest
    found = (x <= _FAR).where(near, _far(x, order)[1])
    return x.equals(0.0).where(-math.inf, found)


def _k(x: Real, order: int, scaled: bool) -> Real:
    """The modified function of the second kind; `scaled`: times exp(x). NaN below 0, and infinity there."""
    low = x.apply("min", _FAR_K)
    log = (low * 0.5).apply("log") * _small_i(low, order) * low.apply("exp")
    rest = (low * low * 0.5 - 1.0).series(_K[order][0])
    near = log + rest / low if order else rest - log
    far = (4.0 / x.apply("max", _FAR_K) - 1.0).series(_K[order][1]) / x.apply("sqrt")
    if scaled:
        near = near * low.apply("exp")
    else:
        far = far * (-x).apply("exp")
    return x.equals(0.0).where(math.inf, (x <= _FAR_K).where(near, far))


def _spherical(x: Real) -> Real:
    found = x.equals(0.0).where(1.0, x.apply("sin") / x)
    return abs(x).equals(math.inf).where(0.0, found)


def _zeta(x: Real) -> Real:
    """2/3 x^(3/2)."""
    return x * x.apply("sqrt") * (2 / 3)


def _zeta_of(x: float) -> float:
    return 2 / 3 * math.pow(x, 1.5)


def _airy(x: Real) -> Real:
    low, high = _AIRY_LEFT, _AIRY_RIGHT
    inside = x.apply("max", low).apply("min", high)
    middle = ((inside - low) * (2 / (high - low)) - 1.0).series(tables.AIRY_MIDDLE)
    up = x.apply("max", high)
    zeta = _zeta(up)
    right = ((2 * _zeta_of(high)) / zeta - 1.0).series(tables.AIRY_RIGHT)
    right = right * (-zeta).apply("exp") * (0.5 / math.sqrt(math.pi)) * up.apply("sqrt").apply("rsqrt")
    down = (-x).apply("max", -low)
    zeta = _zeta(down)
    one = _zeta_of(-low) / zeta
    u = one * one * 2.0 - 1.0
    sine, cosine = zeta.apply("sin"), zeta.apply("cos")
    left = (sine + cosine) * u.series(tables.AIRY_SINE) - (cosine - sine) * u.series(tables.AIRY_COSINE) / zeta
    left = left * (1 / math.sqrt(2 * math.pi)) * down.apply("sqrt").apply("rsqrt")
    found = (x < low).where(left, (x > high).where(right, middle))
    return (abs(x) < math.inf).where(found, math.nan)  # at infinity, too, as in torch


def _register(target: str, function: Callable[[Real], Real]) -> None:
    @converts(target)
    def _convert(b: Builder, x: Arg) -> Value:
        return in_float(b, function, x)


_FUNCTIONS: dict[str, Callable[[Real], Real]] = {
    "i0": lambda x: _i(x, 0, False),
    "special_i0e": lambda x: _i(x, 0, True),
    "special_i1": lambda x: _i(x, 1, False),
    "special_i1e": lambda x: _i(x, 1, True),
    "special_modified_bessel_i0": lambda x: _i(x, 0, False),
    "special_modified_bessel_i1": lambda x: _i(x, 1, False),
    "special_bessel_j0": lambda x: _j(x, 0),
    "special_bessel_j1": lambda x: _j(x, 1),
    "special_bessel_y0": lambda x: _y(x, 0),
    "special_bessel_y1": lambda x: _y(x, 1),
    "special_modified_bessel_k0": lambda x: _k(x, 0, False),
    "special_modified_bessel_k1": lambda x: _k(x, 1, False),
    "special_scaled_modified_bessel_k0": lambda x: _k(x, 0, True),
    "special_scaled_modified_bessel_k1": lambda x: _k(x, 1, True),
    "special_spherical_bessel_j0": _spherical,
    "special_airy_ai": _airy,
}

for _name, _function in _FUNCTIONS.items():
    _register(f"aten.{_name}.default", _function)
