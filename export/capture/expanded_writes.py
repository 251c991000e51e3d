"""Writes in place through a tensor of which several elements are one number in memory: expanded, or of as_strided.

torch.export writes them back as x + sum(y - x), which loses digits and makes NaN of infinities, and those of as_strided
element by element, so that one of before may be written over a new one. So they are refused; so is diagonal_scatter of
windows that overlap, whose result repeats elements in eager mode, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from hardtack.exporter.aliases import whole_tensor, written_operands
from hardtack.exporter.errors import MutationError
from hardtack.exporter.origin import source_of
from hardtack.exporter.sizes.strides import example_size


def refuse_expanded_writes(ep: ExportedProgram) -> None:
    """MutationError for the first write to a view of such a tensor; of the program before it is decomposed."""
    for module in ep.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            for written in written_operands(node):
                if _repeats(written):
                    raise MutationError(
                        "forward writes in place to a tensor of which several elements are one number in memory",
                        source_of(node),
                        "clone it before it is written to",
                    )
            if node.target in _SCATTERS and _keeps_overlap(node.args[0].meta["val"]):
                raise MutationError(
                    "forward replaces a part of a tensor of which several elements are one number in memory",
                    source_of(node),
                    "clone it before",
                )


def _repeats(node: Node) -> bool:
    """True if this or a view that it is made from, up to the tensor that owns the memory, repeats elements."""
    place = _storage(node)
    while place is not None:
        if _is_expanded(node.meta["val"]) or (node.target in _BY_PLACE and _overlaps(node.meta["val"])):
            return True
        source = node.args[0] if node.args else None
        source = source[0] if isinstance(source, (list, tuple)) and source else source
        if not isinstance(source, Node) or _storage(source) != place:
            return False
        node = source
    return False


_SCATTERS = (
    torch.ops.aten.diagonal_scatter.default,
    torch.ops.aten.select_scatter.default,
    torch.ops.aten.slice_scatter.default,
)


def _keeps_overlap(x: torch.Tensor) -> bool:
    """True if elements of a copy that eager mode makes share memory, too; those of an expanded tensor do not."""
    return not _is_expanded(x) and _overlaps(x)


_BY_PLACE = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_.default)


def _is_expanded(x: torch.Tensor) -> bool:
    return any(_is(0, stride) and not _is(1, size) for size, stride in zip(x.shape, x.stride(), strict=True))


def _overlaps(x: torch.Tensor) -> bool:
    """True unless each dimension steps over all that the ones of smaller strides reach; by the example's sizes, so True
    where those are data.
    """
    reached, steps = 0, []
    for size, stride in zip(map(example_size, x.shape), map(example_size, x.stride()), strict=True):
        if size is None or stride is None:
            return True
        steps.append((stride, size))
    for stride, size in sorted(steps):
        if size > 1 and stride <= reached:
            return True
        reached += (size - 1) * stride
    return False


def _is(number: int, size: int | torch.SymInt) -> bool:
    """True if the size or stride is known to be this number; no question is asked about one that is data."""
    return bool((size.node.expr if isinstance(size, torch.SymInt) else size) == number)


def _storage(node: Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return whole_tensor(value).untyped_storage()._cdata
