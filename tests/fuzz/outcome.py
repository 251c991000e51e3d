"""What became of a program."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, dataclass

from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.exporter import ExportError

FAILURES = ("wrong", "changes", "internal", "crash", "hang")
KINDS = ("right", "refused", "skipped", *FAILURES)
MEANINGS = {
    "right": "in every way and at every size that was run",
    "refused": "an ExportError: a sentence, a line, what to do",
    "skipped": "eager refuses the program, or its numbers cannot be disturbed",
    "wrong": "outside of what eager gives under disturbance and in float64",
    "changes": "other bits with other threads, in another run, or after a reset",
    "internal": "an error that is no refusal",
    "crash": "the process died",
    "hang": "no end within the time limit",
}


@dataclass(frozen=True)
class Outcome:
    """way: how it was run when it failed; bundle: the seeds of all programs in the file, where there were several."""

    seed: int
    kind: str
    text: str = ""
    way: str = ""
    bundle: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def told(error: BaseException) -> str:
    """An exception in a line: its type, what it says, the innermost frames."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    at = " < ".join(f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:600]} @ {at}"


def is_refusal(error: BaseException) -> bool:
    return isinstance(error, (ExportError, UnsupportedOp))
