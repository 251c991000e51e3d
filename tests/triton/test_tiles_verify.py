"""Tiles that would compute something else, or race, are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.triton import triton_backend as backend
from hardtack.codegen.ir import tiles
from hardtack.codegen.ir import tiles_verify as tiled_verify
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, LoopError
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


MOST_WARPS = 32


def tiles_of(module: nn.Module, *args: torch.Tensor, dynamic: Any = None) -> Found:
    """The tiles of a module whose last kernel is one of loops."""
    seen: list[Found] = []

    def note(kernel: TiledKernel, group: Group | None, buffers: Mapping[str, Buffer], most_warps: int) -> None:
        verify_tiled(kernel, group, buffers, most_warps)
        if group is not None:  # as it was scheduled, before any pass
            seen.append((kernel, group, buffers))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "verify_tiled", note)
        on_gpu(module, args, dynamic)
    return seen[-1]


@pytest.fixture(scope="module")
def found() -> Found:
    """The tiles of Rows, all in one kernel."""
    return tiles_of(Rows(), normal(3, 300), dynamic=({0: Dim.AUTO, 1: Dim.AUTO},))


@pytest.fixture(scope="module")
def held() -> Found:
    """Rows of 100 that each program holds whole: one pass for each nest."""
    return tiles_of(nn.Softmax(-1), normal(64, 100))


@pytest.fixture(scope="module")
def ordered() -> Found:
    """Points that must run in order: the memory has no products."""
    return tiles_of(Products(), torch.ones(4), torch.tensor([1, 1, 0]), torch.ones(3))


class Products(nn.Module):
    """An update that the memory does not do by itself."""

    def forward(self, x: torch.Tensor, index: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, index, by, "prod")


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
    verify_tiled(kernel, group, buffers, MOST_WARPS)
    refused(message, changed(kernel, change), group, buffers)


def refused(message: str, kernel: TiledKernel, group: Group, buffers: Mapping[str, Buffer]) -> None:
    with pytest.raises(LoopError, match=re.escape(message)) as caught:
        verify_tiled(kernel, group, buffers, MOST_WARPS)
    assert f"kernel {kernel.name} grid" in str(caught.value), "the message has no listing"


def test_a_second_store_without_a_barrier(found: Found) -> None:
    kernel, _, _ = found
    again = tuple(replace(n, barrier=False) for n in kernel.passes[-1])
    with pytest.raises(LoopError, match=r"stores over \w+ before a barrier"):
        tiled_verify._verify_passing(replace(kernel, passes=(*kernel.passes, again)))


def test_missing_nests(found: Found) -> None:
    kernel, group, buffers = found
    refused("in place of", replace(kernel, passes=kernel.passes[:-1]), group, buffers)


def grid(**changes: Any) -> Callable[[TiledKernel], TiledKernel]:
    """The first axis of the grid with other facts."""
    return lambda k: replace(k, grid=(replace(k.grid[0], **changes), *k.grid[1:]))


def inner(**changes: Any) -> Callable[[TiledKernel], TiledKernel]:
    """Every inner axis with other facts."""
    return lambda k: changed(k, lambda p, i, n: n if n.inner is None else replace(n, inner=replace(n.inner, **changes)))


def half_of_the_rows(k: TiledKernel) -> TiledKernel:
    return grid(axis=replace(k.grid[0].axis, extent=const(32)))(k)


def register_only(k: TiledKernel) -> TiledKernel:
    """What the kernel is for stays in a register."""
    (name,) = k.writes
    buffers = tuple(b for b in k.buffers if b.name != name)
    return replace(k, storage={**k.storage, name: "register"}, buffers=buffers, writes=frozenset())


def shorter_second(k: TiledKernel) -> TiledKernel:
    """The nests have one inner axis, in two blocks."""
    return changed(k, lambda p, i, n: replace(n, inner=replace(n.inner, block=256)) if p == 1 and n.inner else n)


OTHER = Axis(sym("q", extent=7), const(7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: replace(k, grid=()), "nothing walks the axis x of"),
        (half_of_the_rows, "32 points of x are walked, "),
        (grid(axis=OTHER), "q is walked, and no axis of"),
        (lambda k: replace(k, grid=(*k.grid, tiles.Dim(OTHER, 1))), "q is walked, and no axis of"),
        (lambda k: replace(k, grid=k.grid * 2), "the grid's axis x is looped, reduces or stands there twice"),
        (grid(looped=True), "the grid's axis x is looped, reduces or stands there twice"),
        (grid(block=0), "a block of 0 along x, expected a power of two"),
        (grid(block=3), "a block of 3 along x, expected a power of two"),
        (inner(block=96), "a tile of 96 does not hold the 100 points of r0"),
        (inner(block=100), "a block of 100 along r0, expected a power of two"),
        (inner(block=8), "a tile of 8 does not hold the 100 points of r0"),
        (shorter_second, "two inner axes are called r0"),
        (lambda k: changed(k, lambda p, i, n: replace(n, inner=None)), "nothing walks the axis r0 of"),
        (lambda k: replace(k, passes=(*k.passes, ())), "a pass has no nest"),
        (lambda k: replace(k, passes=(k.nests,)), "have no walk to share"),
        (lambda k: replace(k, num_warps=0), "0 warps, expected a power of two up to 32"),
        (lambda k: replace(k, num_warps=3), "3 warps, expected a power of two up to 32"),
        (lambda k: replace(k, num_warps=64), "64 warps, expected a power of two up to 32"),
        (lambda k: replace(k, serial=True), "one program walks one nest, whose points must run in order, one by one"),
        (lambda k: replace(k, writes=frozenset()), "it says that it writes nothing, and writes"),
        (lambda k: replace(k, reads=frozenset()), "it says that it reads nothing, and reads"),
        (lambda k: replace(k, storage=dict.fromkeys(k.storage, "somewhere")), "the unknown storage somewhere"),
        (register_only, "stays in a register that nothing reads"),
        (lambda k: replace(k, writes=frozenset({"softmax"})), "softmax is written outside, and not in memory"),
    ],
)
def test_broken_walks(held: Found, change: Callable[[TiledKernel], TiledKernel], message: str) -> None:
    kernel, group, buffers = held
    verify_tiled(kernel, group, buffers, MOST_WARPS)
    refused(message, change(kernel), group, buffers)


def test_a_register_behind_the_reduction_of_its_own_walk(found: Found) -> None:
    """A sum is known where the walk ends: what shares the walk must not read it."""
    kernel, group, buffers = found
    first, second, *rest = kernel.passes
    assert any(n.nest.reduced for n in first)
    assert any(n.registers & m.nest.writes() for n in second for m in first if m.nest.reduced)
    joined = tuple(replace(n, barrier=False) for n in (*first, *second))
    refused("from a register that has another element", replace(kernel, passes=(joined, *rest)), group, buffers)


def test_indices_that_may_need_64_bits(found: Found) -> None:
    kernel, group, buffers = found
    assert kernel.wide, "sizes without a bound"
    refused("may not fit 32 bits", replace(kernel, wide=False), group, buffers)


def test_points_that_must_run_in_order(ordered: Found) -> None:
    kernel, group, buffers = ordered
    assert kernel.serial
    verify_tiled(kernel, group, buffers, MOST_WARPS)
    refused("must run in order, and many programs run it", replace(kernel, serial=False), group, buffers)
    refused("one program walks one nest", grid(block=2)(kernel), group, buffers)
