"""Group: nests that become one kernel, and the record of what was decided about them.

    Group    ::= Group(name, outer, nests, anchor, control, prologue, siblings, constants, half)
    Decision ::= Decision(kind, subject, partner, accepted, reason)

A loop group (anchor None) walks `outer`, the parallel axes that all its nests share (same symbols in each), and inside
runs its nests one after the other over their remaining axes; what one nest of it wrote, a later one reads at the same
outer point. A template group has a TemplateNest as anchor; its nests are the epilogue, over exactly the anchor's axes,
or with the axis `half` in place of the last one: then they read the result at a column of the first half and at the one
as far into the second half, as what is made of a gate and what it opens does.
It may have a prologue: nests that every program of the template computes for itself, the last of which stores the
template's first operand, a row. Each walks one axis `k` that numbers the row's elements (parallel, or reduce) or none,
and what they store is private: it is never in memory; `constants` are buffers that they read and no kernel writes. A
control group is one ControlNest or ReadNest, alone: no kernel. A group of siblings has loop groups that need nothing
from each other and share the programs of one launch. Every refusal to fuse is kept as a Decision with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.column_halves import result_offsets
from hardtack.codegen.ir.expr import Expr, Sym, bounds, int_value
from hardtack.codegen.ir.expr_walk import split_linear
from hardtack.codegen.ir.loops import Axis, LoopNest
from hardtack.codegen.ir.nest_text import to_text_nest
from hardtack.codegen.ir.nests import ControlNest, Nest, ReadNest, TemplateNest


@dataclass(frozen=True)
class Decision:
    """One choice: `kind` is integers, float8, inline, gate, expand, fuse, prologue, sibling, template, tuning,
    products, in place."""

    kind: str
    subject: str
    partner: str
    accepted: bool
    reason: str

    def __str__(self) -> str:
        verdict = "yes" if self.accepted else "no"
        return f"{self.kind} {self.subject} into {self.partner}: {verdict}, {self.reason}"


@dataclass(frozen=True)
class Group:
    """See the module's grammar."""

    name: str
    outer: tuple[Axis, ...]
    nests: tuple[LoopNest, ...]
    anchor: TemplateNest | None = None
    control: ControlNest | ReadNest | None = None
    prologue: tuple[LoopNest, ...] = ()
    siblings: tuple[Group, ...] = ()
    constants: frozenset[str] = frozenset()
    half: Axis | None = None

    @property
    def walk(self) -> tuple[Axis, ...]:
        """The axes of an epilogue."""
        assert self.anchor is not None
        return self.anchor.axes if self.half is None else (*self.anchor.axes[:-1], self.half)

    def result_offsets(self) -> tuple[Expr, ...]:
        """Where the template's result lies that the epilogue has at a point."""
        assert self.anchor is not None
        return result_offsets(self.anchor.axes, self.half)

    def members(self) -> tuple[Nest, ...]:
        """In the order in which they are computed."""
        if self.control is not None:
            return (self.control,)
        if self.siblings:
            return tuple(n for g in self.siblings for n in g.members())
        return (*self.prologue, self.anchor, *self.nests) if self.anchor is not None else self.nests

    def private(self) -> set[str]:
        """Buffers of the prologue, which other groups may have, too: none of them is in memory."""
        return set().union(*(n.writes() for n in self.prologue))

    def writes(self) -> set[str]:
        return set().union(*(n.writes() for n in self.members())) - self.private()

    def reads(self) -> set[str]:
        return set().union(*(n.reads() for n in self.members())) - self.private()

    def reads_of_prologue(self) -> set[str]:
        """What the prologue reads from memory."""
        return set().union(*(n.reads() for n in self.prologue)) - self.private()

    def reads_from_outside(self) -> set[str]:
        """Buffers whose content of before the group matters: those read before a member of it writes them."""
        found: set[str] = set()
        written: set[str] = set()
        for n in self.members():
            found |= n.reads() - written
            written |= n.writes()
        return found


def same_digit(a: Expr, b: Expr, axis: Sym) -> bool:
    """True if equal indices a and b mean equal values of the axis: it stands alone in both, or is a // k and b // k."""
    if a is axis and b is axis:
        return True
    first, second = split_linear(a, axis), split_linear(b, axis)
    if first is None or second is None or first[0] is not second[0]:
        return False
    k = int_value(first[0])
    return k is not None and k > 0 and all(_within(rest, k) for _, rest in (first, second))


def _within(e: Expr, k: int) -> bool:
    """True if e is known to lie in [0, k)."""
    lo, hi = bounds(e)
    return lo is not None and hi is not None and lo >= 0 and hi < k


def to_text(group: Group) -> str:
    """The group as a listing."""
    axes = ", ".join(f"{a.sym.name}<{a.extent}" for a in group.outer)
    lines = [f"group {group.name} over ({axes})"]
    if group.siblings:
        lines[0] += f" shared by {', '.join(g.name for g in group.siblings)}"
    if group.prologue:
        lines.append(f"  each program computes {', '.join(n.name for n in group.prologue)}")
    for n in group.members():
        lines += ["  " + line for line in to_text_nest(n).splitlines()]
    if group.half is not None:
        lines.append(f"  of both halves of its columns at once, {group.half.sym.name}<{group.half.extent}")
    return "\n".join(lines)


def conflicts(a: Group, b: Group) -> set[str]:
    """Buffers, or symbols, because of which the two must run in order."""
    read = {g.control.sym.name for g in (a, b) if isinstance(g.control, ReadNest)}
    if read:
        return read
    writes, others = a.writes(), b.writes()
    return (writes & (b.reads() | others)) | (a.reads() & others)
