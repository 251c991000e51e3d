"""The loop nests of a GPU's kernel, wherever it has them: in the parts of a launch, or around a template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hardtack.codegen.ir.loops import LoopNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.tiles import SharedLaunch, TiledKernel

GpuKernelIr = Kernel | TiledKernel | SharedLaunch


def nests_of(kernel: GpuKernelIr) -> list[LoopNest]:
    """All nests, in the order in which they run: of a template first what its programs compute for its operand."""
    if isinstance(kernel, SharedLaunch):
        return [n for part in kernel.parts for n in nests_of(part)]
    nests = [n.nest for n in kernel.nests]
    return [*kernel.prologue, *nests] if isinstance(kernel, Kernel) else nests


def with_nests(kernel: GpuKernelIr, nests: Sequence[LoopNest]) -> GpuKernelIr:
    """The kernel with these nests in place of `nests_of`; the kernel itself where they are the same objects."""
    if all(new is old for new, old in zip(nests, nests_of(kernel), strict=True)):
        return kernel
    left = iter(nests)
    if isinstance(kernel, SharedLaunch):
        return replace(kernel, parts=tuple(_with_tiles(part, left) for part in kernel.parts))
    if isinstance(kernel, TiledKernel):
        return _with_tiles(kernel, left)
    prologue = tuple(next(left) for _ in kernel.prologue)
    return replace(kernel, prologue=prologue, nests=tuple(replace(n, nest=next(left)) for n in kernel.nests))


def _with_tiles(kernel: TiledKernel, nests: Iterator[LoopNest]) -> TiledKernel:
    return replace(kernel, passes=tuple(tuple(replace(n, nest=next(nests)) for n in p) for p in kernel.passes))
