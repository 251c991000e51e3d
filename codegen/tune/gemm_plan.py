"""Which kernel computes a matrix product, and with which tiles: a pure function of shape, dtype and machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.types import BYTES, HALF, DType
from hardtack.codegen.machine.machine import Gpu

RESERVED_NBYTES = 2048
"""Shared memory that pipelines leave for barriers and for layouts of results."""
SMALLEST_SPLIT = 256
"""Terms of a sum below which a part of it is not worth a kernel of its own."""
MOST_SPLITS = 32
PAIR_ROWS = 192
"""Rows of the one tile that is no power of two: where it makes whole waves of what others do not."""
PAIRS_BY_COST = False
"""Whether the cost model may choose that tile: a table may, for what was measured."""
STREAM_TILES = (
    (192, 128, 64, 8, 4, False),
    (192, 128, 64, 4, 4, False),
    (192, 256, 64, 8, 3, False),
    (128, 256, 64, 8, 3, True),
    (128, 256, 64, 8, 4, False),
    (256, 128, 64, 8, 4, False),
    (128, 128, 64, 8, 4, True),
    (128, 128, 64, 8, 3, False),
    (128, 128, 64, 4, 3, False),
    (128, 128, 64, 8, 6, False),
    (64, 256, 64, 4, 4, False),
    (128, 64, 64, 4, 4, False),
    (128, 64, 64, 4, 8, False),
    (64, 128, 64, 4, 4, False),
    (64, 128, 64, 4, 8, False),
    (64, 64, 64, 4, 6, False),
    (64, 64, 64, 4, 12, False),
    (64, 32, 64, 4, 8, False),
    (64, 16, 64, 4, 10, False),
)
"""(m, n, k, warps, stages, persistent); of bytes k is twice that, and fewer warps come first: 128 x 128 x 128 by four
took 0.96 of the time by eight on an H200. Three and four stages of 128 x 128 leave room for a second program on a
multiprocessor, as do the smaller tiles with fewer stages. Copies have no warps of their own (warp specialisation):
what Triton 3.6 makes of that for 128 x 128 never ended on an H200."""
VECTOR_NUMEL = 8192
"""Elements of B that one program of the one-row kernel holds at a time."""
LONGEST_HELD = 8192
"""Elements of a row that a program of the one-row kernel holds while it walks columns."""


@dataclass(frozen=True)
class GemmPlan:
    """variant: tile (tensor cores where they take the dtype), stream (the same with bulk copies), vector (one row),
    outer (no tensor cores). splits: parts of K computed apart and added afterwards (split-K). programs: of a
    persistent grid, at most; 0: one for each tile. A vector plan with programs holds a row of up to block_k
    elements."""

    variant: str
    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int
    reason: str
    group_m: int = 8
    programs: int = 0

    def shared_nbytes(self, item: int) -> int:
        """Bytes of shared memory that the pipelined tiles take."""
        return (self.block_m + self.block_n) * self.block_k * item * max(1, self.stages)


@dataclass(frozen=True)
class GemmShape:
    """Sizes, dynamic ones at their example value. depth_first: B's elements along K lie side by side (a transposed
    weight). one_row: M is 1 whatever the symbols are. streamable: bulk copies can read both operands. heavy: an
    exponential or something as costly is computed of each result; keys name it only where it is."""

    batch: int
    m: int
    n: int
    k: int
    dtype: DType
    depth_first: bool = False
    one_row: bool = False
    streamable: bool = False
    splittable: bool = True
    heavy: bool = False


def plan_gemm(s: GemmShape, machine: Gpu) -> GemmPlan:
    """The plan for a product of `s`."""
    if s.dtype is DType.F64:
        return GemmPlan("outer", 32, 32, 1, 4, 1, 1, "f64 has no tensor cores on every architecture")
    if s.one_row and s.n > 1 and s.dtype not in BYTES:
        return _vector(s, machine)
    return next(p for p in ranked(s, machine) if PAIRS_BY_COST or p.block_m != PAIR_ROWS)


def ranked(s: GemmShape, machine: Gpu) -> list[GemmPlan]:
    """Every tile that fits, split as far as that is good, the best first."""
    every = [split(p, s, machine) for p in (*streams(s, machine), *tiles(s, machine))]
    return sorted(every, key=lambda p: estimate(p, s, machine))


def _vector(s: GemmShape, machine: Gpu) -> GemmPlan:
    """One row is bound by reading B: every multiprocessor has to have several programs at it."""
    wanted = 2 * machine.multiprocessors
    if holds_row(s):
        return _held(s, machine)
    if s.depth_first:
        block_n = next((b for b in (16, 8, 4) if s.batch * s.n >= b * wanted), 2)
        block_k = min(VECTOR_NUMEL // block_n // 2, max(64, power_of_two_from(s.k)), 1024)
        warps = 4
        if s.k > LONGEST_HELD and s.n >= 4 * wanted:
            block_n, block_k, warps = 4, 2048, 8
        reason = "one row against columns that lie side by side along K"
    else:
        block_n = next((b for b in (256, 128, 64) if s.batch * s.n >= b * wanted), 32)
        block_k = min(VECTOR_NUMEL // block_n // 2, max(16, power_of_two_from(s.k)))
        warps = 4
        reason = "one row against rows of B"
    programs = s.batch * -(-s.n // block_n)
    splits = 1
    if s.splittable and programs < wanted:
        splits = max(1, min(MOST_SPLITS, wanted // max(1, programs), s.k // max(SMALLEST_SPLIT, block_k)))
    return GemmPlan("vector", 1, block_n, block_k, warps, 1, splits, reason)


def holds_row(s: GemmShape) -> bool:
    """True if the programs of a one-row product hold the row, so that they can compute it, too."""
    return s.depth_first and s.one_row and s.batch == 1 and s.dtype in HALF and 0 < s.k <= LONGEST_HELD


def _held(s: GemmShape, machine: Gpu) -> GemmPlan:
    """A row that each program holds while it walks columns. A thread has 32 elements of B, and no more registers than
    leave room for MOST_THREADS on a multiprocessor: on an H200 fewer programs lose a tenth of the bandwidth."""
    block_k = max(256, power_of_two_from(s.k))
    warps = 16 if block_k > 4096 else max(1, min(8, block_k // 256))
    most = max(1, 32 * machine.warp_size * warps // block_k)
    block_n = next((b for b in (4, 2) if b <= most and s.n >= b * 2 * machine.multiprocessors), 1)
    tiles, programs = -(-s.n // block_n), machine.most_warps // warps * machine.multiprocessors
    if programs < tiles < 2 * programs:
        programs = -(-tiles // 2)  # two blocks each, not two for some and one for others
    reason = "a row that is held, against columns that lie side by side along K"
    return GemmPlan("vector", 1, block_n, block_k, warps, 1, 1, reason, programs=programs)


def tiles(s: GemmShape, machine: Gpu) -> list[GemmPlan]:
    """Tiles that fit on the machine, in one part."""
    item = s.dtype.nbytes
    if s.dtype is DType.F32 and machine.splits_f32:
        tiles = [
            (128, 128, 32, 8, 3),
            (128, 64, 32, 4, 4),
            (64, 128, 32, 4, 4),
            (64, 64, 64, 4, 3),
            (64, 64, 32, 4, 4),
            (64, 32, 64, 4, 4),
            (32, 64, 32, 4, 4),
            (16, 64, 32, 4, 4),
        ]
        why = "f32 in two parts on tensor cores"
    elif s.dtype is DType.F32:
        tiles = [(128, 64, 16, 8, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 3), (64, 32, 32, 4, 3), (16, 64, 32, 4, 4)]
        why = "f32 without tensor cores"
    else:
        tiles = [
            (128, 256, 64, 8, 3),
            (256, 128, 64, 8, 3),
            (128, 128, 64, 8, 4),
            (64, 256, 64, 4, 4),
            (128, 64, 64, 4, 4),
            (64, 128, 64, 4, 4),
            (64, 64, 64, 4, 5),
            (64, 32, 64, 4, 6),
            (32, 64, 128, 4, 4),
            (16, 128, 64, 4, 5),
            (16, 64, 128, 4, 5),
            (16, 32, 256, 4, 4),
        ]
        why = "tensor cores"
    out = []
    for block_m, block_n, block_k, warps, stages in tiles:
        depth = min(deep(block_k, s.dtype), max(32 if s.dtype is not DType.F32 else 16, power_of_two_from(s.k)))
        plan = GemmPlan("tile", block_m, block_n, depth, warps, _useful(stages, s.k, depth), 1, why)
        while plan.shared_nbytes(item) > machine.shared_nbytes - RESERVED_NBYTES:
            plan = replace(plan, stages=plan.stages - 1)
        if plan.stages >= 2:
            out.append(plan)
    return out


def deep(block_k: int, dtype: DType) -> int:
    """Elements along K of a block that has so many of 16 bits: of bytes twice as many."""
    return 2 * block_k if dtype in BYTES else block_k


def _useful(stages: int, k: int, block_k: int) -> int:
    """No more stages than steps: shared memory is left for other programs."""
    return min(stages, max(2, -(-k // block_k)))


def streamable(s: GemmShape, machine: Gpu) -> bool:
    """True if bulk copies can feed the product at all."""
    return s.streamable and s.batch == 1 and s.dtype in (*HALF, *BYTES) and machine.warpgroup is not None


def stream_tiles(dtype: DType) -> list[tuple[int, int, int, int, int, bool]]:
    """STREAM_TILES in the order in which equally good ones are taken."""
    return sorted(STREAM_TILES, key=lambda tile: tile[3]) if dtype in BYTES else list(STREAM_TILES)


def streams(s: GemmShape, machine: Gpu) -> list[GemmPlan]:
    """Tiles fed by bulk copies: persistent grids, and one program for each tile (programs=0)."""
    if not streamable(s, machine) or s.k < deep(64, s.dtype) or s.m < 32:
        return []
    why, grid = "tensor cores fed by bulk copies", machine.multiprocessors
    return [
        GemmPlan("stream", m, n, k, warps, _useful(stages, s.k, k), 1, why, programs=grid if persistent else 0)
        for m, n, half_k, warps, stages, persistent in stream_tiles(s.dtype)
        for k in (deep(half_k, s.dtype),)
        if m < 2 * s.m and n < 2 * s.n
    ]


STREAM_EFFICIENCY = 0.95
TILE_EFFICIENCY = 0.7
"""Of tensor cores, fed by bulk copies and by others."""
NARROW_EFFICIENCY = 0.5
"""Of tiles of less than 64 rows on machines whose tensor cores take 64."""
SPLIT_F32_EFFICIENCY = 0.73 / 3
"""Of tensor cores for f32: three products of TF32 make one."""
OVERLAP = 0.45
"""The share of the shorter of reading and multiplying that is not hidden behind the other."""


def step_seconds(p: GemmPlan, dtype: DType, machine: Gpu) -> float:
    """Of one step along K on a multiprocessor that nobody else uses, operands at hand."""
    area = p.block_m * p.block_n
    efficiency = math.sqrt(area / (area + 64 * 64))
    if dtype is DType.F32 and not machine.splits_f32:
        return 2.0 * area * p.block_k / (machine.f32_flops * 0.5)
    if machine.warpgroup and p.block_m < 64:
        efficiency *= NARROW_EFFICIENCY
    if dtype is DType.F32:
        return 2.0 * area * p.block_k / (machine.tensor_flops.tf32 * SPLIT_F32_EFFICIENCY * efficiency)
    if machine.warpgroup and p.block_m >= 64:
        cycles = p.block_k * dtype.nbytes / 32 * (p.block_m / 64) * machine.warpgroup.cycles(p.block_n)
        return cycles / (machine.clock_hz * (STREAM_EFFICIENCY if p.variant == "stream" else TILE_EFFICIENCY))
    bits = 16 if dtype.is_float8 else 8 * dtype.nbytes  # single warps multiply floats of 8 bits as f16
    return 2.0 * area * p.block_k / (machine.tensor_flops.of_bits(bits) * efficiency)


def residents(p: GemmPlan, dtype: DType, machine: Gpu) -> int:
    """Programs that a multiprocessor holds at a time, its occupancy: as shared memory and registers allow."""
    shared = p.shared_nbytes(dtype.nbytes) + 2 * machine.program_nbytes  # its own, and barriers with what aligns them
    if dtype is DType.F32 and machine.splits_f32:
        # the two parts of a tile of B, as if they lay in shared memory: it ranks 64 x 64 x 32 before 64 x 64 x 64, that
        # took 46 us in place of 39 for 512 x 3072 x 768 on an H200
        shared += 2 * p.block_n * p.block_k * dtype.nbytes
    threads = machine.warp_size * p.warps
    registers = threads * min(255, p.block_m * p.block_n // threads + 64)
    room = (
        machine.shared_nbytes + machine.program_nbytes
    )  # of a multiprocessor: one program has what one block may have
    return max(1, min(room // shared, machine.registers // registers, machine.most_programs))


def estimate(p: GemmPlan, s: GemmShape, machine: Gpu) -> float:
    """Seconds, roughly: what a multiprocessor has to do for its share of the tiles, or a program alone, or memory."""
    item = s.dtype.nbytes
    tiles = max(1, s.batch * -(-s.m // p.block_m) * -(-s.n // p.block_n) * p.splits)
    steps = -(-s.k // (p.block_k * p.splits))
    share = -(-tiles // machine.multiprocessors)
    at_once = min(share, residents(p, s.dtype, machine))
    if p.programs:
        at_once = 1
    read = (p.block_m + p.block_n) * p.block_k * item / machine.transfer
    work = step_seconds(p, s.dtype, machine)
    step = max(work, read) + OVERLAP * min(work, read)
    latency = machine.waits.step_latency_s / max(1, p.stages - 1)
    out = p.block_m * p.block_n * (item if p.splits == 1 else 4)
    around = (
        machine.waits.fill_s
        + (machine.waits.stream_fill_s if p.variant == "stream" else 0.0)
        + out / machine.store_rate
    )
    busy = share * steps * step + around
    alone = -(-share // at_once) * (steps * max(step, latency) + around)
    total = max(busy, alone, *_traffic(s, machine, item))
    if p.splits > 1:
        parts = s.batch * s.m * s.n * 4 * p.splits
        total += machine.waits.launch_s + 2 * parts / (2 * machine.bandwidth)
    return total


def _traffic(s: GemmShape, machine: Gpu, item: int) -> tuple[float, ...]:
    return (s.batch * (s.m * s.k + s.n * s.k + s.m * s.n) * item / machine.bandwidth,)


def split(p: GemmPlan, s: GemmShape, machine: Gpu) -> GemmPlan:
    """K in as many parts as the estimate likes best: more than one only where tiles are too few."""
    tiles = max(1, s.batch * -(-s.m // p.block_m) * -(-s.n // p.block_n))
    if not s.splittable or p.programs or 2 * tiles > 3 * machine.multiprocessors or s.batch * s.m * s.n > 1 << 21:
        return p
    most = min(MOST_SPLITS, s.k // max(SMALLEST_SPLIT, 2 * p.block_k))
    choices = [replace(p, splits=n) for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n == 1 or n <= most]
    best = min(choices, key=lambda c: estimate(c, s, machine))
    if best.splits == 1:
        return p
    return replace(best, reason=f"{p.reason}; {tiles} tiles for {machine.multiprocessors} multiprocessors")
