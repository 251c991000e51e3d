"""What export refuses, and how it says so: what is wrong, where in the user's code, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's code. `source` is its text, stripped; empty where the file cannot be read."""

    file: str
    line: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f"\n    {self.source}" if self.source else "")


class ExportError(Exception):
    """A module cannot be exported as asked.

    what: one sentence on the problem; where: the user's line, if known; fix: what to change.
    """

    def __init__(self, what: str, where: SourceLine | None = None, fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        lines = [what]
        if where is not None:
            lines.append(f"  at {where}")
        if fix:
            lines.append(f"  To fix: {fix}")
        super().__init__("\n".join(lines))


class CaptureError(ExportError):
    """torch.export could not capture the whole forward: data-dependent control flow, an untraceable call."""


class TrainingModeError(ExportError):
    """The module is in training mode."""


class InputSpecError(ExportError):
    """Example inputs, dynamic_shapes or the structure of inputs and outputs cannot be used."""


class RangeError(ExportError):
    """A declared dynamic range would be narrowed: the program holds only for some of its sizes."""


class MutationError(ExportError):
    """The program writes to something that a run may not change."""


class PluginError(ExportError):
    """A user's decomposition, lowering or pass raised, or gave something else than its op."""


@dataclass(frozen=True)
class Unsupported:
    """One kind of op that cannot be converted: its name, why, and the first line that uses it, and how often it
    occurs.
    """

    op: str
    reason: str
    where: SourceLine | None
    count: int

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" ({self.count} times; first)"
        place = f"{times} at {self.where}" if self.where is not None else times
        return f"{self.op}{place}" + (f"\n    {self.reason}" if self.reason else "")


class UnsupportedOpError(ExportError):
    """Ops that Hardtack has no lowering for: all of them at once, in `ops`."""

    def __init__(self, ops: Sequence[Unsupported]) -> None:
        self.ops = tuple(ops)
        listing = "\n".join("  " + str(u).replace("\n", "\n  ") for u in ops)
        noun = "op" if len(ops) == 1 else "ops"
        super().__init__(
            f"{len(ops)} {noun} of this model cannot be exported:\n{listing}",
            fix="replace them by supported ops, or move them out of the exported module",
        )


class Refusal(Exception):
    """Raised by a convert function for arguments that it does not take; collected into UnsupportedOpError."""


class ValueSize(Refusal):
    """A size that depends on values of tensors: said of the op that makes it, not of each that uses it."""
