"""What a template's call is made of, shared by the files that spell the calls."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.backends.cpp.epilogue import Parameters
from hardtack.codegen.ir.expr import Expr, const, minimum
from hardtack.codegen.lower.matrix import PANEL


@dataclass(frozen=True)
class Call:
    """A template's use: headers, statements before the call, the call's expression, and its workspace in bytes."""

    headers: tuple[str, ...]
    setup: tuple[str, ...]
    call: str
    shared: Expr = const(0)
    per_worker: Expr = const(0)


def panels(n: Expr) -> Expr:
    """ceil(n / 32)."""
    return (n + (PANEL - 1)) // PANEL


def tile_nbytes(m: Expr, n: Expr) -> Expr:
    """blocks.h: 4 * min(m, 192) * 32 * min(ceil(n / 32), 8)."""
    return minimum(m, 192) * minimum(panels(n), 8) * (4 * PANEL)


__all__ = ["Call", "Parameters", "panels", "tile_nbytes"]
