"""How submodules of a model are called while it runs on examples: what a region of it is exported with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim

from hardtack.exporter import InputSpecError
from hardtack.exporter.capture.dynamic_shapes import argument_names
from hardtack.exporter.precision.choice import matching

Example = tuple[tuple[Any, ...], Mapping[str, Any]]


@dataclass(frozen=True)
class Call:
    """One call of a submodule: copies of its arguments, and what it gave."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


@dataclass(frozen=True)
class Calls:
    """All calls of a submodule by the examples; the first `of_first` are those of the first one.

    dynamic_shapes: for torch.export, a size or whole number that differs between calls is dynamic.
    """

    name: str
    calls: tuple[Call, ...]
    of_first: int
    dynamic_shapes: Any


def calls_of_region(model: nn.Module, patterns: Sequence[str], examples: Sequence[Example]) -> list[Calls]:
    """Of the outermost submodules that patterns name and the examples call, in the model's order. The model's states
    change.

    Raises InputSpecError for a pattern that names no module that is called, and for a module that is called in ways
    that one entry point cannot serve.
    """
    named = {name: m for name, m in model.named_modules() if name and matching(name, tuple(patterns))}
    called = Counter[str]()
    with _hooks(named, lambda name, *_: called.update([name])):
        _run(model, examples[:1])
    for pattern in patterns:
        if not any(matching(name, (pattern,)) for name in called):
            raise InputSpecError(
                f"the region has {pattern!r}, but the example calls no module of that name",
                fix="name a module as named_modules() does; * stands for any part of a path",
            )
    chosen = {name: named[name] for name in named if called[name] and not _has_outer(name, called)}
    found: dict[str, list[Call]] = {name: [] for name in chosen}

    def note(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        found[name].append(Call(args, kwargs, result))

    with _hooks(chosen, note):
        _run(model, examples)
    return [
        Calls(name, tuple(calls), called[name], _shapes(name, chosen[name].forward, calls))
        for name, calls in found.items()
    ]


def _has_outer(name: str, called: Counter[str]) -> bool:
    parts = name.split(".")
    return any(called[".".join(parts[:k])] for k in range(1, len(parts)))


def _run(model: nn.Module, examples: Sequence[Example]) -> None:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for args, kwargs in examples:
            model(*_copied(args), **_copied(dict(kwargs)))


def _copied(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


@contextmanager
def _hooks(modules: Mapping[str, nn.Module], note: Callable[..., None]) -> Iterator[None]:
    """Inside, note(name, args, kwargs, result) is called for each call of these modules, with copies."""
    begun: list[Any] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        begun.append(_copied((args, kwargs)))

    def behind(name: str) -> Callable[..., None]:
        def function(module: nn.Module, _: Any, __: Any, result: Any) -> None:
            note(name, *begun.pop(), _copied(result))

        return function

    handles = [m.register_forward_pre_hook(before, with_kwargs=True) for m in modules.values()]
    handles += [m.register_forward_hook(behind(name), with_kwargs=True) for name, m in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _shapes(name: str, forward: Callable[..., Any], calls: Sequence[Call]) -> dict[str, Any]:
    """What torch.export takes as dynamic_shapes: None for what is the same in all calls."""
    first = calls[0]
    if any(len(c.args) != len(first.args) or list(c.kwargs) != list(first.kwargs) for c in calls):
        raise InputSpecError(f"{name} is called with different arguments: {_alternatives(calls)}", fix=LEAVE_OUT)
    names, _ = argument_names(forward, first.args, first.kwargs)
    columns = zip(*([*c.args, *c.kwargs.values()] for c in calls), strict=True)
    return {argument: _spec(f"{argument} of {name}", values) for argument, values in zip(names, columns, strict=True)}


def _alternatives(calls: Sequence[Call]) -> str:
    texts = (f"{len(c.args)} and {', '.join(c.kwargs) or 'no keywords'}" for c in calls)
    return "; ".join(dict.fromkeys(texts))


def _spec(place: str, values: Sequence[Any]) -> Any:
    """Of one argument, or a part of it, in all calls."""
    first = values[0]
    if isinstance(first, (tuple, list, dict)):
        if any(type(v) is not type(first) or len(v) != len(first) for v in values):
            raise _unlike(place, values)
        keys = list(first) if isinstance(first, dict) else range(len(first))
        parts = {k: _spec(f"{place}[{k!r}]", [v[k] for v in values]) for k in keys}
        return parts if isinstance(first, dict) else list(parts.values())
    leaves = [pytree.tree_leaves(v) for v in values]
    if any(len(of_call) != len(leaves[0]) for of_call in leaves):
        raise _unlike(place, values)
    specs = [_leaf_spec(place, column) for column in zip(*leaves, strict=True)]
    if pytree.tree_structure(first).is_leaf():
        return specs[0]
    return specs if any(s is not None for s in specs) else None  # of a registered class: flat


def _leaf_spec(place: str, values: Sequence[Any]) -> Any:
    first = values[0]
    if all(isinstance(v, torch.Tensor) for v in values):
        if len({(v.dim(), v.dtype) for v in values}) == 1:
            sizes = zip(*(v.shape for v in values), strict=True)
            return {d: Dim.DYNAMIC for d, of_calls in enumerate(sizes) if len(set(of_calls)) > 1} or None
    elif all(type(v) is type(first) and v == first for v in values):
        return None
    elif all(type(v) is int for v in values):
        return Dim.DYNAMIC
    raise _unlike(place, values)


def _unlike(place: str, values: Sequence[Any]) -> InputSpecError:
    texts = list(dict.fromkeys(_text(v) for v in values))
    return InputSpecError(f"{place} is {' in one call and '.join(texts[:2])} in another", fix=LEAVE_OUT)


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list, dict)) else repr(value)


LEAVE_OUT = "leave it out of the region, or name what lies inside or around it"
