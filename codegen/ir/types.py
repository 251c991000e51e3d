"""Element types, shared by every stage, the bundle and the runtime.

    DType ::= f32 | f64 | f16 | bf16 | i8 | i16 | i32 | i64 | u8 | u16 | u32 | f8e4m3fn | f8e5m2 |
              f8e8m0fnu | bool

`bool` is stored as one byte, 0 or 1. The floats of 8 bits are only stored: registers, literals and numpy have their
bits, and nothing but conversions reads these as numbers. The names are the ones written into plans and manifests.
Complex numbers are of interfaces only, `COMPLEX`: values have their two parts as a last dimension of 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


@dataclass(frozen=True)
class DTypeInfo:
    """An element type. nbytes: of one element. kind: float, int, uint, bool or float8. numpy: what holds its elements
    there. safetensors: its name in files of weights. since: the first format of bundles that has it."""

    nbytes: int
    kind: str
    numpy: str
    safetensors: str
    since: int = 1


class DType(Enum):
    """An element type. The value is its name in plans, manifests and dumps."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    F8E4M3 = "f8e4m3fn"
    F8E5M2 = "f8e5m2"
    F8E8M0 = "f8e8m0fnu"
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _INFO[self].nbytes

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype that holds its elements."""
        return np.dtype(_INFO[self].numpy)

    @property
    def safetensors(self) -> str:
        """Its name in files of weights."""
        return _INFO[self].safetensors

    @property
    def since(self) -> int:
        """The first format of bundles that has it (docs/package.md, "Compatibility")."""
        return _INFO[self].since

    @property
    def is_float(self) -> bool:
        """True for the floats that are computed with: those of 16 bits and more."""
        return _INFO[self].kind == "float"

    @property
    def is_half(self) -> bool:
        """True for the floats of 16 bits: stored as such, computed as f32 and rounded."""
        return self in (DType.F16, DType.BF16)

    @property
    def is_float8(self) -> bool:
        """True for the floats of 8 bits, which are converted and moved, and not computed with."""
        return _INFO[self].kind == "float8"

    @property
    def is_int(self) -> bool:
        """True for the integer types; false for bool."""
        return _INFO[self].kind in ("int", "uint")

    @property
    def is_unsigned(self) -> bool:
        """True for the integer types without negative numbers."""
        return _INFO[self].kind == "uint"

    def __str__(self) -> str:
        return self.value


_INFO: dict[DType, DTypeInfo] = {
    DType.F32: DTypeInfo(4, "float", "<f4", "F32"),
    DType.F64: DTypeInfo(8, "float", "<f8", "F64"),
    DType.F16: DTypeInfo(2, "float", "<f2", "F16"),
    DType.BF16: DTypeInfo(2, "float", "<u2", "BF16"),  # numpy has no bfloat16: its bits
    DType.I8: DTypeInfo(1, "int", "i1", "I8"),
    DType.I16: DTypeInfo(2, "int", "<i2", "I16"),
    DType.I32: DTypeInfo(4, "int", "<i4", "I32"),
    DType.I64: DTypeInfo(8, "int", "<i8", "I64"),
    DType.U8: DTypeInfo(1, "uint", "u1", "U8"),
    DType.U16: DTypeInfo(2, "uint", "<u2", "U16", since=2),
    DType.U32: DTypeInfo(4, "uint", "<u4", "U32", since=2),
    DType.F8E4M3: DTypeInfo(1, "float8", "u1", "F8_E4M3", since=2),
    DType.F8E5M2: DTypeInfo(1, "float8", "u1", "F8_E5M2", since=2),
    DType.F8E8M0: DTypeInfo(1, "float8", "u1", "F8_E8M0", since=2),  # an exponent, as MX scales are: 2^(code - 127)
    DType.BOOL: DTypeInfo(1, "bool", "?", "BOOL"),
}

INT_RANGE: dict[DType, tuple[int, int]] = {
    d: (int(np.iinfo(_INFO[d].numpy).min), int(np.iinfo(_INFO[d].numpy).max)) for d in DType if d.is_int
}
"""Smallest and largest value of each integer type."""
COMPLEX: dict[DType, str] = {DType.F32: "c64", DType.F64: "c128"}
"""Type of a part -> the type of complex numbers as manifests name it."""
HALF = (DType.F16, DType.BF16)
BYTES = (DType.I8, DType.F8E4M3, DType.F8E5M2)
"""Whose products GPUs' tensor cores take, with K innermost in both operands."""
"""The types of 16 bits."""


def half_value(value: float, dtype: DType) -> float:
    """The value of the half type `dtype` nearest to the f32 nearest to `value`, as torch converts a Python number."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
        if dtype is DType.F16:
            return float(single.astype(np.float16))
    if np.isnan(single):
        return float(single)
    bits = int(single.view(np.uint32))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(bits).view(np.float32))
