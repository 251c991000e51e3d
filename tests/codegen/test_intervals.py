"""Intervals against all the integers that they stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hardtack.codegen.ir import intervals
from hardtack.codegen.ir.intervals import Interval

ENDS = (-3, -1, 0, 1, 2, 4)
RANGES = tuple((lo, hi) for lo in ENDS for hi in ENDS if lo <= hi)
OPEN: tuple[Interval, ...] = (*RANGES, *((None, hi) for hi in ENDS), *((lo, None) for lo in ENDS), (None, None))
FAR = 9  # stands for an end that is not known


def values(part: Interval) -> range:
    lo, hi = part
    return range(-FAR if lo is None else lo, (FAR if hi is None else hi) + 1)


@pytest.mark.parametrize(
    ("of", "plain", "divides"),
    [
        (intervals.add, lambda x, y: x + y, False),
        (intervals.mul, lambda x, y: x * y, False),
        (intervals.minimum, min, False),
        (intervals.maximum, max, False),
        (intervals.floordiv, lambda x, y: x // y, True),
        (intervals.mod, lambda x, y: x % y, True),
    ],
    ids=["add", "mul", "minimum", "maximum", "floordiv", "mod"],
)
def test_an_interval_holds_what_its_parts_give(
    of: Callable[[Interval, Interval], Interval], plain: Callable[[int, int], int], divides: bool
) -> None:
    """Divisors that may be 0 or less, too: extents of loops that take no step there, of which nothing is asked."""
    for a in OPEN:
        for b in OPEN:
            lo, hi = of(a, b)
            found = [plain(x, y) for x in values(a) for y in values(b) if y >= 1 or not divides]
            assert lo is None or all(lo <= v for v in found), (a, b, lo)
            assert hi is None or all(v <= hi for v in found), (a, b, hi)
