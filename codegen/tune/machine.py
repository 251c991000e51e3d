"""What the cost models know of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

MOST_THREADS = 1024
"""Of one block, everywhere."""


@dataclass(frozen=True)
class Machine:
    """A GPU architecture, for the device "cuda" or "hip". shared_nbytes: of one block; rates are rough, they only rank
    choices.

    half_flops, f32_flops: per second and multiprocessor, in tensor cores and in ordinary ones. bandwidth: bytes a
    second of the memory. transfer: bytes a second that one multiprocessor gets out of the second-level cache.
    warp_size: threads of a warp.
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
    device: str = "cuda"
    warp_size: int = 32

    @property
    def splits_f32(self) -> bool:
        """True if f32 products run on tensor cores, each operand as the sum of two TF32 numbers."""
        return self.device == "cuda"

    @property
    def most_warps(self) -> int:
        """Of one block."""
        return MOST_THREADS // self.warp_size


MACHINES = {
    "sm_80": Machine("sm_80", 108, 163 << 10, 2.9e12, 1.8e11, 1.9e12, 9e10, False, False),
    "sm_90": Machine("sm_90", 132, 227 << 10, 6.1e12, 3.9e11, 2.8e12, 1.4e11, True, True),
    "sm_100": Machine("sm_100", 148, 227 << 10, 1.4e13, 5.0e11, 7.5e12, 1.2e11, True, True),
    "gfx942": Machine("gfx942", 304, 64 << 10, 4.3e12, 5.4e11, 5.3e12, 9e10, False, False, "hip", 64),
}
"""Target architecture -> Machine: the A100, H100/H200, B200 and MI300X that each architecture is mostly found in. The
figures of the last one are those of its data sheet; nothing was measured there."""
CUDA_ARCHITECTURES = tuple(m.name for m in MACHINES.values() if m.device == "cuda")
"""Those that kernels can be timed on."""


def machine_of(arch: str) -> Machine:
    """The machine of a target; KeyError with the known names for another one."""
    if arch not in MACHINES:
        raise KeyError(f"no GPU architecture {arch!r}; known are {', '.join(MACHINES)}")
    return MACHINES[arch]


def target_name(arch: str) -> str:
    """The target of an architecture, such as "cuda:sm_90"; KeyError for an unknown one."""
    return f"{machine_of(arch).device}:{arch}"


def power_of_two_from(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
