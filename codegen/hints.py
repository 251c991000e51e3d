"""Example sizes of symbols: what decisions of profit go by where a size is not known."""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.codegen.ir.expr import Expr, bounds
from hardtack.codegen.ir.expr_walk import evaluate, free_syms

UNKNOWN_SIZE = 64
"""What a size without an upper bound is taken for when profit is weighed."""


def size_hint(e: Expr, hints: Mapping[str, int]) -> int:
    """A size for weighing profit: symbols take their example sizes."""
    values = {s.name: hints.get(s.name, min(UNKNOWN_SIZE, bounds(s)[1] or UNKNOWN_SIZE)) for s in free_syms(e)}
    return evaluate(e, values)
