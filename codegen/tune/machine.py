"""What the cost models know of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A GPU architecture. shared_nbytes: of one block; rates are rough, they only rank choices.

    half_flops, f32_flops: per second and multiprocessor, in tensor cores and in ordinary ones. bandwidth: bytes a
    second of the memory. transfer: bytes a second that one multiprocessor gets out of the second-level cache.
    """

    name: str
    multiprocessors: int
    shared_nbytes: int
    half_flops: float
    f32_flops: float
    bandwidth: float
    transfer: float
    warpgroup: bool
    dependent_launch: bool


MACHINES = {
    "sm_80": Machine("sm_80", 108, 163 << 10, 2.9e12, 1.8e11, 1.9e12, 9e10, False, False),
    "sm_90": Machine("sm_90", 132, 227 << 10, 6.1e12, 3.9e11, 4.2e12, 1.05e11, True, True),
    "sm_100": Machine("sm_100", 148, 227 << 10, 1.4e13, 5.0e11, 7.5e12, 1.2e11, True, True),
}
"""Target architecture -> Machine: the A100, H100/H200 and B200 that each architecture is mostly found in."""


def machine_of(arch: str) -> Machine:
    """The machine of a target; KeyError with the known names for another one."""
    if arch not in MACHINES:
        raise KeyError(f"no GPU architecture {arch!r}; known are {', '.join(MACHINES)}")
    return MACHINES[arch]


def power_of_two_from(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
