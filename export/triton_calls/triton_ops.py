"""Ops of torch.library.triton_op: their functions, which call Triton kernels, stand for them on GPUs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS

from hardtack.exporter.extensions import is_triton_op
from hardtack.exporter.triton_calls.launch_ops import dense_order


def function_of(op: Any) -> Callable[..., Any] | None:
    """What torch.library.triton_op was given for an op; None for any other op."""
    if not is_triton_op(op):
        return None
    found = inspect.getclosurevars(OPDEFS[op._schema.name]._init_fn).nonlocals.get("fn")
    assert callable(found), f"torch {torch.__version__} keeps the function of a triton_op elsewhere"
    return found  # type: ignore[no-any-return]


def as_recorded(x: Any, recorded: Any) -> Any:
    """A tensor laid out as another, for which strides are known already; anything else as it is."""
    if not isinstance(x, Tensor) or not isinstance(recorded, Tensor):
        return x
    order = dense_order(recorded)
    if order is None or dense_order(x) == order:
        return x
    return (
        x.permute(order).clone(memory_format=torch.contiguous_format).permute([order.index(d) for d in range(x.dim())])
    )
