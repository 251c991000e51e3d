"""Mutants follow the code: the words of each stand in its file once, and the programs that it touches are told."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hardtack.exporter.errors import CaptureError
from hardtack.exporter.program import EntryGraph
from tests.fuzz import mend_forms, mutant_hunt, sieve
from tests.fuzz.cases import case
from tests.fuzz.mutant import Mutant, changed
from tests.fuzz.mutants import MUTANTS
from tests.fuzz.program import Program, build
from tests.fuzz.sieve import DIFFERENT, swap, touched_by


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_changes_what_stands_there(mutant: Mutant) -> None:
    text = changed(mutant)
    if mutant.file.endswith(".py"):
        ast.parse(text)


def test_words_that_are_gone_are_noticed() -> None:
    lost = Mutant("lost", "", "cpu", "codegen/schedule/fuse.py", (("no such words", ""),))
    with pytest.raises(ValueError, match=r"codegen/schedule/fuse.py has .no such words. 0 times, not once"):
        changed(lost)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.file.endswith(".py")], ids=lambda m: m.name)
def test_a_mutant_has_functions_to_change(mutant: Mutant) -> None:
    made = swap(mutant)
    assert made.functions
    with made.put_in():
        assert all(f.__code__ is code for f, _, code in made.functions)
    assert all(f.__code__ is code for f, code, _ in made.functions)


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        ("x0[3,3,3] : x0.permute(1, 2, 0).permute(1, 0, 2) * 2", ["permutations the wrong way"]),
        ("x0[9] : x0[1::2] * 2", ["slice off by one"]),
        ("x0[9]i32 : x0 << x0", ["shift by the width"]),
        ("x0[9] : x0 * 2", []),
    ],
)
def test_a_program_that_comes_out_the_same_is_not_run(text: str, touched: list[str]) -> None:
    names = ("permutations the wrong way", "slice off by one", "shift by the width")
    swaps = [swap(m) for m in MUTANTS if m.name in names]
    assert [name for name, error in touched_by(case(text), swaps) if error == DIFFERENT] == touched


def test_programs_with_states_are_sifted() -> None:
    """Those that cannot be converted would all come out the same with each mutant."""
    program = case("x0[4,6] x1[1]i64<4 p0[3,4,6] : !self.p0[1].index_copy_(0, x1, x0[:1]); p0[1] * 2")
    assert isinstance(sieve._captured_and_converted(program), EntryGraph)


def test_what_a_verifier_catches_needs_no_run() -> None:
    (caught,) = touched_by(case("x0[5,70] : x0.softmax(1)"), [swap(m) for m in MUTANTS if m.name.startswith("scratch")])
    assert caught[1].startswith("LoopError: kernel ")


def test_a_hunt_ends_when_all_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[range] = []

    def found_at_once(mutants: Sequence[Mutant], seeds: range, **_: object) -> dict[str, dict[int, str]]:
        drawn.append(seeds)
        return {m.name: {seeds[0]: "LoopError: caught"} for m in mutants}

    monkeypatch.setattr(mutant_hunt, "sieve", found_at_once)
    hunter = mutant_hunt.Hunter(tmp_path, jobs=1, seconds=9, out=io.StringIO())
    found = hunter.run(MUTANTS[:2], most=10 * mutant_hunt.ROUND, seed=5)
    assert [(h.programs, h.seed, h.kind) for h in found] == [(1, 5, "internal")] * 2
    assert drawn == [range(5, 5 + mutant_hunt.ROUND)]


def test_a_program_that_is_refused_may_show_a_lost_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else a mutant changes, it is not asked of a program that is refused without it."""
    strides = [swap(m) for m in MUTANTS if m.name in ("strides asked as traced", "slice off by one")]
    program = case("x0[6,4] : x0 * 2")
    monkeypatch.setattr(sieve, "_captured", _refusing_once(sieve._captured))
    assert touched_by(program, strides) == (("strides asked as traced", DIFFERENT),)


def _refusing_once(captured: Callable[[Program], Any]) -> Callable[[Program], Any]:
    turns = iter([True])

    def asked(program: Program) -> Any:
        if next(turns, False):
            raise CaptureError("refused")
        return captured(program)

    return asked


def test_a_wrong_number_in_place_of_a_refusal_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def models(package: Path | None, mutant: Mutant, seeds: Sequence[int], jobs: int) -> list[dict[str, object]]:
        kind = "wrong" if package is not None else "refused"
        return [{"seed": s, "kind": kind, "text": "1 of 2 elements"} for s in seeds]

    monkeypatch.setattr(
        mutant_hunt, "sieve", lambda mutants, seeds, **_: {m.name: {seeds[0]: DIFFERENT} for m in mutants}
    )
    monkeypatch.setattr(mutant_hunt, "_models", models)
    monkeypatch.setattr(mutant_hunt, "copy_with", lambda mutant, folder: folder.mkdir())
    log = tmp_path / "found.jsonl"
    out = io.StringIO()
    name = MUTANTS[0].name
    assert mutant_hunt.run_mutants([name], most=1, jobs=1, seed=7, seconds=9, out=out, log=log) == 0
    assert "found as wrong and refused without after 1 programs, 1 of them different (seed 7, cpu)" in out.getvalue()
    (line,) = (json.loads(text) for text in log.read_text().splitlines())
    assert (line["mutant"], line["seed"], line["kind"], line["refused"]) == (name, 7, "wrong", True)


def test_every_form_of_a_mend_is_a_program_that_eager_runs() -> None:
    forms = [form for family in mend_forms.FORMS.values() for form in family]
    assert len(set(forms)) == len(forms)
    lost = set(range(len(forms)))
    for seed in range(12 * len(forms)):
        k = seed % len(forms)
        if k in lost:
            program = mend_forms.mend_form(seed)
            try:
                build(program)(*program.arguments())
            except (RuntimeError, ValueError, IndexError):  # some sizes are too small for some forms
                continue
            lost.discard(k)
    assert not [forms[k] for k in lost]
