"""The rules of walks: the programs of a launch, and the tile of each, visit every point of every nest once.

A program is at one block of the grid's axes. A nest's inner axis it holds whole, or walks in chunks; of an axis of one
point that nothing mentions it knows nothing. Points that must run in order have one program, which walks them one by
one; those of a scatter that the memory orders by itself read nothing of what they update.
"""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import ONE, Expr, const, never_negative, product
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Axis, Buffer, LoopError, exprs_of
from hardtack.codegen.ir.tiles import Dim, TiledKernel, TileNest, needs_order
from hardtack.codegen.ir.width import fits_32_bits


def verify_walk_of_programs(kernel: TiledKernel, buffers: Mapping[str, Buffer], most_warps: int) -> None:
    """Raise LoopError where programs miss points or visit them twice, where their order matters and is not kept, or
    where an index may not fit. most_warps: that a program may have."""
    if not _is_power(kernel.num_warps) or kernel.num_warps > most_warps:
        raise LoopError(f"{kernel.num_warps} warps, expected a power of two up to {most_warps}")
    _verify_dims(kernel)
    for tiles in kernel.passes:
        _verify_pass(tiles)
    for n in kernel.nests:
        _verify_axes(kernel, n)
    _verify_order(kernel, buffers)
    if not kernel.wide:
        far = next((e for e in _numbers(kernel) if not fits_32_bits(e)), None)
        if far is not None:
            raise LoopError(f"{far} may not fit 32 bits")


def _is_power(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _verify_dims(kernel: TiledKernel) -> None:
    """Each name stands for one axis and one block, which a tile has room for."""
    seen: dict[str, tuple[Expr, Expr, int, bool]] = {}
    for d in kernel.grid:
        if d.looped or d.axis.kind != "parallel" or d.name in seen:
            raise LoopError(f"the grid's axis {d.name} is looped, reduces or stands there twice")
        _verify_dim(d, seen)
    grid = {d.name for d in kernel.grid}
    for n in kernel.nests:
        if n.inner is None:
            continue
        if n.inner.name in grid:
            raise LoopError(f"{n.inner.name} is an axis of the grid and the inner one of {n.nest.name}")
        if not n.inner.looped and not never_negative(const(n.inner.block) - n.inner.axis.extent):
            raise LoopError(
                f"a tile of {n.inner.block} does not hold the {n.inner.axis.extent} points of {n.inner.name}"
            )
        _verify_dim(n.inner, seen)


def _verify_dim(d: Dim, seen: dict[str, tuple[Expr, Expr, int, bool]]) -> None:
    if not _is_power(d.block):
        raise LoopError(f"a block of {d.block} along {d.name}, expected a power of two")
    facts = (d.axis.sym, d.axis.extent, d.block, d.looped)
    if seen.setdefault(d.name, facts) != facts:
        raise LoopError(f"two inner axes are called {d.name}")


def _verify_pass(tiles: tuple[TileNest, ...]) -> None:
    """Nests that share a walk have one inner axis, walked in chunks."""
    if not tiles:
        raise LoopError("a pass has no nest")
    first = tiles[0].inner
    for n in tiles[1:]:
        if first is None or n.inner is None or not first.looped or n.inner.axis.sym is not first.axis.sym:
            raise LoopError(f"{n.nest.name} and {tiles[0].nest.name} have no walk to share")


def _verify_axes(kernel: TiledKernel, n: TileNest) -> None:
    """The grid's axes and the inner one are the nest's, each once."""
    dims = (*kernel.grid, *((n.inner,) if n.inner is not None else ()))
    walked = {d.axis.sym: d.axis for d in dims}
    if walked.keys() - {a.sym for a in n.nest.axes}:
        name = min(s.name for s in walked.keys() - {a.sym for a in n.nest.axes})
        raise LoopError(f"{name} is walked, and no axis of {n.nest.name}")
    for a in n.nest.axes:
        if walked.get(a.sym, a) != a:
            raise LoopError(f"{walked[a.sym].extent} points of {a.sym.name} are walked, {n.nest.name} has {a.extent}")
        if a.sym not in walked and (a.extent is not ONE or _mentions(n, a)):
            raise LoopError(f"nothing walks the axis {a.sym.name} of {n.nest.name}")


def _mentions(n: TileNest, axis: Axis) -> bool:
    return any(axis.sym in free_syms(e) for s in n.nest.body for e in exprs_of(s))


def _verify_order(kernel: TiledKernel, buffers: Mapping[str, Buffer]) -> None:
    if kernel.serial:
        alone = len(kernel.nests) == 1 and len(kernel.grid) == 1
        if (
            not alone
            or not kernel.nests[0].nest.serial
            or kernel.nests[0].inner is not None
            or kernel.grid[0].block != 1
        ):
            raise LoopError("one program walks one nest, whose points must run in order, one by one")
        return
    for n in kernel.nests:
        if n.nest.serial and needs_order(n.nest, buffers):
            raise LoopError(f"{n.nest.name} must run in order, and many programs run it")
        if n.nest.serial and n.nest.writes() & {s.buffer for s in n.nest.loads()}:
            raise LoopError(f"{n.nest.name} reads what other programs write")


def _numbers(kernel: TiledKernel) -> list[Expr]:
    """What a kernel computes with: its indices, and how far its programs and chunks count."""
    dims = dict.fromkeys((*kernel.grid, *(n.inner for n in kernel.nests if n.inner is not None)))
    found = [d.axis.extent + d.block for d in dims]
    found.append(product(d.axis.extent for d in kernel.grid))
    return found + [e for n in kernel.nests for s in n.nest.body for e in exprs_of(s)]
