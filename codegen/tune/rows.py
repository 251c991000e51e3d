"""Tiles of scans and sorts."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.machine import power_of_two_from

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
