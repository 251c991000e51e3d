"""Computes the polynomials of codegen/templates/cpp/vmath_poly.h: minimax fits by Remez's exchange, in mpmath.

    python tools/fit_vmath.py > codegen/templates/cpp/vmath_poly.h

Each table is a polynomial P on an interval, chosen so that the largest weight(x) * |P(x) - f(x)| is least. Coefficients
are rounded to the element type one by one, lowest first, and the rest fitted again, so that rounding costs little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from mpmath import mpf

mpmath.mp.dps = 60
Function = Callable[[mpf], mpf]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """One table: ``f`` on [lo, hi] by ``count`` coefficients, lowest power first; ``dtype`` is float or double."""

    name: str
    dtype: str
    meaning: str
    f: Function
    weight: Function
    lo: object
    hi: object
    count: int


def _solve(nodes: list[mpf], values: list[mpf], weights: list[mpf], first: int, count: int) -> list[mpf]:
    """Coefficients of x^first.. and the levelled error at ``nodes``."""
    size = count + 1
    matrix = mpmath.matrix(size, size)
    right = mpmath.matrix(size, 1)
    for row, x in enumerate(nodes):
        for column in range(count):
            matrix[row, column] = x ** (first + column)
        matrix[row, count] = (-1) ** row / weights[row]
        right[row] = values[row]
    solution = mpmath.lu_solve(matrix, right)
    return [solution[i] for i in range(count)]


def _extrema(errors: list[mpf], wanted: int) -> list[int]:
    """The largest error of every run of one sign, cut to ``wanted`` runs from the weaker end."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > wanted:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs


def remez(grid: list[mpf], values: list[mpf], weights: list[mpf], first: int, count: int) -> tuple[list[mpf], mpf]:
    """Minimax coefficients of x^first .. x^(first+count-1) on the points of ``grid``, and the largest error."""
    size = count + 1
    picks = sorted({round((1 - mpmath.cos(mpmath.pi * (i + 0.5) / size)) / 2 * (len(grid) - 1)) for i in range(size)})
    best: tuple[list[mpf], mpf] | None = None
    for _ in range(25):
        chosen = [int(i) for i in picks]
        coefficients = _solve(
            [grid[i] for i in chosen], [values[i] for i in chosen], [weights[i] for i in chosen], first, count
        )
        errors = [
            w * (sum(c * x ** (first + k) for k, c in enumerate(coefficients)) - y)
            for x, y, w in zip(grid, values, weights, strict=True)
        ]
        worst = max(abs(error) for error in errors)
        if best is None or worst < best[1]:
            best = (coefficients, worst)
        fresh = _extrema(errors, size)
        if len(fresh) < size or fresh == chosen:
            break
        picks = fresh
    assert best is not None
    return best


def _lawson(grid: Array, values: Array, weights: Array, first: int, count: int) -> float:
    """The coefficient of x^first in a near-minimax fit by x^first .. x^(first+count-1).

    Lawson's reweighted least squares: powers without a constant term are no Haar system where the interval holds 0, and
    Remez's exchange then breaks down. In double precision, which is ample for rounding to float.
    """
    basis = grid[:, None] ** np.arange(first, first + count)[None, :]
    scale = np.max(np.abs(basis), axis=0)
    density = np.ones_like(grid)
    best, best_worst = 0.0, np.inf
    for _ in range(30):
        row = weights * np.sqrt(density)
        solution = np.linalg.lstsq(basis / scale * row[:, None], values * row, rcond=None)[0] / scale
        errors = weights * np.abs(basis @ solution - values)
        if errors.max() < best_worst:
            best, best_worst = float(solution[0]), float(errors.max())
        density *= errors / errors.max() + 1e-3
        density /= density.mean()
    return best


def _round_to_float(coefficients: list[mpf], grid: list[mpf], values: list[mpf], weights: list[mpf]) -> list[mpf]:
    """Rounds the coefficients one by one, lowest first, and fits those that are left again after each."""
    x = np.array([float(v) for v in grid])
    weight = np.array([float(v) for v in weights])
    done: list[mpf] = []
    for k in range(len(coefficients)):
        rest = [y - sum(c * v**i for i, c in enumerate(done)) for v, y in zip(grid, values, strict=True)]
        best = _lawson(x, np.array([float(v) for v in rest]), weight, k, len(coefficients) - k)
        done.append(mpf(float(np.float32(best))))
    return done


def fit(spec: Fit) -> tuple[list[mpf], mpf]:
    """The rounded coefficients of ``spec`` and the largest weighted error that they leave."""
    lo, hi = mpf(spec.lo), mpf(spec.hi)
    points = 24 * (spec.count + 1)
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mpmath.cos(mpmath.pi * (i + mpf(1) / 2) / points) for i in range(points)]
    values = [spec.f(x) for x in grid]
    weights = [abs(spec.weight(x)) for x in grid]
    coefficients, _ = remez(grid, values, weights, 0, spec.count)
    if spec.dtype == "float":
        done = _round_to_float(coefficients, grid, values, weights)
    else:
        done = [mpf(float(c)) for c in coefficients]
    left = max(
        w * abs(sum(c * x**i for i, c in enumerate(done)) - y) for x, y, w in zip(grid, values, weights, strict=True)
    )
    return done, left


def _root(z: mpf) -> mpf:
    return mpmath.sqrt(z)


def _near_zero(x: mpf, value: Function, at_zero: mpf) -> mpf:
    return value(x) if abs(x) > mpf(10) ** -20 else at_zero


def _exp_q(r: mpf) -> mpf:
    return _near_zero(r, lambda x: (mpmath.expm1(x) - x) / x**2, mpf(1) / 2)


def _log_p(f: mpf) -> mpf:
    return _near_zero(f, lambda x: (mpmath.log1p(x) - x + x**2 / 2) / x**3, mpf(1) / 3)


def _erfinv(x: mpf) -> mpf:
    return mpmath.erfinv(x)


def _erfinv_central(w: mpf) -> mpf:
    x = mpmath.sqrt(-mpmath.expm1(-w))
    return _erfinv(x) / x


def _erfinv_tail(s: mpf) -> mpf:
    """erfinv(x)/x by s = sqrt(w), w = -log(1 - x^2), through erfc so that 1 - x keeps its digits."""
    w = s * s
    x = mpmath.sqrt(-mpmath.expm1(-w))
    q = mpmath.exp(-w) / (1 + x)  # 1 - x
    y = mpmath.findroot(lambda t: mpmath.log(mpmath.erfc(t)) - mpmath.log(q), s * mpf("0.93"))
    return y / x


LN2_HALF = mpmath.log(2) / 2 * mpf("1.001")
LOG_LO, LOG_HI = mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(2) - 1
QUARTER_PI = mpmath.pi / 4 * mpf("1.005")
TINY = mpf(10) ** -18
ERF_SPLIT, ERF_END = mpf(1), mpf("4.0")

BOTH = ("float", "double")
FITS: list[Fit] = []


def _both(
    name: str, meaning: str, f: Function, weight: Function, lo: object, hi: object, counts: tuple[int, int]
) -> None:
    for dtype, count in zip(BOTH, counts, strict=True):
        FITS.append(Fit(name, dtype, meaning, f, weight, lo, hi, count))


_both("exp_q", "(e^r - 1 - r) / r^2, |r| <= log(2) / 2", _exp_q, lambda r: r, -LN2_HALF, LN2_HALF, (5, 11))


def _exp2_q(r: mpf) -> mpf:
    return _near_zero(r, lambda x: (mpf(2) ** x - 1) / x, mpmath.log(2))


_both("exp2_q", "(2^r - 1) / r, |r| <= 1/2", _exp2_q, lambda r: r, -0.501, 0.501, (6, 13))
FITS.append(
    Fit("exp2_short", "float", "the same, for what is rounded to bfloat16", _exp2_q, lambda r: r, -0.501, 0.501, 4)
)
_both("log_p", "(log(1 + f) - f + f^2 / 2) / f^3, 1 + f in [sqrt(1/2), sqrt(2)]", _log_p, lambda f: f**2, LOG_LO,
      LOG_HI, (9, 20))  # fmt: skip
_both(
    "sin_p", "(sin(r) - r) / r^3 by z = r^2, |r| <= pi / 4",
    lambda z: (mpmath.sin(_root(z)) - _root(z)) / _root(z) ** 3, lambda z: z, TINY, QUARTER_PI**2, (3, 7),
)  # fmt: skip
_both(
    "cos_q", "(cos(r) - 1 + r^2 / 2) / r^4 by z = r^2, |r| <= pi / 4",
    lambda z: (mpmath.cos(_root(z)) - 1 + z / 2) / z**2, lambda z: z**2, TINY, QUARTER_PI**2, (3, 7),
)  # fmt: skip
_both(
    "asin_p", "(asin(x) - x) / x^3 by z = x^2, |x| <= 1/2",
    lambda z: (mpmath.asin(_root(z)) - _root(z)) / _root(z) ** 3, lambda z: z, TINY, 0.2501, (5, 13),
)  # fmt: skip
_both(
    "atan_p", "(atan(x) - x) / x^3 by z = x^2, |x| <= 1",
    lambda z: (mpmath.atan(_root(z)) - _root(z)) / _root(z) ** 3, lambda z: z, TINY, 1, (9, 23),
)  # fmt: skip
_both(
    "tanh_p", "(tanh(x) - x) / x^3 by z = x^2, |x| <= 0.6",
    lambda z: (mpmath.tanh(_root(z)) - _root(z)) / _root(z) ** 3, lambda z: z, TINY, 0.361, (6, 14),
)  # fmt: skip
FITS += [
    Fit("erf_small", "float", "erf(x) / x - 1 by z = x^2, |x| <= 1",
        lambda z: mpmath.erf(_root(z)) / _root(z) - 1, lambda z: mpf(1), TINY, ERF_SPLIT**2, 7),
    Fit("erf_large", "float", "erfc(y) by t = y - 5/2, 1 <= y <= 4",
        lambda t: mpmath.erfc(t + mpf("2.5")), lambda t: mpf(1), ERF_SPLIT - mpf("2.5"), ERF_END - mpf("2.5"), 16),
    Fit("erfcx", "float", "(y + 2) e^(y^2) erfc(y) by t = (y - 2) / (y + 2), 1/2 <= y <= 10.5",
        lambda t: (y := 2 * (1 + t) / (1 - t), (y + 2) * mpmath.exp(y * y) * mpmath.erfc(y))[1], lambda t: mpf(1),
        mpf("-0.6"), mpf("0.68"), 11),
    Fit("erfinv_central", "float", "erfinv(x) / x by v = w - 5/2, w = -log(1 - x^2) <= 5",
        lambda v: _erfinv_central(v + mpf("2.5")), lambda v: 1 / _erfinv_central(v + mpf("2.5")), mpf("-2.5") + TINY,
        mpf("2.52"), 10),
    Fit("erfinv_tail", "float", "erfinv(x) / x by s = sqrt(w) - 3, w = -log(1 - x^2) in [5, 17]",
        lambda s: _erfinv_tail(s + 3), lambda s: mpf(1) / 3, mpmath.sqrt(mpf("4.98")) - 3, mpmath.sqrt(mpf("17.4")) - 3,
        10),
    Fit("erfinv_central", "double", "erfinv(x) / x by v = w - 5/2, w = -log(1 - x^2) <= 5: a first guess",
        lambda v: _erfinv_central(v + mpf("2.5")), lambda v: 1 / _erfinv_central(v + mpf("2.5")), mpf("-2.5") + TINY,
        mpf("2.52"), 9),
    Fit("erfinv_tail", "double", "erfinv(x) / x by s = sqrt(w) - 4, w = -log(1 - x^2) in [5, 37]: a first guess",
        lambda s: _erfinv_tail(s + 4), lambda s: mpf(1) / 4, mpmath.sqrt(mpf("4.98")) - 4, mpmath.sqrt(mpf("37")) - 4,
        11),
    Fit("atanh_tail", "double", "(2 atanh(s) - 2 s - 2/3 s^3) / s^5 by z = s^2, |s| <= 0.1716",
        lambda z: (2 * mpmath.atanh(_root(z)) - 2 * _root(z) - mpf(2) / 3 * z * _root(z)) / (z * z * _root(z)),
        lambda z: mpf(1), mpf(10) ** -8, mpf("0.02945"), 9),
    Fit("lgamma_mid", "double", "log(gamma(3/2 + d)), |d| <= 1/4",
        lambda d: mpmath.loggamma(mpf("1.5") + d), lambda d: 1 / mpmath.loggamma(mpf("1.5") + d), mpf("-0.25"),
        mpf("0.25"), 17),
    Fit("pow_log2", "double", "log2(m) / s by z = s^2, s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)]",
        lambda z: 2 * mpmath.atanh(_root(z)) / _root(z) / mpmath.log(2), lambda z: mpf(1), TINY, mpf("0.02945"), 7),
    Fit("pow_exp2", "double", "2^f, |f| <= 1/2",
        lambda f: mpf(2) ** f, lambda f: mpf(1), mpf("-0.501"), mpf("0.501"), 9),
    Fit("lgamma_one", "double", "log(gamma(1 + d)) / d, |d| <= 1/4",
        lambda d: _near_zero(d, lambda x: mpmath.loggamma(1 + x) / x, -mpmath.euler), lambda d: mpf(1), mpf("-0.25"),
        mpf("0.25"), 22),
]  # fmt: skip


def render() -> str:
    """The header's text."""
    lines = [
        "// Polynomials of vmath.h, lowest power first. Written by tools/fit_vmath.py; do not edit.",
        "#ifndef HARDTACK_TEMPLATES_VMATH_POLY_H",
        "#define HARDTACK_TEMPLATES_VMATH_POLY_H",
        "",
        "namespace ht::poly {",
        "",
        "template <class T>",
        "struct Tables;",
    ]
    for dtype in BOTH:
        lines += ["", "template <>", f"struct Tables<{dtype}> {{"]
        for spec in (spec for spec in FITS if spec.dtype == dtype):
            coefficients, left = fit(spec)
            lines.append(f"  // {spec.meaning}; weighted error 2^{mpmath.nstr(mpmath.log(left, 2), 3)}")
            lines.append(f"  static constexpr {dtype} {spec.name}[] = {{")
            suffix = "f" if dtype == "float" else ""
            lines += [f"      {float(c).hex()}{suffix}," for c in coefficients]
            lines.append("  };")
        lines.append("};")
    lines += ["", "}  // namespace ht::poly", "", "#endif  // HARDTACK_TEMPLATES_VMATH_POLY_H", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render())
