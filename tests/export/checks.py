"""Helpers of the export tests: a module against the reference interpreter on its Graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from hardtack.codegen.ir.graph import Graph
from hardtack.exporter import EntryGraph, Exported, to_graphs
from hardtack.exporter.reference import outputs, run


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def entry(exported: Exported) -> EntryGraph:
    """The only entry point."""
    (found,) = exported.entries.values()
    return found


def feed(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """Inputs by name from a call's arguments; integers become scalars."""
    leaves = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
    tensors: list[torch.Tensor] = []
    for x in leaves:
        if isinstance(x, torch.Tensor):
            tensors.append(x)
        elif type(x) is int:
            tensors.append(torch.tensor(x))
    return {i.name: t for i, t in zip(graph.inputs, tensors, strict=True)}


def ours(exported: Exported, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[torch.Tensor]:
    """What the Graph gives for a call."""
    graph = entry(exported).graph
    return outputs(graph, run(graph, exported.store, feed(graph, args, kwargs)))


def eager(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[torch.Tensor]:
    """What the module gives, flattened, on copies of its inputs."""
    with torch.no_grad():
        copies = pytree.tree_map_only(torch.Tensor, torch.clone, tuple(args))
        found = module(*copies, **(kwargs or {}))
    return [x for x in pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]


def assert_same(
    got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Equal numbers of tensors, equal dtypes and shapes, close values."""
    assert len(got) == len(want), f"{len(got)} outputs, eager gives {len(want)}"
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True)


def check(
    module: Any,
    args: tuple[Any, ...],
    dynamic_shapes: Any = None,
    others: Sequence[tuple[Any, ...]] = (),
    kwargs: Mapping[str, Any] | None = None,
    strict: bool = False,
    atol: float = 1e-5,
) -> Exported:
    """Export, then compare with eager on args and on `others`."""
    exported = to_graphs(module, args, kwargs, dynamic_shapes, strict)
    for call in (args, *others):
        assert_same(ours(exported, call, kwargs), eager(module, call, kwargs), atol=atol)
    return exported


def kinds(exported: Exported) -> list[str]:
    """The kinds of the entry's ops, in order."""
    return [op.kind for op in entry(exported).graph.ops]
