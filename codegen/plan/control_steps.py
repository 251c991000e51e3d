"""Conditionals and loops as plan steps: the steps of their branches, between copies that bind operands and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.nests import ControlNest
from hardtack.codegen.lower import Lowered
from hardtack.codegen.plan.planner import ControlStep, CopyStep, KernelLaunch, ReadStep, Step

Branch = tuple[Lowered, Sequence[Step]]


def renamed_buffer(control: ControlNest, branch: int, name: str) -> str:
    """The name of a branch's own buffer in the plan."""
    return f"{control.name}/{control.branches[branch].name}/{name}"


def control_steps(control: ControlNest, branches: Sequence[Branch]) -> list[Step]:
    """The steps of a ControlNest. `branches`: what lowering and rendering made of its graphs, in its order."""
    if control.kind == "cond":
        then, orelse = (_bound(control, k, b, control.operands, control.results) for k, b in enumerate(branches))
        assert control.predicate is not None
        return [ControlStep("cond", control.predicate, then, orelse, control.origin)]
    carried = len(control.results)
    given = (*control.results, *control.operands[carried:])
    starts: list[Step] = [
        CopyStep(source, target, control.origin)
        for source, target in zip(control.operands[:carried], control.results, strict=True)
    ]
    test = _bound(control, 0, branches[0], given, ())
    body = _bound(control, 1, branches[1], given, control.results)
    condition = _names(control, 0, branches[0][0], given)[branches[0][0].outputs[0]]
    return [*starts, ControlStep("while", condition, test, body, control.origin)]


def _names(control: ControlNest, k: int, lowered: Lowered, given: Sequence[str]) -> dict[str, str]:
    """A branch's buffer names as the plan's: inputs are the buffers given, the rest get a prefix."""
    names = {n: renamed_buffer(control, k, n) for n in lowered.buffers}
    return names | {i.name: g for i, g in zip(lowered.graph.inputs, given, strict=True)}


def _bound(
    control: ControlNest, k: int, branch: Branch, given: Sequence[str], results: Sequence[str]
) -> tuple[Step, ...]:
    """The branch's steps on the plan's names, its outputs copied to `results`."""
    lowered, steps = branch
    names = _names(control, k, lowered, given)
    inner: list[Step] = [_renamed(s, names, f"{control.name}/{control.branches[k].name}/") for s in steps]
    inner += [
        CopyStep(names[source], target, control.origin)
        for source, target in zip(lowered.outputs, results, strict=False)
    ]
    return tuple(inner)


def _renamed(step: Step, names: Mapping[str, str], prefix: str) -> Step:
    def name(n: str) -> str:
        # a nested branch's buffers carry the prefix of their own control nest already
        return names.get(n, prefix + n)

    if isinstance(step, KernelLaunch):
        return replace(
            step,
            buffers=tuple(map(name, step.buffers)),
            reads=frozenset(map(name, step.reads)),
            writes=frozenset(map(name, step.writes)),
        )
    assert not isinstance(step, ReadStep), "a size is read inside of a branch"
    if isinstance(step, CopyStep):
        return replace(step, source=name(step.source), target=name(step.target))
    first, second = (tuple(_renamed(s, names, prefix) for s in x) for x in (step.first, step.second))
    return replace(step, cond=name(step.cond), first=first, second=second)
