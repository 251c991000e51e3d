"""Schedule: a group with its loops decided, ready to be printed as code. Renderers decide nothing any more.

    Kernel   ::= Kernel(name, outer, nests, flat, serial, storage, anchor, prologue, constants, half)
    Loop tree of a kernel:
        outer axes, flattened, split among workers          role grid
          for each nest: its serial axes                    role serial
            its vector axis                                 role vector (parallel) or vector (reduce)
              its reduce axes                               role serial
    Storage  ::= memory | scratch(numel) | register

Loads and stores have one linear element offset instead of an index a dimension; on GPUs passes may have put ops of
ops.COARSE_OPS into nests, a prologue's too. A flat kernel has no inner axes: all
its nests run at the same point, its last outer axis is the vector axis, and values pass between nests in registers.
With `half` the epilogue walks that axis in place of the last outer one (group.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.column_halves import result_offsets
from hardtack.codegen.ir.expr import Expr, to_text
from hardtack.codegen.ir.graph import Origin
from hardtack.codegen.ir.loops import Axis, Buffer, Compute, Load, LoopNest, Stmt
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.nests import TemplateNest


@dataclass(frozen=True)
class Storage:
    """Where a buffer lives for one kernel. `numel`: elements of scratch for one worker."""

    kind: str  # "memory" | "scratch" | "register"
    numel: Expr | None = None


@dataclass(frozen=True)
class Addend:
    """The vector that is first added to a product: the accumulators start from it. nest: its number in the kernel.
    sums: the load of the anchor's result. vector: what is added, an element for each column: its load, and its
    conversion. total: their sum."""

    nest: int
    sums: Load
    vector: tuple[Stmt, ...]
    total: Compute

    def without(self, body: Iterable[Stmt]) -> list[Stmt]:
        """The nest's body where the accumulators hold the total already."""
        loaded = Load(self.total.out, self.sums.buffer, self.sums.index)
        return [loaded if s is self.sums else s for s in body if s not in self.vector and s is not self.total]


@dataclass(frozen=True)
class Overlap:
    """How a kernel runs beside its neighbours. waits: it is launched before the one in front has ended, and waits for
    its end where it first needs what others wrote. lets_next: it lets the next one start before it ends itself."""

    waits: bool = False
    lets_next: bool = False


@dataclass(frozen=True)
class ScheduledNest:
    """`serial`: axes looped around the vector axis; `vector`: the axis whose points fill lanes, or None;
    `reduce`: reduce axes looped inside (around the vector axis when that one reduces)."""

    nest: LoopNest
    serial: tuple[Axis, ...]
    vector: Axis | None
    vector_reduces: bool
    reduce: tuple[Axis, ...]


@dataclass(frozen=True)
class Kernel:
    """See the module's grammar. `buffers`: the memory buffers, in the order of the kernel's parameters; `prologue`:
    what each program of a template computes for its first operand; `constants`: what of its reads no kernel writes;
    `addend`: of GPUs, whose accumulators start from it."""

    name: str
    outer: tuple[Axis, ...]
    nests: tuple[ScheduledNest, ...]
    flat: bool
    serial: bool
    storage: Mapping[str, Storage]
    buffers: tuple[Buffer, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    origin: Origin
    anchor: TemplateNest | None = None
    prologue: tuple[LoopNest, ...] = ()
    constants: frozenset[str] = frozenset()
    addend: Addend | None = None
    overlap: Overlap = Overlap()
    half: Axis | None = None

    @property
    def walk(self) -> tuple[Axis, ...]:
        """The axes of nests that have no loops of their own."""
        return self.outer if self.half is None else (*self.outer[:-1], self.half)

    def half_of(self, s: Stmt) -> int | None:
        """0 or 1 for a load of the template's result in the first or the second half of its columns; None for any other
        statement."""
        if self.half is None or self.anchor is None or not isinstance(s, Load) or s.buffer != self.anchor.result:
            return None
        places = result_offsets(self.outer, self.half)
        return next((k for k, place in enumerate(places) if place is s.index[0]), None)


def to_text_kernel(kernel: Kernel) -> str:
    """The loop tree as a listing."""
    axes = ", ".join(f"{a.sym.name}<{to_text(a.extent)}" for a in kernel.outer)
    lines = [f"kernel {kernel.name} grid ({axes}){' flat' if kernel.flat else ''}{' serial' if kernel.serial else ''}"]
    for name, where in kernel.storage.items():
        if where.kind != "memory":
            size = f" {to_text(where.numel)}" if where.numel is not None else ""
            lines.append(f"  {name} in {where.kind}{size}")
    for p in kernel.prologue:
        lines.append(f"  nest {p.name} in each program")
        lines += ["    " + stmt_text(s) for s in p.body]
    if kernel.overlap.waits:
        lines.append(f"  begins beside the kernel in front{', lets the next one start' * kernel.overlap.lets_next}")
    if kernel.addend is not None:
        lines += ["  sums start from:", *("    " + stmt_text(s) for s in kernel.addend.vector)]
    if kernel.anchor is not None:
        halves = "" if kernel.half is None else f" of both halves, {kernel.half.sym.name}<{to_text(kernel.half.extent)}"
        lines.append(f"  template {kernel.anchor.template.label} {kernel.anchor.name}, epilogue{halves}:")
    for n in kernel.nests:
        roles = [f"serial {a.sym.name}<{to_text(a.extent)}" for a in n.serial]
        if n.vector is not None:
            kind = "vector reduce" if n.vector_reduces else "vector"
            roles.append(f"{kind} {n.vector.sym.name}<{to_text(n.vector.extent)}")
        roles += [f"reduce {a.sym.name}<{to_text(a.extent)}" for a in n.reduce]
        lines.append(f"  nest {n.nest.name} ({', '.join(roles)})")
        lines += ["    " + stmt_text(s) for s in n.nest.body]
    return "\n".join(lines) + "\n"
