"""TiledKernel: a group with its tiles decided, ready to be printed as Triton. Renderers decide nothing any more.

Nests are those of loops.py with one linear offset an access; passes may have put ops of ops.COARSE_OPS in.

TiledKernel ::= name, grid: (Dim...), passes: ((TileNest...)...), storage: {buffer: memory | register | both}
SharedLaunch ::= name, parts: (TiledKernel...)       kernels that need nothing from each other, as one launch
Dim         ::= Dim(axis, block, looped)
TileNest    ::= TileNest(nest, inner: Dim | None, registers, barrier)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ZERO, mod
from hardtack.codegen.ir.graph import Origin
from hardtack.codegen.ir.loops import Axis, Buffer, LoopNest
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.schedule import Overlap

ATOMIC = {
    "add": ("f32", "f64", "i32", "i64"),
    "max": ("i32", "i64"),
    "min": ("i32", "i64"),
}
"""Update modes that the memory does by itself, by dtype; others run point after point."""


@dataclass(frozen=True)
class Dim:
    """An axis and how many of its points a tile takes. `looped`: the program walks it in chunks."""

    axis: Axis
    block: int
    looped: bool = False

    @property
    def name(self) -> str:
        return self.axis.sym.name

    @property
    def whole(self) -> bool:
        """True if every point of every tile is one of the axis."""
        return mod(self.axis.extent, self.block) is ZERO


@dataclass(frozen=True)
class TileNest:
    """A nest over x (y, batch) and at most one inner axis; offsets are linear. registers: buffers read from registers;
    barrier: it reads what the program has written to memory before."""

    nest: LoopNest
    inner: Dim | None
    registers: frozenset[str] = frozenset()
    barrier: bool = False


@dataclass(frozen=True)
class TiledKernel:
    """grid: the axes shared among programs, outermost first, those of block 1 scalars. passes: nests that share a walk
    over their inner axis; a pass whose axis is not looped is straight code. storage: "memory", "register" or "both".
    wide: indices need 64 bits. serial: one program walks all points in order. ahead: how many loads of what the kernel
    never writes may be made at its head, where they take their time beside each other."""

    name: str
    grid: tuple[Dim, ...]
    passes: tuple[tuple[TileNest, ...], ...]
    storage: Mapping[str, str]
    buffers: tuple[Buffer, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    num_warps: int
    wide: bool
    serial: bool
    origin: Origin
    ahead: int = 0
    overlap: Overlap = Overlap()

    @property
    def nests(self) -> tuple[TileNest, ...]:
        return tuple(n for p in self.passes for n in p)


@dataclass(frozen=True)
class SharedLaunch:
    """Kernels that need nothing from each other: the number of a program says which one it runs."""

    name: str
    parts: tuple[TiledKernel, ...]
    overlap: Overlap = Overlap()


def to_text(kernel: TiledKernel) -> str:
    """The tiles as a listing."""
    grid = ", ".join(f"{d.name}<{d.axis.extent} by {d.block}" for d in kernel.grid)
    flags = f"{' 64-bit' if kernel.wide else ''}{' serial' if kernel.serial else ''}"
    lines = [f"kernel {kernel.name} grid ({grid}) warps {kernel.num_warps}{flags}"]
    if kernel.overlap.waits:
        lines.append(f"  begins beside the kernel in front{', lets the next one start' * kernel.overlap.lets_next}")
    lines += [f"  {b} in {where}" for b, where in kernel.storage.items() if where != "memory"]
    for n in kernel.nests:
        inner = "" if n.inner is None else f" {n.inner.axis.kind} {n.inner.name}<{n.inner.axis.extent}"
        how = "" if n.inner is None else f" by {n.inner.block}" if n.inner.looped else " whole"
        barrier = " after a barrier" if n.barrier else ""
        lines.append(f"  nest {n.nest.name}{inner}{how}{barrier}")
        lines += ["    " + stmt_text(s) for s in n.nest.body]
    return "\n".join(lines) + "\n"


def to_text_shared(launch: SharedLaunch) -> str:
    """The tiles of all parts as a listing."""
    lines = [f"kernel {launch.name} grid (shared by {len(launch.parts)} parts)"]
    lines += [f"    {line}" for part in launch.parts for line in to_text(part).splitlines()]
    return "\n".join(lines) + "\n"


def needs_order(nest: LoopNest, buffers: Mapping[str, Buffer]) -> bool:
    """True if two points may update one element in a way that memory can't do by itself.

    Of two that set an element one wins, as on GPUs in torch.
    """
    modes = [(s.mode, buffers[s.buffer].dtype.value) for s in nest.stores() if s.mode != "set"]
    return any(dtype not in ATOMIC.get(mode, ()) for mode, dtype in modes)
