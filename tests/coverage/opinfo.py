"""Cases of torch's own op suite: for each entry and dtype some of the first samples, in one module."""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.utils._pytree as pytree
from torch import nn

from tests.coverage.cases import Case, Made
from tests.coverage.judge import copied

SAMPLES = 3
"""Of an entry in a dtype of WHOLE; in another it has one of these, by turns. Time is torch's capture, call by call."""
WHOLE = frozenset((torch.float32, torch.int64, torch.complex64))
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
IN_PLACE = frozenset(("cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform"))
"""Entries that write random numbers to their input: here to a copy, since no two inputs are alike afterwards."""
PLACES = {"argsort": 1, "kthvalue": 2, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 2}
"""Entry that says where its values lie, of equal ones where it likes -> the position of its argument dim."""


class _Input(enum.Enum):
    """Stands for a tensor among the arguments of a sample, which is an input of the module."""

    INPUT = enum.auto()


_INPUT = _Input.INPUT


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
            args, kwargs = pytree.tree_unflatten([next(given) if x is _INPUT else x for x in leaves], spec)
            found.append(self.op(*args, **kwargs))
        return found


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _function(entry: Any) -> Callable[..., Any]:
    if entry.name in PLACES:
        return _with_values(entry.name, entry.op)
    if entry.name == "linalg.eigh":
        return _with_products(entry.op)
    if entry.name == "linalg.eig":
        return _with_sizes(entry.op)
    if _name(entry) in IN_PLACE:
        return lambda x, *args, **kwargs: entry.op(x.clone(), *args, **kwargs)
    return entry.op  # type: ignore[no-any-return]


def _name(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}".rstrip(".")


def _with_values(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
    """An op of PLACES that gives the values at the places in place of these."""

    def function(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found = op(x, *args, **kwargs)
        if _is_tensor(found) and name != "argsort":  # of all numbers, without a place
            return found
        values, places = ((), found) if _is_tensor(found) else (found[:1], found[1])
        position = PLACES[name]
        dim = kwargs.get("dim", args[position - 1] if len(args) >= position else -1)
        kept = places if places.dim() == x.dim() else places.unsqueeze(dim)
        return *values, x.gather(dim, kept)

    return function


def _with_products(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op that gives eigenvalues and vectors V, of which signs and phases are not determined: V diag(values) V^H in
    place of them, and V^H V."""

    def function(*args: Any, **kwargs: Any) -> Any:
        values, vectors = op(*args, **kwargs)
        return values, (vectors * values.unsqueeze(-2)) @ vectors.mH, vectors.mH @ vectors

    return function


def _with_sizes(op: Callable[..., Any]) -> Callable[..., Any]:
    """The same of general matrices: the magnitudes of their vectors, which need not be at right angles."""

    def function(*args: Any, **kwargs: Any) -> Any:
        values, vectors = op(*args, **kwargs)
        return values, vectors.abs()

    return function


def cases(dtypes: Sequence[str] = DTYPES) -> Iterator[Case]:
    """Every entry in those of the dtypes that eager takes, entry by entry; needs the package expecttest."""
    for k, entry in enumerate(_entries()):
        name = _name(entry)
        if name.startswith("jiterator"):  # ops of GPUs, which say that they are of CPUs
            continue
        for word in dtypes:
            dtype = getattr(torch, word)
            if entry.supports_dtype(dtype, "cpu"):
                yield Case(f"opinfo {word}", name, functools.partial(_made, k, dtype), group=name, kind=_kind(dtype))


def _kind(dtype: torch.dtype) -> str:
    return "complex" if dtype.is_complex else "float" if dtype.is_floating_point else "int"


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
    if dtype not in WHOLE:
        turn = k + DTYPES.index(str(dtype).removeprefix("torch."))
        samples = samples and [samples[turn % len(samples)]]
    tensors = tuple(copied(x.detach()) for leaves, _ in samples for x in leaves if _is_tensor(x))
    without = [([_INPUT if _is_tensor(x) else x for x in leaves], spec) for leaves, spec in samples]
    module = Samples(_function(entry), without)
    by_value = entry.name not in UNWRITTEN and (entry.name not in RANDOM or _is_determined(module, tensors))
    return Made(module, tensors, by_value=by_value)


def _is_determined(module: nn.Module, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether runs agree that have not the seed which an entry may set; several, of which two may draw alike."""
    runs: list[list[Any]] = []
    with mock.patch.object(torch, "manual_seed"):
        for _ in range(8):
            runs.append(pytree.tree_leaves(module(*(t.clone() for t in tensors))))
            torch.rand(1)  # an entry may put back the state that it has found
    first, *others = runs
    pairs = ((a, b) for other in others for a, b in zip(first, other, strict=True))
    return all(torch.equal(a, b) for a, b in pairs if _is_tensor(a))
