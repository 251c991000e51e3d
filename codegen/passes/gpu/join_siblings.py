"""Siblings: small groups that need nothing from each other share a launch.

A kernel of a few thousand points takes as long as its launch. Groups that could run in any order become one kernel
whose programs are shared out among them: a group moves forward to an earlier one, past groups that it does not depend
on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import product
from hardtack.codegen.ir.group import Decision, Group, conflicts
from hardtack.codegen.passes.passes import Buffers, Context, Decisions, GroupPass, Scope
from hardtack.codegen.schedule.fusion_limits import FusionLimits

MOST_SIBLINGS = 8
"""Groups in a launch: each is a branch that every program passes."""


def join_siblings(
    groups: tuple[Group, ...], buffers: Buffers, scope: Scope, context: Context
) -> tuple[tuple[Group, ...], Decisions]:
    """The groups with small ones put together where they can run side by side."""
    hints, limits = context.hints, context.limits
    if not limits.sibling_points:
        return groups, ()
    out: list[Group] = []
    decisions: list[Decision] = []
    for g in groups:
        if not _small(g, hints, limits):
            out.append(g)
            continue
        taker, needed = _place(g, out, hints, limits)
        if taker is None:
            if needed is not None:
                reason = f"it needs to run behind {needed.name}"
                decisions.append(Decision("sibling", g.name, needed.name, False, reason))
            out.append(g)
            continue
        reason = f"{_points(g, hints)} points share its launch"
        decisions.append(Decision("sibling", g.name, out[taker].name, True, reason))
        siblings = out[taker].siblings or (out[taker],)
        out[taker] = Group(out[taker].name, (), (), siblings=(*siblings, g))
    return tuple(out), tuple(decisions)


def _place(
    g: Group, out: Sequence[Group], hints: Mapping[str, int], limits: FusionLimits
) -> tuple[int | None, Group | None]:
    """The latest group that g can share a launch with; or the group that it has to run behind."""
    for k in range(len(out) - 1, -1, -1):
        if conflicts(out[k], g):
            return None, out[k]
        if len(out[k].siblings) < MOST_SIBLINGS and _small(out[k], hints, limits):
            return k, None
    return None, None


def _small(group: Group, hints: Mapping[str, int], limits: FusionLimits) -> bool:
    """True for a loop group, or siblings, of little work each."""
    groups = group.siblings or (group,)
    return all(g.anchor is None and g.control is None and _points(g, hints) <= limits.sibling_points for g in groups)


def _points(group: Group, hints: Mapping[str, int]) -> int:
    """Points of work."""
    return sum(size_hint(product(a.extent for a in n.axes), hints) for n in group.nests)


JOIN_SIBLINGS = GroupPass("siblings", join_siblings)
"""Small groups that need nothing from each other share a launch."""
