"""How few rows are multiplied with a matrix of codes on a GPU: a pure function of sizes and machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.gemm_plan import MOST_SPLITS, SMALLEST_SPLIT, GemmPlan

WORD_BITS = 32
"""Of what a kernel takes codes from."""
QUAD = 4
"""Neighbouring words that a lane loads at once, 128 bits."""
WARPS, WARPS_OF_LONG = 4, 8
WARPS_ALONG_K, COLUMNS = 2, {8: 2, 4: 4}
"""Where columns are too few for warps of their own: warps that share a column's K, and a warp's columns, by bits of a
code: more share what is made of the row, and fewer leave more programs. A 1B llama's three smaller products took 2.7,
2.3 and 5.6 us in float8 so on an H200, 3.8, 3.3 and 12 with columns for each warp."""
LONG_ROW = 4096
"""Codes beyond which all warps, WARPS_OF_LONG of them, share a column's K."""
WIDE, WIDE_COLUMNS, WIDE_QUADS = 4, 4, {8: 1, 4: 2}
"""Programs for each multiprocessor that leave warps their own columns, how many of these, and quads of each that a lane
loads ahead, by bits: sums need no barrier, and the row is read for more columns."""
PROGRAMS = 1.5
"""For each multiprocessor, that more columns a warp must leave."""
MOST_TILE_ROWS = 64
"""That tiles multiply with codes: for more, making a matrix of numbers first takes less time than tiles lose."""
SHORTEST_BLOCK = 32
"""Of K, for tiles."""


@dataclass(frozen=True)
class RowPlan(GemmPlan):
    """warps_k: that share the columns of each other, parts of K apart. columns: of a warp. quads: of each column that a
    lane has at once. lanes: of a warp."""

    warps_k: int = 1
    columns: int = 1
    quads: int = 1
    lanes: int = 32

    @property
    def warps_n(self) -> int:
        return self.warps // self.warps_k

    def blocks(self, bits: int) -> tuple[int, int]:
        """Columns of a program, and codes of `bits` of each that it has at once."""
        return self.warps_n * self.columns, self.warps_k * self.quads * self.lanes * QUAD * WORD_BITS // bits


def plan_code_row(n: int, k: int, bits: int, runs: Sequence[int], machine: Gpu) -> RowPlan | None:
    """The plan for a row of K times N columns of codes of `bits`; None where runs of one number are no whole words."""
    if math.gcd(k, *runs) * bits % WORD_BITS:
        return None
    warps, warps_k, columns, quads = WARPS, 1, WIDE_COLUMNS, WIDE_QUADS[bits]
    if n < WARPS * WIDE_COLUMNS * WIDE * machine.multiprocessors:
        long = k > LONG_ROW
        warps = WARPS_OF_LONG if long else WARPS
        warps_k, columns, quads = warps if long else WARPS_ALONG_K, COLUMNS[bits], 1
    warps_n = warps // warps_k
    columns = next((c for c in (4, 2) if c <= columns and n >= c * warps_n * PROGRAMS * machine.multiprocessors), 1)
    reason = f"one row against codes of {bits} bits"
    lanes = {"warps_k": warps_k, "columns": columns, "quads": quads, "lanes": machine.warp_size}
    plan = RowPlan("vector", 1, 0, 0, warps, 1, 1, reason, **lanes)
    block_n, block_k = plan.blocks(bits)
    splits = _splits(-(-n // block_n), k, block_k, machine)
    return replace(plan, block_n=block_n, block_k=block_k, splits=splits)


def plan_code_tile(m: int, n: int, k: int, runs: Sequence[int], machine: Gpu) -> GemmPlan | None:
    """The plan for a few rows; None for many, and where blocks of K would be too short."""
    block_k = math.gcd(128, k, *runs)
    if m > MOST_TILE_ROWS or block_k < SHORTEST_BLOCK:
        return None
    block_m = min(MOST_TILE_ROWS, max(16, power_of_two_from(m)))
    block_n = 64 if block_m == MOST_TILE_ROWS else 32
    splits = _splits(-(-m // block_m) * -(-n // block_n), k, block_k, machine)
    return GemmPlan("tile", block_m, block_n, block_k, WARPS, 4, splits, "few rows against codes", group_m=1)


def _splits(programs: int, k: int, block_k: int, machine: Gpu) -> int:
    """Parts of K: more than one where programs are too few to keep memory busy."""
    wanted = 2 * machine.multiprocessors
    if programs >= wanted:
        return 1
    return max(1, min(MOST_SPLITS, wanted // programs, k // max(SMALLEST_SPLIT, block_k)))
