"""What a model of the zoo is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]
Model = Callable[..., Any]


@dataclass(frozen=True)
class ZooModel:
    """A module in evaluation mode and what to run it on.

    args: example inputs. dynamic: dynamic_shapes that export accepts, most useful first, for args. others: inputs of
    other sizes, all within dynamic[0]. golden: given a callable that computes what the module computes, checks a
    known result with assertions and returns it in words; None where there are no trained weights.
    """

    name: str
    module: nn.Module
    args: Tensors
    dynamic: tuple[Any, ...] = ()
    others: tuple[Tensors, ...] = ()
    golden: Callable[[Model], str] | None = None
    strict: bool = False
    notes: dict[str, Any] = field(default_factory=dict)


Loader = Callable[[], ZooModel]
