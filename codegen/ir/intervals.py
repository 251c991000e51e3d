"""Intervals of integers: what is known of a sum, a product, a quotient from what is known of its parts."""

from __future__ import annotations

Interval = tuple[int | None, int | None]
"""Inclusive ends; None: no bound is known."""


def add(*parts: Interval) -> Interval:
    return _sum([p[0] for p in parts]), _sum([p[1] for p in parts])


def _sum(ends: list[int | None]) -> int | None:
    return None if any(v is None for v in ends) else sum(v for v in ends if v is not None)


def mul(first: Interval, *others: Interval) -> Interval:
    out = first
    for other in others:
        out = _product(out, other)
    return out


def _product(a: Interval, b: Interval) -> Interval:
    inf = float("inf")

    def ends(x: Interval) -> tuple[float, float]:
        return (-inf if x[0] is None else x[0]), (inf if x[1] is None else x[1])

    (alo, ahi), (blo, bhi) = ends(a), ends(b)
    products = [0 if 0 in (x, y) else x * y for x in (alo, ahi) for y in (blo, bhi)]
    lo, hi = min(products), max(products)
    return (None if lo == -inf else int(lo)), (None if hi == inf else int(hi))


def floordiv(a: Interval, b: Interval) -> Interval:
    """a // b rounded down, b >= 1."""
    (alo, ahi), (blo, bhi) = a, _from_one(b)
    lo = None if alo is None else (alo // blo if alo < 0 else (0 if bhi is None else alo // bhi))
    hi = None if ahi is None else (ahi // blo if ahi >= 0 else (-1 if bhi is None else ahi // bhi))
    return lo, hi


def mod(a: Interval, b: Interval) -> Interval:
    """a % b, b >= 1."""
    (alo, ahi), (_, bhi) = a, _from_one(b)
    hi = None if bhi is None else bhi - 1
    if alo is not None and alo >= 0 and ahi is not None:
        hi = ahi if hi is None else min(hi, ahi)
    return 0, hi


def _from_one(divisor: Interval) -> tuple[int, int | None]:
    """What a divisor is where it divides: one that can be 0 at most is the extent of a loop that takes no step."""
    lo, hi = divisor
    return max(1, lo or 1), (None if hi is None else max(1, hi))


def minimum(*parts: Interval) -> Interval:
    los, his = _known(parts)
    return (min(los) if len(los) == len(parts) else None), (min(his) if his else None)


def maximum(*parts: Interval) -> Interval:
    los, his = _known(parts)
    return (max(los) if los else None), (max(his) if len(his) == len(parts) else None)


def _known(parts: tuple[Interval, ...]) -> tuple[list[int], list[int]]:
    """The lower ends that are known, and the upper ones."""
    return [lo for lo, _ in parts if lo is not None], [hi for _, hi in parts if hi is not None]
