"""The calls that take or make a sparse tensor while a module is traced, each done with the parts (ADR 0075)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hardtack.exporter.capture.sparse.arithmetic import ARITHMETIC
from hardtack.exporter.capture.sparse.makers import MAKERS, stand_in
from hardtack.exporter.capture.sparse.products import PRODUCTS
from hardtack.exporter.capture.sparse.stand_ins import (
    Sparse,
    coordinates,
    dense,
    is_sparse,
    refusal,
    sorted_once,
    sparse_dim,
    transposed,
    values_of,
    with_values,
)

_OF_ITSELF = frozenset((
    "size", "dim", "ndimension", "numel", "nelement", "stride", "is_floating_point", "is_complex", "is_signed",
    "get_device", "element_size", "_is_view", "is_contiguous",
))  # fmt: skip
"""Calls that ask for what the stand-in has: its sizes, its type, its place."""
_PROPERTIES = frozenset(("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_cpu", "names", "itemsize"))


class SparseCalls(TorchFunctionMode):
    """While it lasts, sparse tensors are stand-ins; `met`: there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False
        self._known: dict[int, tuple[Tensor, Tensor]] = {}  # by identity, with the tensor, which so stays alive

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = str(getattr(func, "__name__", func))
        make = MAKERS.get(name)
        if make is None and not any(map(is_sparse, pytree.tree_leaves((args, kwargs)))):
            return func(*args, **kwargs)
        self.met = True
        args, kwargs = pytree.tree_map_only(Tensor, self._stand_in, (tuple(args), kwargs))
        if make is not None:
            return make(*args, **kwargs)
        if name == "__get__":
            return _property(func, args[0])
        if name in _OF_ITSELF:
            return func(*args, **kwargs)
        rule = RULES.get(name)
        if rule is None:
            raise refusal(
                f"{name} of a sparse tensor is not supported",
                "take x.to_dense(), or write it with x.indices() and x.values()",
            )
        try:
            return rule(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise refusal(
                    f"{name} of a sparse tensor is not supported with these arguments: {error}", "take x.to_dense()"
                ) from error
            raise

    def _stand_in(self, x: Tensor) -> Tensor:
        if x.layout is torch.strided or isinstance(x, Sparse):
            return x
        return self._known.setdefault(id(x), (x, stand_in(x)))[1]


def _property(func: Any, a: Sparse) -> Any:
    name = str(getattr(func.__self__, "__name__", ""))
    if name in ("T", "mT"):
        return _transpose(a)
    if name in _PROPERTIES:
        return func(a)
    raise refusal(f"{name} of a sparse tensor is not supported", "take x.to_dense()")


def _transpose(a: Sparse, first: int = 0, second: int = 1) -> Sparse:
    if a.dim() != 2 or sparse_dim(a) != 2:
        raise refusal(f"a sparse tensor of rank {a.dim()} is transposed", "take a sparse matrix")
    return a if first % 2 == second % 2 else transposed(a)


def _values(a: Sparse) -> Tensor:
    return values_of(_asked(a, "values"))


def _indices(a: Sparse) -> Tensor:
    if a.layout is not torch.sparse_coo:
        raise refusal(f"indices() of a {a.layout} tensor", "take its crow_indices() and col_indices(), or to_sparse()")
    return coordinates(_asked(a, "indices"))


def _asked(a: Sparse, what: str) -> Sparse:
    if not a.is_sorted:
        raise refusal(f"{what}() of a sparse tensor that is not coalesced", "call .coalesce() first")
    return a


def _part(at: int, *layouts: torch.layout) -> Callable[[Sparse], Tensor]:
    def part(a: Sparse) -> Tensor:
        if a.layout not in layouts:
            raise refusal(f"a {a.layout} tensor has no such indices", "convert it first, with to_sparse_csr()")
        return a.parts[at]

    return part


def _to(a: Sparse, *args: Any, **kwargs: Any) -> Sparse:
    found = [x for x in (*args, *kwargs.values()) if isinstance(x, (torch.dtype, Tensor))]
    dtype = a.dtype if not found else found[0] if isinstance(found[0], torch.dtype) else found[0].dtype
    return with_values(a, values_of(a).to(dtype))


RULES: dict[str, Callable[..., Any]] = {
    "indices": _indices,
    "_indices": coordinates,
    "values": _values,
    "_values": values_of,
    "_nnz": lambda a: values_of(a).shape[0],
    "crow_indices": _part(0, torch.sparse_csr),
    "col_indices": _part(1, torch.sparse_csr),
    "ccol_indices": _part(0, torch.sparse_csc),
    "row_indices": _part(1, torch.sparse_csc),
    "is_coalesced": lambda a: a.is_sorted,
    "sparse_dim": sparse_dim,
    "dense_dim": lambda a: a.dim() - sparse_dim(a),
    "coalesce": sorted_once,
    "to_dense": lambda a, dtype=None, **_: dense(a).to(dtype or a.dtype),
    "t": _transpose,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "detach": lambda a: a,
    "clone": lambda a, **_: a,
    "contiguous": lambda a: a,
    "cpu": lambda a: a,
    "to": _to,
    "type_as": _to,
    **{
        name: lambda a, dtype=dtype: _to(a, dtype)
        for name, dtype in {
            "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
            "long": torch.int64, "int": torch.int32, "bool": torch.bool,
        }.items()
    },
    **PRODUCTS,
    **ARITHMETIC,
}  # fmt: skip
"""By the name of torch's function or method."""
