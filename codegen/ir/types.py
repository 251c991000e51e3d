"""Element types, shared by every stage, the bundle and the runtime.

    DType ::= f32 | f64 | f16 | bf16 | i8 | i16 | i32 | i64 | u8 | bool

`bool` is stored as one byte, 0 or 1. The names are the ones written into plans and manifests.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class DTypeInfo:
    """What the stages need to know of an element type: `nbytes` of one element, and its kind."""

    nbytes: int
    kind: str  # "float" | "int" | "bool"


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
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _INFO[self].nbytes

    @property
    def is_float(self) -> bool:
        return _INFO[self].kind == "float"

    @property
    def is_int(self) -> bool:
        """True for the integer types; false for bool."""
        return _INFO[self].kind == "int"

    def __str__(self) -> str:
        return self.value


_INFO: dict[DType, DTypeInfo] = {
    DType.F32: DTypeInfo(4, "float"),
    DType.F64: DTypeInfo(8, "float"),
    DType.F16: DTypeInfo(2, "float"),
    DType.BF16: DTypeInfo(2, "float"),
    DType.I8: DTypeInfo(1, "int"),
    DType.I16: DTypeInfo(2, "int"),
    DType.I32: DTypeInfo(4, "int"),
    DType.I64: DTypeInfo(8, "int"),
    DType.U8: DTypeInfo(1, "int"),
    DType.BOOL: DTypeInfo(1, "bool"),
}

INT_RANGE: dict[DType, tuple[int, int]] = {
    DType.I8: (-(2**7), 2**7 - 1),
    DType.I16: (-(2**15), 2**15 - 1),
    DType.I32: (-(2**31), 2**31 - 1),
    DType.I64: (-(2**63), 2**63 - 1),
    DType.U8: (0, 255),
}
"""Smallest and largest value of each integer type."""
