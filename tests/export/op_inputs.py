"""Inputs that the rows of op calls share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Row = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers, the same for the same shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def ints(high: int, *shape: int) -> torch.Tensor:
    """Integers from 0 to high - 1."""
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(7))


X = randn(3, 4, 8)
IMAGE = randn(2, 4, 9, 10)
BOOL = X > 0
WHOLE = ints(50, 3, 4, 8) - 20
IDS = ints(50, 3, 4)
