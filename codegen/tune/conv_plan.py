"""Tiles of convolutions: those of the product that a convolution is, with the depth that its channels allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape, plan_gemm

FEW_CHANNELS = 16
"""Input channels below which taps and channels are walked as one."""


@dataclass(frozen=True)
class ConvShape:
    """points: output points of all images; channels of one group."""

    points: int
    channels_in: int
    channels_out: int
    groups: int
    taps: int
    dtype: DType


def plan_conv(s: ConvShape, machine: Gpu) -> GemmPlan:
    """variant taps: a step is one tap and block_k channels; flat: block_k of taps times channels."""
    return fitted(plan_gemm(as_product(s), machine), s)


def as_product(s: ConvShape) -> GemmShape:
    """The product that a convolution is: points by channels out, over taps times channels in."""
    return GemmShape(s.groups, s.points, s.channels_out, s.taps * s.channels_in, s.dtype)


def fitted(plan: GemmPlan, s: ConvShape) -> GemmPlan:
    """A product's plan as that of a convolution, its depth fitted to the channels."""
    if s.channels_in < FEW_CHANNELS:
        block_k = min(32, max(16, power_of_two_from(s.taps * s.channels_in)))
        return replace(plan, variant="flat", block_k=block_k, splits=1, reason=f"{plan.reason}; few input channels")
    fitting = [b for b in (64, 32, 16) if b <= max(16, plan.block_k)]
    # the depth that wastes least on a channel count that it does not divide
    block_k = min(fitting, key=lambda b: (-(-s.channels_in // b) * b, -b))
    steps = s.taps * -(-s.channels_in // block_k)
    return replace(plan, variant="taps", block_k=block_k, splits=min(plan.splits, max(1, steps // 4)))


@dataclass(frozen=True)
class DepthwisePlan:
    """run: neighbouring outputs along the last dimension, whose inputs are loaded once. A program computes `runs` runs
    of `block_n` channels, with `share` rows of the filter side by side. All are powers of two."""

    run: int
    runs: int
    share: int
    block_n: int
    warps: int
    reason: str


LONGEST_TAPS = 32
"""Taps of a row of a filter that are walked as one."""
FULL_WARPS = 20
"""Warps on a multiprocessor from which more of them hide no more of the time that loads take."""


def row_taps(width: int) -> int:
    """The taps of a chunk of a filter's row: all of them, or an equal part."""
    return width if width <= LONGEST_TAPS else max(k for k in range(1, LONGEST_TAPS // 2 + 1) if width % k == 0)


def plan_depthwise(
    lines: int, width: int, channels: int, kernel: tuple[int, ...], stride: int, machine: Gpu
) -> DepthwisePlan:
    """lines: output lines of all images, `width` outputs each; stride: along a line."""
    taps = row_taps(kernel[-1])
    rows = kernel[-1] // taps
    for k in kernel[:-1]:
        rows *= k

    def work(run: int) -> float:
        # a load and its conversion weigh as much as one and a half products
        return -(-width // run) * (run * taps + 1.5 * ((run - 1) * stride + 2 * taps))

    run = min((8, 4, 2, 1), key=work)
    padded = {b: -(-channels // b) * b for b in (64, 32, 16)}
    block_n = next((b for b, n in padded.items() if n <= 1.125 * channels), min(padded, key=lambda b: padded[b]))
    total = lines * -(-width // run)
    points = total * padded[block_n]
    enough = FULL_WARPS * machine.multiprocessors
    warp = machine.warp_size
    each = 4 if points >= 2 * enough * warp * 4 else 2
    share = 1
    while share < rows and 2 * share * points <= enough * warp * each:
        share *= 2
    most = 4 if share == 1 and each == 4 else 1
    runs = min(power_of_two_from(total), max(1, most * warp * each // (share * block_n)))
    warps = max(1, runs * share * block_n // (warp * each))
    return DepthwisePlan(run, runs, share, block_n, warps, f"{rows} rows of {taps} taps, {share} at a time")
