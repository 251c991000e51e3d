"""What is tried: a case is a module with inputs, made when it is needed, since a suite has thousands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Made:
    """A module in evaluation mode, what its entry point is exported with, and further calls that must be right, too.

    by_value: False where nothing but types and shapes can agree with eager: of random numbers, and of memory that
    nobody has written.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    calls: Sequence[tuple[Any, ...]] = ()
    by_value: bool = True


@dataclass(frozen=True)
class Case:
    """suite: "opinfo float32", or another of report.SUITES. Cases of one `group` that stand together are captured in
    one module, whose overhead they share; where that fails those of one `kind` are, and then each alone. Their modules
    take positional arguments alone. A `whole` case has a file of its own, and its export is timed.
    """

    suite: str
    name: str
    make: Callable[[], Made]
    group: str = ""
    kind: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of a case. what: a word of WHAT; detail: why, in one line; seconds: that the export of a whole case
    took."""

    suite: str
    name: str
    what: str
    detail: str = ""
    seconds: float = 0.0


WHAT = {
    "equal": "as eager",
    "refused": "refused in words",
    "uncaptured": "torch.export itself does not capture or decompose it",
    "different": "other numbers, shapes or types than eager's",
    "crashed": "an error that is no refusal",
}
"""Verdict -> what it means."""
