"""How far fusion goes, by kind of device."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.machine.machine import Cpu

LARGEST_BODY = 160
"""Statements after which a nest takes no more producers: beyond it registers spill and compile time grows."""


@dataclass(frozen=True)
class FusionLimits:
    """How far fusion goes on a kind of device.

    parallel_enough: outer points that keep the device busy. small_work: points below which a kernel needs no second
    thread. largest_group: nests in a kernel. nested_reductions: a reduction may stand inside a loop over inner parallel
    axes. keeps_parallelism: a join never leaves fewer outer points than the group has now, unless they are enough.
    sibling_points: points of work up to which a group may share a launch with others. most_reducing: programs above
    which a kernel of its own reduces a row sooner than each of them. epilogues, prologues: whether templates take any.
    largest_body: statements after which a nest takes no more producers inside.
    """

    parallel_enough: int
    small_work: int
    largest_group: int
    nested_reductions: bool
    keeps_parallelism: bool
    sibling_points: int = 0
    most_reducing: int = 0
    epilogues: bool = True
    prologues: bool = True
    largest_body: int = LARGEST_BODY


def cpu_limits(cpu: Cpu) -> FusionLimits:
    """Those of kernels that a CPU's cores share."""
    return FusionLimits(cpu.cores, cpu.wake_points, largest_group=24, nested_reductions=True, keeps_parallelism=False)
