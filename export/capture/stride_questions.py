"""What a model asks of strides while it is traced. The answer leaves no trace: of x.contiguous(), where x is
contiguous, torch notes nothing, and of x.is_contiguous() only what the model does behind it.

A tensor that is both row-major and channels_last, because sizes are 1, has strides that are the caller's choice, and
eager mode lays out what it makes of one by them: a model that asks may then do something else.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType
from typing import Any

import torch.nn
from torch.overrides import TorchFunctionMode

from hardtack.exporter.errors import SourceLine
from hardtack.exporter.origin import frame_line, is_own, is_users

_NN = torch.nn.__path__[0]

_QUESTIONS = ("is_contiguous", "stride")


class StrideQuestions(TorchFunctionMode):
    """Notes the first of each kind while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: SourceLine | None = None
        self.copied: SourceLine | None = None
        """Where contiguous() or to(memory_format=..) gave a tensor back as it is, which matters to who writes to it."""

    @property
    def where(self) -> SourceLine | None:
        """The line that asks; that of a copy, if none does."""
        return self.asked or self.copied

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").lstrip("_")  # guard_lines.py puts a function of its own over a method
        if name in _QUESTIONS and self.asked is None:
            self.asked = _models_line()
        made = func(*args, **(kwargs or {}))
        copies = name == "contiguous" or (name == "to" and "memory_format" in (kwargs or {}))
        if copies and made is args[0] and self.copied is None:
            self.copied = _models_line()
        return made


def _models_line() -> SourceLine | None:
    """The line of the model or of torch.nn that calls right now, through nothing but the modes of torch's tracer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_own(frame.f_code.co_filename) or frame.f_code.co_name == "__torch_function__"):
        frame = frame.f_back
    if frame is None or not (is_users(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(_NN)):
        return None
    return frame_line(traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
