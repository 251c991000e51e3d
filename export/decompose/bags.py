"""nn.EmbeddingBag taken apart: rows of a table, added up bag by bag."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from hardtack.exporter.decompose.copies import copied

aten = torch.ops.aten
_SUM, _MEAN, _MAX = range(3)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """aten._embedding_bag: weight (rows, D), indices (N,), offsets (bags,), which say where each bag begins, from 0 on,
    with N behind them for include_last_offset; per_sample_weights (N,), for sums. Gives (bags, D) and training's memory
    as torch's CPU leaves it, in the wider of the integer dtypes: the bag of each index, but nothing (0,) after sums by
    its fast path; how many indices each bag has, but 0 after sums; the same again, or for a maximum the index that each
    element is from. A bag without indices other than padding_idx is 0. 16 bits are added in f32 and rounded once.
    Indices (bags, N) are bags of one size, see with_even_bags.
    """
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    if indices.dim() == 2:
        found = _even(weight, indices, wide, mode, per_sample_weights, padding_idx)
    else:
        found = _uneven(weight, indices, offsets, wide, mode, per_sample_weights, include_last_offset, padding_idx)
    out, bag, counts, last = found
    if mode == _SUM:
        last = counts = torch.zeros_like(counts)
        bag = bag[:0] if padding_idx < 0 and weight.dtype != torch.float64 else bag
    dtype = torch.promote_types(indices.dtype, offsets.dtype)
    return out.to(weight.dtype), bag.to(dtype), counts.to(dtype), last.to(dtype)


def _uneven(
    weight: Tensor, indices: Tensor, offsets: Tensor, wide: torch.dtype, mode: int, per_sample_weights: Tensor | None,
    include_last_offset: bool, padding_idx: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    numel, bags = indices.shape[0], offsets.shape[0] - int(include_last_offset)
    begun = torch.zeros(numel + 1, dtype=torch.int64, device=indices.device)
    begun = begun.index_add(0, offsets[:bags].long(), torch.ones_like(offsets[:bags], dtype=torch.int64))
    bag = begun[:numel].cumsum(0) - 1
    kept = indices != padding_idx
    counts = torch.zeros(bags, dtype=torch.int64, device=indices.device).index_add(0, bag, kept.long())
    rows = torch.nn.functional.embedding(indices, weight).to(wide)
    if mode == _MAX:
        rows = torch.where(kept[:, None], rows, -torch.inf)
        least = torch.full((bags, weight.shape[1]), -torch.inf, dtype=wide, device=weight.device)
        out = least.scatter_reduce(0, bag[:, None].expand(rows.shape), rows, "amax")
        last = _chosen(rows, out, indices, bag, kept)
        out = torch.where((counts > 0)[:, None], out, 0.0)
    else:
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[:, None]
        rows = torch.where(kept[:, None], rows, 0.0)
        out = torch.zeros((bags, weight.shape[1]), dtype=wide, device=weight.device).index_add(0, bag, rows)
        if mode == _MEAN:
            out = out / counts.clamp(min=1)[:, None]
        last = counts
    return out, bag, counts, last


def _even(
    weight: Tensor, indices: Tensor, wide: torch.dtype, mode: int, per_sample_weights: Tensor | None, padding_idx: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bags, size = indices.shape
    kept = indices != padding_idx
    counts = kept.sum(1)
    rows = torch.nn.functional.embedding(indices, weight).to(wide)
    bag = torch.arange(bags, device=indices.device)[:, None].expand(bags, size).reshape(-1)
    last = counts
    if mode == _MAX and size > 0:
        rows = torch.where(kept[:, :, None], rows, -torch.inf)
        out = rows.amax(1)
        last = _chosen(rows.flatten(0, 1), out, indices.reshape(-1), bag, kept.reshape(-1))
        out = torch.where((counts > 0)[:, None], out, 0.0)
    else:
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.reshape(bags, size, 1)
        out = torch.where(kept[:, :, None], rows, 0.0).sum(1)
        if mode == _MEAN:
            out = out / counts.clamp(min=1)[:, None]
    return out, bag, counts, last


def _chosen(rows: Tensor, most: Tensor, indices: Tensor, bag: Tensor, kept: Tensor) -> Tensor:
    """(bags, D): of the indices whose rows have the bag's maximum the first, 0 where there is none."""
    numel = indices.shape[0]
    place = torch.arange(numel, device=indices.device)[:, None].expand(rows.shape)
    hit = (rows == most[bag]) & kept[:, None]
    none = torch.full(most.shape, numel, dtype=torch.int64, device=indices.device)
    first = none.scatter_reduce(0, bag[:, None].expand(rows.shape), torch.where(hit, place, numel), "amin")
    padded = torch.cat([indices, indices.new_zeros(1)])
    return padded[first]


def with_even_bags(ep: ExportedProgram) -> ExportedProgram:
    """The program, or a copy of it where bags are of one size: F.embedding_bag of indices (bags, N) flattens them and
    counts where bags begin. Such calls get the indices as they were, so that their rows are added up in one order: a
    sum by offsets has none on a GPU."""
    if not any(_is_even(n) for n in ep.graph.nodes):
        return ep
    module = copied(ep)
    for node in filter(_is_even, module.graph.nodes):
        node.update_arg(1, node.args[1].args[0])
    return ep._update(module, ep.graph_signature)


def _is_even(node: Node) -> bool:
    if node.target is not aten.embedding_bag.padding_idx or any(node.args[7:8]):
        return False
    flat, offsets = node.args[1:3]
    assert isinstance(flat, Node)
    assert isinstance(offsets, Node)
    return flat.target in (aten.reshape.default, aten.view.default) and _begins(flat.args[0], offsets)


def _begins(indices: object, offsets: Node) -> bool:
    """True if the offsets are arange(0, indices.numel(), indices.shape[1]) of two-dimensional indices."""
    assert isinstance(indices, Node)
    shape = indices.meta["val"].shape
    if len(shape) != 2 or offsets.target is not aten.arange.start_step:
        return False
    start, end, step = map(_value, (*offsets.args, 1)[:3])  # a step of 1 is left out
    return all(map(statically_known_true, (start == 0, end == shape[0] * shape[1], step == shape[1])))


def _value(given: object) -> Any:
    """A number in a graph, known or not."""
    return given.meta["val"] if isinstance(given, Node) else given
