"""Programs in one bundle, whatever it runs on: capture, export, and what a session takes at a size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import hardtack
from hardtack.exporter import to_graphs
from hardtack.options import Options
from tests.fuzz.capture import as_asked, check_caches, small_products
from tests.fuzz.judge import Call, Oracle
from tests.fuzz.outcome import Outcome, is_refusal, told
from tests.fuzz.program import Program, build
from tests.fuzz.ways import Failed, Report, first_calls, guarded, oracle, refused_calls

Outputs = list[list[torch.Tensor]]
"""By call, by output."""

Check = Callable[[Program, str, list[str]], None]
"""check(program, entry, notes): runs a program, which is an entry point of a file that is loaded."""


@dataclass(frozen=True)
class Device:
    """What files run on. load: what checks the programs of a file; behind: called when one of them has been checked."""

    name: str
    targets: tuple[str, ...]
    load: Callable[[Path], Check]
    behind: Callable[[], None] = lambda: None


def check_bundles(programs: Sequence[Program], device: Device, report: Report) -> None:
    """Exports the programs into one file. Those that are refused are left out first, so that the others share one."""
    good = capturable(programs, report, device.name)
    with tempfile.TemporaryDirectory(prefix="hardtack_fuzz_") as folder:
        for alike in dict.fromkeys((p.strict, p.cache) for p in good):
            _check_bundle([p for p in good if (p.strict, p.cache) == alike], device, Path(folder), report)


def _check_bundle(programs: Sequence[Program], device: Device, folder: Path, report: Report) -> None:
    if not programs:
        return
    path = folder / "programs.pkg"
    if not exported(programs, path, device.targets, device.name, report):
        for p in programs if len(programs) > 1 else ():
            _check_bundle([p], device, folder, report)
        return
    seeds = tuple(p.seed for p in programs) if len(programs) > 1 else ()
    check = device.load(path)
    for k, p in enumerate(programs):

        def run(notes: list[str], p: Program = p, k: int = k) -> None:
            check(p, f"e{k}", notes)

        report(replace(guarded(p, device.name, run), bundle=seeds))
        device.behind()


def capturable(programs: Sequence[Program], report: Report, way: str) -> list[Program]:
    """The programs that eager runs and that can be captured; the others are reported."""
    good: list[Program] = []
    for p in programs:

        def check(notes: list[str], p: Program = p) -> None:
            if oracle(p, first_calls(p)) is None:
                raise Failed("skipped", "eager refuses the example")
            found = to_graphs(build(p), p.arguments(), None, p.dynamic_shapes(), p.strict)
            if p.cache:
                as_asked(p, found)

        found = guarded(p, f"{way}, capture", check)
        if found.kind == "right":
            good.append(p)
        else:
            report(found)
    return good


def export(programs: Sequence[Program], path: Path, targets: Sequence[str]) -> None:
    """One file with an entry point for each program: e0, e1, ...; all of them strict, or none, with one cache."""
    names = [f"e{k}" for k in range(len(programs))]
    dynamic = {n: p.dynamic_shapes() for n, p in zip(names, programs, strict=True)}
    with small_products():
        info = hardtack.export(
            {n: build(p, n) for n, p in zip(names, programs, strict=True)},
            {n: p.arguments() for n, p in zip(names, programs, strict=True)},
            path=path,
            dynamic_shapes=dynamic if any(dynamic.values()) else None,
            targets=targets,
            options=Options(
                jobs=1, strict=programs[0].strict, compute=programs[0].compute, cache=programs[0].cache or None
            ),
            progress=False,
        )
    for name, p in zip(names, programs, strict=True) if info.cached is not None else ():
        check_caches(p, [s.name for s in info.cached.states], info.cached.kept, name)


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


def taken(
    run: Callable[[], Outputs], theirs: Oracle | None, call: Call, notes: list[str]
) -> tuple[Oracle, Outputs] | None:
    """What a run at another size gives, beside eager; None, with a note, where one of the two refuses the size.

    Raises RunError where eager runs: a size that is not refused at the door must not fail inside.
    """
    try:
        got = run()
    except (hardtack.InputError, hardtack.RunError) as error:
        if theirs is not None and isinstance(error, hardtack.RunError):
            raise
        notes.append(f"{call}: {str(error)[:120]}")
        return None
    if theirs is None:
        notes.append(f"{call}: eager refuses, hardtack runs")
        return None
    return theirs, got


def refuses(program: Program, session: hardtack.Session, where: str) -> None:
    """Failed where a session takes what it must refuse, or says so otherwise than by an InputError."""
    for what, arguments in refused_calls(program):
        try:
            session(*arguments)
        except hardtack.InputError:
            continue
        except Exception as error:
            raise Failed("internal", f"{where}, {what}: {told(error)}") from error
        raise Failed("wrong", f"{where}: {what} is taken")


def as_tensors(found: Any) -> list[torch.Tensor]:
    return [o if isinstance(o, torch.Tensor) else torch.as_tensor(o) for o in found]
