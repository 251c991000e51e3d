"""The rule of coarse ops (ops.COARSE_OPS): what they compute leaves its kernel rounded to 16 bits, or not at all.

Their errors are small beside that rounding, and stay so through sums, products and choices of values. They do not where
an op is steep or jumps: comparisons, indices, roundings to integers, logarithms. So from each result on, through values
and through buffers that stay in the kernel, only ops that the table calls steady may follow until a dtype of 16 bits is
reached.
"""

from __future__ import annotations

from hardtack.codegen.ir.loops import Compute, Load, LoopError, LoopNest, Reduce, Stmt, Store, args_of
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.tiles import SharedLaunch, TiledKernel
from hardtack.codegen.ops import COARSE_OPS, KERNEL_OPS


def verify_coarse(kernel: Kernel | TiledKernel | SharedLaunch) -> None:
    """Raise LoopError where a result of a coarse op, or what is computed from it, is needed with all its bits."""
    if isinstance(kernel, SharedLaunch):
        for part in kernel.parts:
            verify_coarse(part)
        return
    nests = [n.nest for n in kernel.nests]
    seen = {b.name for b in kernel.buffers}
    if isinstance(kernel, Kernel):
        nests = [*kernel.prologue, *nests]
        # a template reads its operands, among them the row of a prologue, which is not in memory
        seen |= set() if kernel.anchor is None else {o.buffer for o in kernel.anchor.operands}
    held: frozenset[str] = frozenset()
    while (more := held.union(*(_blurred_buffers(n, held, seen) for n in nests))) != held:
        held = more


def _blurred_buffers(nest: LoopNest, held: frozenset[str], seen: set[str]) -> frozenset[str]:
    """The buffers to which a nest stores what is computed from coarse results and not rounded yet.

    held: those from which it loads such values. seen: those that others read, which must have none.
    """
    blurred: set[str] = set()
    stored: set[str] = set()
    for s in nest.body:
        if isinstance(s, Load) and s.buffer in held:
            blurred.add(s.out)
        if isinstance(s, Compute) and s.op in COARSE_OPS and not s.dtype.is_half:
            blurred.add(s.out)
        if not any(a in blurred for a in args_of(s)) or _rounds(s):
            continue
        if isinstance(s, Store) and s.buffer not in seen:
            stored.add(s.buffer)
        elif isinstance(s, (Compute, Reduce)) and _is_steady(s):
            blurred.add(s.out)
        else:
            raise LoopError(f"{nest.name} needs all bits of a coarse result in: {stmt_text(s)}")
    return frozenset(stored)


def _rounds(s: Stmt) -> bool:
    return isinstance(s, Compute) and s.op == "cast" and s.dtype.is_half


def _is_steady(s: Compute | Reduce) -> bool:
    """True if the errors of arguments stay what they are, beside the result."""
    if isinstance(s, Reduce):
        return s.kind in ("sum", "prod", "max", "min")
    return KERNEL_OPS[s.op].is_steady and s.dtype.is_float
