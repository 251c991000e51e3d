"""Sizes that a model computes in floating point from another size, such as math.floor(0.7 * n), in whole numbers.

Neither 7/10 nor the double next to it tells what floor(0.7 * n) is for each n, because the product is rounded: 0.7 * 70
is 49, 0.7 * 90 just below 63. So every n of its range is tried, with the same arithmetic. A result differs from that of
the short fraction next to the factor only where the fraction gives a whole number, for a few ranges of n: one between
two powers of 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr

MOST = 1_000_000
"""Sizes up to which a product with a factor is tried."""

_SHORT = (4096, 1_000_000)
_LARGEST = 2**62


@dataclass(frozen=True)
class Scaling:
    """n times top / bottom, rounded down or up; for n = bottom * k with k in one of the half-open `ranges`, one less,
    or one more if rounded up.
    """

    top: int
    bottom: int
    up: bool
    ranges: tuple[tuple[int, int], ...]

    def of(self, n: Expr) -> Expr:
        """The size for a size n."""
        plain = ex.floordiv(self.top * n + (self.bottom - 1 if self.up else 0), self.bottom)
        if not self.ranges:
            return plain
        k = ex.floordiv(n, self.bottom)
        whole = 1 - ex.minimum(ex.mod(n, self.bottom), 1)
        off = whole * ex.add(*(_reached(k, a) - _reached(k, b) for a, b in self.ranges))
        return plain + off if self.up else ex.maximum(plain - off, 0)


def _reached(k: Expr, start: int) -> Expr:
    """1 from k = start on, 0 before."""
    return ex.minimum(ex.maximum(k - (start - 1), 0), 1)


def scaling(factor: float, up: bool, hi: int) -> Scaling | None:
    """What factor * n, computed in doubles and rounded down or up, is for n from 0 to hi, at most MOST; None for a
    factor for which that has no such form.
    """
    if not math.isfinite(factor):
        return None
    n = np.arange(hi + 1, dtype=np.int64)
    product = factor * n.astype(np.float64)
    if not 0 <= product[-1] < _LARGEST:
        return None
    stated = (np.ceil(product) if up else np.floor(product)).astype(np.int64)
    for most in _SHORT:
        fraction = Fraction(factor).limit_denominator(most)
        found = _compared(fraction.numerator, fraction.denominator, up, n, stated)
        if found is not None:
            return found
    return None


def _compared(top: int, bottom: int, up: bool, n: np.ndarray, stated: np.ndarray) -> Scaling | None:
    """The Scaling by top / bottom that gives `stated` for n; None if there is none."""
    if not 0 < top < _LARGEST // len(n):
        return None
    off = stated - (top * n + (bottom - 1 if up else 0)) // bottom
    (at,) = off.nonzero()
    if not len(at):
        return Scaling(top, bottom, up, ())
    if (off[at] != (1 if up else -1)).any() or (at % bottom).any():
        return None
    k = at // bottom
    starts, ends = k[np.diff(k, prepend=-2) > 1], k[np.diff(k, append=k[-1] + 2) > 1] + 1
    return Scaling(top, bottom, up, tuple((int(a), int(b)) for a, b in zip(starts, ends, strict=True)))
