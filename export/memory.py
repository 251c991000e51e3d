"""Which tensors of a traced program share memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def may_overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """False where no element of the one is known to be one of the other."""
    if _memory(a) != _memory(b):
        return False
    (first, last), (start, end) = _reach(a), _reach(b)
    return not (statically_known_true(last < start) or statically_known_true(end < first))


def is_same_part(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where both are known to be the same elements of the same memory."""
    if _memory(a) != _memory(b) or a.dtype is not b.dtype or a.dim() != b.dim():
        return False
    pairs = zip((a.storage_offset(), *a.shape, *a.stride()), (b.storage_offset(), *b.shape, *b.stride()), strict=True)
    return all(statically_known_true(x == y) for x, y in pairs)


def _memory(t: torch.Tensor) -> int:
    """What tensors on the same memory have in common; of one that torch is making functional, what is inside."""
    return getattr(t, "elem", t).untyped_storage()._cdata  # type: ignore[no-any-return]


def _reach(t: torch.Tensor) -> tuple[Any, Any]:
    """The places in its storage of a tensor's first element and of its last one."""
    first = t.storage_offset()
    return first, first + sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True))
