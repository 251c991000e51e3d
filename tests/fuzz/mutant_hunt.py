"""How many programs until the fuzzer finds each mutant.

A mutant runs as a copy of the project's Python rooms and kernel templates, in which the fuzzer is a process of its own.
Only programs that come out of the compiler different with it are run (sieve.py); all are counted. Those that end in an
internal error there are found without a run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

import hardtack._native
from tests.fuzz.mutant import ROOMS, ROOT, Mutant, changed
from tests.fuzz.mutants import MUTANTS
from tests.fuzz.sieve import DIFFERENT, sieve

FOUND = ("wrong", "changes", "internal", "crash")
"""Kinds of failure that count: a hang may be a busy machine."""

ROUND = 50
"""Programs that are drawn before those that come out different are run."""

_RUN = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
sys.path[:0] = sys.argv[1:3]
sys.argv[:] = ["fuzz", *sys.argv[3:]]
runpy.run_module("tests.fuzz", run_name="__main__")
"""


@dataclass(frozen=True)
class Hunted:
    """programs: how many were drawn, up to the first that fails with the mutant and not without; different: how many of
    them came out different. seed: the one that fails, None if none did; kind: how it fails. refused: it is refused
    without the mutant, which takes a refusal out."""

    mutant: Mutant
    programs: int
    different: int
    seed: int | None = None
    kind: str = ""
    text: str = ""
    refused: bool = False

    def __str__(self) -> str:
        drawn = f"{self.programs} programs, {self.different} of them different"
        if self.seed is None:
            return f"{self.mutant.name:34s} not found in {drawn}: {self.mutant.what}"
        way = f"{self.mutant.way}{f', --{self.mutant.sweep}' if self.mutant.sweep else ''}"
        found = f"found as {self.kind}{' and refused without' * self.refused} after {drawn} (seed {self.seed}, {way})"
        return f"{self.mutant.name:34s} {found}: {self.mutant.what}\n    {' '.join(self.text.split())[:200]}"


def copy_with(mutant: Mutant, folder: Path) -> None:
    """The package hardtack with the mutant's words, below `folder`. ValueError where they are not there once."""
    for room, place in ROOMS.items():
        shutil.copytree(ROOT / room, folder / place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    native = Path(str(hardtack._native.__file__))
    for path in native.parent.glob(f"{native.name}*"):
        shutil.copy(path, folder / "hardtack" / path.name)
    for beside in ("include", "lib"):
        if (native.parent / beside).is_dir():
            shutil.copytree(native.parent / beside, folder / "hardtack" / beside, symlinks=True, dirs_exist_ok=True)
    room, _, rest = mutant.file.partition("/")
    path = folder / ROOMS[room] / rest
    path.write_text(changed(mutant), encoding="utf-8")


class Hunter:
    """Hunts mutants side by side: each round draws programs once for all that are not found yet.

    sweep: whose programs, as Mutant has it.
    """

    def __init__(self, folder: Path, *, jobs: int, seconds: float, out: TextIO, sweep: str = "") -> None:
        self._folder, self._jobs, self._seconds, self._out, self._sweep = folder, jobs, seconds, out, sweep

    def run(self, mutants: Sequence[Mutant], *, most: int, seed: int) -> list[Hunted]:
        """One Hunted for each mutant, in its order; each is written as it is found."""
        hunted = {m.name: Hunted(m, 0, 0) for m in mutants}
        for first in range(seed, seed + most, ROUND):
            seeds = range(first, min(first + ROUND, seed + most))
            left = [h.mutant for h in hunted.values() if h.seed is None]
            if not left:
                break
            touched = sieve(left, seeds, sweep=self._sweep, jobs=self._jobs, seconds=self._seconds)
            for mutant in sorted(left, key=lambda m: len(touched[m.name])):
                found = self._round(hunted[mutant.name], seeds, touched[mutant.name])
                hunted[mutant.name] = found
                if found.seed is not None or seeds[-1] + 1 == seed + most:
                    self._say(str(found))
            lost = sum(h.seed is None for h in hunted.values())
            self._say(f"{seeds[-1] + 1 - seed} programs, {len(mutants) - lost} of {len(mutants)} mutants found")
        return list(hunted.values())

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def _round(self, before: Hunted, seeds: range, touched: Mapping[int, str]) -> Hunted:
        """Up to the first program that ends in an internal error, or fails when it is run and is right without it."""
        mutant = before.mutant
        caught = next((s for s, error in touched.items() if error != DIFFERENT), None)
        run = [s for s in touched if caught is None or s < caught]
        found = self._first_failure(mutant, run)
        if found is None and caught is not None:
            found = caught, "internal", touched[caught], False
        if found is None:
            return replace(before, programs=before.programs + len(seeds), different=before.different + len(touched))
        at, kind, text, refused = found
        drawn, different = before.programs + at - seeds[0] + 1, before.different + list(touched).index(at) + 1
        return Hunted(mutant, drawn, different, at, kind, text, refused)

    def _first_failure(self, mutant: Mutant, seeds: Sequence[int]) -> tuple[int, str, str, bool] | None:
        """Runs programs; the first seed that fails, how, what it says, and whether it is refused without the mutant: a
        wrong number in place of a refusal is one, too, and so is a refusal of what is right without: where another
        rule refuses what a mutant would do wrong, that is all there is to see."""
        left = list(seeds)
        while left:
            records = _models(self._package(mutant), mutant, left, self._jobs)
            for record in sorted((r for r in records if r["kind"] in FOUND), key=lambda r: int(str(r["seed"]))):
                at = int(str(record["seed"]))
                plain = _models(None, mutant, [at], 1)[0]
                refused = plain["kind"] == "refused" and record["kind"] in ("wrong", "changes")
                if plain["kind"] == "right" or refused:
                    return at, str(record["kind"]), str(record["text"]), refused
                self._out.write(f"seed {at} is {plain['kind']} without {mutant.name!r}, too: {plain['text']}\n")
            refusals = {int(str(r["seed"])): str(r["text"]) for r in records if r["kind"] == "refused"}
            plain_ones = _models(None, mutant, sorted(refusals), self._jobs) if refusals else []
            for at in sorted(int(str(r["seed"])) for r in plain_ones if r["kind"] == "right"):
                return at, "refused", refusals[at], False
            run = {int(str(r["seed"])) for r in records}
            left = [s for s in left if s not in run] if run else []
        return None

    def _package(self, mutant: Mutant) -> Path:
        folder = self._folder / "_".join(mutant.name.split())
        if not folder.is_dir():
            copy_with(mutant, folder)
        return folder


def _models(package: Path | None, mutant: Mutant, seeds: Sequence[int], jobs: int) -> list[dict[str, object]]:
    """Outcomes up to the first failure, of the project or of another package of it, run as the mutant's are."""
    flags = {"graph": ["--graph"], "interpreter": ["--interpreter"]}.get(mutant.way, [])
    flags += [f"--{mutant.sweep}"] if mutant.sweep else []
    with tempfile.TemporaryDirectory(prefix="hardtack_mutant_") as name:
        log = Path(name) / "found.jsonl"
        arguments = ["models", *flags, "--stop", "--jobs", str(jobs), "--seeds", ",".join(map(str, seeds))]
        arguments += ["--together", "4", "--json", str(log)]
        start = ["-m", "tests.fuzz"] if package is None else ["-c", _RUN, str(package), str(ROOT)]
        ran = subprocess.run(
            [sys.executable, *start, *arguments],
            cwd=package or ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode not in (0, 1) or not log.is_file():
            raise RuntimeError(f"the fuzzer did not run: {ran.stderr[-2000:]}")
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def run_mutants(
    names: Sequence[str], *, most: int, jobs: int, seed: int, seconds: float, out: TextIO, log: Path | None = None
) -> int:
    """Every mutant, or those whose names contain one of `names`; 1 where one is not found. log: takes a line of JSON
    for each."""
    chosen = [m for m in MUTANTS if not names or any(n in m.name for n in names)]
    if not chosen:
        raise SystemExit(f"no such mutant; there are: {', '.join(m.name for m in MUTANTS)}")
    found: list[Hunted] = []
    with tempfile.TemporaryDirectory(prefix="hardtack_mutants_") as folder:
        for sweep in dict.fromkeys(m.sweep for m in chosen):
            hunter = Hunter(Path(folder), jobs=jobs, seconds=seconds, out=out, sweep=sweep)
            found += hunter.run([m for m in chosen if m.sweep == sweep], most=most, seed=seed)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps({**asdict(h), 'mutant': h.mutant.name})}\n" for h in found)
    lost = sum(h.seed is None for h in found)
    out.write(f"{len(chosen)} mutants, {lost} not found\n")
    return 1 if lost else 0
