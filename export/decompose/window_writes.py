"""Writes in place through the windows of Tensor.unfold.

torch writes them back by a sum over windows into zeros, so that an element that lies in no window would become zero.
Before decomposition, windows that stand side by side are therefore taken by slicing and splitting, whose writes torch
puts back as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from hardtack.exporter.decompose.copies import copied
from hardtack.exporter.errors import MutationError
from hardtack.exporter.origin import source_of

aten = torch.ops.aten


def with_written_windows(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it where windows are written to. MutationError if those overlap or leave gaps."""
    if not any(_is_written(n) for n in ep.graph.nodes if n.target is aten.unfold.default):
        return ep
    module = copied(ep)
    for node in [n for n in module.graph.nodes if n.target is aten.unfold.default and _is_written(n)]:
        _split(module.graph, node)
    return ep._update(module, ep.graph_signature)


def _is_written(view: Node) -> bool:
    """True if an op writes to the view, or to a view of it."""
    for user in view.users:
        write, alias = _treatment(user, view)
        if write or (alias and _is_written(user)):
            return True
    return False


def _treatment(user: Node, x: Node) -> tuple[bool, bool]:
    """Whether an op writes to its argument x, and whether its result is a view of it."""
    if user.target is operator.getitem:
        return False, True
    if not isinstance(user.target, torch._ops.OpOverload):
        return False, False
    infos = [info for argument, info in _arguments(user) if argument is x and info is not None]
    return any(i.is_write for i in infos), bool(infos)


def _arguments(node: Node) -> Iterator[tuple[Any, Any]]:
    """The arguments of a node with what the op's schema says of their memory."""
    for i, stated in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        given = node.args[i] if i < len(node.args) else node.kwargs.get(stated.name)
        for one in given if isinstance(given, (list, tuple)) else [given]:
            yield one, stated.alias_info


def _split(graph: Graph, windows: Node) -> None:
    """x[.., :count * size, ..] as [.., count, size, ..], the elements of a window last."""
    x, dim, size, step = windows.args
    assert isinstance(x, Node)
    assert isinstance(dim, int)
    assert isinstance(size, int)
    rank = x.meta["val"].dim()
    if step != size or rank == 0:
        raise MutationError(
            f"forward writes to windows of unfold(size={size}, step={step}) in place",
            source_of(windows),
            "work on a clone of the windows, or use windows as wide as their step",
        )
    dim %= rank

    def call(target: Callable[..., Any], *args: Any) -> Node:
        made = graph.call_function(target, args)
        made.meta = {**windows.meta, "val": target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))}
        return made

    with graph.inserting_before(windows):
        count = call(operator.floordiv, call(aten.sym_size.int, x, dim), size)
        whole = call(aten.slice.Tensor, x, dim, 0, call(operator.mul, count, size))
        split = call(aten.unflatten.int, whole, dim, [count, size])
        found = call(aten.movedim.int, split, dim + 1, -1)
    windows.replace_all_uses_with(found)
    graph.erase_node(windows)
