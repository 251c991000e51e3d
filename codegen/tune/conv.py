"""Tiles of convolutions: those of the product that a convolution is, with the depth that its channels allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune.gemm import GemmPlan, GemmShape, plan_gemm
from hardtack.codegen.tune.machine import power_of_two_from

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


def plan_conv(s: ConvShape, arch: str) -> GemmPlan:
    """variant taps: a step is one tap and block_k channels; flat: block_k of taps times channels."""
    return fitted(plan_gemm(as_product(s), arch), s)


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


def plan_depthwise(points: int, channels: int) -> tuple[int, int]:
    """(block_m, block_n) of the depthwise kernel: 1024 results a program, channels side by side first."""
    block_n = min(64, max(16, power_of_two_from(channels)))
    return max(1, min(1024 // block_n, power_of_two_from(points))), block_n
