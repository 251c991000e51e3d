"""How few rows are multiplied with a matrix of codes on a GPU: a pure function of sizes and machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.types import DType
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
FRAGMENT_CODES = frozenset({(DType.I8, 4), (DType.U8, 4), (DType.I8, 8)})
"""Type and bits of codes that bf16 and f16 hold, and that a few instructions make numbers of. Floats of 8 bits take
more than tiles, whose conversions are instructions: 15.6 us for 4 x 16384 x 2048 on an H200, where tiles took 13.6."""
FRAGMENT_LANES, FRAGMENT_COLUMNS = 4, 16
"""Lanes that have a column's codes, and columns of a left fragment, in products of tensor cores (m16n8k16)."""
FRAGMENT_ROWS = 8
"""Of a right fragment. Two of them for each left one took longer than tiles do, on an H200."""
FEWEST_COLUMNS_OF_ONE_ROW = 24576
"""Of codes of 4 bits, for one row: below, a kernel ends before arithmetic bounds it, and lanes of their own are
faster."""
NARROW_PROGRAMS = {4: 8, 8: 4}
"""By bits, for each multiprocessor, of sixteen columns each. Up to so many a program asks for all of K at once, in
QUADS_OF_NARROW quads and by up to WARPS_OF_LONG warps; with more in BLOCKS_OF_WIDE blocks of QUADS_OF_WIDE, so that
more programs have room. On an H200 four rows of int4 took 4.1 us for 3072 x 2048 so, 7.9 with eight warps of two
quads; 28672 x 4096 took 27.7, 33.8 with four quads."""
QUADS_OF_NARROW, QUADS_OF_WIDE, BLOCKS_OF_WIDE = 4, 2, 4


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


@dataclass(frozen=True)
class FragmentPlan(GemmPlan):
    """Tiles of block_m rows for tensor cores, whose lanes load what they hold; a warp has sixteen columns. warps_k:
    warps that share columns, parts of K apart. quads: of words of each column that a lane has at once, of `words` words
    each; four lanes have neighbouring quads of a column."""

    warps_k: int = 1
    quads: int = 1
    words: int = QUAD

    @property
    def warps_n(self) -> int:
        return self.warps // self.warps_k

    def lane_codes(self, bits: int) -> int:
        """Codes of `bits` in a quad of a lane."""
        return self.words * WORD_BITS // bits

    def quad_codes(self, bits: int) -> int:
        """Codes of a column in a quad of all its lanes."""
        return FRAGMENT_LANES * self.lane_codes(bits)

    def blocks(self, bits: int) -> tuple[int, int]:
        """Columns of a program, and codes of `bits` of each that it has at once."""
        return self.warps_n * FRAGMENT_COLUMNS, self.warps_k * self.quads * self.quad_codes(bits)


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


def plan_code_fragments(
    m: int, n: int, k: int, codes: tuple[DType, int], runs: Sequence[int], machine: Gpu
) -> FragmentPlan | None:
    """The plan for few rows, of 16 bits each number; codes: their type, and bits of one. None for many rows, where
    tensor cores are of another kind, and where what four lanes load of a column at once would cut runs of one number.
    """
    bits = codes[1]
    if m > FRAGMENT_ROWS or machine.device != "cuda" or codes not in FRAGMENT_CODES:
        return None
    if m == 1 and (bits == 8 or n < FEWEST_COLUMNS_OF_ONE_ROW):
        return None
    whole = [run for run in runs if run < k]
    per_word = WORD_BITS // bits
    fits = (w for w in (4, 2, 1) if k % (w * per_word) == 0)
    words = next((w for w in fits if all(run % (FRAGMENT_LANES * w * per_word) == 0 for run in whole)), 0)
    if not words:
        return None
    plan = FragmentPlan("tile", FRAGMENT_ROWS, 0, 0, WARPS, 1, 1, "few rows against codes", words=words)
    plan = _shared_out(plan, n, -(-k // plan.quad_codes(bits)), bits, machine)
    block_n, block_k = plan.blocks(bits)
    programs = -(-n // block_n)
    splits = _splits(programs, k, block_k, machine) if 2 * programs < machine.multiprocessors else 1
    return replace(plan, block_n=block_n, block_k=block_k, splits=splits)


def _shared_out(plan: FragmentPlan, n: int, spans: int, bits: int, machine: Gpu) -> FragmentPlan:
    """With warps and quads for N columns; spans: what four lanes load at once, of K."""
    narrow = n <= FRAGMENT_COLUMNS * NARROW_PROGRAMS[bits] * machine.multiprocessors
    if narrow:
        quads, fewest, most = QUADS_OF_NARROW, WARPS, WARPS_OF_LONG
        wanted = -(-spans // quads)
    else:
        quads, fewest, most = QUADS_OF_WIDE, 1, WARPS
        wanted = -(-spans // (quads * BLOCKS_OF_WIDE))
    warps_k = min(most, max(fewest, power_of_two_from(wanted)), power_of_two_from(spans))
    quads = min(quads, power_of_two_from(-(-spans // warps_k)))
    return replace(plan, warps=max(WARPS, warps_k), warps_k=warps_k, quads=quads)


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
