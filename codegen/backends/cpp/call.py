"""What a template's call is made of, shared by the files that spell the calls."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.backends.cpp.epilogue import Parameters
from hardtack.codegen.ir.expr import Expr, const


@dataclass(frozen=True)
class Call:
    """A template's use: headers, statements before the call, the call's expression, and its workspace in bytes."""

    headers: tuple[str, ...]
    setup: tuple[str, ...]
    call: str
    shared: Expr = const(0)
    per_worker: Expr = const(0)


__all__ = ["Call", "Parameters"]
