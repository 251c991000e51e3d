"""Orthogonal polynomials, whose degree is a number or a value for each element.

A number is that many steps of the recurrence. Of values Chebyshev's polynomials have closed forms, which begin where
the recurrence ends here; the others are computed up to a degree that a run checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg
from hardtack.exporter.convert.real import Condition, Real, in_float
from hardtack.exporter.convert.table import Value, converts
from hardtack.exporter.errors import Refusal

MOST_STEPS = 128
"""Of a degree that is a number."""
MOST_DEGREE, CLOSED_FROM = 32, 8
"""Of degrees that are values, and the last of Chebyshev's polynomials that the recurrence makes of them."""


@dataclass(frozen=True)
class Family:
    """first: the polynomial of degree 1. step(k, x, p, q): that of degree k + 1 of those of k - 1 and k. closed: of a
    degree and x, where there is a form of it."""

    first: Callable[[Real], Real]
    step: Callable[[int, Real, Real, Real], Real]
    closed: Callable[[Real, Real], Real] | None = None


def _chebyshev_step(k: int, x: Real, p: Real, q: Real) -> Real:
    return x * 2.0 * q - p


def _even(n: Real) -> Condition:
    return n.equals((n * 0.5).apply("floor") * 2.0)


def _signed(n: Real, x: Real, found: Real) -> Real:
    """Of |x| -> of x, for polynomials that are even or odd as their degree."""
    return ((x > 0.0) | _even(n)).where(found, -found)


def _angles(x: Real) -> tuple[Real, Real, Real]:
    """(the angle whose cosine is x, |x| + sqrt(x^2 - 1) for |x| > 1, that root)."""
    size = abs(x)
    root = ((size - 1.0).apply("max", 0.0) * (size + 1.0)).apply("sqrt")
    return x.apply("max", -1.0).apply("min", 1.0).apply("acos"), size + root, root


def _t(n: Real, x: Real) -> Real:
    angle, base, _ = _angles(x)
    power = base.apply("pow", n)
    outside = _signed(n, x, (power + 1.0 / power) * 0.5)
    return (abs(x) < 1.0).where((n * angle).apply("cos"), outside)


def _u(n: Real, x: Real) -> Real:
    angle, base, root = _angles(x)
    more = n + 1.0
    power = base.apply("pow", more)
    outside = _signed(n, x, root.equals(0.0).where(more, (power - 1.0 / power) / (root * 2.0)))
    return (abs(x) < 1.0).where((more * angle).apply("sin") / angle.apply("sin"), outside)


def _v(n: Real, x: Real) -> Real:
    return _halves(n, x, "cos")


def _w(n: Real, x: Real) -> Real:
    return _halves(n, x, "sin")


def _halves(n: Real, x: Real, kind: str) -> Real:
    """cos((n + 1/2) a) / cos(a / 2), or of sines: outside of 1 of hyperbolic ones, and the other one's below -1."""
    angle, base, _ = _angles(x)
    inside = ((n + 0.5) * angle).apply(kind) / (angle * 0.5).apply(kind)
    power, half = base.apply("pow", n + 0.5), base.apply("sqrt")
    cosines = (power + 1.0 / power) / (half + 1.0 / half)
    sines = base.equals(1.0).where(n * 2.0 + 1.0, (power - 1.0 / power) / (half - 1.0 / half))
    above, below = (cosines, sines) if kind == "cos" else (sines, cosines)
    outside = (x > 0.0).where(above, _even(n).where(below, -below))
    return (abs(x) < 1.0).where(inside, outside)


_FAMILIES = {
    "chebyshev_polynomial_t": Family(lambda x: x, _chebyshev_step, _t),
    "chebyshev_polynomial_u": Family(lambda x: x * 2.0, _chebyshev_step, _u),
    "chebyshev_polynomial_v": Family(lambda x: x * 2.0 - 1.0, _chebyshev_step, _v),
    "chebyshev_polynomial_w": Family(lambda x: x * 2.0 + 1.0, _chebyshev_step, _w),
    "hermite_polynomial_h": Family(lambda x: x * 2.0, lambda k, x, p, q: x * 2.0 * q - p * (2.0 * k)),
    "hermite_polynomial_he": Family(lambda x: x, lambda k, x, p, q: x * q - p * float(k)),
    "laguerre_polynomial_l": Family(
        lambda x: 1.0 - x, lambda k, x, p, q: (((2.0 * k + 1.0) - x) * q - p * float(k)) / (k + 1.0)
    ),
    "legendre_polynomial_p": Family(
        lambda x: x, lambda k, x, p, q: (x * (2.0 * k + 1.0) * q - p * float(k)) / (k + 1.0)
    ),
}


def _of_number(family: Family, x: Real, degree: int) -> Real:
    if degree < 1:
        return x.constant(0.0 if degree < 0 else 1.0)
    p, q = x.constant(1.0), family.first(x)
    for k in range(1, degree):
        p, q = q, family.step(k, x, p, q)
    return q


def _of_values(family: Family, x: Real, n: Real, most: int) -> Real:
    """n is whole. Degrees below 0 have no polynomial, 0."""
    p, q = x.constant(1.0), family.first(x)
    found = (n < 0.0).where(0.0, n.equals(0.0).where(p, q))
    for k in range(1, most):
        p, q = q, family.step(k, x, p, q)
        found = n.equals(k + 1.0).where(q, found)
    if family.closed is None:
        return found
    return (n > float(most)).where(family.closed(n, x), found)


def _convert(b: Builder, name: str, family: Family, shifted: bool, x: Arg, n: Arg) -> Value:
    degree = int(n) if isinstance(n, (int, float)) else None
    if degree is not None and degree > MOST_STEPS:
        raise Refusal(f"{name} of degree {degree}: degrees up to {MOST_STEPS} are supported")

    def function(x: Real, n: Real) -> Real:
        x = x * 2.0 - 1.0 if shifted else x
        if degree is not None:
            return _of_number(family, x, degree)
        whole = n.apply("trunc")
        if family.closed is None:
            _check(b, name, whole)
        return _of_values(family, x, whole, MOST_DEGREE if family.closed is None else CLOSED_FROM)

    return in_float(b, function, x, n)


def _check(b: Builder, name: str, n: Real) -> None:
    flat = b.reshape((n <= float(MOST_DEGREE)).value, (math.prod(n.value.shape),))
    message = f"{name} of a degree above {MOST_DEGREE}, the most that is computed where degrees are values"
    b.multi("assert", b.reduce(flat, "all", (0,), keepdim=False), message=message)


def _register(name: str, family: Family, shifted: bool) -> None:
    target = f"aten.special_{name}"

    @converts(f"{target}.default", f"{target}.n_scalar", f"{target}.x_scalar")
    def _converted(b: Builder, x: Arg, n: Arg) -> Value:
        return _convert(b, name, family, shifted, x, n)


for _name, _family in _FAMILIES.items():
    _register(_name, _family, False)
    if _name.startswith("chebyshev"):
        _register(f"shifted_{_name}", _family, True)
