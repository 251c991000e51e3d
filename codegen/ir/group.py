"""Group: nests that become one kernel, and the record of what was decided about them.

    Group    ::= Group(name, outer, nests, anchor, control)
    Decision ::= Decision(kind, subject, partner, accepted, reason, score)

A loop group (anchor None) walks `outer`, the parallel axes that all its nests share (same symbols in each), and inside
runs its nests one after the other over their remaining axes; what one nest of it wrote, a later one reads at the same
outer point. A template group has a TemplateNest as anchor; its nests are the epilogue, over exactly the anchor's axes.
A control group is one ControlNest, alone: no kernel. Every refusal to fuse is kept as a Decision with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.loops import (
    Assert,
    Axis,
    Buffer,
    ControlNest,
    LoopError,
    LoopNest,
    Nest,
    Reduce,
    TemplateNest,
    to_text_nest,
    verify_nest,
)


@dataclass(frozen=True)
class Decision:
    """One choice: `kind` is inline, fuse, layout, template, tuning; `score`: estimated nbytes or instructions saved."""

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


def verify_group(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the group's text, where a group breaks the rules of the module's grammar."""
    try:
        for n in group.members():
            verify_nest(n, buffers)
        _verify_order(group)
        if group.control is not None:
            if group.anchor is not None or group.nests:
                raise LoopError("a control group has one member")
        elif group.anchor is not None:
            _verify_epilogue(group)
        else:
            _verify_loops(group)
    except LoopError as e:
        raise LoopError(f"group {group.name}: {e}\n{to_text(group)}") from None


def _verify_order(group: Group) -> None:
    """No member reads what only a later one writes."""
    members = group.members()
    for k, n in enumerate(members):
        later = set().union(*(m.writes() for m in members[k + 1 :]), set())
        earlier = set().union(*(m.writes() for m in members[: k + 1]), set())
        early = sorted(n.reads() & later - earlier)
        if early:
            raise LoopError(f"{n.name} reads {early[0]}, which a later member writes")


def _verify_epilogue(group: Group) -> None:
    assert group.anchor is not None
    for n in group.nests:
        if n.axes != group.anchor.axes:
            raise LoopError(f"the epilogue {n.name} walks other axes than the template")
        if any(isinstance(s, (Reduce, Assert)) for s in n.body):
            raise LoopError(f"the epilogue {n.name} reduces or asserts")


def _verify_loops(group: Group) -> None:
    """Every nest starts with the outer axes, and reads the group's values at the outer point that wrote them."""
    written: dict[str, list[tuple[object, ...]]] = {}
    for n in group.nests:
        if n.axes[: len(group.outer)] != group.outer:
            raise LoopError(f"{n.name} does not start with the outer axes")
        if n.serial and len(group.nests) > 1:
            raise LoopError(f"{n.name} must run in order and is not alone")
        for load in n.loads():
            for index in written.get(load.buffer, ()):
                for axis in group.outer:
                    if not any(i is axis.sym and j is axis.sym for i, j in zip(index, load.index, strict=True)):
                        raise LoopError(f"{n.name} reads {load.buffer} across the outer axis {axis.sym.name}")
        for store in n.stores():
            written.setdefault(store.buffer, []).append(store.index)
