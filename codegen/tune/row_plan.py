"""Tiles of scans, sorts and moments."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.types import DType

LONGEST_SORT = 2048
"""Elements that one program sorts; longer rows are merged from such runs."""
COUNTED = 1 << 14
"""Elements up to which a row of unknown length is sorted by counting: every element is compared with every other."""
LONGEST_ROW = 1 << 31


@dataclass(frozen=True)
class SortPlan:
    """way: rows (one program a row or several rows), merge (runs, merged `passes` times), count."""

    way: str
    block_n: int
    block_r: int
    passes: int
    reason: str


def plan_sort(length: int, longest: int | None, known: bool, lines: int, dtype: DType) -> SortPlan:
    """length: of a row, an example where it is not `known`; longest: its upper bound, if there is one."""
    if dtype.nbytes == 8:
        return SortPlan("count", 128, 1, 0, "keys of 64 bits")
    if longest is not None and longest <= LONGEST_SORT:
        block_n = max(16, power_of_two_from(longest))
        block_r = max(1, min(512 // block_n, power_of_two_from(lines) // 2))
        return SortPlan("rows", block_n, block_r, 0, f"rows of up to {longest}")
    if not known and length <= COUNTED:
        return SortPlan("count", 128, 1, 0, "rows of unknown length, mostly short")
    limit = min(longest if longest is not None else LONGEST_ROW, LONGEST_ROW)
    passes = max(1, (-(-limit // LONGEST_SORT) - 1).bit_length())
    return SortPlan("merge", LONGEST_SORT, 1, passes, f"rows of up to {limit}")


def plan_scan(length: int, inner: int) -> tuple[int, int]:
    """(block_n, block_i): elements of a line and lines that a program holds."""
    block_i = min(64, power_of_two_from(max(1, inner)))
    return max(2, min(power_of_two_from(max(1, length)), 2048 // block_i)), block_i


LARGEST_GROUP = 1 << 15
"""Elements of a group that one program holds."""
SMALL_GROUP = 1 << 12
"""Elements of a group that a program reads as fast as a second kernel starts."""
MOST_PIECES = 1 << 10
"""Pieces of memory that a program reads one by one in that time."""
FEW_GROUPS = 32
"""Groups below which most of a GPU would idle while each is held by one program."""
PART = 128
"""Points of a part of a channel."""


def plan_moments(groups: int, each: int, points: int, scattered: bool) -> tuple[int, str]:
    """Into how many parts the points of each channel are cut, 0 for a program a group; and why.

    groups: of all images, `each` channels of `points` points; scattered: a group is one piece of memory a point.
    """
    elements = each * points
    if elements <= SMALL_GROUP:
        return 0, f"groups of {elements} elements"
    if groups >= FEW_GROUPS and elements <= LARGEST_GROUP and not (scattered and points > MOST_PIECES):
        return 0, f"{groups} groups of {elements} elements"
    parts = max(1, min(256, power_of_two_from(points) // PART))
    return parts, f"{groups} groups of {elements} elements{', scattered' if scattered else ''}"
