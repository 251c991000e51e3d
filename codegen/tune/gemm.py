"""Which kernel computes a matrix product, and with which tiles: a pure function of shape, dtype and architecture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.machine import Machine, machine_of, power_of_two_from

HALF = (DType.F16, DType.BF16)
SMALLEST_SPLIT = 256
"""Terms of a sum below which a part of it is not worth a kernel of its own."""
MOST_SPLITS = 32
STREAM_GAIN = 1.1
"""How much faster a tile is when bulk copies feed it."""
STREAM_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 4))
"""(m, n, k, warps, stages). Copies have no warps of their own: what Triton 3.6 makes of that for 128 x 128 never ended
on an H200."""
VECTOR_NUMEL = 8192
"""Elements of B that one program of the one-row kernel holds at a time."""


@dataclass(frozen=True)
class GemmPlan:
    """variant: tile (tensor cores, or plain multiplications in f32), stream (the same by a persistent grid with bulk
    copies), vector (one row), outer (no tensor cores). splits: parts of K computed apart and added afterwards.
    programs: of a persistent grid, at most."""

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
    weight). one_row: M is 1 whatever the symbols are. streamable: bulk copies can read both operands."""

    batch: int
    m: int
    n: int
    k: int
    dtype: DType
    depth_first: bool = False
    one_row: bool = False
    streamable: bool = False
    splittable: bool = True


def plan_gemm(s: GemmShape, arch: str) -> GemmPlan:
    """The plan for a product of `s` on `arch`."""
    machine = machine_of(arch)
    if s.dtype is DType.F64:
        return GemmPlan("outer", 32, 32, 1, 4, 1, 1, "f64 has no tensor cores on every architecture")
    if s.one_row and s.n > 1:
        return _vector(s, machine)
    best = min((*tiles(s, machine), *streams(s, machine)), key=lambda p: estimate(p, s, machine))
    return best if best.variant == "stream" else split(best, s, machine)


def _vector(s: GemmShape, machine: Machine) -> GemmPlan:
    """One row is bound by reading B: every multiprocessor has to have several programs at it."""
    wanted = 2 * machine.multiprocessors
    if s.depth_first:
        block_n = next((b for b in (16, 8, 4) if s.batch * s.n >= b * wanted), 2)
        block_k = min(VECTOR_NUMEL // block_n // 2, max(64, power_of_two_from(s.k)), 1024)
        reason = "one row against columns that lie side by side along K"
    else:
        block_n = next((b for b in (256, 128, 64) if s.batch * s.n >= b * wanted), 32)
        block_k = min(VECTOR_NUMEL // block_n // 2, max(16, power_of_two_from(s.k)))
        reason = "one row against rows of B"
    programs = s.batch * -(-s.n // block_n)
    splits = 1
    if s.splittable and programs < wanted:
        splits = max(1, min(MOST_SPLITS, wanted // max(1, programs), s.k // max(SMALLEST_SPLIT, block_k)))
    return GemmPlan("vector", 1, block_n, block_k, 4, 1, splits, reason)


def tiles(s: GemmShape, machine: Machine) -> list[GemmPlan]:
    """Tiles that fit on the machine, in one part."""
    item = s.dtype.nbytes
    if s.dtype is DType.F32:
        tiles = [(128, 64, 16, 8, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 3), (64, 32, 32, 4, 3), (16, 64, 32, 4, 4)]
        why = "f32 with f32's accuracy"
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
        depth = min(block_k, max(32 if s.dtype is not DType.F32 else 16, power_of_two_from(s.k)))
        plan = GemmPlan("tile", block_m, block_n, depth, warps, stages, 1, why)
        while plan.shared_nbytes(item) > machine.shared_nbytes - 2048:
            plan = replace(plan, stages=plan.stages - 1)
        if plan.stages >= 2:
            out.append(plan)
    return out


def streamable(s: GemmShape, machine: Machine) -> bool:
    """True if bulk copies can feed the product at all."""
    return s.streamable and s.batch == 1 and s.dtype in HALF and machine.warpgroup


def streams(s: GemmShape, machine: Machine) -> list[GemmPlan]:
    """Persistent grids with bulk copies, for products of whole large tiles."""
    if not streamable(s, machine) or min(s.m, s.n) < 128 or s.k < 128:
        return []
    why = "tensor cores fed by bulk copies"
    return [
        GemmPlan("stream", m, n, k, warps, stages, 1, why, programs=machine.multiprocessors)
        for m, n, k, warps, stages in STREAM_TILES
    ]


def estimate(p: GemmPlan, s: GemmShape, machine: Machine) -> float:
    """Seconds, roughly: whole waves of tiles, each bound by multiplications or by what it reads."""
    tiles = s.batch * -(-s.m // p.block_m) * -(-s.n // p.block_n)
    peak = machine.f32_flops * 0.5 if s.dtype is DType.F32 else machine.half_flops
    efficiency = math.sqrt(p.block_m * p.block_n / (p.block_m * p.block_n + 64 * 64))
    if machine.warpgroup and s.dtype is not DType.F32 and p.block_m < 64:
        efficiency *= 0.5
    if p.variant == "stream":
        efficiency = min(1.0, efficiency * STREAM_GAIN)
    compute = 2.0 * p.block_m * p.block_n * s.k / (peak * efficiency)
    read = (p.block_m + p.block_n) * s.k * s.dtype.nbytes / machine.transfer
    waves = -(-tiles // machine.multiprocessors)
    per_tile = max(compute, read)
    traffic = s.batch * (s.m * s.k + s.n * s.k + s.m * s.n) * s.dtype.nbytes / machine.bandwidth
    return max(waves * per_tile, traffic) + 1e-7 * p.block_m * p.block_n / 4096


def split(p: GemmPlan, s: GemmShape, machine: Machine) -> GemmPlan:
    """K in parts where tiles are too few to keep the machine busy."""
    tiles = max(1, s.batch * -(-s.m // p.block_m) * -(-s.n // p.block_n))
    least = max(SMALLEST_SPLIT, 2 * p.block_k)
    if not s.splittable or 2 * tiles > machine.multiprocessors or s.k < 4 * least or s.batch * s.m * s.n > 1 << 20:
        return p
    splits = max(1, min(MOST_SPLITS, -(-machine.multiprocessors // tiles), s.k // least))
    if splits == 1:
        return p
    return replace(p, splits=splits, reason=f"{p.reason}; {tiles} tiles for {machine.multiprocessors} multiprocessors")
