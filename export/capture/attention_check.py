"""A check that torch's fused attention for CPUs lacks, for runs at sizes that a model's author never tried.

The kernel does not compare the numbers of its keys and values: it reads beyond the shorter ones, and torch 2.11 divides
by the number of values, so that such a run may end the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ATTENTION = torch.ops.aten.scaled_dot_product_attention
_CALLS = (torch.nn.functional.scaled_dot_product_attention, _ATTENTION, _ATTENTION.default)


class AttentionCheck(TorchFunctionMode):
    """While it lasts, attention raises ValueError for other numbers of keys than of values, but not in the bodies of
    loops and branches. A mode below functions could look there, too, but torch would then never again compile a branch
    of eager mode in this process.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CALLS:
            _check(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> None:
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"attention with {key.shape[-2]} keys and {value.shape[-2]} values")
