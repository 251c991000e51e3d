"""nn.EmbeddingBag taken apart: rows of a table, added up bag by bag."""

from __future__ import annotations

import torch
from torch import Tensor

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
    with N behind them for include_last_offset; per_sample_weights (N,), for sums. Gives (bags, D), the bag of each
    index, the indices in each bag, and training's memory. A bag without indices other than padding_idx is 0. 16 bits
    are added in f32 and rounded once.
    """
    numel, bags = indices.shape[0], offsets.shape[0] - int(include_last_offset)
    begun = torch.zeros(numel + 1, dtype=torch.int64, device=indices.device)
    begun = begun.index_add(0, offsets[:bags].long(), torch.ones_like(offsets[:bags], dtype=torch.int64))
    bag = begun[:numel].cumsum(0) - 1
    kept = indices != padding_idx
    counts = torch.zeros(bags, dtype=torch.int64, device=indices.device).index_add(0, bag, kept.long())
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    rows = torch.nn.functional.embedding(indices, weight).to(wide)
    if mode == _MAX:
        rows = torch.where(kept[:, None], rows, -torch.inf)
        least = torch.full((bags, weight.shape[1]), -torch.inf, dtype=wide, device=weight.device)
        out = least.scatter_reduce(0, bag[:, None].expand(rows.shape), rows, "amax")
        out = torch.where((counts > 0)[:, None], out, 0.0)
    else:
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[:, None]
        rows = torch.where(kept[:, None], rows, 0.0)
        out = torch.zeros((bags, weight.shape[1]), dtype=wide, device=weight.device).index_add(0, bag, rows)
        if mode == _MEAN:
            out = out / counts.clamp(min=1)[:, None]
    return out.to(weight.dtype), bag, counts, torch.zeros_like(counts)
