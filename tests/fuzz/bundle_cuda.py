"""Programs in one bundle on a GPU: tensors of the host and of the device, synchronous and asynchronous, first, second
and replayed runs, as CUDA graphs and without, two sessions on two streams at once.

Host tensors are judged against eager; every other way must give the same bits. Sums of floats by atomics may differ
from run to run (docs/contract.md): programs with them are judged again instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import hardtack
from tests.fuzz.bundles import Check, Device, Outputs, as_tensors, check_bundles, refuses, taken
from tests.fuzz.judge import Oracle
from tests.fuzz.program import Program
from tests.fuzz.ways import Failed, Plan, Report, differs, first_calls, judge, oracle, sized_calls

UNORDERED = re.compile(r"scatter_add|scatter_reduce|index_add|accumulate=True|embedding_bag|F\.fold")
"""Ops that may add floats up in any order on a GPU."""

LEAST = torch.finfo(torch.float32).tiny
"""Atomic sums of float32 take smaller numbers for 0."""

BROKEN = 17
"""The exit code of a process whose device has failed; the programs behind the one that did it run in others."""


def target() -> str:
    """The target of this machine's GPU."""
    major, minor = torch.cuda.get_device_capability()
    return f"cuda:sm_{major}{minor}"


def check_on_cuda(programs: Sequence[Program], report: Report) -> None:
    check_bundles(programs, Device("cuda", (target(),), _loaded, _end_if_broken), report)


def _loaded(path: Path) -> Check:
    model = hardtack.load(path, device="cuda")
    return lambda program, entry, notes: _check(program, model, entry, notes)


def _end_if_broken() -> None:
    """After an error of the device that stays, such as an address out of range, this process is of no use."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        os._exit(BROKEN)


def _check(program: Program, model: hardtack.Model, entry: str, notes: list[str]) -> None:
    plan = first_calls(program)
    theirs = oracle(program, plan)
    assert theirs is not None
    session = model.session(entry)
    host = _run(session, program, plan)
    _judge(program, theirs, host, "host tensors")
    session.reset()
    _same(program, theirs, host, _run(session, program, plan), "host tensors, replayed after a reset")
    for asynchronous in (False, True):
        for graphs in (True, False):
            order = "asynchronous" if asynchronous else "synchronous"
            way = f"device tensors, {order}, {'with' if graphs else 'without'} graphs"
            on_device = model.session(entry, asynchronous=asynchronous, graphs=graphs)
            for turn in ("first", "second", "third"):
                on_device.reset()
                _same(program, theirs, host, _run(on_device, program, plan, device=True), f"{way}, {turn} time")
    _two_streams(program, model, entry, plan, theirs, host)
    refuses(program, session, "cuda")
    for sized in sized_calls(program):
        _at_size(program, sized, model, entry, session, notes)


def _run(session: hardtack.Session, program: Program, plan: Plan, *, device: bool = False) -> Outputs:
    """All calls, one behind another; what they gave is read when all of them are enqueued."""
    found: Outputs = []
    for call in plan.calls:
        given = call.arguments(program)
        found.append(as_tensors(session(*_on_device(given) if device else given)))
    session.synchronize()
    return [[o.cpu() for o in outputs] for outputs in found]


def _on_device(given: Sequence[Any]) -> list[Any]:
    """Tensors on the device; numbers as they are."""
    return [a.cuda() if isinstance(a, torch.Tensor) else a for a in given]


def _is_unordered(program: Program) -> bool:
    return any(UNORDERED.search(line.text) for line in program.lines)


def _judge(program: Program, theirs: Oracle, got: Outputs, way: str) -> None:
    if _is_unordered(program):
        got = [[with_tiny_of(w, g) for w, g in zip(*rows, strict=True)] for rows in zip(theirs.want, got, strict=True)]
    judge(program, theirs, got, way)


def with_tiny_of(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """got with eager's numbers where both are too small for an atomic sum."""
    if got.dtype is not torch.float32 or got.shape != want.shape:
        return got
    return torch.where((got.abs() < LEAST) & (want.abs() < LEAST), want, got)


def _same(program: Program, theirs: Oracle, host: Outputs, got: Outputs, way: str) -> None:
    if _is_unordered(program):
        _judge(program, theirs, got, way)
        return
    for call, a, b in zip(theirs.calls, host, got, strict=True):
        differs(program, a, b, f"{call}: host tensors and {way}")


def _two_streams(
    program: Program, model: hardtack.Model, entry: str, plan: Plan, theirs: Oracle, host: Outputs
) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    sessions = [model.session(entry, stream=s.cuda_stream, asynchronous=True) for s in streams]
    given = [_on_device(call.arguments(program)) for call in plan.calls]
    torch.cuda.synchronize()
    found: list[Outputs] = [[], []]
    for arguments in given:
        for k, session in enumerate(sessions):
            with torch.cuda.stream(streams[k]):
                found[k].append(as_tensors(session(*arguments)))
    for session in sessions:
        session.synchronize()
    torch.cuda.synchronize()
    for k, outputs in enumerate(found):
        _same(
            program, theirs, host, [[o.cpu() for o in row] for row in outputs], f"device tensors on stream {k} of two"
        )


def _at_size(
    program: Program, sized: Plan, model: hardtack.Model, entry: str, first: hardtack.Session, notes: list[str]
) -> None:
    call = sized.calls[0]
    session = model.session(entry) if program.writes() else first
    found = taken(lambda: _run(session, program, sized), oracle(program, sized), call, notes)
    if found is None:
        return
    theirs, host = found
    _judge(program, theirs, host, "host tensors")
    again = model.session(entry, asynchronous=True)
    for turn in ("first", "second", "third"):
        again.reset()
        try:
            got = _run(again, program, sized, device=True)
        except hardtack.InputError as error:
            raise Failed("changes", f"{call}: host tensors are taken, device tensors are not: {error}") from None
        _same(program, theirs, host, got, f"device tensors, {turn} time")
