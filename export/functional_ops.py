"""Functional twins of users' ops: ops of the same arguments that write to none, and give what becomes of those that the
user's op writes to behind its results.

An op with a kernel that writes to its arguments, or that torch takes apart, is traced as a call of its twin and copies
of what the twin gives, which torch knows how to make functional (decompose/user_decompositions.py). A twin has nothing
of any export: it stays where torch keeps ops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload

_NAMESPACE = "hardtack_functional"
_TENSOR = re.compile(r"Tensor\([^)]*\)")
_LIBRARIES: list[torch.library.Library] = []  # what they define goes with them
_ORIGINALS: dict[OpOverload, OpOverload] = {}


def original(op: Any) -> Any:
    """The op that a twin stands for; what is none, as it is."""
    return _ORIGINALS.get(op, op) if isinstance(op, OpOverload) else op


@cache
def functional_twin(op: OpOverload) -> OpOverload:
    """The twin, which gives a list of tensors: the results, then each tensor that the op writes to as it is then."""
    library: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    name = f"{re.sub(r'[^A-Za-z0-9_]', '_', str(op))}_{len(_LIBRARIES)}"
    arguments, _, _ = _TENSOR.sub("Tensor", str(op._schema)).partition("(")[2].rpartition(" -> ")
    library.define(f"{name}({arguments} -> Tensor[]")
    compute = _computing(op)
    library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", compute, lib=library)
    _LIBRARIES.append(library)
    twin = getattr(getattr(torch.ops, _NAMESPACE), name).default
    assert isinstance(twin, OpOverload)
    _ORIGINALS[twin] = op
    return twin


def _computing(op: OpOverload) -> Callable[..., list[torch.Tensor]]:
    def compute(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        return run_functional(op, args, kwargs)

    return compute


def call_functional(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The op's call through its twin: what it writes to is written by copies. For torch to trace."""
    made = functional_twin(op)(*args, **kwargs)
    count = len(op._schema.returns)
    for old, new in zip(_written(op, args, kwargs), made[count:], strict=True):
        old.copy_(new)
    return None if not count else made[0] if count == 1 else tuple(made[:count])


def run_functional(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """What the twin gives: the op itself, on clones of what it writes to."""
    names = {a.name for a in op._schema.arguments if is_written(a)}
    by_place = (a.name for a in op._schema.arguments)
    args = [_cloned(x) if name in names else x for x, name in zip(args, by_place, strict=False)]
    kwargs = {name: _cloned(x) if name in names else x for name, x in kwargs.items()}
    given = op(*args, **kwargs)
    results = given if isinstance(given, (tuple, list)) else () if given is None else (given,)
    return [*results, *_written(op, args, kwargs)]


def _cloned(x: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, x)


def _written(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    return [t for t, written in tensors_of(op, args, kwargs) if written]


def tensors_of(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensors among the arguments of a call, in the order of the schema, and whether the op writes to them."""
    given = {**dict(zip((a.name for a in op._schema.arguments), args, strict=False)), **kwargs}
    for stated in op._schema.arguments:
        leaves = [] if given.get(stated.name) is None else pytree.tree_leaves(given[stated.name])
        yield from ((t, is_written(stated)) for t in leaves if isinstance(t, torch.Tensor))


def is_written(stated: Any) -> bool:
    """Whether an op writes to an argument of its schema."""
    return stated.alias_info is not None and bool(stated.alias_info.is_write)
