"""Dropout outside of training: eager gives the tensor itself, torch's decomposition a copy of it.

A module that writes in place to one of the two sees the difference.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from hardtack.exporter.aliases import written_operands
from hardtack.exporter.decompose.copies import copied, graphs_of

aten = torch.ops.aten


def with_dropouts_as_views(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it in which a dropout that drops nothing is a view of what it is given."""
    if not any(_drops_nothing(n) for m in _written(ep.graph_module) for n in m.graph.nodes):
        return ep
    module = copied(ep)
    for part in _written(module):
        for node in filter(_drops_nothing, part.graph.nodes):
            node.target = aten.alias.default
            node.args = (node.args[0] if node.args else node.kwargs["input"],)
            node.kwargs = {}
        part.recompile()
    return ep._update(module, ep.graph_signature)


def _written(module: GraphModule) -> list[GraphModule]:
    """The graphs, the program's and those of branches and loops, that write to tensors. The others stay: torch refuses
    a branch whose result is a view of what it is given.
    """
    return [m for m in graphs_of(module) if any(written_operands(n) for n in m.graph.nodes)]


def _drops_nothing(node: Node) -> bool:
    if node.target is not aten.dropout.default:
        return False
    given = dict(zip(("input", "p", "train"), node.args, strict=False)) | node.kwargs
    return given["train"] is False or given["p"] in (0, 0.0)
