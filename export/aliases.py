"""What a torch op says of its operands: which it writes to, and of which it gives views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
"""Results of a program that are what states become."""


@dataclass(frozen=True)
class _View:
    """What torch should say of an operand that is given back as it is."""

    is_write: bool = False


_GIVES_BACK = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("sum_to_size", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)
"""Ops that give back their first operand where there is nothing to add up or to drop, which their schemas do not say;
as traced, it may be a copy.
"""


def written_operands(node: Node) -> list[Node]:
    """The operands that the node's op writes to; [] for a node that is no op."""
    return _operands(node, lambda info: bool(info.is_write))


def aliased_operands(node: Node) -> list[Node]:
    """The operands that the node's op writes to or gives views of; of a part of a list, those of the list's op."""
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return _operands(node, lambda info: True)


def written_views(ep: ExportedProgram) -> list[Node]:
    """The nodes whose result matters as a view: through it, or a view of it, the program writes in place, or it is used
    behind a write to what it may be a view of.
    """
    nodes = list(ep.graph.nodes)
    if not any(map(written_operands, nodes)):
        return []
    place = {n: i for i, n in enumerate(nodes)}
    families = _families(nodes)
    writes: dict[Node, list[Node]] = {}
    for node in nodes:
        for target in written_operands(node):
            writes.setdefault(families[target], []).append(node)
    last = _last_uses(nodes, place)
    behind = [n for n in nodes if any(place[n] < place[w] < last[n] for w in writes.get(families[n], ()))]
    return list(dict.fromkeys([*_written_through(nodes), *behind]))


def written_inputs(ep: ExportedProgram) -> set[str]:
    """The names of the inputs and of the states that the program, not yet decomposed, may write to in place."""
    return {n.name for n in _written_through(list(ep.graph.nodes)) if n.op == "placeholder"}


def _written_through(nodes: list[Node]) -> Iterable[Node]:
    """What writes go to, and what that is a view of."""
    left = [t for n in nodes for t in written_operands(n)]
    seen: dict[Node, None] = {}
    while left:
        node = left.pop()
        if node not in seen:
            seen[node] = None
            left += aliased_operands(node)
    return seen


def _families(nodes: list[Node]) -> dict[Node, Node]:
    """By node one of those that may share its memory, the same for all of them."""
    parents: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parents[node] is not node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for node in nodes:
        parents[node] = node
        for x in aliased_operands(node):
            parents[root(x)] = node
    return {n: root(n) for n in nodes}


def _last_uses(nodes: list[Node], place: dict[Node, int]) -> dict[Node, int]:
    """By node the place of the last node that uses it, or a view of it; its own where none does."""
    found: dict[Node, int] = {}
    for node in reversed(nodes):
        views = [found[u] for u in node.users if node in aliased_operands(u)]
        found[node] = max([place[node], *(place[u] for u in node.users), *views])
    return found


def is_composite(node: Node) -> bool:
    """True for an op that torch makes of others, such as reshape; one of its own views is a view at every size."""
    if not isinstance(node.target, OpOverload):
        return False
    name: str = node.target.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _operands(node: Node, wanted: Callable[[Any], bool]) -> list[Node]:
    if not isinstance(node.target, OpOverload):
        return []
    arguments = node.target._schema.arguments
    stated = any(a.alias_info is not None for a in arguments)
    found: list[Node] = []
    for position, argument in enumerate(arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        operands = [x for x in pytree.tree_leaves(given) if isinstance(x, Node)]
        if argument.alias_info is not None:
            found += operands if wanted(argument.alias_info) else []
        elif not stated and wanted(_View()):
            back = node.target in _GIVES_BACK and position == 0
            found += operands if back else [x for x in operands if _memory(x) & _memory(node)]
    return found


def _memory(node: Node) -> set[int]:
    """Where a node's tensors lie: of type_as, atleast_2d or einsum, schemas say nothing of views."""
    values = [whole_tensor(t) for t in pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]
    return {t.untyped_storage()._cdata for t in values if t.layout is torch.strided}


def whole_tensor(t: torch.Tensor) -> torch.Tensor:
    """What torch.vmap and torch.func.grad see a part of, or a gradient of."""
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t
