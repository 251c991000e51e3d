"""Calls that make a sparse tensor of dense ones, and what torch's own sparse tensors are as stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from hardtack.exporter.capture.sparse.stand_ins import COMPRESSED, PARTS, Sparse, as_coo, check, compressed, refusal


def stand_in(x: Tensor) -> Tensor:
    """What stands for a sparse tensor that is no input and no buffer, such as an attribute or a global; its parts
    become constants of the program."""
    names = PARTS.get(x.layout)
    if names is None or (x.layout is not torch.sparse_coo and x.dim() != 2):
        raise refusal(f"a {x.layout} tensor of rank {x.dim()} is not supported", "convert it, with to_sparse()")
    with _disable_current_modes():
        is_sorted = x.layout is not torch.sparse_coo or x.is_coalesced()
    return Sparse(x.layout, parts_of(x), x.shape, is_sorted)


def parts_of(x: Tensor) -> tuple[Tensor, ...]:
    """Of torch's own, in the order of PARTS; copies, since torch cannot trace views of sparse tensors."""
    with _disable_current_modes():  # for one that is no input or buffer of what is traced
        x = x.detach()
        first, *rest = PARTS[x.layout]
        if x.layout is torch.sparse_coo:
            found = [x._indices(), x._values()]
        else:
            found = [getattr(x, first)(), *(getattr(x, name)() for name in rest)]
        return tuple(part.clone(memory_format=torch.contiguous_format) for part in found)


def _tensor(x: Any, dtype: torch.dtype | None = None) -> Tensor:
    return x if isinstance(x, Tensor) else torch.tensor(x, dtype=dtype)


def _coo(
    indices: Any,
    values: Any,
    size: Sequence[Any] | None = None,
    *,
    dtype: torch.dtype | None = None,
    is_coalesced: bool | None = None,
    **_: Any,
) -> Sparse:
    indices, values = _tensor(indices, torch.int64).long(), _tensor(values)
    values = values if dtype is None else values.to(dtype)
    if size is None:
        raise refusal("sparse_coo_tensor without a size takes one that the values of indices say", "give it its size")
    if indices.dim() != 2 or values.dim() < 1:
        raise refusal(
            f"sparse_coo_tensor of indices of rank {indices.dim()} and values of rank {values.dim()}",
            "give it indices (dimensions, nonzeros) and values (nonzeros, ...)",
        )
    check(indices.shape[1] == values.shape[0], "indices and values are not as many")
    check(indices.shape[0] + values.dim() - 1 == len(size), "the size has another rank")
    return Sparse(torch.sparse_coo, (indices, values), tuple(size), bool(is_coalesced))


def _of_compressed(layout: torch.layout) -> Callable[..., Sparse]:
    def make(
        first: Any, second: Any, values: Any, size: Sequence[Any] | None = None, *,
        dtype: torch.dtype | None = None, **_: Any,
    ) -> Sparse:  # fmt: skip
        first, second, values = _tensor(first, torch.int64), _tensor(second, torch.int64), _tensor(values)
        values = values if dtype is None else values.to(dtype)
        if size is None:
            raise refusal("a compressed sparse tensor without a size takes what its indices say", "give it its size")
        if len(size) != 2 or first.dim() != 1 or values.dim() != 1:
            raise refusal("a batch of compressed sparse matrices", "take one matrix at a time")
        check(second.shape[0] == values.shape[0], "indices and values are not as many")
        check(first.shape[0] == size[COMPRESSED[layout]] + 1, "compressed indices do not fit the size")
        check_compressed(first, values)
        return Sparse(layout, (first, second, values), tuple(size))

    return make


def check_compressed(starts: Tensor, values: Tensor) -> None:
    """A run fails whose compressed indices do not go up from 0 to the number of nonzeros."""
    good = (starts[0] == 0) & (starts[-1] == values.shape[0]) & (starts[1:] >= starts[:-1]).all()
    torch._assert_async(good, "compressed indices of a sparse tensor go up from 0 to its number of nonzeros")


def _of_layout(*args: Any, layout: torch.layout, **kwargs: Any) -> Sparse:
    if layout not in COMPRESSED:
        raise refusal(f"a {layout} tensor is not supported", "take torch.sparse_csr")
    return _of_compressed(layout)(*args, **kwargs)


def _to_sparse(a: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The nonzeros of a dense tensor, whose number the run computes. A sparse one is converted."""
    layout = kwargs.get("layout") or torch.sparse_coo
    if isinstance(a, Sparse) and not args and kwargs.get("blocksize") is None:
        return as_coo(a) if layout is torch.sparse_coo else compressed(a, layout)
    if args not in ((), (a.dim(),)) or any(kwargs.get(k) is not None for k in ("blocksize", "dense_dim")):
        raise refusal("a sparse tensor of blocks, or with dense dimensions, is not supported", "call .to_sparse()")
    places = a.nonzero()
    values = a[tuple(places.unbind(1))] if a.dim() else a.reshape(1)
    found = Sparse(torch.sparse_coo, (places.t(), values), a.shape, is_sorted=True)
    return found if layout is torch.sparse_coo else compressed(found, layout)


MAKERS: dict[str, Callable[..., Any]] = {
    "sparse_coo_tensor": _coo,
    "sparse_csr_tensor": _of_compressed(torch.sparse_csr),
    "sparse_csc_tensor": _of_compressed(torch.sparse_csc),
    "sparse_compressed_tensor": _of_layout,
    "to_sparse": _to_sparse,
    "to_sparse_coo": _to_sparse,
    "to_sparse_csr": lambda a, **_: _to_sparse(a, layout=torch.sparse_csr),
    "to_sparse_csc": lambda a, **_: _to_sparse(a, layout=torch.sparse_csc),
}
