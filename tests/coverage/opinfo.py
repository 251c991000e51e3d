"""Cases of torch's own op suite: for each entry and dtype the first samples, in one module."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from tests.coverage.cases import Case, Made

SAMPLES = 3
"""Of an entry in a dtype."""
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64",
    "complex128",
)  # fmt: skip
RANDOM = frozenset((
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "pca_lowrank", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "svd_lowrank", "uniform",
))  # fmt: skip
"""Entries with random numbers, of which a sample without any says what it is."""
UNWRITTEN = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"))


class Samples(nn.Module):
    """Samples of an op, one call each, with their tensors as inputs and everything else baked in."""

    def __init__(self, op: Any, samples: Sequence[tuple[list[Any], pytree.TreeSpec]]) -> None:
        super().__init__()
        self.op, self.samples = op, samples
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        found = []
        for leaves, spec in self.samples:
            args, kwargs = pytree.tree_unflatten([next(given) if _is_tensor(x) else x for x in leaves], spec)
            found.append(self.op(*args, **kwargs))
        return found


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def cases(dtypes: Sequence[str] = DTYPES) -> Iterator[Case]:
    """Every entry in those of the dtypes that eager takes, entry by entry; needs the package expecttest."""
    for k, entry in enumerate(_entries()):
        name = f"{entry.name}.{entry.variant_test_name}".rstrip(".")
        for word in dtypes:
            dtype = getattr(torch, word)
            if entry.supports_dtype(dtype, "cpu"):
                yield Case(f"opinfo {word}", name, functools.partial(_made, k, dtype), group=name)


@functools.cache
def _entries() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def _made(k: int, dtype: torch.dtype) -> Made:
    entry = _entries()[k]
    torch.manual_seed(k)
    samples = [
        pytree.tree_flatten(((s.input, *s.args), dict(s.kwargs)))
        for s in itertools.islice(entry.sample_inputs("cpu", dtype), SAMPLES)
    ]
    tensors = tuple(_alone(x.detach()) for leaves, _ in samples for x in leaves if _is_tensor(x))
    module = Samples(entry.op, samples)
    by_value = entry.name not in UNWRITTEN and (entry.name not in RANDOM or _is_determined(module, tensors))
    return Made(module, tensors, by_value=by_value)


def _alone(x: torch.Tensor) -> torch.Tensor:
    """A copy, but of a part of a tensor, beside which the op may look."""
    part = x.layout is torch.strided and x.untyped_storage().nbytes() > x.numel() * x.element_size()
    return x if part else x.clone()


def _is_determined(module: nn.Module, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether two runs agree."""
    first, second = (pytree.tree_leaves(module(*(t.clone() for t in tensors))) for _ in range(2))
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True) if _is_tensor(a))
