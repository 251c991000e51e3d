"""The functions whose Chebyshev coefficients stand in export/convert/special_tables.py, each of u between -1 and 1.

`python -m tests.export.special_definitions` prints that file; test_special.py works the coefficients out again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import mpmath
from mpmath import mpf

mpmath.mp.dps = 40
Function = Callable[[mpf], mpf]
NODES = 80
"""Of the sums that coefficients are; the last ones of each table are far below a unit of the last place of f64."""
SMALLEST = mpf(2) ** -57
"""Coefficients below this share of the largest end a table."""
AIRY = (-5, 2)
"""What Ai has one series between."""


def first_kind_small(order: int) -> Function:
    """exp(-x) I(x), of order 1 divided by x, for x from 0 to 8."""
    return lambda u: mpmath.exp(-4 * (u + 1)) * mpmath.besseli(order, 4 * (u + 1)) / (4 * (u + 1) if order else 1)


def first_kind_large(order: int) -> Function:
    """sqrt(x) exp(-x) I(x), for x from 8 on."""

    def function(u: mpf) -> mpf:
        x = 16 / (u + 1)
        return mpmath.exp(-x) * mpmath.besseli(order, x) * mpmath.sqrt(x)

    return function


@cache
def zeros(order: int) -> tuple[mpf, mpf]:
    """The squares of J's zeros between 0 and 8."""
    return tuple(mpmath.besseljzero(order, k) ** 2 for k in (1, 2))  # type: ignore[return-value]


def ordinary_small(order: int) -> Function:
    """J(x) divided by what has its zeros, of order 1 by x, too, for squares of x from 0 to 64."""

    def function(u: mpf) -> mpf:
        square = 32 * (u + 1)
        x = mpmath.sqrt(square)
        first, second = zeros(order)
        return mpmath.besselj(order, x) / (x if order else 1) / ((square - first) * (square - second))

    return function


def second_kind_small(order: int) -> Function:
    """Y(x) less its logarithm and its pole, of order 1 divided by x, likewise."""

    def function(u: mpf) -> mpf:
        x = mpmath.sqrt(32 * (u + 1))
        rest = mpmath.bessely(order, x) - 2 / mpmath.pi * mpmath.log(x) * mpmath.besselj(order, x)
        return (rest + 2 / (mpmath.pi * x)) / x if order else rest

    return function


def _modulus(order: int, u: mpf) -> tuple[mpf, mpf, mpf]:
    """x from 8 on, and H(x) sqrt(pi x / 2) turned back by its phase: its real and imaginary part."""
    x = 8 / mpmath.sqrt((u + 1) / 2)
    phase = x - mpmath.pi * (2 * order + 1) / 4
    found = mpmath.hankel1(order, x) * mpmath.sqrt(mpmath.pi * x / 2) * mpmath.expj(-phase)
    return x, found.real, found.imag


def real_part(order: int) -> Function:
    return lambda u: _modulus(order, u)[1]


def imaginary_part(order: int) -> Function:
    """Times x."""

    def function(u: mpf) -> mpf:
        x, _, imaginary = _modulus(order, u)
        return imaginary * x

    return function


def third_kind_small(order: int) -> Function:
    """K(x) with its logarithm added, of order 1 times x, for squares of x from 0 to 4."""

    def function(u: mpf) -> mpf:
        x = mpmath.sqrt(2 * (u + 1))
        log = mpmath.log(x / 2) * mpmath.besseli(order, x)
        found = mpmath.besselk(order, x)
        return x * (found - log) if order else found + log

    return function


def third_kind_large(order: int) -> Function:
    """sqrt(x) exp(x) K(x), for x from 2 on."""

    def function(u: mpf) -> mpf:
        x = 4 / (u + 1)
        return mpmath.exp(x) * mpmath.besselk(order, x) * mpmath.sqrt(x)

    return function


def airy_middle(u: mpf) -> mpf:
    """Ai(x), between its other series."""
    low, high = AIRY
    return mpmath.airyai(low + (high - low) * (u + 1) / 2)


def _zeta(x: int) -> mpf:
    return mpf(2) / 3 * mpf(x) ** mpf("1.5")


def airy_right(u: mpf) -> mpf:
    """Ai(x) without its exponential and its root, by 1 / zeta, from the first on."""
    zeta = 2 * _zeta(AIRY[1]) / (u + 1)
    x = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
    return mpmath.airyai(x) * 2 * mpmath.sqrt(mpmath.pi) * x ** mpf("0.25") * mpmath.exp(zeta)


def _airy_left(u: mpf) -> tuple[mpf, mpf, mpf]:
    zeta = _zeta(-AIRY[0]) / mpmath.sqrt((u + 1) / 2)
    z = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
    scale, phase = mpmath.sqrt(mpmath.pi) * z ** mpf("0.25"), zeta + mpmath.pi / 4
    ai, bi = scale * mpmath.airyai(-z), scale * mpmath.airybi(-z)
    sine, cosine = mpmath.sin(phase), mpmath.cos(phase)
    return zeta, sine * ai + cosine * bi, sine * bi - cosine * ai


def airy_sine(u: mpf) -> mpf:
    """Of Ai(-z) without its root, by 1 / zeta^2: what the sine counts."""
    return _airy_left(u)[1]


def airy_cosine(u: mpf) -> mpf:
    """What the cosine counts less, times zeta."""
    zeta, _, cosine = _airy_left(u)
    return cosine * zeta


def erfcx(u: mpf) -> mpf:
    """(1 + 2x) exp(x^2) erfc(x), by 1 - 7.5 / (x + 3.75), for x from 0 on."""
    x = mpf("7.5") / (1 - u) - mpf("3.75")
    return (1 + 2 * x) * mpmath.exp(x * x) * mpmath.erfc(x)


def quantile(smallest: int, largest: int) -> Function:
    """x (x - log(x) / x - q), where the normal distribution is exp(-x^2 / 2) at -q, by 1 / x."""
    low, high = mpf(1) / largest, mpf(1) / smallest

    def function(u: mpf) -> mpf:
        x = 1 / (low + (high - low) * (u + 1) / 2)
        with mpmath.workdps(30):
            found = mpmath.findroot(
                lambda q: mpmath.log(mpmath.erfc(q / mpmath.sqrt(2)) / 2) + x * x / 2, x - mpmath.log(x) / x
            )
        return x * (x - mpmath.log(x) / x - found)

    return function


TABLES: dict[str, Function] = {
    **{f"I{n}_SMALL": first_kind_small(n) for n in (0, 1)},
    **{f"I{n}_LARGE": first_kind_large(n) for n in (0, 1)},
    **{f"J{n}_SMALL": ordinary_small(n) for n in (0, 1)},
    **{f"Y{n}_SMALL": second_kind_small(n) for n in (0, 1)},
    **{f"H{n}_REAL": real_part(n) for n in (0, 1)},
    **{f"H{n}_IMAGINARY": imaginary_part(n) for n in (0, 1)},
    **{f"K{n}_SMALL": third_kind_small(n) for n in (0, 1)},
    **{f"K{n}_LARGE": third_kind_large(n) for n in (0, 1)},
    "AIRY_MIDDLE": airy_middle,
    "AIRY_RIGHT": airy_right,
    "AIRY_SINE": airy_sine,
    "AIRY_COSINE": airy_cosine,
    "ERFCX": erfcx,
    "QUANTILE_NEAR": quantile(2, 8),
    "QUANTILE_FAR": quantile(8, 40),
}
"""Name of the table -> the function."""


def coefficients(function: Function) -> tuple[float, ...]:
    """Of the function's Chebyshev series; the first is halved, as the sum needs it."""
    angles = [mpmath.pi * (k + mpf(1) / 2) / NODES for k in range(NODES)]
    values = [function(mpmath.cos(a)) for a in angles]
    found = [sum(v * mpmath.cos(j * a) for v, a in zip(values, angles, strict=True)) * 2 / NODES for j in range(NODES)]
    found[0] /= 2
    largest = max(map(abs, found))
    count = max(j for j, c in enumerate(found) if abs(c) > largest * SMALLEST) + 1
    return tuple(float(c) for c in found[:count])


def main() -> None:
    """Prints the file."""
    print('"""Chebyshev coefficients of special functions, made by tests/export/special_definitions.py."""')
    print("\nfrom __future__ import annotations")
    for name, function in TABLES.items():
        print(f"\n{name} = (")
        print("".join(f"    {c!r},\n" for c in coefficients(function)) + ")")


if __name__ == "__main__":
    main()
