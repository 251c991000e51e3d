"""How a CPU's product or convolution is cut, as far as tuning has a say: CutPlan. What is not in it follows from the
caches (machine/blocking.py): other sizes of units, and other distances to read ahead, have won nowhere (ADR 0033)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.blocking import GRAIN, MOST_DEPTH, float_depth, staged_depth
from hardtack.codegen.machine.machine import Cpu

RIGHTS = ("by_size", "packed", "in_place")
"""How a product of two values reads its right side: packed, in place, or as the template's rule has it."""


@dataclass(frozen=True)
class CutShape:
    """A product on a CPU. constant: the right side is packed at export; rows_dense: the right side's rows lie dense."""

    batch: int
    m: int
    n: int
    k: int
    dtype: DType
    constant: bool
    rows_dense: bool


@dataclass(frozen=True)
class ConvCutShape:
    """A convolution on a CPU, of `points` output points of all images; channels of one group. step: from one window to
    the next, in both directions."""

    points: int
    channels_in: int
    channels_out: int
    groups: int
    taps: int
    step: int
    dtype: DType


@dataclass(frozen=True)
class CutPlan:
    """depth: the longest k block. right: one of RIGHTS."""

    depth: int
    right: str
    reason: str


def cut_by_cost(s: CutShape | ConvCutShape, cpu: Cpu) -> CutPlan:
    """What the machine's own blocks are."""
    depth = staged_depth(cpu) if s.dtype.is_half else float_depth(cpu)
    return CutPlan(depth, "by_size", "by the caches of the CPU that runs it")


def cut_candidates(s: CutShape | ConvCutShape, cpu: Cpu) -> tuple[CutPlan, ...]:
    """The machine's own, then those that differ from it in one thing; depths beyond the product's are one."""
    first = cut_by_cost(s, cpu)
    reached = s.k if isinstance(s, CutShape) else s.taps * s.channels_in
    out = [first]
    if isinstance(s, CutShape) and _has_choice(s):
        out += [replace(first, right=right) for right in RIGHTS[1:]]
    seen = {min(first.depth, reached)}
    for depth in (512, 768, 1024, 1536, MOST_DEPTH):
        if min(depth, reached) not in seen:
            seen.add(min(depth, reached))
            out.append(replace(first, depth=depth))
    return tuple(replace(p, reason="") if k else p for k, p in enumerate(out))


def cut_problem(p: CutPlan, s: CutShape | ConvCutShape) -> str:
    """Why a plan is not legal for a shape; "" if it is."""
    if not GRAIN <= p.depth <= MOST_DEPTH or p.depth % GRAIN:
        return f"depth is {p.depth}; it must be a multiple of {GRAIN} from {GRAIN} to {MOST_DEPTH}"
    if p.right not in RIGHTS:
        return f"right is {p.right!r}; it must be one of {', '.join(RIGHTS)}"
    if p.right != "by_size" and not (isinstance(s, CutShape) and _has_choice(s)):
        return f"right is {p.right!r}; only f32 products of two values with dense rows have that choice"
    return ""


def _has_choice(s: CutShape) -> bool:
    return s.rows_dense and not s.constant and s.dtype is DType.F32
