"""Sizes that a run computes: which of torch's symbols stand for them, and between which bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_LAST_OF_TORCH = 2
"""torch's lowest size for what it takes for a size is 0 or 2, which no user asked for."""


def found_sizes(ep: ExportedProgram) -> Mapping[sympy.Symbol, tuple[int, int | None]]:
    """The symbols of numbers of the run that the size of a tensor is made of -> (lowest, highest or None)."""
    symbols = {s for t in _tensors(ep.graph_module) for s in free_unbacked_symbols(t.shape)}
    return {s: _bounds(ep, s) for s in symbols}


def _tensors(module: torch.fx.GraphModule) -> Iterator[torch.Tensor]:
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            value = node.meta.get("val")
            for v in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(v, torch.Tensor):
                    yield v


def _bounds(ep: ExportedProgram, symbol: sympy.Symbol) -> tuple[int, int | None]:
    found = ep.range_constraints.get(symbol)
    if found is None:
        return 0, None
    least = int(found.lower) if found.lower.is_Integer and found.lower > _LAST_OF_TORCH else 0
    return least, int(found.upper) if found.upper.is_Integer and int(found.upper) < 2**48 else None
