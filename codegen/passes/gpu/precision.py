"""Which f32 values of a kernel only ever become results of 16 bits: cheaper functions are good enough for these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.ir.loops import Buffer, Compute, Load, LoopNest, Reduce, Store, args_of
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.tiles import SharedLaunch
from hardtack.codegen.ir.types import HALF
from hardtack.codegen.ops import KERNEL_OPS
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr, nests_of

STEADY = frozenset(name for name, row in KERNEL_OPS.items() if row.is_steady)


def coarse_values(kernel: GpuKernelIr, buffers: Mapping[str, Buffer]) -> tuple[frozenset[str], ...]:
    """For each of `nests_of` the values whose every use ends in a rounding to 16 bits."""
    if isinstance(kernel, SharedLaunch):
        return tuple(coarse for part in kernel.parts for coarse in coarse_values(part, buffers))
    if isinstance(kernel, Kernel):
        registers = {b for b, where in kernel.storage.items() if where.kind == "register"}
        # the row that a prologue computes is multiplied, with all the digits of its dtype
        registers -= set() if kernel.anchor is None else {o.buffer for o in kernel.anchor.operands}
    else:
        registers = {b for b, where in kernel.storage.items() if where == "register"}
    return _coarse_in(nests_of(kernel), frozenset(registers), buffers)


def _coarse_in(
    nests: Sequence[LoopNest], registers: frozenset[str], buffers: Mapping[str, Buffer]
) -> tuple[frozenset[str], ...]:
    """The same of nests that run in order. registers: the buffers that only they touch."""
    # a buffer that stays inside the kernel is as coarse as its loads; one that leaves it, as its dtype
    inside = dict.fromkeys(registers, True)
    found: list[frozenset[str]] = []
    for nest in reversed(nests):
        fine: set[str] = set()
        seen: set[str] = set()
        for s in reversed(nest.body):
            used = {a for a in args_of(s) if isinstance(a, str)}
            seen |= used
            if isinstance(s, Store):
                good = inside.get(s.buffer, buffers[s.buffer].dtype in HALF)
            elif isinstance(s, (Compute, Reduce)):
                rounds = isinstance(s, Compute) and s.dtype in HALF
                good = rounds or (_is_steady(s) and s.out not in fine)
            else:
                good = False
            if not good:
                fine |= used
        for s in nest.body:
            if isinstance(s, Load) and s.buffer in inside and s.out in fine:
                inside[s.buffer] = False
        found.append(frozenset(seen - fine))
    return tuple(reversed(found))


def _is_steady(s: Compute | Reduce) -> bool:
    """True if the result is as coarse as the arguments: not an index or a whole number made of them, which jump."""
    if isinstance(s, Reduce):
        return not s.kind.startswith("arg")
    return s.op in STEADY and s.dtype.is_float
