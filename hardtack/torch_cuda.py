"""CUDA tensors of torch on their way through the runtime. torch is what the caller imported, not this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardtack.runtime import Tensor

_TORCH_DTYPE = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool",
}  # fmt: skip
LEGACY_STREAM = 1
"""CUDA's number for its legacy default stream, which torch calls 0."""


def torch_allocator(torch: Any, place: str) -> Callable[[tuple[int, ...], tuple[int, ...], str], Any]:
    """Makes tensors of torch on a CUDA device from shape, strides and the name of a dtype."""
    device = torch.device(place)
    dtypes = {name: getattr(torch, theirs) for name, theirs in _TORCH_DTYPE.items()}
    empty_strided = torch.empty_strided

    def allocate(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Any:
        return empty_strided(shape, strides, dtype=dtypes[dtype], device=device)

    return allocate


class Offered:
    """A CUDA tensor of torch that the runtime asks for on its own stream."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor.detach()

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: int) -> Any:
        return self._tensor.__dlpack__(stream=stream)


def with_strides(tensor: Any, spec: Tensor) -> Any:
    """A CUDA tensor of torch as the contract wants it in memory: row-major or channels-last; others as they are."""
    ndim = len(spec.shape)
    if not tensor.is_cuda or tensor.dim() != ndim:
        return tensor
    if ndim >= 3 and spec.strides[1] == 1 and spec.strides[-1] != 1:
        last, back = (0, *range(2, ndim), 1), (0, ndim - 1, *range(1, ndim - 1))
        return tensor.permute(last).contiguous().permute(back)
    return tensor.contiguous()
