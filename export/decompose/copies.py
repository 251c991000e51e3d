"""A program's graphs, and a copy of them to be changed: torch's own may call nodes by other names than the signature
does.
"""

from __future__ import annotations

import copy

from torch.export import ExportedProgram
from torch.fx import GraphModule


def graphs_of(module: GraphModule) -> list[GraphModule]:
    """The program's graph, and those of branches and loops."""
    return [m for m in module.modules() if isinstance(m, GraphModule)]


def copied(ep: ExportedProgram) -> GraphModule:
    """A copy of the program's graph module whose nodes have the program's names: a copy by itself would call an input
    named like something of Python's (`input`, `max`) `input_1`, and the signature would not fit."""
    module: GraphModule = copy.deepcopy(ep.graph_module)
    for old, new in zip(ep.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name
    return module
