"""When a kernel begins beside the one in front of it: programmatic dependent launch, where the architecture has it.

Every kernel is launched before the one in front has ended, and waits for its end where it first needs what others
wrote: that hides most of a launch. A kernel may also let the next one start before it ends itself. That fills the
machine with programs that wait in the places of those that work (ResNet-50 with one image took 0.32 ms instead of
0.28 on an H200), so it is done only where the next one has something to do meanwhile: a one-row product
fetches weights.
"""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.schedule import Kernel, Overlap
from hardtack.codegen.lower.gpu_custom import KernelLaunch
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr
from hardtack.codegen.passes.passes import Buffers, Context, KernelPass


def fetches_ahead(group: Group | None) -> bool:
    """True for a kernel that can do useful work before what is in front of it has ended."""
    what = group.anchor.template if group is not None and group.anchor is not None else None
    return isinstance(what, Gemm) and what.plan.variant == "vector" and what.constant


def _run(kernel: GpuKernelIr, buffers: Buffers, following: Group | None, context: Context) -> GpuKernelIr:
    if not context.gpu.dependent_launch or _is_users(kernel):
        return kernel
    return replace(kernel, overlap=Overlap(True, fetches_ahead(following)))


def _is_users(kernel: GpuKernelIr) -> bool:
    """True for a text that has no place for waiting."""
    return isinstance(kernel, Kernel) and kernel.anchor is not None and isinstance(kernel.anchor.template, KernelLaunch)


def verify_overlap(before: GpuKernelIr, after: GpuKernelIr, buffers: Buffers) -> None:
    """Raise LoopError unless nothing but the overlap is another. A kernel that waits for its turn may overlap with any;
    one that lets the next start must wait, too."""
    if replace(after, overlap=before.overlap) != before:
        raise LoopError("the kernel is another one")
    if after.overlap.lets_next and not after.overlap.waits:
        raise LoopError("it lets the next kernel start, and does not wait for its own turn")


LAUNCH_DEPENDENT = KernelPass("overlap", _run, verify_overlap)
"""Kernels are launched before the one in front has ended."""
