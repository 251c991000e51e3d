"""What a torch op says of its operands: which it writes to, and of which it gives views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node


@dataclass(frozen=True)
class _View:
    """What torch should say of an operand that is given back as it is."""

    is_write: bool = False


_UNSTATED = {(torch.ops.aten.sum_to_size.default, 0): _View()}
"""By op and position: the operand itself where there is nothing to add up, which its schema does not say."""


def written_operands(node: Node) -> list[Node]:
    """The operands that the node's op writes to; [] for a node that is no op."""
    return _operands(node, lambda info: bool(info.is_write))


def aliased_operands(node: Node) -> list[Node]:
    """The operands that the node's op writes to or gives views of."""
    return _operands(node, lambda info: True)


def written_views(ep: ExportedProgram) -> list[Node]:
    """The nodes whose result, or a view of it, the program writes to in place."""
    left = [t for n in ep.graph.nodes for t in written_operands(n)]
    seen: dict[Node, None] = {}
    while left:
        node = left.pop()
        if node not in seen:
            seen[node] = None
            left += aliased_operands(node)
    return list(seen)


def is_composite(node: Node) -> bool:
    """True for an op that torch makes of others, such as reshape; one of its own views is a view at every size."""
    if not isinstance(node.target, OpOverload):
        return False
    name: str = node.target.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _operands(node: Node, wanted: Callable[[Any], bool]) -> list[Node]:
    if not isinstance(node.target, OpOverload):
        return []
    found: list[Node] = []
    for position, argument in enumerate(node.target._schema.arguments):
        info = argument.alias_info or _UNSTATED.get((node.target, position))
        if info is not None and wanted(info):
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [x for x in pytree.tree_leaves(given) if isinstance(x, Node)]
    return found
