"""The neutral values of reductions."""

from __future__ import annotations

import math

from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import INT_RANGE, DType

_PLAIN: dict[str, bool | int | float] = {"sum": 0, "prod": 1, "any": False, "all": True}


def neutral_value(kind: str, dtype: DType) -> Lit:
    """The neutral value of a reduction; for argmax and argmin that of its values."""
    if kind in _PLAIN:
        value = _PLAIN[kind]
        return Lit(float(value) if dtype.is_float else value, dtype)
    largest = kind in ("min", "argmin")
    if dtype.is_float:
        return Lit(math.inf if largest else -math.inf, dtype)
    if dtype is DType.BOOL:
        return Lit(largest, dtype)
    return Lit(INT_RANGE[dtype][1 if largest else 0], dtype)
