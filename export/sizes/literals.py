"""Sizes that the model gives as numbers and torch writes by others.

Where a view lets one size open, torch works out a later one from it: of x.view(-1, 2, 1) the second is
s0 // (s0 // 2). That is 2 where it is anything, but for no elements it is 0 // 0, and no kernel can count on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from hardtack.exporter.sizes.shapes import NO_NUMBER, Sizes, sympy_of

aten = torch.ops.aten
_VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.view_copy.default,
    aten.expand.default,
)


def state_literals(ep: ExportedProgram, sizes: Sizes) -> None:
    """From now on `sizes` takes such an expression for the number, wherever it stands."""
    for module in ep.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            for size, number in _given(node):
                sizes.state(size, number)


def _given(node: Node) -> Iterator[tuple[sympy.Basic, int]]:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return
    for made, given in zip(_sizes_of(node, value), _arguments(node), strict=False):
        if isinstance(made, torch.SymInt) and isinstance(given, int) and given >= 0:
            expression = sympy_of(made)
            if not isinstance(expression, sympy.Symbol) and not expression.is_number and _stays(made, given):
                yield expression, given


def _stays(size: torch.SymInt, number: int) -> bool:
    """Whether the size is this number for multiples of the example's sizes, too: not one that a condition fixes, as
    n // 2 == 1 does, which has to be checked.
    """
    examples = size.node.shape_env.backed_var_to_val
    expression = size.node.expr
    if not expression.free_symbols <= examples.keys():
        return False
    scaled = ({s: k * examples[s] for s in expression.free_symbols} for k in (2, 3))
    try:
        return all(expression.xreplace(sizes) == number for sizes in scaled)
    except NO_NUMBER:
        return False


def _arguments(node: Node) -> Sequence[Any]:
    if node.target in _VIEWS:
        return node.args[1]  # type: ignore[return-value]
    return node.args[2] if node.target is aten.unflatten.int else ()  # type: ignore[return-value]


def _sizes_of(node: Node, value: torch.Tensor) -> Sequence[Any]:
    """The sizes of the result that the arguments are about."""
    if node.target is not aten.unflatten.int:
        return value.shape
    return value.shape[int(node.args[1]) % (value.dim() - len(node.args[2]) + 1) :]  # type: ignore[arg-type]
