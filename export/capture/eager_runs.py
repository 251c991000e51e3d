"""A module run in eager mode, with what it does to its buffers, and left as it was.

Its parameters, which may be large, are not copied, but for those that the captured program is known to write: a run
that would write to another one ends before it does.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn
from torch.overrides import TorchFunctionMode

from hardtack.exporter.capture.guarded_kernels import GuardedKernels


@dataclass(frozen=True)
class Results:
    """What a call gives, and the module's tensors that it and those before it have changed, by each of their names. Of
    a captured program, which writes to none, also what becomes of the inputs that it changes, by their places."""

    outputs: list[Any]
    states: dict[str, torch.Tensor]
    inputs: dict[int, torch.Tensor] = field(default_factory=dict)


Call = tuple[Sequence[Any], Mapping[str, Any]]


def run_module(module: nn.Module, calls: Sequence[Call], written: Collection[str]) -> list[Results]:
    """What a copy of the module gives for these calls, one behind the other, as far as it takes them: a cache may be
    full. Raises what it raises at the first, and RuntimeError where that writes to a parameter not among `written`.
    """
    named = list(module.named_parameters(remove_duplicate=False))
    copied = {id(p) for name, p in named if name in written}
    shared = {id(p): p for _, p in named if id(p) not in copied}
    own, found = copy.deepcopy(module, dict(shared)), list[Results]()
    first = {name: (t, t._version) for name, t in _tensors(own)}
    with torch.no_grad(), GuardedKernels(), _ReadOnly(shared.values()):
        for args, kwargs in calls:
            try:
                outputs = pytree.tree_leaves(own(*args, **kwargs))
            except Exception:  # whatever the model raises
                if not found:
                    raise
                break
            changed = {name: t for name, t in _tensors(own) if name not in first or _is_changed(t, *first[name])}
            found.append(Results(_kept(outputs), {name: t.clone() for name, t in changed.items()}))
    return found


def _kept(outputs: Sequence[Any]) -> list[Any]:
    """As they are now: a result may be a state, which the next call changes."""
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in outputs]


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _is_changed(now: torch.Tensor, before: torch.Tensor, version: int) -> bool:
    return now is not before or now._version != version


_ASSIGNMENTS = ("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
_IN_PLACE = frozenset(f"__{name}__" for name in (*_ASSIGNMENTS, "ilshift", "irshift"))
_HARMLESS = frozenset(("requires_grad_", "retain_grad_", "rename_"))


class _ReadOnly(TorchFunctionMode):
    """While it lasts, what writes to these tensors or to views of them raises RuntimeError before it does."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._memory = {_memory(t) for t in tensors}

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(_memory(t) in self._memory for t in _written(func, args, kwargs or {})):
            raise RuntimeError("forward writes to a parameter")
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that a call writes to, by its name: those of its first argument, and out=. What the functions of
    torch.nn.functional call is not seen, so that their arguments tell, of which torch gives all but tensors by keyword.
    """
    name = getattr(func, "__name__", "").partition(".")[0]
    targets: list[Any] = [kwargs.get("out")]
    if func in (F.embedding, F.embedding_bag):
        targets += args[1:2] if kwargs.get("max_norm") is not None else []
    elif kwargs.get("inplace") or name in _IN_PLACE or _ends_as_in_place(name):
        targets += args[:1]
    return (t for t in pytree.tree_leaves(targets) if isinstance(t, torch.Tensor))


def _ends_as_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in _HARMLESS


def _memory(t: torch.Tensor) -> int:
    plain = t.layout is torch.strided and type(t) in (torch.Tensor, nn.Parameter, nn.Buffer)
    return t.untyped_storage()._cdata if plain else id(t)
