"""Tiles that would compute something else, or race, are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.triton import triton_backend as backend
from hardtack.codegen.ir import tiles_verify as tiled_verify
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer, LoopError
from hardtack.codegen.ir.tiles import TiledKernel, TileNest
from hardtack.codegen.ir.tiles_verify import verify_tiled
from tests.triton.test_loops import normal, on_gpu

Found = tuple[TiledKernel, Group, Mapping[str, Buffer]]


class Rows(nn.Module):
    """Walked rows: a sum, and nests that need it and share a walk, one of which reads memory."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        z = x * y.sum(-1, keepdim=True)
        return y, y.flip(-1) + z, torch.cat([y.amax(-1, keepdim=True) - x, z], -1)


@pytest.fixture(scope="module")
def found() -> Found:
    """The tiles of Rows, all in one kernel."""
    seen: list[Found] = []

    def note(kernel: TiledKernel, group: Group | None, buffers: Mapping[str, Buffer]) -> None:
        verify_tiled(kernel, group, buffers)
        if group is not None:  # as it was scheduled, before any pass
            seen.append((kernel, group, buffers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "verify_tiled", note)
        on_gpu(Rows(), [normal(3, 300)], ({0: Dim.AUTO, 1: Dim.AUTO},))
    (kernel,) = seen
    return kernel


def changed(kernel: TiledKernel, change: Callable[[int, int, TileNest], TileNest]) -> TiledKernel:
    """The kernel with each nest as `change(pass, place in the pass, nest)` gives it."""
    passes = (tuple(change(p, k, n) for k, n in enumerate(nests)) for p, nests in enumerate(kernel.passes))
    return replace(kernel, passes=tuple(passes))


def without_barriers(p: int, k: int, n: TileNest) -> TileNest:
    return replace(n, barrier=False)


def late_barriers(p: int, k: int, n: TileNest) -> TileNest:
    return replace(n, barrier=n.barrier or k > 0)


def all_in_registers(p: int, k: int, n: TileNest) -> TileNest:
    return replace(n, registers=frozenset(s.buffer for s in n.nest.loads()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_barriers, "reads exp from memory before a barrier"),
        (late_barriers, "stands behind a barrier inside a walk that it shares"),
        (all_in_registers, "from a register that has another element"),
    ],
)
def test_broken_tiles(found: Found, change: Callable[[int, int, TileNest], TileNest], message: str) -> None:
    kernel, group, buffers = found
    verify_tiled(kernel, group, buffers)
    with pytest.raises(LoopError, match=message):
        verify_tiled(changed(kernel, change), group, buffers)


def test_a_second_store_without_a_barrier(found: Found) -> None:
    kernel, _, _ = found
    again = tuple(replace(n, barrier=False) for n in kernel.passes[-1])
    with pytest.raises(LoopError, match=r"stores over \w+ before a barrier"):
        tiled_verify._verify_passing(replace(kernel, passes=(*kernel.passes, again)))


def test_missing_nests(found: Found) -> None:
    kernel, group, buffers = found
    with pytest.raises(LoopError, match="in place of"):
        verify_tiled(replace(kernel, passes=kernel.passes[:-1]), group, buffers)
