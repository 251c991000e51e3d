"""A failing program made small: outputs, lines and dimensions are taken away as long as it fails the same way.

Each candidate runs in a child. The same way means: the same kind, and for an error the same exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from tests.fuzz.hunt import outcomes
from tests.fuzz.judge import Call, eager
from tests.fuzz.outcome import Outcome
from tests.fuzz.program import NAMES, Line, Program, without_dead
from tests.fuzz.tensors import TensorSpec
from tests.fuzz.ways import Way


@dataclass(frozen=True)
class Shrunk:
    """What is left, and how it fails."""

    program: Program
    outcome: Outcome


@dataclass
class _Shrinker:
    """Tries candidates; `best` is the smallest that fails as the first did."""

    way: Way
    seconds: float
    say: Callable[[str], None]
    best: Shrunk

    def try_(self, candidate: Program) -> bool:
        candidate = without_dead(candidate)
        if not candidate.outputs or candidate == self.best.program:
            return False
        (found,) = outcomes(self.way, [candidate], seconds=self.seconds)
        if not _alike(found, self.best.outcome):
            return False
        self.best = Shrunk(candidate, found)
        self.say(f"{len(candidate.lines)} lines, {len(candidate.inputs)} inputs: {found.kind}")
        return True


def shrink(program: Program, way: Way, *, seconds: float, say: Callable[[str], None] = lambda _: None) -> Shrunk:
    """The smallest program found, with its outcome; a program that does not fail comes back as it is."""
    (outcome,) = outcomes(way, [program], seconds=seconds)
    if not outcome.failed:
        return Shrunk(program, outcome)
    say(f"{len(program.lines)} lines, {len(program.inputs)} inputs: {outcome.kind} {outcome.text[:300]}")
    s = _Shrinker(way, seconds, say, Shrunk(program, outcome))
    for steps in STEPS:
        _exhaust(s, steps)
    return s.best


def _exhaust(s: _Shrinker, steps: Callable[[Program], Iterator[Program]]) -> None:
    """Candidates of the best program until none of them fails any more."""
    while True:
        for candidate in steps(s.best.program):
            if s.try_(candidate):
                break
        else:
            return


def _alike(a: Outcome, b: Outcome) -> bool:
    if a.kind != b.kind:
        return False
    if a.kind == "internal":
        return _error(a.text) == _error(b.text)
    return ("dtype" in a.text) == ("dtype" in b.text) and ("shape" in a.text) == ("shape" in b.text)


def _error(text: str) -> str:
    """The exception and the place where it was raised."""
    return text.partition(":")[0] + text.rpartition(" @ ")[2].partition(" <")[0]


def _single_outputs(p: Program) -> Iterator[Program]:
    if len(p.outputs) > 1:
        for out in p.outputs:
            yield replace(p, outputs=(out,))


def _without_outputs(p: Program) -> Iterator[Program]:
    for k in range(len(p.outputs)):
        yield replace(p, outputs=p.outputs[:k] + p.outputs[k + 1 :])


def _static(p: Program) -> Iterator[Program]:
    """Every dynamic size as it is in the example."""
    if p.dynamic:
        given = p.example_sizes()
        yield replace(p, inputs=tuple(replace(i, shape=i.sizes(given)) for i in p.inputs), dynamic="", sizes=())


def _without_numbers(p: Program) -> Iterator[Program]:
    """A number as it is in the example, in the text, or as a constant; numbers as arguments of their own."""
    for number in p.numbers:
        yield _renamed(p, number.name, f"({number.value!r})")
    for at, number in enumerate(p.numbers):
        if number.dynamic:
            yield replace(p, numbers=(*p.numbers[:at], replace(number, dynamic=""), *p.numbers[at + 1 :]))
    if p.packed:
        yield replace(p, packed="")


def _without_lines(p: Program) -> Iterator[Program]:
    """Without a write; or with an operand in place of a line's value."""
    for k in reversed(range(len(p.lines))):
        line, rest = p.lines[k], p.lines[:k] + p.lines[k + 1 :]
        if not line.targets:
            yield replace(p, lines=rest)
        elif len(line.targets) == 1:
            for name in sorted(n for n in line.names() if not n.startswith("self.m")):
                yield _renamed(replace(p, lines=rest), line.targets[0], name)


def _renamed(p: Program, old: str, new: str) -> Program:
    def put(text: str) -> str:
        return re.sub(rf"\b{re.escape(old)}\b", new, text)

    lines = tuple(replace(line, text=put(line.text)) for line in p.lines)
    return replace(p, lines=lines, outputs=tuple(map(put, p.outputs)))


def _cut(p: Program) -> Iterator[Program]:
    """A line's value becomes an input."""
    if p.dynamic:
        return
    for k in reversed(range(len(p.lines))):
        line = p.lines[k]
        for target in line.targets if any(n != target_base(line) for n in line.names()) else ():
            value = _value(p, k, target)
            if value is None:
                continue
            name = f"x{100 + int(target[1:])}"
            spec = TensorSpec(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), "normal", 1)
            lines = tuple(
                replace(other, targets=tuple("_" if t == target else t for t in other.targets)) if j == k else other
                for j, other in enumerate(p.lines)
            )
            if len(line.targets) == 1:
                lines = p.lines[:k] + p.lines[k + 1 :]
            yield _renamed(replace(p, lines=lines, inputs=(*p.inputs, spec)), target, name)


def target_base(line: Line) -> str:
    """What a line is written about: its first name."""
    found = NAMES.search(line.text)
    return found[0] if found else ""


def _value(p: Program, k: int, target: str) -> torch.Tensor | None:
    try:
        return eager(replace(p, lines=p.lines[: k + 1], outputs=(target,)), [Call()])[0][0]
    except Exception:
        return None


def _plainer(p: Program) -> Iterator[Program]:
    """Dense inputs of normal numbers."""
    for k, i in enumerate(p.inputs):
        for change in ({"layout": "dense"}, {} if i.limits else {"fill": "normal"}):
            new = replace(i, **change)  # type: ignore[arg-type]
            if new != i:
                yield replace(p, inputs=(*p.inputs[:k], new, *p.inputs[k + 1 :]))


def _smaller(p: Program) -> Iterator[Program]:
    """A size smaller wherever it stands among the inputs and weights."""
    specs: Sequence[TensorSpec] = (*p.inputs, *(w.spec for w in p.weights))
    sizes = sorted({n for s in specs for n in s.shape if isinstance(n, int) and n > 1}, reverse=True)
    for n in sizes:
        for less in dict.fromkeys((1, 2, n // 2, n - 1)):
            if less < n:
                yield _resized(p, n, less)


def _resized(p: Program, n: int, less: int) -> Program:
    def at(spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=tuple(less if m == n else m for m in spec.shape))

    weights = tuple(replace(w, spec=at(w.spec)) for w in p.weights)
    return replace(p, inputs=tuple(map(at, p.inputs)), weights=weights)


STEPS: tuple[Callable[[Program], Iterator[Program]], ...] = (
    _single_outputs,
    _without_outputs,
    _static,
    _without_numbers,
    _without_lines,
    _cut,
    _without_lines,
    _without_numbers,
    _plainer,
    _smaller,
)
