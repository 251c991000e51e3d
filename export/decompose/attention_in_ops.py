"""Attention that the op `attention` does not do, in ops: with dropout, and with a scale that depends on sizes.

torch's own form of it is what eager takes on a CPU where its fused kernels do not do it either: scores of all pairs,
their softmax, dropout, the product with the values. The memory of it grows by queries times keys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from hardtack.exporter.decompose.copies import copied, graphs_of

_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def with_attention_in_ops(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it in which such attention is a call of what torch takes it apart to."""
    if not any(_is_in_ops(n) for m in graphs_of(ep.graph_module) for n in m.graph.nodes):
        return ep
    made = ep._update(copied(ep), ep.graph_signature)
    for graph in graphs_of(made.graph_module):  # behind the verifier, which knows no functions of Python
        for node in filter(_is_in_ops, graph.graph.nodes):
            node.target = _attention
        graph.recompile()
    return made


def _is_in_ops(node: Node) -> bool:
    if node.target is not _ATTENTION:
        return False
    given = dict(zip(_NAMES, node.args, strict=False)) | node.kwargs
    query, scale = given["query"], given.get("scale")
    assert isinstance(query, Node)
    of_sizes = isinstance(scale, Node) or (scale is None and not isinstance(query.meta["val"].shape[-1], int))
    return bool(given.get("dropout_p")) or of_sizes


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: Any = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """[..., queries, width] of [..., queries, width], [..., keys, width] and values. torch's form adds the mask as it
    is: one of bools, which says what is looked at, becomes 0 and -inf first.
    """
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -torch.inf)
    attention = torch.ops.aten._scaled_dot_product_attention_math.default
    found = attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return found[0]  # type: ignore[no-any-return]
