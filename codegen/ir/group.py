"""Group: nests that become one kernel, and the record of what was decided about them.

    Group    ::= Group(name, outer, nests, anchor, control, prologue, siblings, constants)
    Decision ::= Decision(kind, subject, partner, accepted, reason)

A loop group (anchor None) walks `outer`, the parallel axes that all its nests share (same symbols in each), and inside
runs its nests one after the other over their remaining axes; what one nest of it wrote, a later one reads at the same
outer point. A template group has a TemplateNest as anchor; its nests are the epilogue, over exactly the anchor's axes.
It may have a prologue: nests that every program of the template computes for itself, the last of which stores the
template's first operand, a row. Each walks one axis `k` that numbers the row's elements (parallel, or reduce) or none,
and what they store is private: it is never in memory; `constants` are buffers that they read and no kernel writes. A
control group is one ControlNest, alone: no kernel. A group of siblings has loop groups that need nothing from each
other and share the programs of one launch. Every refusal to fuse is kept as a Decision with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, Sym, bounds, int_value
from hardtack.codegen.ir.expr_walk import split_linear
from hardtack.codegen.ir.loops import (
    Assert,
    Axis,
    Buffer,
    Check,
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
    """One choice: `kind` is inline, fuse, prologue, sibling, template, tuning, products."""

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
    control: ControlNest | None = None
    prologue: tuple[LoopNest, ...] = ()
    siblings: tuple[Group, ...] = ()
    constants: frozenset[str] = frozenset()

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


@dataclass(frozen=True)
class RowOperand:
    """The first operand of a template whose programs can compute it themselves: a row of `length` elements, dense in a
    buffer of its own. columns: results for which a program uses each element once; programs: how many there are."""

    buffer: str
    length: int
    columns: int
    programs: int


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
    return "\n".join(lines)


def verify_group(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Raise LoopError, with the group's text, where a group breaks the rules of the module's grammar."""
    try:
        for n in group.members():
            verify_nest(n, buffers)
        _verify_order(group)
        if group.prologue:
            _verify_prologue(group, buffers)
        if group.siblings:
            _verify_siblings(group, buffers)
        elif group.control is not None:
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


def _verify_prologue(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Every nest walks the row or one point, each value is private and read where it was computed."""
    anchor = group.anchor
    if anchor is None or group.prologue[-1].writes() != {anchor.operands[0].buffer}:
        raise LoopError("the prologue does not end with the template's first operand")
    row = next(a for a in group.prologue[-1].axes)
    private = group.private()
    elsewhere = {o.buffer for o in anchor.operands[1:]}.union(*(n.reads() for n in group.nests))
    if private & elsewhere:
        raise LoopError("something besides the template's first operand is read from the prologue")
    written: dict[str, Expr] = {}
    for n in group.prologue:
        if n.serial or any(isinstance(s, (Assert, Check)) for s in n.body):
            raise LoopError(f"{n.name} of the prologue checks, asserts or must run in order")
        if [(a.sym, a.extent) for a in n.axes] not in ([], [(row.sym, row.extent)]):
            raise LoopError(f"{n.name} of the prologue walks other points than those of the row")
        for load in n.loads():
            there = written.get(load.buffer)
            if load.buffer in private and (there is None or there is not buffers[load.buffer].offset(load.index)):
                raise LoopError(f"{n.name} reads {load.buffer} at another point than the one just computed")
        for s in n.stores():
            if s.mode != "set" or s.buffer in written:
                raise LoopError(f"{n.name} updates {s.buffer} of the prologue")
            written[s.buffer] = buffers[s.buffer].offset(s.index)
    changed = sorted(group.writes() & group.reads_of_prologue())
    if changed:
        raise LoopError(f"the prologue reads {changed[0]}, which other programs of the kernel write")


def _verify_siblings(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Each is a loop group by itself, and none touches what another one writes."""
    if (
        group.nests
        or group.anchor is not None
        or group.control is not None
        or group.prologue
        or len(group.siblings) < 2
    ):
        raise LoopError("a group of siblings has two or more and nothing else")
    for k, g in enumerate(group.siblings):
        if g.siblings or g.anchor is not None or g.control is not None:
            raise LoopError(f"the sibling {g.name} is no loop group")
        verify_group(g, buffers)
        for other in group.siblings[:k]:
            shared = sorted(conflicts(g, other))
            if shared:
                raise LoopError(f"the siblings {other.name} and {g.name} share {shared[0]}, which is written")


def conflicts(a: Group, b: Group) -> set[str]:
    """Buffers because of which the two must run in order."""
    writes, others = a.writes(), b.writes()
    return (writes & (b.reads() | others)) | (a.reads() & others)


def _verify_loops(group: Group) -> None:
    """Every nest starts with the outer axes, and reads the group's values at the outer point that wrote them."""
    written: dict[str, list[tuple[Expr, ...]]] = {}
    for n in group.nests:
        if n.axes[: len(group.outer)] != group.outer:
            raise LoopError(f"{n.name} does not start with the outer axes")
        if n.serial and len(group.nests) > 1:
            raise LoopError(f"{n.name} must run in order and is not alone")
        for load in n.loads():
            for index in written.get(load.buffer, ()):
                for axis in group.outer:
                    if not any(same_digit(i, j, axis.sym) for i, j in zip(index, load.index, strict=True)):
                        raise LoopError(f"{n.name} reads {load.buffer} across the outer axis {axis.sym.name}")
        for store in n.stores():
            written.setdefault(store.buffer, []).append(store.index)
