"""The plans that are worth timing for a shape, at most MOST of them, and which plans are legal at all.

The first candidate is the cost model's choice; the others are what it ranks next, and its neighbours. All are legal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.machine.machine import Cpu, Gpu, Machine
from hardtack.codegen.tune.attention_plan import (
    KEYS_OF_A_PART,
    AttentionPlan,
    AttentionShape,
    head_blocks,
    plan_attention,
)
from hardtack.codegen.tune.attention_plan import MOST_SPLITS as MOST_ATTENTION_SPLITS
from hardtack.codegen.tune.conv_plan import ConvShape, as_product, fitted, plan_conv
from hardtack.codegen.tune.cut_plan import (
    ConvCutShape,
    CutPlan,
    CutShape,
    cut_by_cost,
    cut_candidates,
    cut_problem,
)
from hardtack.codegen.tune.gemm_plan import (
    MOST_SPLITS,
    PAIR_ROWS,
    RESERVED_NBYTES,
    VECTOR_NUMEL,
    GemmPlan,
    GemmShape,
    estimate,
    holds_row,
    plan_gemm,
    ranked,
    streamable,
)

GpuShape = GemmShape | ConvShape | AttentionShape
Shape = GpuShape | CutShape | ConvCutShape
Plan = GemmPlan | AttentionPlan | CutPlan

MOST = 14
MOST_WARPS = 8
MOST_HELD_WARPS = 16
"""Of a program; of one that holds a row."""
RANKED = 10
"""Tiles that the cost model ranks first: among 72 shapes on an H200 the fastest of 18 was one of these in 71."""
WORSE = 1.4
"""How much slower than the first the cost model may think that a candidate is."""
MOST_ACCUMULATORS = 256
"""Registers of a thread that sums may take."""
MOST_STAGES = 12


def plan_by_cost(shape: Shape, machine: Machine) -> Plan:
    """What the cost model chooses."""
    if isinstance(shape, (CutShape, ConvCutShape)):
        assert isinstance(machine, Cpu)
        return cut_by_cost(shape, machine)
    assert isinstance(machine, Gpu)
    if isinstance(shape, GemmShape):
        return plan_gemm(shape, machine)
    return plan_conv(shape, machine) if isinstance(shape, ConvShape) else plan_attention(shape, machine)


def candidates(shape: Shape, machine: Machine) -> tuple[Plan, ...]:
    """At most MOST different legal plans in a fixed order, the cost model's choice first."""
    if isinstance(shape, (CutShape, ConvCutShape)):
        assert isinstance(machine, Cpu)
        return cut_candidates(shape, machine)
    assert isinstance(machine, Gpu)
    first = plan_by_cost(shape, machine)
    others: Iterable[Plan]
    if isinstance(shape, AttentionShape):
        assert isinstance(first, AttentionPlan)
        others = _attentions(first)
    else:
        assert isinstance(first, GemmPlan)
        others = _gemms(first, shape, machine) if isinstance(shape, GemmShape) else _convs(first, shape, machine)
    out: dict[tuple[object, ...], Plan] = {_identity(first): first}
    for p in others:
        if problem(p, shape, machine) == "":
            out.setdefault(_identity(p), p)
    return tuple(out.values())[:MOST]


def _identity(p: Plan) -> tuple[object, ...]:
    return tuple(getattr(p, f.name) for f in fields(p) if f.name != "reason")


def _gemms(first: GemmPlan, s: GemmShape, machine: Gpu) -> list[GemmPlan]:
    if first.variant == "outer":
        return []
    if first.variant == "vector":
        return _vectors(first)
    return [*_good(s, machine), *_neighbours(first)]


def _good(s: GemmShape, machine: Gpu) -> list[GemmPlan]:
    """What the cost model ranks first."""
    best = ranked(s, machine)[:RANKED]
    return [p for p in best if estimate(p, s, machine) <= WORSE * estimate(best[0], s, machine)]


def _neighbours(p: GemmPlan) -> list[GemmPlan]:
    out = []
    if p.programs == 0:
        out += [replace(p, splits=n) for n in (2 * p.splits, p.splits // 2) if n >= 1]
    out += [replace(p, stages=p.stages + step) for step in (-1, 1)]
    if p.variant != "stream":
        out.append(replace(p, warps=4 if p.warps == 8 else 8))
    return out


def _vectors(p: GemmPlan) -> list[GemmPlan]:
    """Other shapes of the block of B that a program holds, more and fewer parts of K or, of a held row, programs."""
    if p.programs > 0:
        out = [replace(p, block_n=n) for n in (2 * p.block_n, p.block_n // 2) if n >= 1]
        out += [replace(p, warps=n) for n in (2 * p.warps, p.warps // 2) if n >= 1]
        out += [replace(q, programs=q.programs * k // 4) for q in (p, *out) for k in (2, 3, 5)]
        return out
    blocks = ((2, 1), (1, 2), (2, 2), (0.5, 2), (2, 0.5), (0.5, 1), (1, 0.5))
    out = [replace(p, block_n=int(p.block_n * n), block_k=int(p.block_k * k)) for n, k in blocks]
    out += [replace(p, splits=n) for n in (2 * p.splits, p.splits // 2) if n >= 1]
    return [*out, *(replace(p, warps=n) for n in (2, 8))]


def _convs(first: GemmPlan, s: ConvShape, machine: Gpu) -> list[GemmPlan]:
    product = as_product(s)
    found = [fitted(p, s) for p in _good(product, machine)]
    deeper = [replace(first, block_k=k) for k in (first.block_k * 2, first.block_k // 2)]
    return [*found, *deeper, *_neighbours(first)]


ATTENTION_TILES = (
    (128, 64, 4, 3),
    (128, 32, 4, 3),
    (64, 64, 4, 3),
    (64, 32, 4, 3),
    (64, 128, 4, 2),
    (128, 64, 8, 3),
    (128, 128, 8, 2),
    (64, 64, 4, 4),
    (128, 32, 4, 4),
    (64, 64, 4, 2),
    (128, 32, 8, 3),
    (32, 64, 4, 3),
)
"""(rows, keys, warps, stages)."""


def _attentions(p: AttentionPlan) -> list[AttentionPlan]:
    splits = [replace(p, splits=n) for n in dict.fromkeys((1, 2 * p.splits, p.splits // 2, 2)) if n >= 1]
    if p.block_m < 64:
        sizes = [(p.block_n * 2, 4, 2), (p.block_n // 2, 4, 3), (p.block_n, 2, 3), (p.block_n, 4, 2), (p.block_n, 8, 3)]
        return splits + [replace(p, block_n=n, warps=w, stages=g) for n, w, g in sizes]
    tiles = [replace(p, block_m=m, block_n=n, warps=w, stages=g) for m, n, w, g in ATTENTION_TILES]
    return [*tiles, *splits]


def problem(plan: Plan, shape: Shape, machine: Machine) -> str:
    """Why `plan` is not legal for `shape` on a machine; "" if it is."""
    if isinstance(shape, (CutShape, ConvCutShape)):
        return cut_problem(plan, shape) if isinstance(plan, CutPlan) else "not a plan of a CPU's kernel"
    assert isinstance(machine, Gpu)
    if isinstance(shape, AttentionShape):
        return (
            _attention_problem(plan, shape, machine) if isinstance(plan, AttentionPlan) else "not a plan of attention"
        )
    if not isinstance(plan, GemmPlan):
        return "not a plan of products"
    if isinstance(shape, ConvShape):
        if plan.variant not in ("taps", "flat"):
            return f"convolutions have no variant {plan.variant!r}"
        if plan.variant == "flat" and plan.splits != 1:
            return "the variant flat is not split"
        return _tile_problem(plan, shape.dtype, machine)
    return _gemm_problem(plan, shape, machine)


def _gemm_problem(p: GemmPlan, s: GemmShape, machine: Gpu) -> str:
    if not s.splittable and p.splits != 1:
        return "this product is not split"
    if (p.variant == "outer") != (s.dtype is DType.F64):
        return f"{s.dtype} products have no variant {p.variant!r}"
    if p.variant == "outer":
        common = _power_problem(p, {"block_m": 1, "block_n": 1})
        return common or ("" if p.splits == 1 else "the variant outer is not split")
    if p.variant == "vector":
        if s.dtype in BYTES:
            return f"the variant vector takes no {s.dtype}"
        if not s.one_row or s.n <= 1:
            return "the variant vector takes one row and several columns"
        if p.block_m != 1 or p.block_n * p.block_k > 2 * VECTOR_NUMEL:
            return f"the variant vector holds 1 row and at most {2 * VECTOR_NUMEL} elements of B"
        if holds_row(s) and (p.programs < 1 or p.splits != 1 or p.block_k < s.k):
            return f"a row of {s.k} elements is held whole, by a persistent grid"
        return _power_problem(p, {"block_n": 1, "block_k": 16})
    if p.variant == "stream":
        if not streamable(s, machine):
            return f"bulk copies cannot read these operands on {machine.name}"
        if p.programs < 0 or (p.splits != 1 and p.programs > 0):
            return "a persistent grid is not split"
    elif p.variant != "tile":
        return f"products have no variant {p.variant!r}"
    return _tile_problem(p, s.dtype, machine)


def _tile_problem(p: GemmPlan, dtype: DType, machine: Gpu) -> str:
    """What both products and convolutions in tiles must keep to."""
    if p.group_m < 1:
        return f"group_m is {p.group_m}; it must be at least 1"
    pair = p.variant == "stream" and p.block_m == PAIR_ROWS and not p.programs
    least = {"block_n": 16, "block_k": 32 if dtype in BYTES else 16}
    sizes = _power_problem(p, least | ({} if pair else {"block_m": 16}))
    return sizes or _room_problem(p.block_m * p.block_n, p.warps, p.shared_nbytes(dtype.nbytes), machine)


def _power_problem(p: GemmPlan | AttentionPlan, least: dict[str, int]) -> str:
    """Sizes that are no powers of two, or too small; warps, stages and splits out of range."""
    for name, low in {**least, "warps": 1}.items():
        value = getattr(p, name)
        if value < low or value & (value - 1):
            return f"{name} is {value}; it must be a power of two of at least {low}"
    most = MOST_HELD_WARPS if isinstance(p, GemmPlan) and p.variant == "vector" and p.programs else MOST_WARPS
    if p.warps > most:
        return f"warps is {p.warps}; there are at most {most}"
    if not 1 <= p.stages <= MOST_STAGES:
        return f"stages is {p.stages}; it must be from 1 to {MOST_STAGES}"
    most = MOST_ATTENTION_SPLITS if isinstance(p, AttentionPlan) else MOST_SPLITS
    return "" if 1 <= p.splits <= most else f"splits is {p.splits}; it must be from 1 to {most}"


def _room_problem(accumulators: int, warps: int, shared_nbytes: int, machine: Gpu) -> str:
    if accumulators > MOST_ACCUMULATORS * machine.warp_size * warps:
        return f"{accumulators} sums do not fit in the registers of {warps} warps"
    most = machine.shared_nbytes - RESERVED_NBYTES
    return (
        "" if shared_nbytes <= most else f"it takes {shared_nbytes} bytes of shared memory; {machine.name} has {most}"
    )


def _attention_problem(p: AttentionPlan, s: AttentionShape, machine: Gpu) -> str:
    if (p.block_d, p.block_e) != head_blocks(s):
        return "heads of {} and {} elements need blocks of {} and {}".format(s.d, s.e, *head_blocks(s))
    if p.packed and s.heads <= s.kv_heads:
        return "no heads share keys"
    if p.splits > max(1, s.tk // KEYS_OF_A_PART):
        return f"{s.tk} keys are not split in {p.splits}"
    shared = (p.block_m * p.block_d + p.stages * p.block_n * (p.block_d + p.block_e)) * s.dtype.nbytes
    sizes = _power_problem(p, {"block_m": 16, "block_n": 16})
    return sizes or _room_problem(p.block_m * (p.block_n + p.block_e), p.warps, shared, machine)
