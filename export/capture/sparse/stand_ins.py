"""Sparse: what stands for a sparse tensor while a module is traced, and the forms in which its elements are had.

torch.export knows sparse tensors in part: what it takes apart it takes apart by version and layout, and of a number of
nonzeros that varies it knows nothing. So a traced module sees tensors of this class, whose parts are dense tensors of
the program; no op of the program takes or gives a sparse one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hardtack.exporter.errors import CaptureError
from hardtack.exporter.origin import calling_line

COMPRESSED = {torch.sparse_csr: 0, torch.sparse_csc: 1}
"""Layout -> the dimension that is compressed."""
PARTS = {
    torch.sparse_coo: ("indices", "values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
}


def refusal(what: str, fix: str) -> CaptureError:
    """At the user's line."""
    return CaptureError(what, calling_line(), fix)


def check(condition: Any, what: str) -> None:
    """That sizes fit; of those that vary it is a condition of the program."""
    if condition is False:
        raise refusal(what, "give it tensors whose sizes fit")
    torch._check(condition, lambda: what)  # type: ignore[no-untyped-call]


class Sparse(Tensor):
    """A stand-in of a sparse tensor. The mode that sees each call with one (calls.py) gives it to no op of torch.

    parts: of COO indices (sparse_dim, nnz) in int64 and values (nnz, *dense); of CSR and CSC the compressed indices
    (n + 1,), the plain ones (nnz,) and values (nnz,). is_sorted: of COO, its indices are in order and none is twice,
    which torch calls coalesced.
    """

    parts: tuple[Tensor, ...]
    is_sorted: bool
    _layout: torch.layout

    @staticmethod
    def __new__(
        cls, layout: torch.layout, parts: Sequence[Tensor], size: Sequence[Any], is_sorted: bool = False
    ) -> Sparse:
        values, strides, step = parts[-1], list[Any](), 1
        for n in reversed(size):
            strides.insert(0, step)
            step = step * n
        made: Sparse = torch.Tensor._make_wrapper_subclass(
            cls, tuple(size), strides=tuple(strides), dtype=values.dtype, device=values.device
        )
        made.parts, made._layout = tuple(parts), layout
        made.is_sorted = is_sorted or layout is not torch.sparse_coo
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise refusal(f"{func} takes a sparse tensor", "take x.to_dense()")

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        return self._layout

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        return self._layout is torch.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        return self._layout is torch.sparse_csr

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Sparse({self._layout}, {tuple(self.shape)}, {self.dtype})"


def is_sparse(x: Any) -> bool:
    """torch's own, and stand-ins."""
    return isinstance(x, Tensor) and x.layout is not torch.strided


def values_of(a: Sparse) -> Tensor:
    return a.parts[-1]


def with_values(a: Sparse, values: Tensor) -> Sparse:
    """Other numbers at the same places."""
    return Sparse(a.layout, (*a.parts[:-1], values), a.shape, a.is_sorted)


def coordinates(a: Sparse) -> Tensor:
    """The place of each nonzero, (sparse_dim, nnz) in int64."""
    if a.layout is torch.sparse_coo:
        return a.parts[0]
    compressed, plain, values = a.parts
    position = torch.arange(values.shape[0], device=values.device)
    owner = torch.searchsorted(compressed.long(), position, right=True) - 1
    pair = (owner, plain.long()) if COMPRESSED[a.layout] == 0 else (plain.long(), owner)
    return torch.stack(pair)


def sparse_dim(a: Sparse) -> int:
    return 2 if a.layout is not torch.sparse_coo else a.parts[0].shape[0]


def as_coo(a: Sparse) -> Sparse:
    return a if a.layout is torch.sparse_coo else Sparse(torch.sparse_coo, (coordinates(a), values_of(a)), a.shape)


def linear_index(places: Tensor, size: Sequence[Any]) -> Tensor:
    """The number of each place (d, nnz) in row-major order of d sizes."""
    flat = torch.zeros_like(places[0])
    for k, n in enumerate(size):
        flat = flat * n + places[k]
    return flat


def places_of(flat: Tensor, size: Sequence[Any]) -> Tensor:
    """The places (d, nnz) of such numbers."""
    rows: list[Tensor] = []
    for n in reversed(size):
        count = torch.scalar_tensor(n, dtype=torch.int64, device=flat.device).clamp(min=1)
        rows.insert(0, flat % count)
        flat = torch.div(flat, count, rounding_mode="floor")
    return torch.stack(rows)


def added(values: Tensor, at: Tensor, count: Any) -> Tensor:
    """(count, *dense): the sum of the values (nnz, *dense) that have one place; half types are added in float32, bools
    by "or".
    """
    wide = {torch.bool: torch.int64, torch.float16: torch.float32, torch.bfloat16: torch.float32}
    dtype = wide.get(values.dtype, values.dtype)
    out = torch.zeros((count, *values.shape[1:]), dtype=dtype, device=values.device)
    return out.index_add(0, at, values.to(dtype)).to(values.dtype)


def within(places: Tensor, size: Sequence[Any]) -> Tensor:
    """The places, of which each must lie in its dimension: a run whose indices do not fails."""
    for k, n in enumerate(size):
        inside = (places[k] >= 0) & (places[k] < n)
        torch._assert_async(inside.all(), f"an index of a sparse tensor lies outside of dimension {k}")
    return places


def sorted_once(a: Sparse) -> Sparse:
    """As COO, its places in order and each once, values at one place added: a size that the run computes."""
    a = as_coo(a)
    if a.is_sorted:
        return a
    size = a.shape[: sparse_dim(a)]
    flat, which = torch.unique(linear_index(within(coordinates(a), size), size), return_inverse=True)
    values = added(values_of(a), which, flat.shape[0])
    return Sparse(torch.sparse_coo, (places_of(flat, size), values), a.shape, is_sorted=True)


def dense(a: Sparse) -> Tensor:
    """Its elements and zeros between them, (*size)."""
    count: Any = 1
    size = a.shape[: sparse_dim(a)]
    for n in size:
        count = count * n
    flat = linear_index(within(coordinates(a), size), size)
    return added(values_of(a), flat, count).reshape(a.shape)


def compressed(a: Sparse, layout: torch.layout) -> Sparse:
    """A matrix as CSR or CSC."""
    if a.layout is layout:
        return a
    a = as_coo(a)
    dim = COMPRESSED[layout]
    if a.dim() != 2 or sparse_dim(a) != 2:
        raise refusal(f"a sparse tensor of rank {a.dim()} as {layout}", "take a matrix")
    turned = a if dim == 0 else transposed(a)
    turned = sorted_once(turned)
    places, count = turned.parts[0], turned.shape[0]
    starts = torch.searchsorted(places[0].contiguous(), torch.arange(count + 1, device=places.device))
    return Sparse(layout, (starts, places[1], turned.parts[1]), a.shape)


def transposed(a: Sparse) -> Sparse:
    """A matrix with its dimensions exchanged: CSR becomes CSC, as in eager mode."""
    size = (a.shape[1], a.shape[0])
    if a.layout is torch.sparse_coo:
        return Sparse(a.layout, (a.parts[0].flip(0), a.parts[1]), size)
    other = torch.sparse_csc if a.layout is torch.sparse_csr else torch.sparse_csr
    return Sparse(other, a.parts, size)
