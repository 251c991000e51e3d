"""Programs in one bundle on the CPU: each target of the file, one thread and two, again, and after a reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import hardtack
from tests.fuzz.bundles import Check, Device, as_tensors, check_bundles, refuses, taken
from tests.fuzz.judge import Oracle
from tests.fuzz.program import Program
from tests.fuzz.ways import Failed, Plan, Report, bits, differs, first_calls, judge, oracle, sized_calls

TARGETS = ("cpu:x86-64-v3", "cpu:x86-64-v4")


@dataclass(frozen=True)
class Loaded:
    """One entry of a file that is loaded for one target, with one thread and with two."""

    entry: str
    target: str
    one: hardtack.Model
    two: hardtack.Model


def check_on_cpu(programs: Sequence[Program], report: Report) -> None:
    check_bundles(programs, Device("cpu", TARGETS, _loaded), report)


def _loaded(path: Path) -> Check:
    models = [
        (t, hardtack.load(path, threads=1, target=t), hardtack.load(path, threads=2, target=t)) for t in _runnable()
    ]
    return lambda program, entry, notes: _check(program, [Loaded(entry, t, one, two) for t, one, two in models], notes)


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
        refuses(program, first, at.target)
        for sized in sized_calls(program):
            _at_size(program, sized, at, first, notes)


def _first_session(program: Program, plan: Plan, theirs: Oracle, at: Loaded) -> hardtack.Session:
    one, two = at.one.session(at.entry), at.two.session(at.entry)
    got = _calls(one, program, plan)
    judge(program, theirs, got, f"{at.target}, 1 thread")
    for call, a, b in zip(plan.calls, got, _calls(two, program, plan), strict=True):
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
    one, two = at.one.session(at.entry) if program.writes() else first, at.two.session(at.entry)
    found = taken(lambda: _calls(one, program, sized), oracle(program, sized), sized.calls[0], notes)
    if found is None:
        return
    theirs, got = found
    judge(program, theirs, got, f"{at.target}, 1 thread")
    for call, a, b in zip(sized.calls, got, _calls(two, program, sized), strict=True):
        differs(program, a, b, f"{at.target}, {call}: 1 thread and 2 threads")


def _calls(session: hardtack.Session, program: Program, plan: Plan) -> list[list[torch.Tensor]]:
    return [_call(session, call.arguments(program)) for call in plan.calls]


def _call(session: hardtack.Session, arguments: Sequence[Any]) -> list[torch.Tensor]:
    """A run; its inputs must be as they were afterwards."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    before = [bits(a) for a in tensors]
    found = as_tensors(session(*arguments))
    for k, (a, b) in enumerate(zip(tensors, before, strict=True)):
        if bits(a) != b:
            raise Failed("wrong", f"input {k} was changed")
    return found
