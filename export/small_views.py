"""Views that sizes decide: reshape, flatten, ravel or contiguous give a view of their operand where its strides fit, a
copy elsewhere; sum_to_size gives its operand where there is nothing to add up.

torch decides it for sizes from 2 on. At size 1 more strides fit: x.t().reshape(-1) is a view of x where one side is 1.
The elements are the same; who writes to them in place can tell. What is noted here, small_runs.py tries.
"""

from __future__ import annotations

from collections.abc import Iterator

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from hardtack.export.aliases import is_composite, written_views
from hardtack.export.origin import source_of
from hardtack.export.small_sizes import Decision


def view_decisions(ep: ExportedProgram) -> Iterator[Decision]:
    """That no symbol of such a node is 1, where the program, not yet decomposed, writes to the node's result."""
    for node in filter(is_composite, written_views(ep)):
        for symbol in sorted(_symbols(node.args[0]), key=str):
            yield Decision(sympy.Ne(symbol, 1, evaluate=False), source_of(node), ((str(symbol), 1),))


def _symbols(node: object) -> set[sympy.Symbol]:
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor):
        return set()
    sizes = [s for s in (*value.shape, *value.stride()) if isinstance(s, torch.SymInt)]
    return {symbol for size in sizes for symbol in size.node.expr.free_symbols}
