"""Group: nests that become one kernel, and the record of what was decided about them.

    Group    ::= Group(name, outer, nests, anchor, control)
    Decision ::= Decision(kind, subject, partner, accepted, reason, score)

A loop group (anchor None) walks `outer`, the parallel axes that all its nests share (same symbols in each), and inside
runs its nests one after the other over their remaining axes. A template group has a TemplateNest as anchor; its nests
are the epilogue, over exactly the anchor's axes. A control group is one ControlNest, alone: no kernel. Every refusal to
fuse is kept as a Decision with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.loops import Axis, ControlNest, LoopNest, Nest, TemplateNest, to_text_nest


@dataclass(frozen=True)
class Decision:
    """One choice: `kind` is inline, fuse or layout; `score` is the estimated nbytes or instructions saved."""

    kind: str
    subject: str
    partner: str
    accepted: bool
    reason: str
    score: int = 0

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
    control: ControlNest | None = None

    def members(self) -> tuple[Nest, ...]:
        if self.control is not None:
            return (self.control,)
        return (self.anchor, *self.nests) if self.anchor is not None else self.nests

    def writes(self) -> set[str]:
        return set().union(*(n.writes() for n in self.members()))

    def reads(self) -> set[str]:
        return set().union(*(n.reads() for n in self.members()))

    def reads_from_outside(self) -> set[str]:
        """Buffers whose content of before the group matters: those read before a member of it writes them."""
        found: set[str] = set()
        written: set[str] = set()
        for n in self.members():
            found |= n.reads() - written
            written |= n.writes()
        return found


def to_text(group: Group) -> str:
    """The group as a listing."""
    axes = ", ".join(f"{a.sym.name}<{a.extent}" for a in group.outer)
    lines = [f"group {group.name} over ({axes})"]
    for n in group.members():
        lines += ["  " + line for line in to_text_nest(n).splitlines()]
    return "\n".join(lines)
