"""Where an op comes from: torch's stack traces as source lines.

Errors name files as the user can open them. Origins, which travel into the bundle, name them without the folders above
the project or above site-packages, so that the same export in another folder gives the same bytes.
"""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.fx import Node

from hardtack.codegen.ir.graph import Origin
from hardtack.exporter.errors import SourceLine

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.*)$')
_PLACE = re.compile(r"^(?:(?P<source>.*?)  # )?(?P<file>.+):(?P<line>\d+) in ")
_TORCH = str(Path(torch.__file__).parent) + os.sep
_OWN = str(Path(__file__).parent) + os.sep
_CAPTURE = str(Path(__file__).parent / "capture" / "capture.py")
WRAPPED = "_wrapped_module"
"""The name under which a module is wrapped; it is left out of the names of parameters."""
GENERATED = ("<eval_with_key>", "<frozen ")
"""Code without a file that is torch's or Python's own. Other such code is somebody's: typed at a prompt, in `exec`,
from a torch.package."""
_NO_MODULE = ("_empty_nn_module_stack", "_export_root")
"""Torch's names for nodes that stand in no module."""


def frames(text: str) -> list[SourceLine]:
    """The frames of a formatted stack trace, outermost first."""
    found: list[SourceLine] = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            following = lines[i + 1].strip() if i + 1 < len(lines) and not _FRAME.match(lines[i + 1]) else ""
            found.append(SourceLine(match["file"], int(match["line"]), following))
    return found


def is_users(file: str) -> bool:
    """False for files of torch and of this package, and for code that torch or Python made."""
    return not file.startswith((_TORCH, _OWN, "torch/", *GENERATED))


def is_own(file: str) -> bool:
    """True for files of this package."""
    return file.startswith(_OWN)


def user_frame(found: list[SourceLine]) -> SourceLine | None:
    """The innermost frame outside of torch and of this package."""
    return next((frame for frame in reversed(found) if is_users(frame.file)), None)


def asked_line(sloc: Any) -> SourceLine | None:
    """The user's line behind a condition on sizes: the frame that asked for it, or the one that called torch. `sloc` is
    torch's note of both.
    """
    for frame in (getattr(sloc, "framework_loc", None), getattr(sloc, "maybe_user_loc", None)):
        found = frame_line(frame)
        if found is not None and user_frame([found]) is not None:
            return found
    return None


def frame_line(frame: Any) -> SourceLine | None:
    """Of a FrameSummary, or the text `source  # file:line in function`."""
    if frame is None:
        return None
    if isinstance(frame, str):
        match = _PLACE.search(frame)
        return SourceLine(match["file"], int(match["line"]), (match["source"] or "").strip()) if match else None
    return SourceLine(frame.filename, frame.lineno or 0, frame.line or "")


def source_of(node: Node) -> SourceLine | None:
    """The user's line that made an fx node."""
    return user_frame(frames(node.meta.get("stack_trace") or ""))


@lru_cache(maxsize=4096)
def portable(file: str) -> str:
    """`file` without the part that depends on the machine: below site-packages, the standard library or the working
    folder the rest of the path, otherwise the file's own name."""
    path = os.path.abspath(file)
    roots = [*site.getsitepackages(), site.getusersitepackages(), *sys.path, os.getcwd()]
    best = ""
    for root in roots:
        prefix = os.path.abspath(root or ".") + os.sep
        if path.startswith(prefix) and len(prefix) > len(best):
            best = prefix
    return path[len(best) :].replace(os.sep, "/") if best else os.path.basename(path)


def origin_of(node: Node, op: str) -> Origin:
    """The Origin of an fx node."""
    where = source_of(node)
    module = module_path(node.meta)
    if where is None:
        return Origin(op=op, module=module)
    return Origin(portable(where.file), where.line, where.source, op, module)


def module_path(meta: dict[str, Any]) -> str:
    """`encoder.layer.0`: the innermost module that the node was traced in."""
    stack = meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values() if isinstance(entry, tuple) and isinstance(entry[0], str)]
    path = paths[-1] if paths else ""
    if path.startswith(_NO_MODULE):
        return ""
    path = path.removeprefix("L__self__").removeprefix("L['self']").removeprefix(".")
    return path.removeprefix(WRAPPED).removeprefix(".")


def calling_line() -> SourceLine | None:
    """The line of the model that is being traced right now: the innermost frame that is neither torch's nor ours, if it
    stands between us and our call of torch's tracer.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _CAPTURE:
            return None
        if is_users(file):
            return SourceLine(file, frame.f_lineno, linecache.getline(file, frame.f_lineno).strip())
        frame = frame.f_back
    return None


def raised_here(error: BaseException) -> bool:
    """True if a line of this package has raised the exception, not torch or the model below it. Of a mode, which only
    passes calls on, it is torch's: code in C leaves no line of its own.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or traceback.tb_frame.f_code.co_name == "__torch_function__":
        return False
    return traceback.tb_frame.f_code.co_filename.startswith(_OWN)


def exception_line(error: BaseException) -> SourceLine | None:
    """The user's line of an exception raised while tracing: torch's own note of it, or the traceback's user frame."""
    import traceback

    noted = re.search(r"The following call raised this error:\n(?P<frames>(?:.*\n?)*)", str(error))
    if noted:
        found = user_frame(frames(noted["frames"]))
        if found is not None:
            return found
    from_text = re.search(r"from user code:\n(?P<frames>(?:.*\n?)*)", str(error))
    if from_text:
        found = user_frame(frames(from_text["frames"]))
        if found is not None:
            return found
    stack = [SourceLine(f.filename, f.lineno or 0, f.line or "") for f in traceback.extract_tb(error.__traceback__)]
    return user_frame(stack)
