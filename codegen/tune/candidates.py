"""The plans that are worth timing for a shape, at most MOST of them, and which plans are legal at all.

The first candidate is the cost model's choice; the others are what it ranks next, and its neighbours. All are legal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.attention import (
    KEYS_OF_A_PART,
    AttentionPlan,
    AttentionShape,
    head_blocks,
    plan_attention,
)
from hardtack.codegen.tune.attention import MOST_SPLITS as MOST_ATTENTION_SPLITS
from hardtack.codegen.tune.conv import ConvShape, as_product, fitted, plan_conv
from hardtack.codegen.tune.gemm import (
    MOST_SPLITS,
    VECTOR_NUMEL,
    GemmPlan,
    GemmShape,
    estimate,
    plan_gemm,
    split,
    streamable,
    streams,
    tiles,
)
from hardtack.codegen.tune.machine import machine_of

Shape = GemmShape | ConvShape | AttentionShape
Plan = GemmPlan | AttentionPlan

MOST = 12
RANKED = 6
"""Tiles that the cost model ranks first."""
MOST_ACCUMULATORS = 256
"""Registers of a thread that sums may take."""
MOST_STAGES = 8
RESERVED_NBYTES = 2048
"""Shared memory that pipelines leave for barriers and for layouts of results."""


def plan_by_cost(shape: Shape, arch: str) -> Plan:
    """What the cost model chooses."""
    if isinstance(shape, GemmShape):
        return plan_gemm(shape, arch)
    return plan_conv(shape, arch) if isinstance(shape, ConvShape) else plan_attention(shape, arch)


def candidates(shape: Shape, arch: str) -> tuple[Plan, ...]:
    """At most MOST different legal plans in a fixed order, the cost model's choice first."""
    first = plan_by_cost(shape, arch)
    others: Iterable[Plan]
    if isinstance(shape, AttentionShape):
        assert isinstance(first, AttentionPlan)
        others = _attentions(first)
    else:
        assert isinstance(first, GemmPlan)
        others = _gemms(first, shape, arch) if isinstance(shape, GemmShape) else _convs(first, shape, arch)
    out: dict[tuple[object, ...], Plan] = {_identity(first): first}
    for p in others:
        if problem(p, shape, arch) == "":
            out.setdefault(_identity(p), p)
    return tuple(out.values())[:MOST]


def _identity(p: Plan) -> tuple[object, ...]:
    return tuple(getattr(p, f.name) for f in fields(p) if f.name != "reason")


def _gemms(first: GemmPlan, s: GemmShape, arch: str) -> list[GemmPlan]:
    machine = machine_of(arch)
    if first.variant == "outer":
        return []
    if first.variant == "vector":
        return _vectors(first)
    ranked = sorted((*tiles(s, machine), *streams(s, machine)), key=lambda p: estimate(p, s, machine))[:RANKED]
    found = [*streams(s, machine), *(p if p.variant == "stream" else split(p, s, machine) for p in ranked)]
    return [*found, *_neighbours(first)]


def _neighbours(p: GemmPlan) -> list[GemmPlan]:
    out = [replace(p, stages=p.stages + step) for step in (-1, 1)]
    if p.variant != "stream":
        out += [replace(p, splits=n) for n in (2 * p.splits, p.splits // 2) if n >= 1]
        out.append(replace(p, warps=4 if p.warps == 8 else 8))
    return out


def _vectors(p: GemmPlan) -> list[GemmPlan]:
    """Other shapes of the block of B that a program holds, more and fewer parts of K."""
    blocks = ((2, 1), (1, 2), (2, 2), (0.5, 2), (2, 0.5), (0.5, 1), (1, 0.5))
    out = [replace(p, block_n=int(p.block_n * n), block_k=int(p.block_k * k)) for n, k in blocks]
    out += [replace(p, splits=n) for n in (2 * p.splits, p.splits // 2) if n >= 1]
    return [*out, *(replace(p, warps=n) for n in (2, 8))]


def _convs(first: GemmPlan, s: ConvShape, arch: str) -> list[GemmPlan]:
    machine, product = machine_of(arch), as_product(s)
    ranked = sorted(tiles(product, machine), key=lambda p: estimate(p, product, machine))[:RANKED]
    found = [fitted(split(p, product, machine), s) for p in ranked]
    deeper = [replace(first, block_k=k) for k in (first.block_k * 2, first.block_k // 2)]
    return [*found, *deeper, *_neighbours(first)]


def _attentions(p: AttentionPlan) -> list[AttentionPlan]:
    out = [replace(p, block_n=n) for n in (2 * p.block_n, p.block_n // 2)]
    out += [replace(p, stages=p.stages + step) for step in (-1, 1)]
    out.append(replace(p, warps=4 if p.warps == 8 else 8))
    out += [replace(p, block_m=m) for m in (2 * p.block_m, p.block_m // 2)]
    out += [replace(p, block_m=p.block_m // 2, warps=4), replace(p, block_m=p.block_m * 2, warps=8)]
    return out + [replace(p, splits=n) for n in (2 * p.splits, p.splits // 2) if n >= 1]


def problem(plan: Plan, shape: Shape, arch: str) -> str:
    """Why `plan` is not legal for `shape` on `arch`; "" if it is."""
    if isinstance(shape, AttentionShape):
        return _attention_problem(plan, shape, arch) if isinstance(plan, AttentionPlan) else "not a plan of attention"
    if not isinstance(plan, GemmPlan):
        return "not a plan of products"
    if isinstance(shape, ConvShape):
        if plan.variant not in ("taps", "flat"):
            return f"convolutions have no variant {plan.variant!r}"
        if plan.variant == "flat" and plan.splits != 1:
            return "the variant flat is not split"
        return _tile_problem(plan, shape.dtype, arch)
    return _gemm_problem(plan, shape, arch)


def _gemm_problem(p: GemmPlan, s: GemmShape, arch: str) -> str:
    if not s.splittable and p.splits != 1:
        return "this product is not split"
    if (p.variant == "outer") != (s.dtype is DType.F64):
        return f"{s.dtype} products have no variant {p.variant!r}"
    if p.variant == "outer":
        common = _power_problem(p, {"block_m": 1, "block_n": 1})
        return common or ("" if p.splits == 1 else "the variant outer is not split")
    if p.variant == "vector":
        if not s.one_row or s.n <= 1:
            return "the variant vector takes one row and several columns"
        if p.block_m != 1 or p.block_n * p.block_k > 2 * VECTOR_NUMEL:
            return f"the variant vector holds 1 row and at most {2 * VECTOR_NUMEL} elements of B"
        return _power_problem(p, {"block_n": 1, "block_k": 16})
    if p.variant == "stream":
        if not streamable(s, machine_of(arch)):
            return f"bulk copies cannot read these operands on {arch}"
        if p.splits != 1 or p.programs < 1:
            return "the variant stream is not split and has at least one program"
    elif p.variant != "tile":
        return f"products have no variant {p.variant!r}"
    return _tile_problem(p, s.dtype, arch)


def _tile_problem(p: GemmPlan, dtype: DType, arch: str) -> str:
    """What both products and convolutions in tiles must keep to."""
    if p.group_m < 1:
        return f"group_m is {p.group_m}; it must be at least 1"
    sizes = _power_problem(p, {"block_m": 16, "block_n": 16, "block_k": 16})
    return sizes or _room_problem(p.block_m * p.block_n, p.warps, p.shared_nbytes(dtype.nbytes), arch)


def _power_problem(p: Plan, least: dict[str, int]) -> str:
    """Sizes that are no powers of two, or too small; warps, stages and splits out of range."""
    for name, low in {**least, "warps": 1}.items():
        value = getattr(p, name)
        if value < low or value & (value - 1):
            return f"{name} is {value}; it must be a power of two of at least {low}"
    if p.warps > 8:
        return f"warps is {p.warps}; there are at most 8"
    if not 1 <= p.stages <= MOST_STAGES:
        return f"stages is {p.stages}; it must be from 1 to {MOST_STAGES}"
    most = MOST_ATTENTION_SPLITS if isinstance(p, AttentionPlan) else MOST_SPLITS
    return "" if 1 <= p.splits <= most else f"splits is {p.splits}; it must be from 1 to {most}"


def _room_problem(accumulators: int, warps: int, shared_nbytes: int, arch: str) -> str:
    if accumulators > MOST_ACCUMULATORS * 32 * warps:
        return f"{accumulators} sums do not fit in the registers of {warps} warps"
    most = machine_of(arch).shared_nbytes - RESERVED_NBYTES
    return "" if shared_nbytes <= most else f"it takes {shared_nbytes} bytes of shared memory; {arch} has {most}"


def _attention_problem(p: AttentionPlan, s: AttentionShape, arch: str) -> str:
    if (p.block_d, p.block_e) != head_blocks(s):
        return "heads of {} and {} elements need blocks of {} and {}".format(s.d, s.e, *head_blocks(s))
    if p.packed and s.heads <= s.kv_heads:
        return "no heads share keys"
    if p.splits > max(1, s.tk // KEYS_OF_A_PART):
        return f"{s.tk} keys are not split in {p.splits}"
    shared = (p.block_m * p.block_d + p.stages * p.block_n * (p.block_d + p.block_e)) * s.dtype.nbytes
    sizes = _power_problem(p, {"block_m": 16, "block_n": 16})
    return sizes or _room_problem(p.block_m * (p.block_n + p.block_e), p.warps, shared, arch)
