"""Source lines for the ops of a program, and for the conditions that torch's operators put on sizes.

When a module is traced without torch's bytecode analysis, torch notes for such a condition only the line of its own
operator. Inside `noted_lines()` the line of the model that called the operator is noted as well, and a condition counts
as the model's own only if a line of it asked in Python.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.proxy import TracerBase

from hardtack.exporter.capture.torch_patches.patch import Patch
from hardtack.exporter.origin import GENERATED, calling_line, is_users

PATCHES = (
    Patch(
        name="lines of conditions",
        replaces=("ShapeEnv._get_stack_summary",),
        why="a condition that an operator asks for is noted with a line of torch's, not with that of the model",
    ),
    Patch(
        name="questions about layouts",
        replaces=("Tensor.is_contiguous",),
        why="what is_contiguous() compares is asked by C++, and looks as if no line of the model had asked",
    ),
    Patch(
        name="lines of ops",
        replaces=("TracerBase._filter_traceback_frames",),
        why="an op's trace is that of functions called forward: none for a function that is exported by itself",
    ),
)

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OWN = str(Path(__file__).parents[1]) + os.sep
_STAND_INS = _OWN + "sparse" + os.sep
_IN_CPP = {
    _TORCH + os.path.join("fx", "experimental", f"{name}.py")
    for name in ("symbolic_shapes", "sym_node", "recording", "proxy_tensor")
}
_IN_PYTHON = {_TORCH + name for name in ("__init__.py", "overrides.py", os.path.join("_export", "non_strict_utils.py"))}
"""SymBool.__bool__, sym_max and what torch puts around them: a question that Python code asks comes through these or
through our own methods of SymInt, one that C++ asks goes to those of _IN_CPP at once."""
_NN = _TORCH + "nn" + os.sep
_STRICT = tuple(_TORCH + os.path.join("_dynamo", p) for p in ("variables" + os.sep, "symbolic_convert.py", "utils.py"))


_LAYOUT_ASKED: list[FrameType] = []
"""Who asks for a tensor's layout, outermost first: torch's C++ compares its sizes and strides then."""


def asking_frame() -> FrameType | None:
    """The frame that asks torch about a size right now, if it is of the model, of torch.nn, or of torch's bytecode
    analysis, which stands for the model. What stands in for a sparse tensor asks for itself, as an op of torch does.
    """
    if _LAYOUT_ASKED:
        return _LAYOUT_ASKED[-1]
    frame: FrameType | None = sys._getframe(1)
    before = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_STAND_INS):
            return None
        if file not in _IN_CPP and file not in _IN_PYTHON and not file.startswith(_OWN):
            break
        before, frame = file, frame.f_back
    if frame is None:
        return None
    if file.startswith(_STRICT):
        return frame
    asked = before not in _IN_CPP and (file.startswith(_NN) or not file.startswith((_TORCH, *GENERATED)))
    return frame if asked else None


def _is_contiguous(self: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    frame = asking_frame()
    if frame is None or _LAYOUT_ASKED:
        return _ASK_LAYOUT(self, *args, **kwargs)
    _LAYOUT_ASKED.append(frame)
    try:
        return _ASK_LAYOUT(self, *args, **kwargs)
    finally:
        _LAYOUT_ASKED.pop()


_ASK_LAYOUT = torch.Tensor.is_contiguous


@contextlib.contextmanager
def noted_lines(strict: bool = False) -> Iterator[None]:
    """Complete what torch.fx's ShapeEnv notes of a condition's origin, for the time of a capture. strict: by torch's
    bytecode analysis, which answers is_contiguous() by itself.
    """
    import torch._dynamo.variables.tensor  # remembers all methods of tensors as it is imported: before one is replaced

    original = ShapeEnv._get_stack_summary

    def complete(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        place, extra = original(self, *args, **kwargs)
        if getattr(place, "maybe_user_loc", None) is None:
            found = calling_line()
            if found is not None:
                text = f"{found.source}  # {found.file}:{found.line} in forward"
                place = replace(place, maybe_user_loc=text)
        frame = asking_frame()
        if frame is not None:
            code = frame.f_code
            place = replace(place, framework_loc=traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
        return place, extra

    ShapeEnv._get_stack_summary = complete  # type: ignore[method-assign]
    if not strict:
        torch.Tensor.is_contiguous = _is_contiguous  # type: ignore[assignment, method-assign]
    kept = TracerBase._filter_traceback_frames
    TracerBase._filter_traceback_frames = _of_the_model  # type: ignore[method-assign]
    try:
        yield
    finally:
        if not strict:
            del torch.Tensor.is_contiguous  # that of its C++ class is there again
        ShapeEnv._get_stack_summary = original  # type: ignore[method-assign]
        TracerBase._filter_traceback_frames = kept  # type: ignore[method-assign]


def _of_the_model(self: TracerBase, user_stack_summary: traceback.StackSummary) -> traceback.StackSummary:
    """The frames of an op's call below ours that are the model's: torch by itself keeps those of functions called
    `forward`, none of an exported function. Our modes stand between the model and torch.
    """
    stack = list(user_stack_summary)
    ours = [i for i, f in enumerate(stack) if f.filename.startswith(_OWN) and f.name != "__torch_function__"]
    return traceback.StackSummary.from_list(f for f in stack[max(ours, default=-1) + 1 :] if is_users(f.filename))
