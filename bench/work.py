"""How much a run of a model has to do, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Work:
    """flops: operations of products, convolutions and attention, two for each multiply-add, masked ones included.
    weights: parameters that every run reads: all but tables of which it picks rows."""

    flops: int
    weights: int

    def weight_nbytes(self, dtype: torch.dtype) -> int:
        return self.weights * dtype.itemsize


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    from torch.utils.flop_counter import sdpa_flop_count

    return int(sdpa_flop_count(query, key, value))


_UNCOUNTED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}
"""What torch does not count itself."""


def work_of(module: nn.Module, args: tuple[Tensor, ...]) -> Work:
    """Counted in one run of eager."""
    from torch.utils.flop_counter import FlopCounterMode  # imports Triton, which not every process may

    with FlopCounterMode(display=False, custom_mapping=_UNCOUNTED) as counter:
        module(*args)
    read = {
        id(p): p.numel()
        for m in module.modules()
        if not isinstance(m, nn.Embedding)
        for p in m.parameters(recurse=False)
    }
    return Work(counter.get_total_flops(), sum(read.values()))
