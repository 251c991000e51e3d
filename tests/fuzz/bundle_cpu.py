"""Programs in one bundle on the CPU: each target of the file, one thread and two, again, and after a reset."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import hardtack
from hardtack.export import to_graphs
from hardtack.options import Options
from tests.fuzz.judge import Oracle
from tests.fuzz.outcome import Outcome, is_refusal, told
from tests.fuzz.program import Program, build
from tests.fuzz.ways import Failed, Plan, Report, bits, differs, first_calls, guarded, judge, oracle, sized_calls

TARGETS = ("cpu:x86-64-v3", "cpu:x86-64-v4")


@dataclass(frozen=True)
class Loaded:
    """One entry of a file that is loaded for one target, with one thread and with two."""

    entry: str
    target: str
    one: hardtack.Model
    two: hardtack.Model


def check_on_cpu(programs: Sequence[Program], report: Report) -> None:
    """Exports the programs into one file. Those that are refused are left out first, so that the others share one."""
    good = capturable(programs, report, "cpu")
    with tempfile.TemporaryDirectory(prefix="hardtack_fuzz_") as folder:
        check_bundle(good, Path(folder), report)


def capturable(programs: Sequence[Program], report: Report, way: str) -> list[Program]:
    """The programs that eager runs and that can be captured; the others are reported."""
    good: list[Program] = []
    for p in programs:

        def check(notes: list[str], p: Program = p) -> None:
            if oracle(p, first_calls(p)) is None:
                raise Failed("skipped", "eager refuses the example")
            to_graphs(build(p), p.arguments(), None, p.dynamic_shapes())

        found = guarded(p, f"{way}, capture", check)
        if found.kind == "right":
            good.append(p)
        else:
            report(found)
    return good


def export(programs: Sequence[Program], path: Path, targets: Sequence[str]) -> None:
    """One file with an entry point for each program: e0, e1, ..."""
    names = [f"e{k}" for k in range(len(programs))]
    dynamic = {n: p.dynamic_shapes() for n, p in zip(names, programs, strict=True)}
    hardtack.export(
        {n: build(p, n) for n, p in zip(names, programs, strict=True)},
        {n: p.arguments() for n, p in zip(names, programs, strict=True)},
        path=path,
        dynamic_shapes=dynamic if any(dynamic.values()) else None,
        targets=targets,
        options=Options(jobs=1),
        progress=False,
    )


def exported(
    programs: Sequence[Program], path: Path, targets: Sequence[str], way: str, report: Report
) -> list[Program]:
    """The programs that the file has: all of them or, where the export fails, none; one alone is reported then."""
    try:
        export(programs, path, targets)
    except Exception as error:
        if len(programs) == 1:
            kind = "refused" if is_refusal(error) else "internal"
            report(Outcome(programs[0].seed, kind, told(error), f"{way}, compile", families=programs[0].families))
        return []
    return list(programs)


def check_bundle(programs: Sequence[Program], folder: Path, report: Report) -> None:
    if not programs:
        return
    path = folder / "programs.pkg"
    if not exported(programs, path, TARGETS, "cpu", report):
        for p in programs if len(programs) > 1 else ():
            check_bundle([p], folder, report)
        return
    seeds = tuple(p.seed for p in programs) if len(programs) > 1 else ()
    loaded = [
        (t, hardtack.load(path, threads=1, target=t), hardtack.load(path, threads=2, target=t)) for t in _runnable()
    ]
    for k, p in enumerate(programs):

        def check(notes: list[str], p: Program = p, k: int = k) -> None:
            _check(p, [Loaded(f"e{k}", t, one, two) for t, one, two in loaded], notes)

        report(replace(guarded(p, "cpu", check), bundle=seeds))


def _runnable() -> tuple[str, ...]:
    """The targets that this machine can run."""
    capable = "avx512f" in Path("/proc/cpuinfo").read_text()
    return TARGETS if capable else TARGETS[:1]


def _check(program: Program, loaded: Sequence[Loaded], notes: list[str]) -> None:
    plan = first_calls(program)
    theirs = oracle(program, plan)
    assert theirs is not None
    for at in loaded:
        first = _first_session(program, plan, theirs, at)
        for sized in sized_calls(program):
            _at_size(program, sized, at, first, notes)


def _first_session(program: Program, plan: Plan, theirs: Oracle, at: Loaded) -> hardtack.Session:
    one, two = at.one.session(at.entry), at.two.session(at.entry)
    got = [_call(one, call.arguments(program)) for call in plan.calls]
    judge(program, theirs, got, f"{at.target}, 1 thread")
    again = [_call(two, call.arguments(program)) for call in plan.calls]
    for call, a, b in zip(plan.calls, got, again, strict=True):
        differs(program, a, b, f"{at.target}, {call}: 1 thread and 2 threads")
    one.reset()
    differs(
        program,
        got[0],
        _call(one, plan.calls[0].arguments(program)),
        f"{at.target}: the first run and one after a reset",
    )
    return one


def _at_size(program: Program, sized: Plan, at: Loaded, first: hardtack.Session, notes: list[str]) -> None:
    """Another size: in the session that has run before, or for a program with states in one of its own."""
    (call,) = sized.calls
    theirs = oracle(program, sized)
    one = at.one.session(at.entry) if program.writes() else first
    try:
        got = _call(one, call.arguments(program))
    except (hardtack.InputError, hardtack.RunError) as error:
        if theirs is not None and isinstance(error, hardtack.RunError):
            raise
        notes.append(f"{call}: {str(error)[:120]}")
        return
    if theirs is None:
        notes.append(f"{call}: eager refuses, hardtack runs")
        return
    judge(program, theirs, [got], f"{at.target}, 1 thread")
    differs(
        program,
        got,
        _call(at.two.session(at.entry), call.arguments(program)),
        f"{at.target}, {call}: 1 thread and 2 threads",
    )


def _call(session: hardtack.Session, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A run; its inputs must be as they were afterwards."""
    before = [bits(a) for a in arguments]
    found = as_tensors(session(*arguments))
    for k, (a, b) in enumerate(zip(arguments, before, strict=True)):
        if bits(a) != b:
            raise Failed("wrong", f"input {k} was changed")
    return found


def as_tensors(found: Any) -> list[torch.Tensor]:
    return [o if isinstance(o, torch.Tensor) else torch.as_tensor(o) for o in found]
