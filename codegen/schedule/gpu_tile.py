"""Tiling for Triton: which points a program computes, what it loops over, what stays in registers.

A pure function Group -> TiledKernel. A flat group (all its nests run at the same points) has one axis x, or y and x
where some accesses are contiguous along another axis than the others. A group of rows has x, which numbers the outer
points, and for each nest one inner axis, which numbers the rest: its elements or what it reduces. Rows that fit are
held whole by one program; longer ones are walked in chunks. What passes between nests at the same point stays in
registers; everything else goes through memory, with a barrier, since one program writes and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import ONE, ZERO, Expr, int_value, sym
from hardtack.codegen.ir.expr_walk import free_syms, stride_along
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Axis, Buffer, Compute, Load, LoopNest, Store, exprs_of, substitute_axes
from hardtack.codegen.ir.nests import walk_buffers
from hardtack.codegen.ir.powers import power_of_two_from
from hardtack.codegen.ir.tiles import Dim, TiledKernel, TileNest, needs_order
from hardtack.codegen.ir.width import fits_32_bits
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.schedule.axes import linearized, points, split_into
from hardtack.codegen.schedule.gpu_values import passes_of, place_values

FLAT_BLOCK = 1024
"""Points of a program of a flat kernel."""
SQUARE_BLOCK = 32
"""Points along each of two tile dimensions."""
LONGEST_ROW = 32768
"""Elements of a row that one program holds in registers."""
LONGEST_ROW_NBYTES = 4 * LONGEST_ROW
"""Of a value of such a row: where it goes from one layout of Triton's to another, all of it lies in shared memory."""
ROW_TILE = 2048
"""Elements of the tile of a program that holds short rows, and of a chunk."""
THREAD_NBYTES = 32
"""Two accesses of 16 bytes."""
LEAST_TILE = 512
"""Elements that a program takes even where there are too few of them to keep every multiprocessor busy."""
AHEAD_REGISTERS = 64
"""Registers of a thread for what a program loads before it needs it; with many programs, others run meanwhile."""
COLUMNS = 64
"""Neighbouring rows that a program takes where memory is contiguous along them."""


def tile(
    group: Group,
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    name: str,
    hints: Mapping[str, int],
    machine: Gpu,
) -> TiledKernel:
    """Decide the tiles of a loop group. `kept`: buffers that something outside the group reads; `hints`: example sizes
    of symbols, for profit only."""
    depth = len(group.outer)
    # a tile has a point for an axis of none, too: what would walk it leaves the kernel
    nests = [linearized(n, buffers) for n in group.nests if all(a.extent is not ZERO for a in n.axes[depth:])]
    if any(n.serial and needs_order(n, buffers) for n in nests):
        return _serial(group, nests, buffers, name)
    if all(len(n.axes) == depth for n in nests):
        return _flat(group, nests, buffers, kept, name, hints, machine)
    return _rows(group, nests, buffers, kept, name, hints, machine)


def _kernel(
    group: Group,
    grid: tuple[Dim, ...],
    passes: Sequence[Sequence[TileNest]],
    storage: Mapping[str, str],
    buffers: Mapping[str, Buffer],
    name: str,
    num_warps: int,
    serial: bool = False,
    ahead: int = 0,
) -> TiledKernel:
    memory = [b for b in walk_buffers(group.members()) if storage[b] != "register"]
    frozen = tuple(tuple(p) for p in passes)
    exprs = [e for p in frozen for n in p for s in n.nest.body for e in exprs_of(s)]
    exprs += [d.axis.extent + d.block for d in grid] + [points([d.axis for d in grid])]
    exprs += [n.inner.axis.extent + n.inner.block for p in frozen for n in p if n.inner is not None]
    return TiledKernel(
        name,
        grid,
        frozen,
        storage,
        tuple(buffers[b] for b in memory),
        frozenset(group.writes() & set(memory)),
        frozenset(group.reads() & set(memory)),
        num_warps,
        not all(map(fits_32_bits, exprs)),
        serial,
        group.members()[0].origin,
        ahead,
    )


def _one_axis(name: str, axes: Sequence[Axis], kind: str = "parallel") -> tuple[Axis, dict[Expr, Expr]]:
    """One axis that numbers the points of `axes`, and each of them in terms of it."""
    extent = points(axes)
    s = sym(name, extent=extent)
    return Axis(s, extent, kind), split_into([a.sym for a in axes], s)


# flat groups


def _flat(
    group: Group,
    nests: list[LoopNest],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    name: str,
    hints: Mapping[str, int],
    machine: Gpu,
) -> TiledKernel:
    square = _other_axis(nests, group.outer, hints)
    dims: list[Dim] = []
    swap: dict[Expr, Expr] = {}
    if square is not None:
        k, last = square, len(group.outer) - 1
        parts = (
            ("batch", [a for i, a in enumerate(group.outer) if i not in (k, last)], 1),
            ("y", [group.outer[k]], SQUARE_BLOCK),
            ("x", [group.outer[last]], SQUARE_BLOCK),
        )
        for stem, joined, block in parts:
            if joined:
                axis, found = _one_axis(stem, joined)
                swap |= found
                dims.append(Dim(axis, block))
    elif group.outer:
        axis, swap = _one_axis("x", group.outer)
        total = size_hint(axis.extent, hints)
        block = min(FLAT_BLOCK, max(128, power_of_two_from(total // (2 * machine.multiprocessors))))
        dims.append(Dim(axis, min(block, power_of_two_from(int_value(axis.extent) or block))))
    axes = tuple(d.axis for d in dims)
    moved = [substitute_axes(n, axes, swap) for n in nests]
    tiled = [TileNest(n, None) for n in moved]
    storage, tiled = place_values(group, tiled, kept)
    points_of_tile = 1
    for d in dims:
        points_of_tile *= d.block
    warps = min(4, max(1, points_of_tile // (8 * machine.warp_size)))
    return _kernel(group, tuple(dims), [[n] for n in tiled], storage, buffers, name, warps)


def _other_axis(nests: Sequence[LoopNest], outer: Sequence[Axis], hints: Mapping[str, int]) -> int | None:
    """The outer axis along which some accesses are contiguous while others are along the last one; None without one."""
    if len(outer) < 2:
        return None
    along = [0] * len(outer)
    for n in nests:
        for s in n.body:
            if isinstance(s, (Load, Store)):
                for k, axis in enumerate(outer):
                    along[k] += stride_along(s.index[0], axis.sym) is ONE
    wide = [size_hint(a.extent, hints) >= SQUARE_BLOCK // 2 for a in outer]
    best = max(range(len(outer) - 1), key=lambda k: along[k])
    return best if along[best] and along[-1] and wide[best] and wide[-1] else None


# rows


def _rows(
    group: Group,
    nests: list[LoopNest],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    name: str,
    hints: Mapping[str, int],
    machine: Gpu,
) -> TiledKernel:
    depth = len(group.outer)
    outer, swap = _one_axis("x", group.outer) if group.outer else (Axis(sym("x", extent=1), ONE), {})
    inner: dict[Expr, Axis] = {}
    moved: list[tuple[LoopNest, Axis | None]] = []
    for n in nests:
        rest = n.axes[depth:]
        assert len({a.kind for a in rest}) <= 1, "a reduction inside a loop over inner axes"
        if not rest:
            moved.append((substitute_axes(n, (outer,), swap), None))
            continue
        extent = points(rest)
        axis = inner.setdefault(extent, Axis(sym(f"r{len(inner)}", extent=extent), extent))
        parts = split_into([a.sym for a in rest], axis.sym)
        axis = replace(axis, kind=rest[0].kind)
        moved.append((substitute_axes(n, (outer, axis), swap | parts), axis))
    last = group.outer[-1] if group.outer else outer
    rows, run = (size_hint(a.extent, hints) for a in (outer, last))
    across = _across(nests, [n for n, _ in moved], outer, last, rows, run)
    longest = LONGEST_ROW_NBYTES // _widest([n for n, a in moved if a is not None], buffers)
    blocks = _row_blocks(outer, list(inner.values()), across, longest, hints, machine)
    dims = {e: replace(blocks[1][e], axis=a) for e, a in inner.items()}
    tiled = [TileNest(n, None if a is None else replace(dims[a.extent], axis=a)) for n, a in moved]
    storage, tiled = place_values(group, tiled, kept)
    grid = (Dim(outer, blocks[0]),) if group.outer else ()
    elements = blocks[0] * max(d.block for d in dims.values())
    busy = size_hint(outer.extent, hints) >= 8 * blocks[0] * machine.multiprocessors
    warps = _warps(elements, busy, [n.nest for n in tiled if n.inner is not None], buffers, machine)
    walked = any(d.looped for d in dims.values())
    ahead = 0 if busy or walked else AHEAD_REGISTERS * machine.warp_size * warps // elements
    return _kernel(group, grid, passes_of(tiled), storage, buffers, name, min(warps, machine.most_warps), ahead=ahead)


def _warps(elements: int, busy: bool, nests: Sequence[LoopNest], buffers: Mapping[str, Buffer], machine: Gpu) -> int:
    """So many that a thread loads THREAD_NBYTES of the narrowest buffer, or twice that where there are many programs,
    whose barriers then weigh less; never more than 32 elements."""
    narrow = min((buffers[s.buffer].dtype.nbytes for n in nests for s in n.loads()), default=4)
    each = THREAD_NBYTES * (2 if busy else 1) // max(2, narrow)
    return min(32 if elements > LONGEST_ROW // 2 else 16, max(1, elements // (machine.warp_size * each)))


def _widest(nests: Sequence[LoopNest], buffers: Mapping[str, Buffer]) -> int:
    """Bytes of the widest element that is loaded or computed, at least 4. What numbers the points does not count:
    Triton computes it anew in each layout."""
    dtypes = [buffers[s.buffer].dtype for n in nests for s in n.loads()]
    dtypes += [s.dtype for n in nests for s in n.body if isinstance(s, Compute)]
    return max([4, *(d.nbytes for d in dtypes)])


def _row_blocks(
    outer: Axis, inner: Sequence[Axis], across: bool, longest_row: int, hints: Mapping[str, int], machine: Gpu
) -> tuple[int, dict[Expr, Dim]]:
    """Points of x in a tile, and for each inner extent its tile dimension. across: memory is contiguous along x;
    longest_row: elements of a row that is held whole."""
    rows = size_hint(outer.extent, hints)
    longest = max(size_hint(a.extent, hints) for a in inner)
    least = min(16, power_of_two_from(rows)) if across else 1
    whole = all(
        int_value(a.extent) is not None and power_of_two_from(int_value(a.extent) or 1) <= longest_row // least
        for a in inner
    )
    if across:
        x = min(COLUMNS, power_of_two_from(rows))
        if whole:
            x = max(least, min(x, 2 * ROW_TILE // power_of_two_from(longest)))
        chunk = max(16, 2 * ROW_TILE // x)
    else:
        chunk = ROW_TILE
        x = max(1, ROW_TILE // 2 // power_of_two_from(longest)) if whole else 1
        while x > 1 and x * power_of_two_from(longest) > LEAST_TILE and rows < x * machine.multiprocessors:
            x //= 2
    dims: dict[Expr, Dim] = {}
    for a in inner:
        n = int_value(a.extent)
        block = power_of_two_from(n or 1) if whole else min(chunk, power_of_two_from(n) if n is not None else chunk)
        looped = not whole and (n is None or n > block)
        dims[a.extent] = Dim(a, block, looped)
    return x, dims


def _across(nests: Sequence[LoopNest], moved: Sequence[LoopNest], outer: Axis, last: Axis, rows: int, run: int) -> bool:
    """True if more accesses are contiguous along x than along the inner axes. nests: over the group's axes, of which
    `last` is the last outer one, `run` points long; moved: the same over x, of `rows` points, and one inner axis."""
    count = 0
    for before, after in zip(nests, moved, strict=True):
        inner = {a.sym for a in after.axes} - {outer.sym}
        for s, t in zip(before.body, after.body, strict=True):
            if isinstance(s, (Load, Store)) and isinstance(t, (Load, Store)) and free_syms(t.index[0]) & inner:
                along = rows >= 16 and stride_along(t.index[0], outer.sym) is ONE
                count += along or (run >= 16 and stride_along(s.index[0], last.sym) is ONE)
                count -= any(stride_along(t.index[0], r) is ONE for r in inner)
    return count > 0


# points that must run in order


def _serial(group: Group, nests: list[LoopNest], buffers: Mapping[str, Buffer], name: str) -> TiledKernel:
    """One program that walks the points of its only nest one by one."""
    assert len(nests) == 1, "points that must run in order stay alone"
    axis, swap = _one_axis("x", nests[0].axes)
    nest = substitute_axes(nests[0], (axis,), swap)
    storage = dict.fromkeys(walk_buffers(group.members()), "memory")
    return _kernel(group, (Dim(axis, 1),), [[TileNest(nest, None)]], storage, buffers, name, 1, serial=True)
