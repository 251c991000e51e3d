"""Programs through the GPU backend and Triton's interpreter: numbers of GPU kernels on a machine without a GPU."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Sequence

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from hardtack.exporter.reference import ReferenceFailure
from tests.fuzz.capture import captured
from tests.fuzz.direct import compile_program
from tests.fuzz.program import Program
from tests.fuzz.ways import Failed, Report, first_calls, guarded, judge, oracle, sized_calls
from tests.triton.simulate import Simulator


def check_interpreted(programs: Sequence[Program], report: Report) -> None:
    for p in programs:
        report(guarded(p, "interpreter", lambda notes, p=p: _check(p, notes)))  # type: ignore[misc]


def _check(program: Program, notes: list[str]) -> None:
    plan = first_calls(program)
    theirs = oracle(program, plan)
    if theirs is None:
        raise Failed("skipped", "eager refuses the example")
    made = compile_program(program, TritonBackend(H200), Simulator, lambda *_: captured(program))
    judge(program, theirs, made.run(plan.calls), "interpreter")
    for sized in sized_calls(program)[:4]:
        at = oracle(program, sized)
        if at is None:
            continue
        try:
            got = made.run(sized.calls)
        except ReferenceFailure as error:
            notes.append(f"{sized.calls[0]}: {str(error)[:100]}")
            continue
        judge(program, at, got, "interpreter")
