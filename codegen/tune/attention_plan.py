"""Tiles and splits of attention: a pure function of shape, dtype and machine."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu

LARGEST_HEAD = 256
"""Elements of a head that a program keeps in registers."""
MOST_SPLITS = 64
KEYS_OF_A_PART = 64
LONG = 384
"""Keys from which on many queries are worth parts, whose results are combined by a kernel of its own."""
FEW_KEYS = 256
"""Keys up to which short steps are better: they take fewer registers, so that more programs fit."""


@dataclass(frozen=True)
class AttentionPlan:
    """packed: the queries of all heads that share keys are the rows of one program's tile. splits: parts of the keys
    that are attended to apart and combined afterwards."""

    block_m: int
    block_n: int
    block_d: int
    block_e: int
    warps: int
    stages: int
    packed: bool
    splits: int
    reason: str


@dataclass(frozen=True)
class AttentionShape:
    """Sizes, dynamic ones at their example value; d and e, the sizes of a head of q and of v, are constants."""

    batch: int
    heads: int
    kv_heads: int
    tq: int
    tk: int
    d: int
    e: int
    dtype: DType
    causal: bool


def head_blocks(s: AttentionShape) -> tuple[int, int]:
    """(block_d, block_e): the heads of q and of v, rounded up."""
    return max(16, power_of_two_from(s.d)), max(16, power_of_two_from(s.e))


def _tile(s: AttentionShape, head: int, machine: Gpu) -> tuple[int, int, int, int]:
    """(rows, keys, warps, stages) for queries that fill them. head: the larger one's block."""
    if s.dtype is DType.F32:
        return (32, 32, 4, 2) if head > 64 else (64, 32, 4, 2)
    if head > 128:
        return (64, 32, 4, 2) if machine.warpgroup is None else (64, 64, 8, 2)
    if head > 64:
        return (128, 64, 8, 2 if machine.warpgroup is None else 3)
    return (128, 32 if s.tk <= FEW_KEYS else 64, 4, 3)


def plan_attention(s: AttentionShape, machine: Gpu) -> AttentionPlan:
    """The plan for attention of `s`."""
    block_d, block_e = head_blocks(s)
    group = max(1, s.heads // max(1, s.kv_heads))
    packed = group > 1 and s.tq < 16
    rows = s.tq * group if packed else s.tq
    units = s.batch * (s.kv_heads if packed else s.heads)
    head = max(block_d, block_e)
    block_m, block_n, warps, stages = _tile(s, head, machine)
    if not machine.pipelines_attention:
        stages = 1
    if block_m > 64 and (rows <= 64 or (head <= 64 and units * -(-rows // block_m) <= machine.multiprocessors)):
        block_m, warps = 64, 4  # more programs, several on a multiprocessor, hide each other's steps
    block_m = min(block_m, max(16, power_of_two_from(rows)))
    if block_m < 64:
        warps = 4
    programs = max(1, units * -(-rows // block_m))
    splits = 1
    worth = 2 * KEYS_OF_A_PART if s.dtype is DType.F32 or block_m < 64 else LONG
    if 2 * programs <= machine.multiprocessors and s.tk >= worth:
        splits = max(1, min(MOST_SPLITS, 2 * machine.multiprocessors // programs, s.tk // KEYS_OF_A_PART))
    reason = f"{programs} blocks of queries for {machine.multiprocessors} multiprocessors"
    if packed:
        reason += f"; the {group} heads that share keys go together"
    return AttentionPlan(block_m, block_n, block_d, block_e, warps, stages, packed, splits, reason)
