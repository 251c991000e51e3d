"""Ops that torch works out in a way that fixes dynamic sizes: while a module is captured, it is told the shapes of
their results.

By itself torch runs a recurrence step by step and gives max_pool1d plain integers, both of which fixes the length to
that of the example; matmul asks about strides whether it may fold a batch, so that a slice with a step holds only for
some sizes. The ops reach the Graph whole, so only shapes are needed, and the strides of eager's results, which decide
what views of them are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._meta_registrations as registrations
import torch.utils._pytree as pytree
from torch._C import DispatchKey
from torch._decomp import meta_table
from torch._subclasses.fake_impls import get_fast_op_impls

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="recurrences",
        replaces=("rules of aten.lstm, aten.gru, aten.rnn_tanh and aten.rnn_relu",),
        why="the steps are run one by one, which fixes their number",
        issues=(115092, 126339),
    ),
    Patch(
        name="pools of rows",
        replaces=("rules of aten.max_pool1d",),
        why="the result's length is computed in C++ with plain integers, which fixes it",
    ),
    Patch(
        name="products of matrices",
        replaces=("rules of aten.matmul",),
        why="whether a batch may be folded is asked of strides: a slice with a step holds for some sizes only",
    ),
    Patch(
        name="norms over the last dimension",
        replaces=("rules of aten.linalg_vector_norm",),
        why="dimensions of size 1 that are counted from the end are kept",
        until=(2, 13),
        issues=(182181, 183121),
    ),
)

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd, DispatchKey.Meta)


def _output(x: torch.Tensor, hidden: torch.Tensor, both: bool, batch_first: bool) -> torch.Tensor:
    """[T, N, C] in memory; batch_first: a view of it as [N, T, C], as eager gives, so that a write to what contiguous()
    makes of it writes to a copy.
    """
    steps, batch = x.shape[1::-1] if batch_first else x.shape[:2]
    found = x.new_empty((steps, batch, hidden.shape[-1] * (2 if both else 1)))
    return found.transpose(0, 1) if batch_first else found


def _state(like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(like.shape)


def _lstm(x: torch.Tensor, hx: Any, params: Any, biases: bool, layers: int, p: float, train: bool, *how: bool) -> Any:
    return _output(x, hx[0], *how), _state(hx[0]), _state(hx[1])


def _one_state(
    x: torch.Tensor, hx: Any, params: Any, biases: bool, layers: int, p: float, train: bool, *how: bool
) -> Any:
    """how: both directions or one, batch_first."""
    return _output(x, hx, *how), _state(hx)


_pooled: Callable[..., Any] = registrations.pooling_output_shape
_check: Callable[..., Any] = torch._check


def _max_pool1d(
    x: torch.Tensor, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil: bool = False
) -> torch.Tensor:
    size, (k,), (p,), (d,) = x.shape[-1], _listed(kernel), _listed(padding), _listed(dilation)
    (s,) = _listed(stride) or (k,)
    return x.new_empty((*x.shape[:-1], _pooled(size, k, p, s, d, ceil)))


def _matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    _check(x.dim() > 0 and y.dim() > 0, lambda: "both arguments to matmul need to be at least 1D")
    _check(x.dtype == y.dtype, lambda: f"matmul of {x.dtype} and {y.dtype}, which must be the same dtype")
    rows = x.shape[-2:-1]
    columns = y.shape[-1:] if y.dim() > 1 else ()
    inner = y.shape[-2] if y.dim() > 1 else y.shape[0]
    _check(x.shape[-1] == inner, lambda: f"matmul of shapes {tuple(x.shape)} and {tuple(y.shape)}, which do not fit")
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])  # type: ignore[no-untyped-call]
    return x.new_empty((*batch, *rows, *columns))


def traced_only(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function where torch traces; the op itself of tensors with numbers in them, with which torch computes
    meanwhile.
    """

    def rule(*args: Any, **kwargs: Any) -> Any:
        if all(type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta for x in _tensors(args)):
            return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        return function(*args, **kwargs)

    return rule


def _tensors(args: tuple[Any, ...]) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]


def _listed(given: Any) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def within_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a rule of torch's fake tensors, run in their mode."""

    def rule(mode: Any, *args: Any, **kwargs: Any) -> Any:
        with mode:
            return function(*args, **kwargs)

    return rule


def _from_the_front(norm: Callable[..., Any]) -> Callable[..., Any]:
    """torch's rule of vector_norm with dimensions counted from the front: torch 2.11 keeps negative ones of size 1."""

    def rule(x: torch.Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        dims = [d % x.dim() for d in _listed(dim)] if dim is not None and x.dim() else dim
        return norm(x, order, dims, keepdim, dtype=dtype)

    return rule


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """Inside, torch traces these ops by their shapes only. Not for several threads at once."""
    aten = torch.ops.aten
    rules: dict[Any, Callable[..., Any]] = {
        aten.lstm.input: _lstm,
        aten.gru.input: _one_state,
        aten.rnn_tanh.input: _one_state,
        aten.rnn_relu.input: _one_state,
        aten.max_pool1d.default: _max_pool1d,
        aten.matmul.default: _matmul,
    }
    norm, fast = aten.linalg_vector_norm.default, get_fast_op_impls()
    saved = {op: dict(op.py_kernels) for op in (*rules, norm)}
    metas = {op: meta_table[op] for op in saved if op in meta_table}
    meta_table[norm] = norm.py_kernels[DispatchKey.Meta] = _from_the_front(norm.py_kernels[DispatchKey.Meta])
    norm._dispatch_cache.clear()
    for op, function in rules.items():
        fast[op] = within_mode(function)  # where a size is symbolic
        meta_table[op] = function  # elsewhere: torch decomposes no op that it has a rule for
        op.py_kernels.update(dict.fromkeys(_KEYS, traced_only(op, function)))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in rules:
            del fast[op]
        for op in saved:
            del meta_table[op]
            op.py_kernels.clear()
            op.py_kernels.update(saved[op])
            op._dispatch_cache.clear()
        meta_table.update(metas)
