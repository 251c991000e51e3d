"""How few rows are multiplied with a matrix of codes on a GPU: a pure function of sizes and machine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.gemm_plan import MOST_SPLITS, SMALLEST_SPLIT, GemmPlan

WORD_BITS = 32
"""Of what a kernel takes codes from."""
WARPS = 4
MOST_COLUMNS = {8: 2, 4: 4}
"""Of a warp, by bits of a code: more share what is made of the row, which costs int4 more instructions a byte."""
LOAD_BITS = 128
"""Of the codes that a thread loads at once: a warp's loads from one column are 512 codes of 8 bits, 1024 of 4."""
BLOCK, LONG_BLOCK = 1024, 2048
"""Codes of a column that a program takes at once: more than a warp loads, so that warps share the row, and each of its
numbers is converted by fewer of them. Three layers of a 1B llama's products took 77 us in int8 on an H200, in place of
82, with 1024 where K is 2048, and 77 with 2048 where K is 8192."""
LONG_ROW = 4096
"""Codes beyond which blocks are LONG_BLOCK."""
PROGRAMS = 1.5
"""For each multiprocessor, that more columns a program must leave."""
MOST_TILE_ROWS = 64
"""That tiles multiply with codes: for more, making a matrix of numbers first takes less time than tiles lose."""
SHORTEST_BLOCK = 32
"""Of K, for tiles."""


def plan_code_row(n: int, k: int, bits: int, runs: Sequence[int], machine: Gpu) -> GemmPlan | None:
    """The plan for a row of K times N columns of codes of `bits`; None where runs of one number are no whole words.

    A warp has columns of its own, so that sums need no barrier; more than one, where enough programs are left, share
    what is made of the row.
    """
    if math.gcd(k, *runs) * bits % WORD_BITS:
        return None
    least = WARPS * PROGRAMS * machine.multiprocessors
    columns = next((c for c in (MOST_COLUMNS[bits], 2) if n >= c * least), 1)
    programs = -(-n // (WARPS * columns))
    long = k > LONG_ROW and programs >= machine.multiprocessors  # fewer programs share a row's blocks among them
    longest = LONG_BLOCK if long else BLOCK
    block_k = next((b for b in (longest, longest // 2, longest // 4) if k % b == 0), 0)
    block_k = block_k or min(longest, max(LOAD_BITS // bits, power_of_two_from(k)))
    splits = _splits(programs, k, block_k, machine)
    reason = f"one row against codes of {bits} bits"
    return GemmPlan("vector", 1, WARPS * columns, block_k, WARPS, 1, splits, reason)


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
