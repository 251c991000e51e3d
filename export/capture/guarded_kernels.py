"""Guards for two kernels of torch that end the process, in runs at sizes and strides that an author never tried.

- Fused attention for CPUs does not compare the numbers of its keys and values: it reads beyond the shorter ones, and
  torch 2.11 divides by the number of values.
- oneDNN's convolution of one dimension does, by a segmentation fault, for some strides of dimensions of size 1:
  `Conv1d(1000, 8, 1, stride=3, padding=2, dilation=2, groups=2)` of [1, 1000, 1] with strides (1000, 1, 1000), in torch
  2.11 and 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.backends import mkldnn
from torch.overrides import TorchFunctionMode

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention
_ATTENTION_CALLS = (torch.nn.functional.scaled_dot_product_attention, _ATTENTION, _ATTENTION.default)
_CONV_CALLS = (torch.conv1d, _ATEN.conv1d, _ATEN.conv1d.default, _ATEN.conv1d.padding, _ATEN.convolution.default)


class GuardedKernels(TorchFunctionMode):
    """While it lasts, attention raises ValueError for other numbers of keys than of values, and convolutions of one
    dimension whose input is not row-major to the last stride run without oneDNN, but not in the bodies of loops and
    branches. A mode below functions could look there, too, but torch would then never again compile a branch of eager
    mode in this process.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ATTENTION_CALLS:
            _check_attention(*args, **kwargs)
        if func in _CONV_CALLS and _is_row_otherwise(args[0] if args else kwargs["input"]):
            return _without_onednn(func, args, kwargs)
        return func(*args, **kwargs)


def _check_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> None:
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"attention with {key.shape[-2]} keys and {value.shape[-2]} values")


def _is_row_otherwise(x: torch.Tensor) -> bool:
    """[N, C, L] or [C, L], with a stride that a new tensor would not have."""
    return x.dim() <= 3 and x.stride() != torch.empty(x.shape, device="meta").stride()


def _without_onednn(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    onednn: Any = mkldnn  # whose types say what a property of a module is
    before = onednn.enabled
    try:
        onednn.enabled = False
        return func(*args, **kwargs)
    finally:
        onednn.enabled = before
