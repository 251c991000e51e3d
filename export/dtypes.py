"""torch dtypes and DTypes, both ways."""

from __future__ import annotations

import torch

from hardtack.codegen.ir.types import DType
from hardtack.exporter.errors import Refusal

TORCH_DTYPE: dict[DType, torch.dtype] = {
    DType.F32: torch.float32,
    DType.F64: torch.float64,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I8: torch.int8,
    DType.I16: torch.int16,
    DType.I32: torch.int32,
    DType.I64: torch.int64,
    DType.U8: torch.uint8,
    DType.U16: torch.uint16,
    DType.U32: torch.uint32,
    DType.F8E4M3: torch.float8_e4m3fn,
    DType.F8E5M2: torch.float8_e5m2,
    DType.F8E8M0: torch.float8_e8m0fnu,
    DType.BOOL: torch.bool,
}
"""DType -> torch.dtype."""

E4M3_SATURATES = bool(torch.tensor(1e4).to(torch.float8_e4m3fn).float().isfinite())
"""What float8_e4m3fn cannot hold becomes its largest number; in older versions of torch NaN."""
E4M3_LAST = 464.0
"""The largest number that is rounded to the largest of float8_e4m3fn, 448: half way to what would be the next."""

_FROM_TORCH = {t: d for d, t in TORCH_DTYPE.items()}


def part_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a complex one's parts; another as it is. Refusal for complex32, which eager hardly computes with."""
    if dtype is torch.complex32:
        raise Refusal("element type complex32 is not supported: complex64 is")
    return dtype.to_real() if dtype.is_complex else dtype


def from_torch(dtype: torch.dtype) -> DType:
    """The DType of a torch dtype. Refusal for one that Hardtack does not have (complex, quantised, uint64)."""
    found = _FROM_TORCH.get(dtype)
    if found is None:
        raise Refusal(f"element type {str(dtype).removeprefix('torch.')} is not supported")
    return found
