"""What a person reads: how far it is, what has failed, what it all came to."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TextIO

from tests.fuzz.outcome import FAILURES, KINDS, MEANINGS, Outcome

SECONDS_BETWEEN = 5.0


@dataclass
class Summary:
    """Counts of outcomes, and the failures themselves."""

    total: int
    out: TextIO = field(default_factory=lambda: sys.stdout)
    log: TextIO | None = None
    started: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    guarded: int = 0
    _said: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.counts[outcome.kind] += 1
        self.families.update(outcome.families)
        self.guarded += len(outcome.notes)
        if self.log is not None:
            self.log.write(outcome.to_json() + "\n")
            self.log.flush()
        if outcome.failed:
            self.failures.append(outcome)
            self._line(failure(outcome))
        now = time.monotonic()
        if now - self._said > SECONDS_BETWEEN:
            self._said = now
            self._line(self.progress(), passing=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def progress(self) -> str:
        done = sum(self.counts.values())
        found = ", ".join(f"{self.counts[k]} {k}" for k in KINDS if self.counts[k])
        return f"{done} of {self.total} programs, {self.seconds:.0f} s: {found}"

    def _line(self, text: str, *, passing: bool = False) -> None:
        """A line; one that the next may overwrite goes to a terminal only."""
        if self.out.isatty():
            self.out.write(f"\r\x1b[K{text}" + ("" if passing else "\n"))
        else:
            self.out.write(text + "\n")
        self.out.flush()

    def close(self, way: str) -> None:
        """The end: counts, families, failures by kind, and how to see one of them again."""
        done = sum(self.counts.values())
        self._line("")
        self._line(f"{done} programs, {sum(self.families.values())} lines, {self.seconds:.0f} s")
        for kind in KINDS:
            if self.counts[kind]:
                self._line(f"  {self.counts[kind]:6d}  {kind:9s} {MEANINGS[kind]}")
        if self.guarded:
            self._line(f"  {self.guarded:6d}  sizes outside of what the program takes, in eager or by a guard")
        drawn = ", ".join(f"{name} {n}" for name, n in sorted(self.families.items(), key=lambda x: -x[1]))
        self._line(f"lines by family: {drawn}")
        for kind in FAILURES:
            seeds = " ".join(str(o.seed) for o in self.failures if o.kind == kind)
            if seeds:
                self._line(f"{kind}: {seeds}")
        if self.failures:
            o = self.failures[0]
            self._line(f"one of them, made small:  ./dev fuzz models{way} --shrink {o.seed}")


def failure(o: Outcome) -> str:
    """One failure in a line."""
    together = f" (in a file with {len(o.bundle) - 1} others)" if o.bundle else ""
    text = " | ".join(o.text.splitlines())
    return f"{o.seed} {o.kind}, {o.way}{together}: {text[:600]}"
