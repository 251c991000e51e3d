"""Calls of the compiler: what it says to users, and everything else as a bug of Hardtack."""

from __future__ import annotations

import contextlib

from hardtack.codegen.backends.cpp.compiler import CompilerError
from hardtack.codegen.backends.cpp.toolchain import ToolchainError
from hardtack.codegen.backends.triton.compile import TritonError
from hardtack.codegen.backends.triton.nvrtc import NvrtcError
from hardtack.codegen.cache import CacheError
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.machine.machine import TargetError
from hardtack.codegen.notes import ours
from hardtack.codegen.package.errors import LoadError, OutputError
from hardtack.codegen.plan.budget import OverBudget

_KNOWN = (
    UnsupportedOp,
    OverBudget,
    TargetError,
    CompilerError,
    ToolchainError,
    CacheError,
    TritonError,
    NvrtcError,
    LoadError,
    OutputError,
)
"""What code generation says to users."""


def generation() -> contextlib.AbstractContextManager[None]:
    """Inside, anything else is an InternalError."""
    return ours("the code generation", *_KNOWN)
