"""Ways of running a program. Each gives one Outcome a program; the first thing wrong ends it.

Bundles      exported together into one file and loaded: bundle_cpu.py, bundle_cuda.py
graphs       the captured graph, op by op in the reference interpreter: graph_way.py
interpreter  the GPU backend's kernels in Triton's interpreter: interpreter_way.py
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tests.fuzz.judge import Call, Oracle, Undecided
from tests.fuzz.outcome import Outcome, is_refusal, told
from tests.fuzz.program import Program

Report = Callable[[Outcome], None]
Way = Callable[[Sequence[Program], Report], None]

SIZES = tuple((("n", n), ("m", m)) for n, m in ((1, 1), (2, 3), (37, 5), (0, 1), (130, 23), (16, 1), (5, 64), (257, 2)))
"""Sizes that programs with dynamic dimensions are run at beside the example's; all but one row are made even where the
example's are.
"""

NUMBERS = 10
"""How many rows a program with dynamic ints has at least."""

Row = tuple[tuple[str, int], ...]
"""A value for each symbol and for each dynamic int."""

MOST_NUMEL = 2**19
"""Of all inputs together; a cube of 257, or an image of that behind 64 channels, would take minutes, in eager's
seventeen runs and in all ways of ours."""


class Failed(Exception):
    """A program is not right: ends its run."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Plan:
    """The calls that one session gets, in order."""

    calls: tuple[Call, ...]


def first_calls(program: Program) -> Plan:
    """The same inputs again after others, so that what a run leaves behind shows; then with other strides."""
    salts = (0, 1, 0) if any(not i.limits for i in program.inputs) else (0, 0)
    return Plan((*(Call(None, k) for k in salts), *_laid_out_otherwise(program, None, ("other", "given"))))


def _laid_out_otherwise(
    program: Program, sizes: tuple[tuple[str, int], ...] | None, layouts: Sequence[Literal["other", "given"]]
) -> Iterator[Call]:
    """The same inputs in those layouts that differ from how a program takes them, and that eager takes: view() may not.
    Of an expanded example eager reads memory that is not the tensor's, in a median.
    """
    strides = _strides(program, Call(sizes))
    expanded = any(i.layout == "expanded" for i in program.inputs)
    for layout in layouts:
        call = Call(sizes, 0, layout)
        differs = _strides(program, call) != strides
        if differs and not expanded and oracle(program, Plan((call,))) is not None:
            yield call


def _strides(program: Program, call: Call) -> list[tuple[int, ...]]:
    return [x.stride() for x in call.oracle_arguments(program) if isinstance(x, torch.Tensor)]


def sized_calls(program: Program) -> tuple[Plan, ...]:
    """One call at each other size, or two where the first may leave something behind; () for fixed sizes."""
    if program.dynamic_shapes() is None:
        return ()
    count = 2 if program.writes() else 1
    rows = [row for row in sizes_of(program) if _numel(program, dict(row)) <= MOST_NUMEL]
    return tuple(Plan((Call(row, 0),) * count + (*_laid_out_otherwise(program, row, ("other",)),)) for row in rows)


def sizes_of(program: Program) -> tuple[Row, ...]:
    """Each row of sizes at which the program is run beside the example's."""
    if program.rows:
        return _with_numbers(program, program.rows)
    used = program.example_sizes()
    even = not any(n % 2 for n in used.values())
    rows = (tuple((s, n + (even and n != _ODD and n % 2)) for s, n in row if s in used) for row in SIZES)
    return _with_numbers(program, tuple(dict.fromkeys(rows)))


def _with_numbers(program: Program, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with a value for each dynamic int, the example's sizes among them."""
    numbers = [k for k in program.numbers if k.dynamic]
    if not numbers:
        return tuple(rows)
    found: list[Row] = []
    rows = (program.sizes, *rows)
    for turn in range(max(len(rows), NUMBERS)):
        row, r = rows[turn % len(rows)], random.Random(f"{program.seed} {turn}")
        found.append((*row, *((k.name, r.choice(k.values(dict(row)))) for k in numbers)))
    return tuple(dict.fromkeys(found))


def refused_calls(program: Program) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Arguments that every session must refuse, as docs/contract.md has it, each with what it is that is refused."""
    tensors = program.tensors(program.example_sizes())
    for at, number in enumerate(program.numbers):
        for value in number.refused():
            found = [value if k == at else other.value for k, other in enumerate(program.numbers)]
            yield f"{number.name} = {value!r}", (*tensors, *program.in_arguments(found))


_ODD = 37


def _numel(program: Program, sizes: dict[str, int]) -> int:
    return sum(math.prod(i.sizes(sizes)) for i in program.inputs)


def oracle(program: Program, plan: Plan) -> Oracle | None:
    """None where eager itself refuses the inputs."""
    try:
        return Oracle(program, plan.calls)
    except Exception:
        return None


def bits(t: torch.Tensor) -> bytes:
    """The elements as they lie in memory, row by row; of a NaN, no bits of which are promised, always the same."""
    t = t.detach().cpu()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    if t.is_floating_point():
        t = torch.where(t.isnan(), torch.nan, t)
    return (t.view(torch.int16) if t.dtype is torch.bfloat16 else t).numpy().tobytes()


def same_bits(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> int | None:
    """The first output whose bits differ; None if all are the same."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if bits(x) != bits(y)), None)


def guarded(program: Program, way: str, run: Callable[[list[str]], None]) -> Outcome:
    """Runs a check, which takes a list for notes, and puts what it raises into an Outcome."""
    notes: list[str] = []
    kind, text = "right", ""
    try:
        run(notes)
    except Failed as failed:
        kind, text = failed.kind, str(failed)
    except Undecided as why:
        kind, text = "skipped", str(why)
    except Exception as error:
        kind, text = ("refused", f"{type(error).__name__}: {error}") if is_refusal(error) else ("internal", told(error))
    return Outcome(program.seed, kind, text, way, (), tuple(notes), program.families)


def judge(program: Program, theirs: Oracle, got: list[list[torch.Tensor]], where: str) -> None:
    fault = theirs.fault(got)
    if fault is not None:
        name = program.outputs[fault.output] if fault.output < len(program.outputs) else "?"
        raise Failed("wrong", f"{where}, {theirs.calls[fault.call]}, output {fault.output} ({name}): {fault.text}")


def differs(program: Program, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor], what: str) -> None:
    """Failed where two runs that must give the same bits don't."""
    k = same_bits(a, b)
    if k is not None:
        x, y = a[k].reshape(-1), b[k].reshape(-1)
        apart = (x.cpu() != y.cpu()) & ~((x.cpu() != x.cpu()) & (y.cpu() != y.cpu()))
        at = int(apart.nonzero()[0]) if bool(apart.any()) else 0
        values = f"{x[at].item()!r} and {y[at].item()!r} at element {at}" if x.numel() else "shapes"
        raise Failed(
            "changes", f"{what} differ in output {k} ({program.outputs[k]}), {int(apart.sum())} elements: {values}"
        )
