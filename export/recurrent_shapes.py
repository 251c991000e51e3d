"""LSTM and GRU with a dynamic length: while a module is captured, torch is told the shapes of their results.

By itself torch works them out by running the recurrence step by step, which fixes the length of the sequence to that of
the example. The ops reach the Graph whole, so only their shapes are needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_impls import get_fast_op_impls

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd, DispatchKey.Meta)


def _output(x: torch.Tensor, hidden: torch.Tensor, bidirectional: bool) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], hidden.shape[-1] * (2 if bidirectional else 1)))


def _lstm(
    x: torch.Tensor, hx: Any, params: Any, biases: bool, layers: int, p: float, train: bool, both: bool, *_: Any
) -> Any:
    return _output(x, hx[0], both), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _gru(
    x: torch.Tensor, hx: Any, params: Any, biases: bool, layers: int, p: float, train: bool, both: bool, *_: Any
) -> Any:
    return _output(x, hx, both), torch.empty_like(hx)


def _within(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a rule of torch's fake tensors, run in their mode."""

    def rule(mode: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return function(*args, **kwargs)

    return rule


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, torch traces LSTM and GRU by their shapes only. Not for several threads at once."""
    rules: dict[Any, Callable[..., Any]] = {torch.ops.aten.lstm.input: _lstm, torch.ops.aten.gru.input: _gru}
    fast = get_fast_op_impls()
    saved = {op: dict(op.py_kernels) for op in rules}
    for op, function in rules.items():
        fast[op] = _within(function)
        op.py_kernels.update(dict.fromkeys(_KEYS, function))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in rules:
            del fast[op]
            op.py_kernels.clear()
            op.py_kernels.update(saved[op])
            op._dispatch_cache.clear()
