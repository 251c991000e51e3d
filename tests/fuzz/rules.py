"""Rewrites and fusions one at a time: with the rule and without, against eager.

A rule has triggered where the text of its stage differs with it and without. Programs made to trigger it must; those
just outside of it must not. Either way the results of both must be right: of a rewrite by the reference interpreter, of
a fusion by its kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from hardtack.codegen.backend import Backend
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.exporter import to_graphs
from hardtack.exporter.rewrite.rules import RULES
from tests.codegen.runner import Runner
from tests.fuzz.cases import cases
from tests.fuzz.direct import compile_program
from tests.fuzz.graph_way import graph_results
from tests.fuzz.hunt import outcomes
from tests.fuzz.judge import Oracle
from tests.fuzz.program import Program, build
from tests.fuzz.rule_fusions import FUSIONS, Fusion
from tests.fuzz.rule_rewrites import REWRITES, Rewrite
from tests.fuzz.ways import Plan, Report, first_calls, guarded, judge, sized_calls

TRIGGERED = "triggered"
SECONDS = 600.0


@dataclass(frozen=True)
class Tried:
    """What became of a rule's programs."""

    name: str
    triggered: int
    triggering: int
    near: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.name:44s} triggered {self.triggered:2d} of {self.triggering:2d}, left {self.near:2d} alone"
        return "\n".join([text, *(f"    {p}" for p in self.problems)])


def try_rule(rule: Fusion | Rewrite, most: int | None = None) -> Tried:
    """The programs of a rule, in a child; most: so many of each kind."""
    check = checking_rewrite(rule) if isinstance(rule, Rewrite) else checking_fusion(rule)
    made, near = cases(rule.triggers)[:most], cases(rule.near, 5000)[:most]
    problems: list[str] = []
    counts = [0, 0]
    for k, programs in enumerate((made, near)):
        for p, found in zip(programs, outcomes(_way(check), programs, seconds=SECONDS), strict=True):
            triggered = TRIGGERED in found.notes
            counts[k] += triggered if k == 0 else found.kind == "right" and not triggered
            if found.kind != "right":
                problems.append(f"{found.kind}, {_forward(p)}: {' '.join(found.text.split())[:400]}")
            elif triggered != (k == 0):
                problems.append(f"{'not triggered' if k == 0 else 'triggered'}: {_forward(p)}")
    return Tried(rule.name, counts[0], len(made), counts[1], tuple(problems))


Check = Callable[[Program, list[str]], None]


def _way(check: Check) -> Callable[[Sequence[Program], Report], None]:
    def way(programs: Sequence[Program], report: Report) -> None:
        for p in programs:
            report(guarded(p, "rule", lambda notes, p=p: check(p, notes)))  # type: ignore[misc]

    return way


def _forward(p: Program) -> str:
    lines = [line.statement for line in p.lines]
    return "; ".join(lines) + f" -> {', '.join(p.outputs)}"


def _plans(p: Program) -> list[tuple[Plan, Oracle]]:
    """The calls to compare at; sizes that eager refuses left out."""
    found: list[tuple[Plan, Oracle]] = []
    for plan in (first_calls(p), *sized_calls(p)[:4]):
        try:
            found.append((plan, Oracle(p, plan.calls)))
        except Exception:
            if not found:
                raise
    return found


def checking_rewrite(rule: Rewrite) -> Check:
    """Captures with all rules and with all others, and runs both graphs."""
    others = tuple(r for r in RULES if r.name != rule.name)
    if len(others) == len(RULES):
        raise ValueError(
            f"there is no rewrite {rule.name}; there are: {', '.join(dict.fromkeys(r.name for r in RULES))}"
        )

    def check(p: Program, notes: list[str]) -> None:
        plans = _plans(p)
        texts: list[str] = []
        for rules, what in ((RULES, "with the rule"), (others, "without the rule")):
            exported = to_graphs(build(p), p.arguments(), None, p.dynamic_shapes(), rules=rules)
            (entry,) = exported.entries.values()
            texts.append(to_text_graph(entry.graph))
            for plan, oracle in plans:
                judge(p, oracle, graph_results(p, exported, plan), what)
        if texts[0] != texts[1]:
            notes.append(TRIGGERED)

    return check


_DECISION = re.compile(r"\n\n\w+ \S+ into \S")
"""What is told of choices stands behind what was made: that a rule that is left out is not told of changes nothing."""


def checking_fusion(rule: Fusion) -> Check:
    """Compiles for the backend with the rule and for the one without, and runs both."""
    runner = _runner(rule.on)

    def check(p: Program, notes: list[str]) -> None:
        plans = _plans(p)
        texts: list[str] = []
        for backend, what in ((rule.on, "with the rule"), (rule.off, "without the rule")):
            made = compile_program(p, backend, runner)
            texts.append(_DECISION.split(made.entry.texts[rule.stage])[0].rstrip())
            for plan, oracle in plans:
                judge(p, oracle, made.run(plan.calls), what)
        if texts[0] != texts[1]:
            notes.append(TRIGGERED)

    return check


def _runner(backend: Backend) -> type[Runner]:
    """What runs a backend's kernels here."""
    if backend.key == "cpu":
        return Runner
    from tests.triton.simulate import Simulator

    return Simulator


def run_rules(names: Sequence[str], out: TextIO) -> int:
    """Every rule, or those whose names contain one of `names`; 1 where something is wrong or nothing triggered."""
    import tests.triton.interpreter  # noqa: F401  # before anything imports triton

    chosen = [r for r in (*REWRITES, *FUSIONS) if not names or any(n in r.name for n in names)]
    if not chosen:
        raise SystemExit(f"no such rule; there are: {', '.join(r.name for r in (*REWRITES, *FUSIONS))}")
    failed = 0
    for rule in chosen:
        tried = try_rule(rule)
        failed += bool(tried.problems) or not tried.triggered
        out.write(f"{tried}\n")
        out.flush()
    left = sorted({r.name for r in RULES} - {r.name for r in REWRITES})
    if left:
        out.write(f"rewrites without programs: {', '.join(left)}\n")
    out.write(f"{len(chosen)} rules, {failed} with problems\n")
    return 1 if failed or left else 0
