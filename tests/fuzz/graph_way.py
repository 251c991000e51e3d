"""The captured graph alone: hardtack's reference interpreter against eager. No kernel is compiled, so thousands run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hardtack import InputError
from hardtack.exporter import Exported
from hardtack.exporter.reference import ReferenceFailure, outputs, run
from tests.fuzz.capture import captured, graph_inputs
from tests.fuzz.program import Program
from tests.fuzz.ways import Failed, Plan, Report, first_calls, guarded, judge, oracle, sized_calls

WAY = "graph"


def check_graphs(programs: Sequence[Program], report: Report) -> None:
    for p in programs:
        report(guarded(p, WAY, lambda notes, p=p: _check(p, notes)))  # type: ignore[misc]


def _check(program: Program, notes: list[str]) -> None:
    plan = first_calls(program)
    first = oracle(program, plan)
    if first is None:
        raise Failed("skipped", "eager refuses the example")
    exported = captured(program)
    judge(program, first, graph_results(program, exported, plan), "graph")
    for sized in sized_calls(program):
        theirs = oracle(program, sized)
        if theirs is None:
            notes.append(f"{sized.calls[0]}: eager refuses")
            continue
        try:
            ours = graph_results(program, exported, sized)
        except (InputError, ReferenceFailure) as error:
            notes.append(f"{sized.calls[0]}: {str(error)[:100]}")
            continue
        judge(program, theirs, ours, "graph")


def graph_results(program: Program, exported: Exported, plan: Plan) -> list[list[torch.Tensor]]:
    """The graph's results call by call; states go from each to the next."""
    (entry,) = exported.entries.values()
    graph = entry.graph
    states: dict[str, torch.Tensor] = {}
    found: list[list[torch.Tensor]] = []
    for call in plan.calls:
        given = graph_inputs(entry, call.arguments(program))
        values = run(graph, exported.store, given, states)
        states = {s.name: values[s.final] if s.final is not None else values[s.name] for s in graph.states}
        found.append([o.clone() for o in outputs(graph, values)])
    return found
